//! The state of every block of the volume: free or not, and what was written into it.
//!
//! 1. *Free* is the state after the last checkpoint whose commit was written, durable or not.
//! 2. A block is *fresh* if data was written into it since it was last free. Blocks in use from the
//!    beginning count as fresh.
//! 3. A block is *pending* while the checkpoint that freed it is not durable.

use std::collections::BTreeMap;

use uxfs_format::agf::{self, Agf};
use uxfs_format::btree::{self, FreeExtent, SHORT, TreeKind};
use uxfs_format::{AgBlock, AgNo, Geometry};

const FREE: u8 = 1;
const FRESH: u8 = 2;
const PENDING: u8 = 4;

/// A write that has not ended.
const NOT_YET: u64 = u64::MAX;
/// Nothing was written.
const NEVER: u64 = 0;

/// Reads bytes of the volume in their newest state.
pub(super) type Reader<'a> = dyn Fn(u64, usize) -> Option<Vec<u8>> + 'a;

/// The blocks, by their number on the device.
pub(super) struct Blocks {
    flags: Vec<u8>,
    /// The end of the first write since it was free. Later overwrites may come at any time.
    written: Vec<u64>,
    log: u32,
    /// Free extents of each group: start and length in blocks of the device.
    free: BTreeMap<u32, Vec<(u64, u64)>>,
}

impl Blocks {
    /// The blocks of a volume; `None` if a group's free space cannot be read.
    pub(super) fn new(geo: &Geometry, read: &Reader<'_>) -> Option<Self> {
        let count = usize::try_from(geo.dblocks).ok()?;
        let mut blocks = Self {
            flags: vec![FRESH; count],
            written: vec![NEVER; count],
            log: geo.block_log,
            free: BTreeMap::new(),
        };
        for ag in 0..geo.ag_count {
            blocks.read_group(geo, AgNo(ag), read)?;
        }
        blocks.clear_pending();
        Some(blocks)
    }

    fn clear_pending(&mut self) {
        self.flags.iter_mut().for_each(|flags| *flags &= !PENDING);
    }

    /// Reads a group's free space again. Returns the freed blocks.
    pub(super) fn read_group(
        &mut self,
        geo: &Geometry,
        ag: AgNo,
        read: &Reader<'_>,
    ) -> Option<Vec<(u64, u64)>> {
        let new = free_extents(geo, ag, read)?;
        let old = self.free.insert(ag.0, new.clone()).unwrap_or_default();
        let freed = minus(&new, &old);
        for block in each(&minus(&old, &new)) {
            self.flags[block] &= !(FREE | PENDING);
        }
        for block in each(&freed) {
            self.flags[block] = FREE | PENDING;
            self.written[block] = NEVER;
        }
        Some(freed)
    }

    /// Notes that the checkpoint that freed these blocks is durable.
    pub(super) fn frees_durable(&mut self, extents: &[(u64, u64)]) {
        each(extents).for_each(|block| self.flags[block] &= !PENDING);
    }

    /// The blocks that a range of the device touches.
    pub(super) fn of(&self, offset: u64, len: u64) -> core::ops::Range<usize> {
        let end = ((offset + len).div_ceil(1 << self.log) as usize).min(self.flags.len());
        ((offset >> self.log) as usize).min(end)..end
    }

    /// The first block of a range whose free is pending.
    pub(super) fn pending(&self, offset: u64, len: u64) -> Option<usize> {
        self.of(offset, len).find(|block| self.flags[*block] & PENDING != 0)
    }

    /// Notes that a write to these blocks began.
    pub(super) fn write(&mut self, offset: u64, len: u64) {
        for block in self.of(offset, len) {
            self.flags[block] |= FRESH;
            if self.written[block] == NEVER {
                self.written[block] = NOT_YET;
            }
        }
    }

    /// Notes that the write ended by this event.
    pub(super) fn written(&mut self, offset: u64, len: u64, event: u64) {
        for block in self.of(offset, len) {
            if self.written[block] == NOT_YET {
                self.written[block] = event;
            }
        }
    }

    /// Was the block written since it was last free?
    pub(super) fn is_fresh(&self, block: usize) -> bool {
        self.flags.get(block).is_none_or(|flags| flags & FRESH != 0)
    }

    /// Is that write safe?
    pub(super) fn is_safe(&self, block: usize, flushed: u64) -> bool {
        self.written.get(block).is_none_or(|event| *event <= flushed)
    }

    /// Is it free, by the last checkpoint?
    pub(super) fn is_free(&self, block: usize) -> bool {
        self.flags.get(block).is_some_and(|flags| flags & FREE != 0)
    }
}

fn each(extents: &[(u64, u64)]) -> impl Iterator<Item = usize> {
    extents.iter().flat_map(|(start, len)| *start as usize..(start + len) as usize)
}

/// The extents of `all` that are not in `other`, both in order.
pub(super) fn minus(all: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut from = 0;
    for (start, len) in all {
        let (mut at, end) = (*start, start + len);
        while from < other.len() && other[from].0 + other[from].1 <= at {
            from += 1;
        }
        let mut next = from;
        while at < end {
            match other.get(next).filter(|(start, _)| *start < end) {
                Some((start, len)) => {
                    if *start > at {
                        left.push((at, start - at));
                    }
                    at = at.max(start + len);
                    next += 1;
                }
                None => {
                    left.push((at, end - at));
                    at = end;
                }
            }
        }
    }
    left
}

/// A group's free extents in order, from the bnobt.
fn free_extents(geo: &Geometry, ag: AgNo, read: &Reader<'_>) -> Option<Vec<(u64, u64)>> {
    let sector = read(geo.agf_daddr(ag).bytes(), geo.sector_size as usize)?;
    let agf = Agf::view(&sector);
    if agf.magicnum.get() != agf::MAGIC {
        return None;
    }
    let size = geo.block_size as usize;
    let mut block = AgBlock(agf.bno_root.get());
    let magic = TreeKind::Bno.magic();
    let first = geo.ag_daddr(ag, AgBlock(0)).bytes() >> geo.block_log;
    // Down the left edge, then along the leaves.
    let mut found = Vec::new();
    let mut left = geo.ag_blocks;
    loop {
        let bytes = read(geo.ag_daddr(ag, block).bytes(), size)?;
        left = left.checked_sub(1)?;
        if btree::MAGIC.try_get(&bytes)? != magic {
            return None;
        }
        let count = usize::from(btree::NUMRECS.get(&bytes));
        if btree::LEVEL.get(&bytes) > 0 {
            let at = SHORT.len + TreeKind::Bno.max_node(size) * TreeKind::Bno.key_len();
            block = AgBlock(btree::ptr(bytes.get(at..at + SHORT.ptr_len)?) as u32);
            continue;
        }
        for index in 0..count {
            let at = SHORT.len + 8 * index;
            let free = FreeExtent::decode(bytes.get(at..at + 8)?);
            found.push((first + u64::from(free.start.0), u64::from(free.len)));
        }
        let Some(next) = btree::sibling(bytes.get(SHORT.sibling(false))?) else {
            return Some(found);
        };
        block = AgBlock(next as u32);
    }
}
