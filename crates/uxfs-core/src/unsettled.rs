//! Busy blocks ([`crate::busy`]), counted for the whole volume in ordered mode.
//!
//! Data must not be written into them. An epoch cannot wait until they become free, because it is what frees them.
//! So a reservation does not count on them. It must count each for as long as its group does: until its freeing is
//! durable and the AIL pushes of that time have ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use uxfs_sync::Mutex;

/// Blocks that were freed at about the same time.
struct Freed {
    /// The last checkpoint that frees some of them.
    seq: u64,
    /// AIL pushes that had begun by then.
    batch: u64,
    blocks: i64,
}

/// Busy blocks in the order in which they were freed.
#[derive(Default)]
pub(crate) struct Unsettled {
    total: AtomicI64,
    freed: Mutex<VecDeque<Freed>>,
}

impl Unsettled {
    /// Adds blocks that checkpoint `seq` frees, when `batch` AIL pushes had begun.
    pub(crate) fn add(&self, seq: u64, batch: u64, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.total.fetch_add(blocks, Ordering::AcqRel);
        let mut freed = self.freed.lock();
        match freed.back_mut() {
            Some(last) if last.seq >= seq && last.batch >= batch => last.blocks += blocks,
            _ => freed.push_back(Freed { seq, batch, blocks }),
        }
    }

    /// Removes blocks that are not busy any more: freed in a checkpoint up to `durable`, with all AIL pushes of that
    /// time among the first `ended`.
    pub(crate) fn settle(&self, durable: u64, ended: u64) {
        let mut freed = self.freed.lock();
        while let Some(first) = freed.front()
            && first.seq <= durable
            && first.batch <= ended
        {
            self.total.fetch_sub(first.blocks, Ordering::AcqRel);
            freed.pop_front();
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
    fn blocks_settle_with_their_checkpoint_and_push() {
        let unsettled = Unsettled::default();
        unsettled.add(1, 0, 10);
        unsettled.add(1, 0, 5);
        unsettled.add(2, 0, 7);
        assert_eq!(unsettled.blocks(), 22);
        unsettled.settle(0, 0);
        assert_eq!(unsettled.blocks(), 22);
        unsettled.settle(1, 0);
        assert_eq!(unsettled.blocks(), 7);
        unsettled.settle(9, 0);
        assert_eq!(unsettled.blocks(), 0);
        // With a push in flight.
        unsettled.add(10, 3, 4);
        unsettled.add(10, 4, 2);
        unsettled.settle(10, 2);
        assert_eq!(unsettled.blocks(), 6);
        unsettled.settle(10, 3);
        assert_eq!(unsettled.blocks(), 2);
        unsettled.settle(9, 4);
        assert_eq!(unsettled.blocks(), 2);
        unsettled.settle(10, 4);
        assert_eq!(unsettled.blocks(), 0);
    }
}
