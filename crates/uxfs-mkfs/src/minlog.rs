//! Computes the minimum log size that the kernel, and therefore `mkfs.xfs`, accepts.
//!
//! A log must hold three of the largest transaction reservation, each with all its rolls. Which
//! transaction is the largest depends on the sizes of blocks, sectors, inodes and directory blocks,
//! and on the maximum height of the trees. The formulas were fitted to the reservations that
//! `xfs_db -c logres` lists. Tests compare the results with the minimum of `mkfs.xfs` for all block
//! sizes, directory block sizes, stripe units and feature sets. `mkfs.xfs` 6.1 does not support
//! parent pointers; for them the formulas follow the differences observed with 7.2.

use uxfs_format::btree::{LONG, TreeKind};
use uxfs_format::features::{Incompat, RoCompat};

use crate::groups::Groups;
use crate::units::Units;

/// Overhead in bytes of each logged buffer.
const BUFFER: u64 = 128;
/// Overhead in bytes of each logged inode.
const INODE: u64 = 248;
/// Bytes of quota records that a transaction may log.
const QUOTA: u64 = 768;
/// Constant part in bytes of an inode creation.
const MAKE: u64 = 640;
/// Bytes of a logged symlink target.
const TARGET: u64 = 1024 + BUFFER;
/// Maximum levels of a directory's or attribute fork's tree.
const DA_LEVELS: u64 = 5;
/// Height of the reverse-mapping btree that old reservations assume on reflink volumes.
const OLD_RMAP_LEVELS: u64 = 9;
/// Worst case of log buffers: 256 KiB, with eight header blocks.
const RECORD: u64 = 256 << 10;
const RECORD_HEAD: u64 = 4096;
const BASIC: u64 = 512;

/// Bytes that a transaction reserves, and its number of rolls.
type Reservation = (u64, u64);

/// Minimum number of blocks of a log with a stripe unit of `unit` blocks, 0 for none.
pub(crate) fn blocks(units: &Units, groups: Groups, unit: u32) -> u64 {
    let sums = Sums::new(units, groups);
    let reservations = [sums.truncate(), sums.rename(), sums.symlink()];
    let largest = reservations.into_iter().max_by_key(|(r, n)| r * n).unwrap_or((0, 1));
    // As in mkfs.xfs: one roll of setting an attribute competes with all rolls of the others.
    let attr = sums.set_attr();
    let (bytes, count) = if attr.0 > largest.0 * largest.1 { attr } else { largest };
    let unit = u64::from(unit) * u64::from(units.block);
    let all = (in_records(bytes, unit) * count).next_multiple_of(BASIC);
    let one = match unit {
        0 => all + 2 * RECORD,
        unit => all.next_multiple_of(unit) + 2 * unit,
    };
    (3 * one).div_ceil(units.block.into())
}

/// Log bytes that a transaction of `bytes` may need, including record headers and padding.
fn in_records(bytes: u64, unit: u64) -> u64 {
    let payload = bytes + 40;
    let records = payload.div_ceil(RECORD - RECORD_HEAD);
    payload + records * (12 + RECORD_HEAD) + RECORD_HEAD + 2 * unit.max(BASIC)
}

/// Quantities that the reservations are computed from.
struct Sums {
    /// Size of a logged block, sector and inode in bytes.
    block: u64,
    sector: u64,
    inode: u64,
    block_size: u64,
    /// Blocks of a directory block.
    dir: u64,
    /// Blocks of the free-space and reverse-mapping btrees that freeing one extent may change.
    free_one: u64,
    /// The same for the reference-count btree.
    count_one: u64,
    /// Height of the inode btrees.
    ino: u64,
    /// Heights of the extent btrees of both forks.
    data_levels: u64,
    attr_levels: u64,
    finobt: bool,
    reflink: bool,
    parent: bool,
}

impl Sums {
    fn new(units: &Units, groups: Groups) -> Self {
        let size = units.block as usize;
        let height = |tree: TreeKind, records: u64| u64::from(tree.max_height(size, records));
        let ag = u64::from(groups.blocks);
        let reflink = units.has(RoCompat::REFLINK);
        let parent = units.incompat.contains(Incompat::PARENT);
        let rmap_levels = match units.has(RoCompat::RMAPBT) {
            true if reflink && !parent => OLD_RMAP_LEVELS,
            true => height(TreeKind::Rmap, ag),
            false => 0,
        };
        let inodes = (u64::from(units.block / units.inode)) << groups.blklog();
        let wide = units.incompat.contains(Incompat::NREXT64);
        let (data, attr) = if wide { (48, 32) } else { (31, 15) };
        Self {
            block: u64::from(units.block) + BUFFER,
            sector: u64::from(units.sector) + BUFFER,
            inode: u64::from(units.inode) + INODE,
            block_size: units.block.into(),
            dir: u64::from(units.dir_block / units.block),
            free_one: 2 * (2 * height(TreeKind::Bno, ag.div_ceil(2)) - 1)
                + (2 * rmap_levels).saturating_sub(1),
            count_one: 2 * height(TreeKind::Refcount, ag) - 1,
            ino: height(TreeKind::Ino, inodes.div_ceil(64)),
            data_levels: fork_levels(size, (1 << data) - 1, 3),
            attr_levels: fork_levels(size, (1 << attr) - 1, 2),
            finobt: units.has(RoCompat::FINOBT),
            reflink,
            parent,
        }
    }

    /// Truncating a file. The old estimate still applies: it updates reference counts in the same
    /// transaction and has many rolls.
    fn truncate(&self) -> Reservation {
        let old = self.reflink && !self.parent;
        let blocks = 4 * self.free_one + if old { 4 * self.count_one } else { 0 };
        (9 * self.sector + QUOTA + blocks * self.block, if old { 8 } else { 2 })
    }

    /// Blocks that inserting or removing a directory entry may change.
    fn dir_blocks(&self) -> u64 {
        let extents = self.dir.div_ceil(self.extents_per_block());
        7 * self.dir + 7 * extents * (self.data_levels - 1) + 1
    }

    /// Number of one-block extents that fill half a leaf.
    fn extents_per_block(&self) -> u64 {
        let leaf = TreeKind::Bno.max_leaf(self.block_size as usize) as u64;
        leaf - leaf / 2
    }

    fn rename(&self) -> Reservation {
        let bytes = 5 * self.inode + QUOTA + 2 * self.dir_blocks() * self.block;
        // Two parent pointers are set or removed, and one is replaced.
        if self.parent { (bytes + 2 * 308 + 576, 5) } else { (bytes, 2) }
    }

    fn symlink(&self) -> Reservation {
        let find = if self.finobt { self.free_one + self.ino } else { 0 };
        let link = 2 * self.inode + self.sector + (1 + self.dir_blocks() + find) * self.block;
        let make = 3 * self.sector + (2 * self.free_one + self.ino + find) * self.block;
        let bytes = TARGET + MAKE + link.max(make);
        if self.parent { (bytes + 308, 6) } else { (bytes, 3) }
    }

    /// Setting the largest local attribute, with the maximum number of blocks.
    fn set_attr(&self) -> Reservation {
        let fixed = self.inode + self.sector + QUOTA + DA_LEVELS * self.block;
        let each = self.sector + self.attr_levels * self.block;
        let above = self.attr_levels - 1;
        let bytes = (self.block_size / 4 * 3).saturating_sub(256);
        let extents = bytes.div_ceil(self.extents_per_block());
        let blocks = DA_LEVELS * (1 + above) + bytes.div_ceil(self.block_size) + extents * above;
        (fixed + blocks * each, 3)
    }
}

/// Levels of a fork's extent btree with `extents` extents and space for `root` pointers in the
/// root.
fn fork_levels(block_size: usize, extents: u64, root: u64) -> u64 {
    let least = ((block_size - LONG.len) / TreeKind::Bmap.rec_len() / 2) as u64;
    let mut blocks = extents.div_ceil(least);
    let mut levels = 1;
    while blocks > 1 {
        blocks = if blocks <= root { 1 } else { blocks.div_ceil(least) };
        levels += 1;
    }
    levels
}
