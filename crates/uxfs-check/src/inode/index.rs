//! The index of a directory of more than one block: the leaves by hash, and the room of each data
//! block, against what the data blocks hold.

use uxfs_format::dir::free;
use uxfs_format::dir::leaf::{self, NO_BLOCK};
use uxfs_format::geometry::DIR_LEAF_OFFSET;
use uxfs_format::verify::BufKind;
use uxfs_format::{FileBlock, da};

use super::da::{Reader, Tree};
use super::dir::{Scan, blocks_from};
use crate::bytes::be16;
use crate::code;

/// Leaf entries of a directory, and its room by the index.
#[derive(Default)]
struct Index {
    /// Hash and address of the entries that are not stale.
    entries: Vec<(u32, u32)>,
    /// Room of the data blocks.
    bests: Vec<u16>,
    complete: bool,
}

impl Index {
    fn add(&mut self, bytes: &[u8]) {
        let entries = &bytes[da::ENTRIES..];
        for index in 0..da::count(bytes) {
            let address = leaf::address(entries, index);
            if address != 0 {
                self.entries.push((leaf::hash(entries, index), address));
            }
        }
    }
}

/// Checks the index of a directory whose data has been read.
pub(crate) fn check(reader: &mut Reader<'_, '_>, scan: &mut Scan) {
    let geo = &reader.ctx.geo;
    let (start, free) = (geo.dir_leaf_start(), geo.dir_free_start());
    let has_free = blocks_from(reader.map, free, u64::MAX) > 0;
    let index = if has_free { nodes(reader, start, free) } else { one_leaf(reader, start, free) };
    if !index.complete || !scan.complete {
        return;
    }
    compare(reader, scan, &index);
}

/// Leaf form: one leaf, with the room of the data blocks at its end.
fn one_leaf(reader: &mut Reader<'_, '_>, start: FileBlock, free: FileBlock) -> Index {
    let mut index = Index::default();
    let Some((_, _, bytes)) = reader.read(start.0, &[BufKind::DirLeaf1]) else { return index };
    index.add(bytes);
    let count = leaf::best_count(bytes);
    let best = |i| be16(bytes, leaf::best_at(bytes.len(), count, i));
    index.bests = (0..count).map(best).collect();
    index.complete = true;
    let chained = da::forw(bytes) != 0 || da::back(bytes) != 0;
    if chained {
        let message = "the only leaf names neighbours";
        reader.ctx.find(code::DA_CHAIN, reader.inode.place(), message);
    }
    stray(reader, blocks_from(reader.map, start, free.0), reader.fsbs);
    index
}

/// Node form: a tree of leaves, and a free index of its own.
fn nodes(reader: &mut Reader<'_, '_>, start: FileBlock, free: FileBlock) -> Index {
    let mut index = Index { complete: true, ..Index::default() };
    let fsbs = reader.fsbs;
    let mut tree = Tree::new(reader, BufKind::DirLeafN);
    tree.run(start.0, &mut |bytes, _| index.add(bytes));
    index.complete = tree.complete;
    let blocks = tree.seen.len() as u64 * fsbs;
    if index.complete {
        stray(reader, blocks_from(reader.map, start, free.0), blocks);
    }
    free_index(reader, free, &mut index);
    index
}

/// The free index, block by block; what a missing block would tell counts as no blocks.
fn free_index(reader: &mut Reader<'_, '_>, start: FileBlock, index: &mut Index) {
    let log = reader.ctx.geo.dir_blklog;
    let capacity = free::capacity(reader.ctx.geo.dir_block_size() as usize);
    let most = DIR_LEAF_OFFSET / u64::from(reader.ctx.geo.dir_block_size());
    let map = reader.map;
    let mut next = 0;
    for extent in map.extents().iter().filter(|extent| extent.end() > start) {
        let first = extent.offset.0.max(start.0) - start.0;
        let last = (extent.end().0 - 1 - start.0) >> log;
        for number in (first >> log).max(next)..=last {
            next = number + 1;
            // No directory has more data than the room before the leaves.
            if number * capacity as u64 > most {
                let message = format!("free index block {number} is behind all data");
                reader.ctx.find(code::DIR_BESTS, reader.inode.place(), message);
                index.complete = false;
                return;
            }
            let offset = start.0 + number * reader.fsbs;
            let Some((_, fsb, bytes)) = reader.read(offset, &[BufKind::DirFree]) else {
                index.complete = false;
                return;
            };
            let base = number as usize * capacity;
            let valid = free::nvalid(bytes);
            let bests: Vec<u16> = (0..valid).map(|i| free::best(bytes, i)).collect();
            if free::first_db(bytes) as usize != base {
                let message = format!("free index block {number} starts at another block");
                reader.ctx.find(code::DIR_BESTS, reader.place(fsb), message);
            }
            index.bests.resize(base, NO_BLOCK);
            index.bests.extend(bests);
        }
    }
}

fn stray(reader: &Reader<'_, '_>, mapped: u64, reached: u64) {
    if mapped != reached {
        let message = format!("{mapped} blocks for the index, {reached} in use");
        reader.ctx.find(code::DIR_EXTRA, reader.inode.place(), message);
    }
}

fn compare(reader: &Reader<'_, '_>, scan: &mut Scan, index: &Index) {
    let place = reader.inode.place();
    let mut wanted: Vec<(u32, u32)> = scan.entries.iter().map(|k| (k.hash, k.address)).collect();
    let mut told = index.entries.clone();
    wanted.sort_unstable();
    told.sort_unstable();
    if wanted != told {
        let differs = wanted.iter().zip(&told).find(|(a, b)| a != b).map(|(a, _)| a.0);
        let (a, b) = (wanted.len(), told.len());
        let first = differs.map_or(String::new(), |hash| format!(", first at hash {hash:#x}"));
        let message = format!("{a} entries and {b} in the index do not agree{first}");
        reader.ctx.find(code::DIR_HASH, place.clone(), message);
    }
    let mut bests = index.bests.clone();
    for (number, best) in &scan.bests {
        let slot = usize::try_from(*number).ok().and_then(|number| bests.get_mut(number));
        // A slot taken off must be one of a block that does not exist.
        let told = slot.map(|slot| core::mem::replace(slot, NO_BLOCK));
        if told != Some(*best) {
            let told = told.map_or("nothing".to_owned(), |told| told.to_string());
            let message = format!("data block {number} has room for {best}, index tells {told}");
            reader.ctx.find(code::DIR_BESTS, place.clone(), message);
        }
    }
    if let Some(number) = bests.iter().position(|best| *best != NO_BLOCK) {
        let message = format!("the index tells the room of data block {number}, which is not");
        reader.ctx.find(code::DIR_BESTS, place, message);
    }
}
