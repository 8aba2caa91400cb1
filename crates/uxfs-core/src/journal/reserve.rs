//! Log reservations: the most log space that an operation takes between two rolls.
//!
//! Each is a sum over what the operation may change, every object logged whole in as many regions as
//! possible: a table of operations ([`Op`]), in the volume's own sizes and tree heights.
//!
//! 1. A transaction logs no more than was granted for it. Debug builds assert that; others count overruns
//!    (`logspace_overruns`).
//! 2. An operation whose work has no bound of its own (files of many extents, steps of many records) checks
//!    on the way whether there is room for more ([`crate::tx::Tx::has_room`]), and goes on after a roll or in
//!    another transaction.
//! 3. No reservation is more than a quarter of the log, so that several transactions can be open. That is
//!    enough also in the smallest log, which holds three of the kernel's largest transactions with all their
//!    rolls.
//!
//! One thing is not in the table: from how many places of the free-space trees the AGFL may have to be filled.
//! It assumes [`EXTENTS`]. A group of single free blocks far from each other takes more; the gap that
//! [`uxfs_journal::LogSpace`] keeps free is for that.

use uxfs_format::btree::TreeKind;
use uxfs_format::da::MAX_DEPTH;
use uxfs_format::log::CHUNK;
use uxfs_format::{Geometry, inode};
use uxfs_journal::{DONE_BYTES, INTENT_BYTES, LogGeometry};

use super::{dquot_item, item, superblock_item};

/// Bytes of an operation header in the log.
const OP: u64 = 12;
/// Most levels of a fork's extent btree that are likely to change at once.
const MAP_LEVELS: u64 = 5;
/// Extents that are allocated or freed between two rolls, those of AGFLs included.
const EXTENTS: u64 = 4;

/// Owners whose usage an operation changes: those of the most inodes, and one before a change of owner.
const DQUOTS: u64 = 7;

/// Operations that a transaction may defer.
const STEPS: u64 = 3 * crate::limits::EXTENTS_A_STEP;

/// The kinds of operation with their own reservations. The number is that of metadata blocks that
/// the operation may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Changes inodes.
    Inode,
    /// Changes the extents of files.
    Extents,
    /// Creates an inode and its name.
    Create(u64),
    /// Adds a name.
    Link(u64),
    /// Removes a name.
    Remove(u64),
    /// Moves or exchanges names.
    Rename(u64),
    /// Moves a name and creates an inode in its place.
    Whiteout(u64),
    /// Changes attributes.
    Attr(u64),
    /// Frees an inode.
    Free,
}

/// Objects that may change between two rolls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bound {
    inodes: u64,
    /// Group headers.
    sectors: u64,
    blocks: u64,
}

/// Log space of a buffer of `len` bytes of which every chunk is a region of its own.
pub(crate) fn buffer(len: u64) -> u64 {
    let chunks = len / CHUNK as u64;
    len + chunks * OP + OP + 28 + chunks / 8
}

/// Log space of an inode and its unlinked list pointer.
pub(crate) fn inode(geo: &Geometry) -> u64 {
    let literal = u64::from(geo.inode_size) - inode::CORE_LEN as u64;
    item::INODE_REGIONS * OP + item::INODE_BYTES + literal
}

/// Log space of `steps` intents and done items.
pub(crate) fn intents(geometry: &LogGeometry, steps: u64) -> u64 {
    geometry.most_bytes(1, 2 * steps, steps * (INTENT_BYTES + DONE_BYTES))
}

/// Blocks of a btree that an inserted or deleted record changes: on each level the block, the
/// neighbour that gives or takes records or is new, and one whose sibling pointers change; and a
/// new root.
fn tree(geo: &Geometry, kind: TreeKind, records: u64) -> u64 {
    3 * u64::from(kind.max_height(geo.block_size as usize, records)) + 1
}

struct Sums {
    /// Blocks changed by one extent allocated or freed.
    extent: u64,
    /// Blocks changed by a change of reference counts.
    counts: u64,
    /// Blocks changed by an inode allocated or freed.
    inodes: u64,
    /// Blocks changed by a change of a fork's extent btree.
    map: u64,
    /// Blocks changed in a directory: data, free index, and a path of the hash btree.
    dir: u64,
    /// Blocks changed by a change of attributes.
    attr: u64,
}

impl Sums {
    fn new(geo: &Geometry) -> Self {
        let blocks = u64::from(geo.ag_blocks);
        let chunks = (blocks << geo.inopb_log) / 64 + 1;
        let space = tree(geo, TreeKind::Bno, blocks / 2);
        let rmap = if geo.has_rmap() { tree(geo, TreeKind::Rmap, blocks) } else { 0 };
        let counts = if geo.has_reflink() { tree(geo, TreeKind::Refcount, blocks) } else { 0 };
        let inodes = tree(geo, TreeKind::Ino, chunks);
        let path = 2 * MAX_DEPTH as u64;
        Self {
            // In the btree by block, in the btree by length before and after, and in the rmapbt.
            extent: 3 * space + rmap,
            counts,
            inodes: if geo.has_finobt() { 2 * inodes } else { inodes },
            map: 3 * MAP_LEVELS,
            dir: (3 + path) * geo.dir_block_fsbs() + MAP_LEVELS,
            attr: 2 + path + MAP_LEVELS,
        }
    }

    fn bound(&self, op: Op) -> Bound {
        // The headers of two groups: that of the inode and that of its blocks.
        let sectors = 6;
        let extents = EXTENTS * self.extent;
        match op {
            Op::Inode => Bound { inodes: 2, sectors: 0, blocks: 0 },
            Op::Extents => {
                Bound { inodes: 2, sectors, blocks: extents + 2 * self.map + self.counts }
            }
            Op::Create(new) => {
                Bound { inodes: 2, sectors, blocks: extents + self.inodes + self.dir + new }
            }
            Op::Link(new) => Bound { inodes: 2, sectors, blocks: extents + self.dir + new },
            // Including the inode before it in the unlinked list.
            Op::Remove(new) => Bound { inodes: 3, sectors, blocks: extents + self.dir + new },
            Op::Rename(new) => Bound { inodes: 5, sectors, blocks: extents + 2 * self.dir + new },
            Op::Whiteout(new) => {
                Bound { inodes: 6, sectors, blocks: extents + self.inodes + 2 * self.dir + new }
            }
            Op::Attr(new) => Bound { inodes: 1, sectors, blocks: extents + self.attr + new },
            Op::Free => {
                let blocks = extents + self.inodes + self.attr + self.map;
                Bound { inodes: 2, sectors, blocks }
            }
        }
    }

    /// The bound of a deferred operation: an extent freed, or reference counts changed, with blocks
    /// allocated or freed by their btree.
    fn step(&self) -> Bound {
        Bound { inodes: 0, sectors: 3, blocks: EXTENTS * self.extent + 2 * self.counts }
    }
}

/// The log reservations of a volume.
pub(crate) struct Reserve {
    sums: Sums,
    geometry: LogGeometry,
    inode: u64,
    sector: u64,
    block: u64,
    step: u64,
    /// Log space of the dquots of a transaction; 0 if no quota is accounted.
    dquots: u64,
}

impl Reserve {
    /// The reservations for a volume of this geometry.
    pub(crate) fn new(geo: &Geometry, geometry: LogGeometry) -> Self {
        let (sums, inode) = (Sums::new(geo), inode(geo));
        let (sector, block) = (buffer(geo.sector_size.into()), buffer(geo.block_size.into()));
        let mut reserve = Self { sums, geometry, inode, sector, block, step: 0, dquots: 0 };
        reserve.step = reserve.bytes(reserve.sums.step());
        reserve
    }

    /// The reservations if `kinds` types of quota are accounted.
    pub(crate) fn with_quota(self, kinds: u64) -> Self {
        Self { dquots: kinds * DQUOTS * dquot_item::MOST, ..self }
    }

    fn bytes(&self, bound: Bound) -> u64 {
        let Bound { inodes, sectors, blocks } = bound;
        inodes * self.inode + sectors * self.sector + blocks * self.block
    }

    /// Most log bytes of one deferred operation.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Most log bytes of an operation between two rolls. Each part may also be a deferred
    /// operation.
    pub(crate) fn link(&self, op: Op) -> u64 {
        let steps = STEPS * (INTENT_BYTES + DONE_BYTES + 2 * OP);
        let most = self.bytes(self.sums.bound(op)).max(self.step)
            + superblock_item::BYTES
            + self.dquots
            + 2 * OP
            + steps;
        self.geometry.most_bytes(1, 0, most).min(self.geometry.length / 4)
    }
}
