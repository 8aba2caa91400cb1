//! Lists directories. The offsets are XFS' own: they stay valid while other entries are added and
//! removed.
//!
//! 1. An error behind the first entries leaves them in the listing: the kernel holds their inodes
//!    only if it sees them. The next call, which begins behind them, returns it.

use std::ops::ControlFlow;
use std::time::Duration;

use uxfs::Fs;
use uxfs::format::{Ino, dir};
use uxfs_transport::{Entry, Listing, Name, Node};

use super::entries;
use crate::attr::{bare_attr, entry_kind};

/// Entries read before their inodes are read.
const BATCH: usize = 64;

/// Fills a listing with entries from `from` on.
pub(super) fn read(fs: &Fs, ino: Ino, from: u64, listing: &mut Listing<'_>) -> uxfs::Result<()> {
    let read = fs.read_dir(ino, from, &mut |entry| {
        let (kind, _) = entry_kind(entry.ftype);
        let name = Name { ino: entry.ino.0, next: entry.next, kind, name: entry.name };
        match listing.add(&name) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    unless_listed(read, listing)
}

/// An error, if no entry came before it.
fn unless_listed(read: uxfs::Result<()>, listing: &Listing<'_>) -> uxfs::Result<()> {
    if listing.is_empty() { read } else { Ok(()) }
}

/// An entry whose inode will be read.
struct Found {
    name: Vec<u8>,
    ino: Ino,
    kind: dir::FileType,
    next: u64,
}

/// Fills a listing with entries and their attributes. The kernel then holds these inodes.
pub(super) fn read_plus(
    fs: &Fs,
    ino: Ino,
    mut from: u64,
    listing: &mut Listing<'_>,
) -> uxfs::Result<()> {
    let mut batch: Vec<Found> = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        // The directory is locked meanwhile, so its inodes are read afterwards.
        let read = fs.read_dir(ino, from, &mut |entry| {
            let (name, kind) = (entry.name.to_vec(), entry.ftype);
            batch.push(Found { name, ino: entry.ino, kind, next: entry.next });
            match batch.len() < BATCH {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        for found in &batch {
            if !add(fs, found, listing) {
                return Ok(());
            }
        }
        if read.is_err() {
            return unless_listed(read, listing);
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => from = last.next,
            _ => return Ok(()),
        }
    }
}

/// Adds an entry. Returns whether it fit.
fn add(fs: &Fs, found: &Found, listing: &mut Listing<'_>) -> bool {
    let (kind, mode) = entry_kind(found.kind);
    let name = Name { ino: found.ino.0, next: found.next, kind, name: &found.name };
    let bare =
        |node| Entry { node, generation: 0, ttl: Duration::ZERO, attr: bare_attr(found.ino, mode) };
    if matches!(found.name.as_slice(), b"." | b"..") {
        // The kernel uses only number and kind of these, and holds neither.
        return listing.add_plus(&bare(Node(0)), &name);
    }
    let fits = match entries::known(fs, found.ino) {
        Ok(entry) => listing.add_plus(&entry, &name),
        // An inode that cannot be read does not end the listing. A lookup returns its error.
        Err(_) => {
            fs.hold(found.ino);
            listing.add_plus(&bare(Node(found.ino.0)), &name)
        }
    };
    if !fits {
        // Recovery frees what this cannot.
        let _ = fs.release(found.ino, 1);
    }
    fits
}
