//! Lists directories. The offsets are XFS' own: they stay valid while other entries are added and
//! removed.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use uxfs::Fs;
use uxfs::format::{Ino, dir};

use super::entries;
use crate::attr::{bare_attr, entry_kind};
use crate::settings::TTL;

/// Entries read before their inodes are read.
const BATCH: usize = 64;

/// Fills a reply with entries from `from` on.
pub(super) fn read(fs: &Fs, ino: Ino, from: u64, reply: &mut ReplyDirectory) -> uxfs::Result<()> {
    fs.read_dir(ino, from, &mut |entry| {
        let name = OsStr::from_bytes(entry.name);
        match reply.add(INodeNo(entry.ino.0), entry.next, entry_kind(entry.ftype), name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
}

/// An entry whose inode will be read.
struct Found {
    name: Vec<u8>,
    ino: Ino,
    kind: dir::FileType,
    next: u64,
}

/// Fills a reply with entries and their attributes. The kernel then holds these inodes.
pub(super) fn read_plus(
    fs: &Fs,
    ino: Ino,
    mut from: u64,
    reply: &mut ReplyDirectoryPlus,
) -> uxfs::Result<()> {
    let mut batch: Vec<Found> = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        // The directory is locked meanwhile, so its inodes are read afterwards.
        fs.read_dir(ino, from, &mut |entry| {
            let (name, kind) = (entry.name.to_vec(), entry.ftype);
            batch.push(Found { name, ino: entry.ino, kind, next: entry.next });
            match batch.len() < BATCH {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        for found in &batch {
            if add(fs, found, reply)? {
                return Ok(());
            }
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => from = last.next,
            _ => return Ok(()),
        }
    }
}

/// Adds an entry. Returns `true` if it did not fit.
fn add(fs: &Fs, found: &Found, reply: &mut ReplyDirectoryPlus) -> uxfs::Result<bool> {
    let name = OsStr::from_bytes(&found.name);
    let bare = bare_attr(found.ino, entry_kind(found.kind));
    let number = INodeNo(found.ino.0);
    if matches!(found.name.as_slice(), b"." | b"..") {
        // The kernel uses only number and type of these.
        return Ok(reply.add(number, found.next, name, &TTL, &bare, Generation(0)));
    }
    let full = match entries::known(fs, found.ino) {
        Ok((attr, generation)) => {
            reply.add(number, found.next, name, &TTL, &attr, Generation(generation.into()))
        }
        // An inode that cannot be read does not end the listing. A lookup returns its error.
        Err(_) => {
            fs.hold(found.ino);
            reply.add(number, found.next, name, &Duration::ZERO, &bare, Generation(0))
        }
    };
    if full {
        fs.release(found.ino, 1)?;
    }
    Ok(full)
}
