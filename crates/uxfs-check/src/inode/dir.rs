//! Checks directories in all forms: the entries, and the inodes that they name.
//!
//! 1. Every entry is recorded in the [`Table`] once. Its name is hashed, stored as numbers, and
//!    compared with the index ([`super::index`]).
//! 2. Two hashes, one of them keyed, identify a name that a directory holds twice. Where names
//!    compare without case, both are of the lowered name.
//!
//! [`Table`]: crate::table::Table

use twox_hash::XxHash3_64;
use uxfs_format::dir::{self, DOT, DOTDOT, FileType, block, data, name_problem, sf};
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::BufKind;
use uxfs_format::{FileBlock, Ino};

use super::da::Reader;
use super::fork::Map;
use super::index;
use super::pass::{Inode, Local, Pass};
use crate::bytes::{put32, put64};
use crate::code;
use crate::ctx::Reservation;

/// An entry, recorded for the comparison with the index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexedEntry {
    /// Hash of the name.
    pub(crate) hash: u32,
    /// Address of the entry.
    pub(crate) address: u32,
    /// Keyed hash of the form that all spellings of the name share.
    name: u64,
}

/// Content of a directory's data blocks.
#[derive(Default)]
pub(crate) struct Scan {
    /// The entries.
    pub(crate) entries: Vec<IndexedEntry>,
    /// Longest free area of each data block that exists: (number, length).
    pub(crate) bests: Vec<(u64, u16)>,
    /// Inode of "..".
    pub(crate) dotdot: Option<Ino>,
    /// Were all data blocks readable?
    pub(crate) complete: bool,
}

/// State of the check of one directory.
struct Dir<'d, 'p, 'a> {
    pass: &'d Pass<'p, 'a>,
    inode: &'d Inode<'d>,
    /// Key of the name hashes.
    seed: u64,
}

/// The number that an entry adds to its inode's sum and the matching parent pointer subtracts.
pub(crate) fn link_hash(seed: u64, parent: Ino, generation: u32, name: &[u8]) -> u64 {
    let mut bytes = Vec::with_capacity(12 + name.len());
    bytes.resize(12, 0);
    put64(&mut bytes, 0, parent.0);
    put32(&mut bytes, 8, generation);
    bytes.extend_from_slice(name);
    XxHash3_64::oneshot_with_seed(seed, &bytes)
}

/// Checks a directory; returns the inode of "..".
pub(crate) fn check(
    pass: &Pass<'_, '_>,
    inode: &Inode<'_>,
    map: &Map,
    local: &mut Local,
) -> Option<Ino> {
    let dir = Dir { pass, inode, seed: pass.ctx.seed };
    if inode.core.format == ForkFormat::Local {
        return dir.short(local);
    }
    if !map.sound {
        return None;
    }
    let size = inode.core.size;
    let block_len = u64::from(pass.ctx.geo.dir_block_size());
    let one = map.end() == pass.ctx.geo.dir_block_fsbs();
    let fsbs = pass.ctx.geo.dir_block_fsbs();
    let mut reader = Reader::new(pass.ctx, inode, map, fsbs, code::DIR_BLOCK);
    let kind = if one { BufKind::DirBlock } else { BufKind::DirData };
    let mut memory = pass.ctx.reservation();
    let mut scan = dir.data(&mut reader, kind, &mut memory, local);
    let end = scan.bests.last().map_or(0, |(number, _)| (number + 1) * block_len);
    if scan.complete && size != end {
        let message = format!("size {size}, but the data ends at {end}");
        pass.ctx.find(code::DIR_SIZE, inode.place(), message);
    }
    dir.doubles(&mut scan.entries);
    if !one {
        index::check(&mut reader, &mut scan);
    }
    scan.dotdot
}

impl Dir<'_, '_, '_> {
    /// Checks an entry other than "." and "..".
    fn entry(&self, name: &[u8], ino: Ino, ftype: u8, local: &mut Local) {
        let ctx = self.pass.ctx;
        let show = || String::from_utf8_lossy(name).escape_debug().to_string();
        local.totals.entries += 1;
        if matches!(name, b"." | b"..") {
            let message = format!("an entry {} at a wrong position", show());
            ctx.find(code::DIR_DOT, self.inode.place(), message);
        }
        let slot = self.pass.table.get(ino).filter(|slot| slot.is_used());
        let Some(slot) = slot else {
            if ctx.is_incomplete() {
                return;
            }
            let message = format!("entry \"{}\" leads to inode {ino}, not in use", show());
            ctx.find(code::DIR_ENTRY, self.inode.place(), message);
            return;
        };
        if slot.is_meta() {
            let message = format!("entry \"{}\" leads to inode {ino}, which is internal", show());
            ctx.find(code::DIR_ENTRY, self.inode.place(), message);
        }
        slot.see(ftype, self.inode.ino);
        if local.wanted.contains(&ino) {
            local.names.push((ino, name.to_vec()));
        }
        if ftype == FileType::Directory as u8 {
            local.links.push((ino, self.inode.ino));
        }
        if ctx.geo.has_parent() {
            let generation = self.inode.core.generation;
            let hash = link_hash(self.seed, self.inode.ino, generation, name);
            self.pass.table.add_link(ino, hash);
        }
    }

    fn keep(&self, name: &[u8], address: u32) -> IndexedEntry {
        let naming = self.pass.ctx.geo.naming;
        let other = XxHash3_64::oneshot_with_seed(self.seed, &naming.key(name));
        IndexedEntry { hash: naming.hash(name), address, name: other }
    }

    /// Reports names that occur twice.
    fn doubles(&self, entries: &mut [IndexedEntry]) {
        entries.sort_unstable_by_key(|entry| (entry.hash, entry.name));
        for pair in entries.windows(2) {
            if (pair[0].hash, pair[0].name) == (pair[1].hash, pair[1].name) {
                let [a, b] = [pair[0].address, pair[1].address].map(dir::offset);
                let message = format!("the entries at {a} and {b} have the same name");
                self.pass.ctx.find(code::DIR_DOUBLE, self.inode.place(), message);
            }
        }
    }

    /// Checks a short-form directory.
    fn short(&self, local: &mut Local) -> Option<Ino> {
        let ctx = self.pass.ctx;
        let fork = self.inode.fork(Fork::Data);
        // A size beyond the fork was already reported.
        let bytes = fork.get(..usize::try_from(self.inode.core.size).ok()?)?;
        let form = match sf::Shortform::parse(bytes) {
            Ok(form) => form,
            Err(problem) => {
                ctx.find(code::DIR, self.inode.place(), problem.detail);
                return None;
            }
        };
        let block = ctx.geo.dir_block_size() as usize;
        if form.end() > block::data_limit(block, form.count() + 2) {
            let message = format!("offsets up to {} do not fit a block", form.end());
            ctx.find(code::DIR, self.inode.place(), message);
        }
        let mut entries = Vec::with_capacity(form.count());
        for entry in form.entries() {
            self.entry(entry.name, entry.ino, entry.ftype, local);
            entries.push(self.keep(entry.name, u32::from(entry.offset) / 8));
        }
        self.doubles(&mut entries);
        Some(form.parent())
    }

    /// Checks the data blocks.
    fn data(
        &self,
        reader: &mut Reader<'_, '_>,
        kind: BufKind,
        memory: &mut Reservation<'_, '_>,
        local: &mut Local,
    ) -> Scan {
        let ctx = self.pass.ctx;
        let mut scan = Scan { complete: true, ..Scan::default() };
        let (fsbs, end) = (reader.fsbs, ctx.geo.dir_leaf_start().0);
        let log = ctx.geo.dir_blklog;
        let map = reader.map;
        let mut next = 0;
        for extent in map.extents().iter().take_while(|extent| extent.offset.0 < end) {
            let last = (extent.end().0.min(end) - 1) >> log;
            for number in (extent.offset.0 >> log).max(next)..=last {
                next = number + 1;
                // One copy of each entry for the scan, two more for the comparison with the index.
                let most = ctx.geo.dir_block_size() as usize / dir::entry_len(1);
                if reader.gave_up() || !memory.grow(2 * most * size_of::<IndexedEntry>()) {
                    scan.complete = false;
                    return scan;
                }
                match reader.read(number * fsbs, &[kind]) {
                    Some((_, _, bytes)) => self.block(bytes, number, kind, &mut scan, local),
                    None => scan.complete = false,
                }
            }
        }
        if scan.complete && scan.bests.first().is_none_or(|(number, _)| *number != 0) {
            ctx.find(code::DIR_BLOCK, self.inode.place(), "there is no first data block");
        }
        scan
    }

    fn block(&self, bytes: &[u8], number: u64, kind: BufKind, scan: &mut Scan, local: &mut Local) {
        let end = match kind {
            BufKind::DirBlock => block::Tail::of(bytes).leaf_start(bytes.len()),
            _ => bytes.len(),
        };
        scan.bests.push((number, data::best(bytes)[0].len));
        let base = number * bytes.len() as u64;
        for item in data::items(bytes, end) {
            let data::Item::Entry(entry) = item else { continue };
            if name_problem(entry.name).is_some() {
                continue;
            }
            let offset = base + entry.at as u64;
            scan.entries.push(self.keep(entry.name, dir::address(offset)));
            match usize::try_from(offset) {
                Ok(DOT) => self.dot(entry.name, entry.ino, entry.ftype),
                Ok(DOTDOT) if entry.name == b".." => {
                    self.dot_type("..", entry.ftype);
                    scan.dotdot = Some(entry.ino);
                }
                _ => self.entry(entry.name, entry.ino, entry.ftype, local),
            }
        }
        if number == 0 && scan.dotdot.is_none() {
            let message = "\"..\" is not the second entry";
            self.pass.ctx.find(code::DIR_DOT, self.inode.place(), message);
        }
    }

    fn dot(&self, name: &[u8], ino: Ino, ftype: u8) {
        self.dot_type(".", ftype);
        if name != b"." || ino != self.inode.ino {
            let message = format!("\".\" is not the first entry, or leads to {ino}");
            self.pass.ctx.find(code::DIR_DOT, self.inode.place(), message);
        }
    }

    fn dot_type(&self, name: &str, ftype: u8) {
        if ftype != FileType::Directory as u8 {
            let message = format!("\"{name}\" has type {ftype}");
            self.pass.ctx.find(code::DIR_FTYPE, self.inode.place(), message);
        }
    }
}

/// Number of mapped blocks of a fork from an offset on.
pub(crate) fn blocks_from(map: &Map, start: FileBlock, end: u64) -> u64 {
    let clip = |at: u64| at.clamp(start.0, end);
    map.extents().iter().map(|e| clip(e.end().0) - clip(e.offset.0)).sum()
}
