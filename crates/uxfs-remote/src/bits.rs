//! Sets of blocks that many threads change.

use std::sync::atomic::{AtomicU64, Ordering};

/// A set of blocks.
pub(crate) struct Bits {
    words: Vec<AtomicU64>,
    count: AtomicU64,
}

impl Bits {
    pub(crate) fn new(blocks: u64) -> Self {
        let words = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, count: AtomicU64::new(0) }
    }

    /// Returns false if the block was in the set already.
    pub(crate) fn set(&self, block: u64) -> bool {
        let bit = 1 << (block % 64);
        let word = &self.words[(block / 64) as usize];
        // Most blocks that are written are in the set already, and a load costs less than an exchange.
        let is_new = word.load(Ordering::Acquire) & bit == 0
            && word.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if is_new {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    pub(crate) fn clear(&self, block: u64) {
        let bit = 1 << (block % 64);
        if self.words[(block / 64) as usize].fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn has(&self, block: u64) -> bool {
        self.words[(block / 64) as usize].load(Ordering::Acquire) & (1 << (block % 64)) != 0
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The first block of the set that is not below `from`.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut mask = u64::MAX << (from % 64);
        for word in (from / 64) as usize..self.words.len() {
            let bits = self.words[word].load(Ordering::Acquire) & mask;
            if bits != 0 {
                return Some(word as u64 * 64 + u64::from(bits.trailing_zeros()));
            }
            mask = u64::MAX;
        }
        None
    }

    /// Takes everything out, as words.
    pub(crate) fn take(&self) -> Vec<u64> {
        self.count.store(0, Ordering::Release);
        self.words.iter().map(|word| word.swap(0, Ordering::AcqRel)).collect()
    }

    pub(crate) fn put(&self, words: &[u64]) {
        for (word, bits) in self.words.iter().zip(words) {
            let old = word.fetch_or(*bits, Ordering::AcqRel);
            let new = u64::from((bits & !old).count_ones());
            self.count.fetch_add(new, Ordering::AcqRel);
        }
    }

    /// The blocks, ascending, as runs of first block and number of blocks.
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut from = 0;
        while let Some(block) = self.next(from) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == block => *count += 1,
                _ => runs.push((block, 1)),
            }
            from = block + 1;
        }
        runs
    }

    /// The words from this one on, as many as there are and `count` at most.
    pub(crate) fn words(&self, from: usize, count: usize) -> Vec<u64> {
        let words = self.words.iter().skip(from).take(count);
        words.map(|word| word.load(Ordering::Acquire)).collect()
    }
}
