//! The short form: the inode's data fork holds the whole directory.

use std::borrow::Cow;

use uxfs_format::dir::data::DataEntry;
use uxfs_format::dir::sf::{self, SfEntry, Shortform};
use uxfs_format::dir::{DOT, DOTDOT, FileType, block, entry_len};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{Check, FileBlock, Ino};

use super::form::{New, Scratch};
use crate::dabuf;
use crate::error::Result;
use crate::inode::InodeState;
use crate::mount::Mount;
use crate::tx::{InodeSlot, Tx};

/// Parses and checks the short form of an inode.
pub(super) fn parse<'a>(fs: &Mount, inode: &'a InodeState) -> Result<Shortform<'a>> {
    let fork = inode.fork(Fork::Data);
    let bytes = usize::try_from(inode.core.size).ok().and_then(|size| fork.get(..size));
    let Some(bytes) = bytes else {
        let problem = format!("{} bytes in a fork of {}", inode.core.size, fork.len());
        return Err(inode.corrupt(Check::Size, problem));
    };
    let dir = Shortform::parse_in(bytes, fs.geo.dir)
        .map_err(|problem| inode.corrupt(problem.check, problem.detail))?;
    let end = dir.end();
    if end > block::data_limit(fs.geo.dir_block_size() as usize, dir.count() + 2) {
        return Err(inode.corrupt(Check::Size, format!("short form reaches to offset {end}")));
    }
    let mut inos = dir.entries().map(|entry| entry.ino).chain([dir.parent()]);
    if let Some(ino) = inos.find(|ino| !fs.geo.ino_valid(*ino)) {
        return Err(inode.corrupt(Check::Pointer, format!("short form leads to inode {ino}")));
    }
    Ok(dir)
}

pub(super) fn lookup(
    fs: &Mount,
    inode: &InodeState,
    name: &[u8],
) -> Result<Option<(Ino, FileType)>> {
    let dir = parse(fs, inode)?;
    Ok(match name {
        b"." => Some((inode.ino, FileType::Directory)),
        b".." => Some((dir.parent(), FileType::Directory)),
        _ => dir
            .find(fs.geo.naming, name)
            .map(|e| (e.ino, FileType::from_raw(e.ftype).unwrap_or_default())),
    })
}

/// The name as its entry spells it; `name` itself if there is none.
pub(super) fn stored_name<'n>(
    fs: &Mount,
    inode: &InodeState,
    name: &'n [u8],
) -> Result<Cow<'n, [u8]>> {
    let found = parse(fs, inode)?.find(fs.geo.naming, name);
    Ok(found.map_or(Cow::Borrowed(name), |entry| Cow::Owned(entry.name.to_vec())))
}

/// Sets `bytes` as the short form of an inode.
pub(super) fn write(tx: &mut Tx<'_>, slot: InodeSlot, bytes: &[u8]) {
    let core = tx.core_mut(slot);
    core.format = ForkFormat::Local;
    core.size = bytes.len() as u64;
    let fork = tx.fork_mut(slot, Fork::Data);
    fork[..bytes.len()].copy_from_slice(bytes);
    fork[bytes.len()..].fill(0);
}

fn fork_len(tx: &Tx<'_>, slot: InodeSlot) -> usize {
    tx.inode(slot).fork(Fork::Data).len()
}

/// Inserts a name. Returns `false` if it does not fit.
pub(super) fn insert(tx: &mut Tx<'_>, slot: InodeSlot, new: New<'_>) -> Result<bool> {
    let fs = tx.fs();
    let dir = parse(fs, tx.inode(slot))?;
    let block = fs.geo.dir_block_size() as usize;
    let Some((offset, index)) = dir.room(entry_len(new.name.len()), block) else {
        return Ok(false);
    };
    let wide = dir.wide() || sf::is_wide(new.ino);
    let old = tx.inode(slot).core.size as usize;
    let widened = if wide == dir.wide() { 0 } else { 4 * (dir.count() + 1) };
    let len = old + widened + sf::sf_entry_len(new.name.len(), wide);
    if len > fork_len(tx, slot) || dir.count() >= usize::from(u8::MAX) {
        return Ok(false);
    }
    let ftype = new.ftype as u8;
    let entry = SfEntry { at: 0, offset, name: new.name, ftype, ino: new.ino };
    if index == dir.count() && widened == 0 {
        append(tx, slot, old, &entry, wide);
        return Ok(true);
    }
    let before = dir.entries().take(index);
    let entries = before.chain([entry]).chain(dir.entries().skip(index));
    let bytes = sf::build(dir.parent(), entries);
    write(tx, slot, &bytes);
    Ok(true)
}

/// Appends an entry to a short form of `old` bytes whose inode numbers have the required width.
fn append(tx: &mut Tx<'_>, slot: InodeSlot, old: usize, entry: &SfEntry<'_>, wide: bool) {
    let mut bytes = sf::Bytes::new();
    sf::push_entry(&mut bytes, entry, wide);
    let end = old + bytes.len();
    tx.core_mut(slot).size = end as u64;
    let fork = tx.fork_mut(slot, Fork::Data);
    fork[0] += 1;
    fork[1] += u8::from(sf::is_wide(entry.ino));
    fork[old..end].copy_from_slice(&bytes);
}

/// Removes a name.
pub(super) fn remove(tx: &mut Tx<'_>, slot: InodeSlot, name: &[u8]) -> Result<Option<Ino>> {
    let fs = tx.fs();
    let dir = parse(fs, tx.inode(slot))?;
    let Some(found) = dir.find(fs.geo.naming, name) else { return Ok(None) };
    let (at, ino) = (found.at, found.ino);
    if dir.wide() && dir.wide_count() == usize::from(sf::is_wide(ino)) {
        // This was the last inode number above 32 bits, so all numbers become narrow.
        let bytes = sf::build(dir.parent(), dir.entries().filter(|entry| entry.at != at));
        write(tx, slot, &bytes);
        return Ok(Some(ino));
    }
    let len = sf::sf_entry_len(name.len(), dir.wide());
    let old = tx.inode(slot).core.size as usize;
    tx.core_mut(slot).size = (old - len) as u64;
    let fork = tx.fork_mut(slot, Fork::Data);
    fork[0] -= 1;
    fork[1] -= u8::from(sf::is_wide(ino));
    fork.copy_within(at + len..old, at);
    fork[old - len..old].fill(0);
    Ok(Some(ino))
}

/// Changes the inode of a name. Returns `false` if there is no such name, or if the numbers become
/// wide and no longer fit.
pub(super) fn replace(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    name: &[u8],
    ino: Ino,
    ftype: FileType,
) -> Result<bool> {
    let fs = tx.fs();
    let dir = parse(fs, tx.inode(slot))?;
    let up = name == b"..";
    let place = dir.find(fs.geo.naming, name).map(|entry| entry.at);
    if !up && place.is_none() {
        return Err(crate::Error::NotFound);
    }
    let entries = dir.entries().map(|entry| match Some(entry.at) == place {
        true => SfEntry { ino, ftype: ftype as u8, ..entry },
        false => entry,
    });
    let bytes = sf::build(if up { ino } else { dir.parent() }, entries);
    if bytes.len() > fork_len(tx, slot) {
        return Ok(false);
    }
    write(tx, slot, &bytes);
    Ok(true)
}

/// Moves the entries to a block, each at the offset that it stores.
pub(super) fn to_block(tx: &mut Tx<'_>, slot: InodeSlot) -> Result<()> {
    let fs = tx.fs();
    let inode = tx.inode(slot);
    let ino = inode.ino;
    parse(fs, inode)?;
    let bytes = Scratch::from_slice(&inode.fork(Fork::Data)[..inode.core.size as usize]);
    let core = tx.core_mut(slot);
    core.format = ForkFormat::Extents;
    core.nextents = 0;
    core.size = fs.geo.dir_block_size().into();
    tx.fork_mut(slot, Fork::Data).fill(0);
    let buf = dabuf::grow(tx, slot, Fork::Data, FileBlock(0), BufKind::DirBlock)?;
    let dir = Shortform::parse(&bytes)
        .map_err(|problem| tx.inode(slot).corrupt(problem.check, problem.detail))?;
    let dots = [(DOT, ino, &b"."[..]), (DOTDOT, dir.parent(), b"..")];
    let dots =
        dots.map(|(at, ino, name)| DataEntry { at, ino, name, ftype: FileType::Directory as u8 });
    let rest = dir.entries().map(|e| DataEntry {
        at: e.offset.into(),
        ino: e.ino,
        name: e.name,
        ftype: e.ftype,
    });
    block::fill(&mut tx.edit_all(&buf), fs.geo.naming, dots.into_iter().chain(rest));
    Ok(())
}
