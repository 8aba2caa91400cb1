//! Which bytes of a block mean something.

use std::ops::Range;

/// The bytes of a block that mean something.
pub(super) struct Used(Vec<Range<usize>>);

impl Used {
    /// Everything up to `end`.
    pub(super) fn up_to(end: usize) -> Self {
        Self(std::iter::once(0..end).collect())
    }

    /// These bytes, too.
    pub(super) fn and(mut self, range: Range<usize>) -> Self {
        self.0.push(range);
        self
    }

    pub(super) fn add(&mut self, range: Range<usize>) {
        self.0.push(range);
    }

    /// Clears all other bytes.
    pub(super) fn clear_rest(mut self, block: &mut [u8]) {
        self.0.sort_unstable_by_key(|range| range.start);
        let len = block.len();
        let mut at = 0;
        for range in self.0 {
            if range.start > at {
                block[at..range.start.min(len)].fill(0);
            }
            at = at.max(range.end).min(len);
        }
        block[at..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_cleared() {
        let mut block = [7; 20];
        Used::up_to(3).and(10..12).and(2..5).and(18..40).clear_rest(&mut block);
        assert_eq!(block, [7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0, 7, 7]);
        Used::up_to(0).clear_rest(&mut block);
        assert_eq!(block, [0; 20]);
    }
}
