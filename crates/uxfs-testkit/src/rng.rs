//! Random numbers from a seed: SplitMix64, as published by Steele, Lea and Flood (2014).
//!
//! 1. The sequence of a seed never changes: published figures, and the seeds that failures print,
//!    depend on it.
//! 2. A method's result depends on the sequence and its arguments alone, and each method draws a
//!    number of words that depends on its arguments alone.

use std::ops::Range;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence for each `key`: a tool that is given the same seed as the code under test
    /// uses a key to draw different numbers.
    #[must_use]
    pub const fn keyed(seed: u64, key: u64) -> Self {
        Self(seed ^ key)
    }

    /// A sequence whose start is far from that of the neighbouring seeds, for experiments that
    /// number their runs 0, 1, 2.
    #[must_use]
    pub const fn spread(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0: the remainder of a word.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// A number below `end`, or 0 if `end` is 0: the high bits of a product. It differs from
    /// [`Rng::below`], and published figures depend on both.
    pub fn scaled(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number below `end` for use as an index; 0 if `end` is 0.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end.max(1) as u64)).unwrap_or(0)
    }

    /// A number in `range`, which is not empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True once in `of` times.
    pub fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of `choices`; draws nothing and returns `None` if there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        (!choices.is_empty()).then(|| &choices[self.index(choices.len())])
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            part.copy_from_slice(&self.bits().to_le_bytes()[..part.len()]);
        }
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.fill(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words for seed 0 are those of the published algorithm; the other constructors
    /// decide the lab's figures and the seeds of power cuts.
    #[test]
    fn the_sequences_are_those_that_figures_were_published_with() {
        let mut rng = Rng::new(0);
        let first = [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        // `new` of the state that each constructor documents.
        assert_eq!(Rng::keyed(5, 9).bits(), Rng::new(12).bits());
        assert_eq!(Rng::spread(0).bits(), first[1]);
        let state = 3u64.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15;
        assert_eq!(Rng::spread(3).bits(), Rng::new(state).bits());
        // The two ways to make a number below another differ.
        assert_eq!(Rng::new(0).below(1000), first[0] % 1000);
        assert_eq!(Rng::new(0).scaled(1000), 883);
        assert_eq!(Rng::new(0).scaled(0), 0);
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_all_values() {
        let mut rng = Rng::new(1);
        let mut seen = [[false; 7]; 4];
        for _ in 0..1000 {
            seen[0][rng.below(7) as usize] = true;
            seen[1][rng.scaled(7) as usize] = true;
            seen[2][rng.index(7)] = true;
            seen[3][rng.range(100..107) as usize - 100] = true;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert_eq!(seen, [[true; 7]; 4]);
        assert_eq!(rng.index(0), 0);
        assert!((900..1100).contains(&(0..4000).filter(|_| rng.once_in(4)).count()));
        assert!((900..1100).contains(&(0..4000).filter(|_| rng.chance(0.25)).count()));
        assert!(rng.once_in(1) && rng.chance(1.0) && !rng.chance(0.0));
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert_eq!(rng.pick(&[3]), Some(&3));
    }

    #[test]
    fn bytes_and_fill_agree_for_every_length() {
        for len in 0..40 {
            let mut filled = vec![0; len];
            Rng::new(7).fill(&mut filled);
            assert_eq!(filled, Rng::new(7).bytes(len));
            // A shorter result is the start of a longer one.
            assert_eq!(filled, Rng::new(7).bytes(40)[..len]);
        }
    }
}
