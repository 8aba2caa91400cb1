//! Busy extents: blocks whose freeing is not durable. Until it is, they may still be in use on the
//! device, and data must not be written into them.
//!
//! A block stays busy until the checkpoint that frees it is durable, and until all AIL pushes that
//! were in progress when it was freed have ended: one of them may write the block's old contents.
//!
//! Metadata may be allocated in busy blocks, because it is written in place only after its own
//! checkpoint, which is not older than the one that freed them.

use std::collections::BTreeMap;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::AgBlock;

#[derive(Clone, Copy, Debug)]
struct Range {
    len: u32,
    /// The checkpoint that frees it.
    seq: u64,
    /// AIL pushes that had begun by then.
    batch: u64,
}

/// The busy extents of an AG.
#[derive(Default)]
pub(crate) struct Busy {
    ranges: BTreeMap<u32, Range>,
    /// Extents that are no longer busy, for discard; `None` without discard.
    expired: Option<Vec<core::ops::Range<u32>>>,
}

/// Maximum number of extents remembered for discard, which is best-effort.
const EXPIRED_MAX: usize = 4096;

impl Busy {
    /// Adds blocks freed in checkpoint `seq`, when `batch` AIL pushes had begun.
    pub(crate) fn add(&mut self, seq: u64, batch: u64, start: AgBlock, len: u32) {
        if planted(Fault::ReusedEarly) {
            return;
        }
        let (from, to) = (start.0, start.0 + len);
        // Blocks freed again were used for metadata in between; the later free counts. It must not count for
        // others: reservations rely on it that these become free with their own checkpoint.
        while let Some((&at, &old)) = self.ranges.range(..to).next_back()
            && at + old.len > from
        {
            self.ranges.remove(&at);
            if at < from {
                self.ranges.insert(at, Range { len: from - at, ..old });
            }
            if at + old.len > to {
                self.ranges.insert(to, Range { len: at + old.len - to, ..old });
            }
        }
        let mut new = Range { len, seq, batch };
        let joins = |other: &Range| (other.seq, other.batch) == (seq, batch);
        if let Some(behind) = self.ranges.get(&to).copied().filter(joins) {
            self.ranges.remove(&to);
            new.len += behind.len;
        }
        let before = self.ranges.range_mut(..from).next_back();
        match before.filter(|(at, range)| **at + range.len == from && joins(range)) {
            Some((_, before)) => before.len += new.len,
            None => drop(self.ranges.insert(from, new)),
        }
    }

    /// The number of busy blocks.
    #[cfg(test)]
    #[cfg(unix)]
    pub(crate) fn blocks(&self) -> u64 {
        self.ranges.values().map(|range| u64::from(range.len)).sum()
    }

    /// Is nothing busy?
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Removes extents that are no longer busy: freed in a checkpoint up to `durable`, with all AIL
    /// pushes of that time among the first `ended`.
    pub(crate) fn expire(&mut self, durable: u64, ended: u64) {
        if !self.ranges.is_empty() {
            let expired = &mut self.expired;
            self.ranges.retain(|start, range| {
                let busy = durable < range.seq || ended < range.batch;
                if let Some(expired) = expired.as_mut().filter(|all| all.len() < EXPIRED_MAX)
                    && !busy
                {
                    expired.push(*start..*start + range.len);
                }
                busy
            });
        }
    }

    /// The longest run of blocks in `start..start + len` that are not busy.
    pub(crate) fn longest_idle(&self, start: u32, len: u32) -> (u32, u32) {
        let end = start + len;
        let mut best = (start, 0);
        let mut at = start;
        let before = self.ranges.range(..start).next_back();
        let inside = self.ranges.range(start..end);
        for (&from, range) in before.into_iter().chain(inside) {
            if from > at && from - at > best.1 {
                best = (at, from - at);
            }
            at = at.max(from + range.len);
        }
        if end > at && end - at > best.1 {
            best = (at, end - at);
        }
        best
    }
}

impl Busy {
    /// Takes the extents that stopped being busy since the last call. The first call enables
    /// remembering them.
    pub(crate) fn take_expired(&mut self) -> Vec<core::ops::Range<u32>> {
        self.expired.replace(Vec::new()).unwrap_or_default()
    }

    /// The parts of a range of blocks that are not busy.
    pub(crate) fn idle(&self, range: core::ops::Range<u32>) -> Vec<core::ops::Range<u32>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        let before = self.ranges.range(..range.start).next_back();
        for (&from, busy) in before.into_iter().chain(self.ranges.range(range.clone())) {
            if from > at {
                parts.push(at..from);
            }
            at = at.max(from + busy.len);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start, length and checkpoint of each range.
    fn ranges(busy: &Busy) -> Vec<(u32, u32, u64)> {
        busy.ranges.iter().map(|(at, range)| (*at, range.len, range.seq)).collect()
    }

    #[test]
    fn each_block_is_busy_until_its_last_free_is_durable() {
        let mut b = Busy::default();
        let mut free = |seq, start, len| {
            b.add(seq, 0, AgBlock(start), len);
            ranges(&b)
        };
        assert_eq!(free(1, 10, 10), [(10, 10, 1)]);
        assert_eq!(free(1, 20, 5), [(10, 15, 1)]);
        assert_eq!(free(1, 5, 5), [(5, 20, 1)]);
        // A neighbour of a later checkpoint does not delay these.
        assert_eq!(free(2, 25, 5), [(5, 20, 1), (25, 5, 2)]);
        assert_eq!(free(3, 15, 2), [(5, 10, 1), (15, 2, 3), (17, 8, 1), (25, 5, 2)]);
        assert_eq!(free(4, 20, 7), [(5, 10, 1), (15, 2, 3), (17, 3, 1), (20, 7, 4), (27, 3, 2)]);
        assert_eq!(free(4, 0, 40), [(0, 40, 4)]);
        b.expire(3, 0);
        assert_eq!(b.blocks(), 40);
        b.expire(4, 0);
        assert!(b.is_empty());
    }

    fn busy(ranges: &[(u32, u32)]) -> Busy {
        let range = |len| Range { len, seq: 1, batch: 0 };
        let ranges = ranges.iter().map(|(at, len)| (*at, range(*len))).collect();
        Busy { ranges, expired: None }
    }

    #[test]
    fn idle_ranges_exclude_busy_extents() {
        let b = busy(&[(10, 5), (20, 10), (50, 1)]);
        assert_eq!(b.longest_idle(0, 100), (51, 49));
        assert_eq!(b.longest_idle(0, 45), (30, 15));
        assert_eq!(b.longest_idle(12, 10), (15, 5));
        assert_eq!(b.longest_idle(20, 10), (20, 0));
        assert_eq!(b.longest_idle(25, 3), (25, 0));
        assert_eq!(b.longest_idle(60, 3), (60, 3));
        let idle = |range| b.idle(range).iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
        assert_eq!(idle(0..100), [(0, 10), (15, 20), (30, 50), (51, 100)]);
        assert_eq!(idle(12..22), [(15, 20)]);
        assert_eq!(idle(25..29), []);
        assert_eq!(idle(31..40), [(31, 40)]);
    }
}
