//! Reading a whole directory.

use core::ops::ControlFlow;

use uxfs_format::dir::data::Item;
use uxfs_format::dir::{self, FileType, block::Tail};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;
use uxfs_format::{Ino, geometry};

use super::form::{Form, form};
use super::short;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::{bmap, dabuf};

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its inode.
    pub ino: Ino,
    /// File type that the entry stores. On version 4 volumes whose entries do not store it, it is
    /// unknown here and [`crate::Fs::read_dir`] takes it from the inode.
    pub ftype: FileType,
    /// The cookie with which [`read_dir`] continues after this entry.
    pub next: u64,
}

impl DirEntry<'_> {
    /// Is it `.` or `..`?
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// Calls `each` for the entries, starting with `.` and `..`, from cookie `from` on (0 for the
/// start), until it returns `Break`. Adding and removing entries does not move other entries.
///
/// # Errors
/// [`crate::Error::NotDir`], or a damaged structure on the way.
pub fn read_dir(
    fs: &Mount,
    inode: &InodeState,
    from: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let form = form(fs, inode)?;
    if let Form::Short = form {
        return read_short(fs, inode, from, each);
    }
    let size = u64::from(fs.geo.dir_block_size());
    let from = from.min(geometry::DIR_LEAF_OFFSET >> 3) << 3;
    // The size may include missing blocks; holes are skipped.
    let end = bmap::last_before(fs, inode, Fork::Data, fs.geo.dir_leaf_start())?;
    let blocks = (inode.core.size / size).min(end.0.div_ceil(fs.geo.dir_block_fsbs()));
    let kinds = [BufKind::DirBlock, BufKind::DirData];
    let mut db = from / size;
    while db < blocks {
        let at = super::data::file_block(&fs.geo, db);
        let Some(buf) = dabuf::read_opt(fs, inode, Fork::Data, at, &kinds)? else {
            let next = bmap::at_or_after(fs, inode, Fork::Data, at)?;
            db = next.map_or(blocks, |extent| extent.offset.0 >> fs.geo.dir_blklog).max(db + 1);
            continue;
        };
        // Use a copy: the callback may wait for a thread that waits for this block.
        let (kind, bytes) = {
            let content = buf.read();
            (content.kind, content.bytes.clone())
        };
        let limit = match kind {
            BufKind::DirBlock => Tail::of(&bytes).leaf_start(bytes.len()),
            _ => bytes.len(),
        };
        for item in fs.geo.dir.items(&bytes, limit) {
            let Item::Entry(entry) = item else { continue };
            let place = db * size + entry.at as u64;
            if place < from {
                continue;
            }
            let space = fs.geo.dir.entry_len(entry.name.len());
            // Behind the last entry of a directory of the maximum size the cookie has 33 bits.
            let next = (place + space as u64) >> 3;
            let ftype = FileType::from_raw(entry.ftype).unwrap_or_default();
            let shown = DirEntry { name: entry.name, ino: entry.ino, ftype, next };
            if each(shown).is_break() {
                return Ok(());
            }
        }
        db += 1;
    }
    Ok(())
}

fn read_short(
    fs: &Mount,
    inode: &InodeState,
    from: u64,
    each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let parsed = short::parse(fs, inode)?;
    let shape = fs.geo.dir;
    let dots = [
        (shape.start(), &b"."[..], inode.ino, FileType::Directory),
        (shape.dotdot(), b"..", parsed.parent(), FileType::Directory),
    ];
    let rest = parsed.entries().map(|entry| {
        let ftype = FileType::from_raw(entry.ftype).unwrap_or_default();
        (usize::from(entry.offset), entry.name, entry.ino, ftype)
    });
    for (at, name, ino, ftype) in dots.into_iter().chain(rest) {
        if u64::from(dir::address(at as u64)) < from {
            continue;
        }
        let next = u64::from(dir::address((at + shape.entry_len(name.len())) as u64));
        if each(DirEntry { name, ino, ftype, next }).is_break() {
            break;
        }
    }
    Ok(())
}

/// Has the directory no entries but `.` and `..`?
///
/// # Errors
/// [`crate::Error::NotDir`], or a damaged structure on the way.
pub fn is_empty(fs: &Mount, inode: &InodeState) -> Result<bool> {
    let mut empty = true;
    read_dir(fs, inode, 0, &mut |entry| {
        if entry.is_dot() {
            return ControlFlow::Continue(());
        }
        empty = false;
        ControlFlow::Break(())
    })?;
    Ok(empty)
}
