//! Where the blocks of quota records lie, by their numbers in a quota inode.
//!
//! 1. It holds runs of blocks, as the inode maps them: memory is bounded by the extents that the volume holds,
//!    also where a crafted inode maps few blocks again and again.
//! 2. Blocks that hold the record of no id are left out.
//!
//! Filled when quotas are turned on ([`crate::quota`]); asked for each dquot that is not in memory.

use std::collections::BTreeMap;

use uxfs_format::Daddr;
use uxfs_format::dquot;

/// The places of a quota inode's blocks.
#[derive(Debug)]
pub(crate) struct Places {
    /// Length and address of each run, by its first block.
    runs: BTreeMap<u32, (u32, Daddr)>,
    block_size: u32,
}

impl Places {
    /// None yet, on a volume of this block size.
    pub(crate) fn new(block_size: u32) -> Self {
        Self { runs: BTreeMap::new(), block_size }
    }

    /// Adds `len` blocks from number `first` on, which lie together from `daddr` on, behind all that were
    /// added or between them. Returns `false` if more blocks would hold no record.
    pub(crate) fn add(&mut self, first: u64, len: u64, daddr: Daddr) -> bool {
        let all = u64::from(u32::MAX / dquot::records(self.block_size)) + 1;
        let end = first.saturating_add(len).min(all);
        if let (Ok(first), Some(len)) = (u32::try_from(first), end.checked_sub(first)) {
            self.runs.insert(first, (len as u32, daddr));
        }
        end < all
    }

    /// The address of a block, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<Daddr> {
        let (first, (len, daddr)) = self.runs.range(..=number).next_back()?;
        let step = number - first;
        let bytes = u64::from(step) * u64::from(self.block_size);
        (step < *len).then_some(Daddr(daddr.0 + (bytes >> 9)))
    }

    /// The first block from `number` on, and its address.
    pub(crate) fn from(&self, number: u32) -> Option<(u32, Daddr)> {
        match self.get(number) {
            Some(daddr) => Some((number, daddr)),
            None => self.runs.range(number..).next().map(|(first, (_, daddr))| (*first, *daddr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_runs() {
        let mut places = Places::new(4096);
        assert!(places.add(10, 5, Daddr(800)));
        assert!(places.add(20, 1, Daddr(80)));
        assert!(places.add(0, 1, Daddr(8)));
        let found: Vec<_> = (0..30).filter_map(|n| Some((n, places.get(n)?.0))).collect();
        let runs = [(0, 8), (10, 800), (11, 808), (12, 816), (13, 824), (14, 832), (20, 80)];
        assert_eq!(found, runs);
        let mut in_turn = Vec::new();
        while let Some((number, Daddr(at))) =
            places.from(in_turn.last().map_or(0, |last: &(u32, u64)| last.0 + 1))
        {
            in_turn.push((number, at));
        }
        assert_eq!(in_turn, runs);
    }

    /// The extent that a crafted inode may have, far longer than the volume.
    #[test]
    fn no_block_lies_behind_that_of_the_last_id() {
        let mut places = Places::new(4096);
        assert!(!places.add(3, u64::MAX, Daddr(8)));
        let last = u32::MAX / dquot::records(4096);
        assert!(places.get(last).is_some());
        assert_eq!((places.get(last + 1), places.from(last + 1)), (None, None));
        assert!(!places.add(1 << 40, 1, Daddr(8)));
        assert_eq!(places.runs.len(), 1);
    }
}
