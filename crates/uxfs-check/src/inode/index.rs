//! Checks the index of a directory with several blocks against its data blocks: the leaves by hash,
//! and the longest free area of each data block.

use uxfs_format::dir::free;
use uxfs_format::dir::leaf::{self, NO_BLOCK};
use uxfs_format::geometry::DIR_LEAF_OFFSET;
use uxfs_format::verify::BufKind;
use uxfs_format::{FileBlock, da};

use super::da::{Reader, Tree};
use super::dir::{Scan, blocks_from};
use crate::code;

/// Leaf entries of a directory and the longest free areas in its index.
#[derive(Default)]
struct Index {
    /// Hash and address of entries that are not stale.
    entries: Vec<(u32, u32)>,
    /// Longest free area of each data block.
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

/// Checks the index of a directory whose data blocks were read.
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

/// Reads the leaf form: one leaf with the longest free areas at its end.
fn one_leaf(reader: &mut Reader<'_, '_>, start: FileBlock, free: FileBlock) -> Index {
    let mut index = Index::default();
    let Some((_, _, bytes)) = reader.read(start.0, &[BufKind::DirLeaf1]) else { return index };
    index.add(bytes);
    let count = leaf::best_count(bytes);
    let best = |i| leaf::best_at(bytes.len(), count, i).get(bytes);
    index.bests = (0..count).map(best).collect();
    index.complete = true;
    let chained = da::forw(bytes) != 0 || da::back(bytes) != 0;
    if chained {
        let message = "the only leaf has sibling pointers";
        reader.ctx.find(code::DA_CHAIN, reader.inode.place(), message);
    }
    stray(reader, blocks_from(reader.map, start, free.0), reader.fsbs);
    index
}

/// Reads the node form: a tree of leaves and a free index.
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

/// Reads the free index; a missing block counts as covering no data blocks.
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
            // The data part ends where the leaf part starts.
            if number * capacity as u64 > most {
                let message = format!("free index block {number} is beyond all data blocks");
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
                let message = format!("free index block {number} starts with a wrong data block");
                reader.ctx.find(code::DIR_BESTS, reader.place(fsb), message);
            }
            index.bests.resize(base, NO_BLOCK);
            index.bests.extend(bests);
        }
    }
}

fn stray(reader: &Reader<'_, '_>, mapped: u64, reached: u64) {
    if mapped != reached {
        let message = format!("{mapped} blocks mapped for the index, {reached} used");
        reader.ctx.find(code::DIR_EXTRA, reader.inode.place(), message);
    }
}

fn compare(reader: &Reader<'_, '_>, scan: &mut Scan, index: &Index) {
    let place = reader.inode.place();
    let mut wanted: Vec<(u32, u32)> = scan.entries.iter().map(|k| (k.hash, k.address)).collect();
    let mut stored = index.entries.clone();
    wanted.sort_unstable();
    stored.sort_unstable();
    if wanted != stored {
        let differs = wanted.iter().zip(&stored).find(|(a, b)| a != b).map(|(a, _)| a.0);
        let (a, b) = (wanted.len(), stored.len());
        let first = differs.map_or(String::new(), |hash| format!(", first at hash {hash:#x}"));
        let message = format!("{a} entries and {b} in the index disagree{first}");
        reader.ctx.find(code::DIR_HASH, place.clone(), message);
    }
    let mut bests = index.bests.clone();
    for (number, best) in &scan.bests {
        let slot = usize::try_from(*number).ok().and_then(|number| bests.get_mut(number));
        // A slot that was removed must be one of a block that does not exist.
        let stored = slot.map(|slot| core::mem::replace(slot, NO_BLOCK));
        if stored != Some(*best) {
            let stored = stored.map_or("nothing".to_owned(), |stored| stored.to_string());
            let message =
                format!("data block {number} has {best} bytes free, the index says {stored}");
            reader.ctx.find(code::DIR_BESTS, place.clone(), message);
        }
    }
    if let Some(number) = bests.iter().position(|best| *best != NO_BLOCK) {
        let message = format!("the index has a slot for data block {number}, which does not exist");
        reader.ctx.find(code::DIR_BESTS, place, message);
    }
}
