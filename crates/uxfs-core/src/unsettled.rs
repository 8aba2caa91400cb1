//! Blocks whose freeing is not durable, counted for the whole volume in ordered mode.
//!
//! Data must not be written into them ([`crate::busy`]). An epoch cannot wait until they become free, because
//! it is what frees them. So a reservation does not count on them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use uxfs_sync::Mutex;

/// Freed blocks by the checkpoint that frees them.
#[derive(Default)]
pub(crate) struct Unsettled {
    total: AtomicI64,
    by_seq: Mutex<VecDeque<(u64, i64)>>,
}

impl Unsettled {
    /// Adds blocks that checkpoint `seq` frees.
    pub(crate) fn add(&self, seq: u64, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.total.fetch_add(blocks, Ordering::AcqRel);
        let mut by_seq = self.by_seq.lock();
        match by_seq.back_mut() {
            Some((last, sum)) if *last >= seq => *sum += blocks,
            _ => by_seq.push_back((seq, blocks)),
        }
    }

    /// Removes the blocks of checkpoints up to `durable`.
    pub(crate) fn settle(&self, durable: u64) {
        let mut by_seq = self.by_seq.lock();
        while let Some((seq, blocks)) = by_seq.front().copied()
            && seq <= durable
        {
            by_seq.pop_front();
            self.total.fetch_sub(blocks, Ordering::AcqRel);
        }
    }

    /// Their number.
    pub(crate) fn blocks(&self) -> i64 {
        self.total.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_settle_with_their_checkpoint() {
        let unsettled = Unsettled::default();
        unsettled.add(1, 10);
        unsettled.add(1, 5);
        unsettled.add(2, 7);
        assert_eq!(unsettled.blocks(), 22);
        unsettled.settle(0);
        assert_eq!(unsettled.blocks(), 22);
        unsettled.settle(1);
        assert_eq!(unsettled.blocks(), 7);
        unsettled.settle(9);
        assert_eq!(unsettled.blocks(), 0);
    }
}
