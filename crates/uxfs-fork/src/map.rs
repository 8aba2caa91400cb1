//! Which delta holds each block of a child.
//!
//! 1. Runs do not overlap. A run that is entered hides what was entered before.

use std::collections::BTreeMap;

/// Where the content of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Zeroes,
    /// A delta, by its number in the file's list, and the offset in its content.
    Delta(usize, u64),
}

impl Source {
    /// The source of the block that lies `blocks` behind.
    fn behind(self, blocks: u64) -> Self {
        match self {
            Self::Zeroes => Self::Zeroes,
            Self::Delta(delta, at) => Self::Delta(delta, at + blocks * crate::BLOCK as u64),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    /// Runs by their first block: one behind the last, and the source of the first.
    runs: BTreeMap<u64, (u64, Source)>,
    blocks: u64,
}

impl Map {
    /// Blocks that are in the map.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Enters `count` blocks from `first` on.
    pub(crate) fn enter(&mut self, first: u64, count: u64, source: Source) {
        let end = first + count;
        let overlapping: Vec<u64> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|(_, (to, _))| *to > first)
            .map(|(from, _)| *from)
            .collect();
        for from in overlapping {
            let Some((to, older)) = self.runs.remove(&from) else { continue };
            self.blocks -= to - from;
            if from < first {
                self.put(from, first, older);
            }
            if to > end {
                self.put(end, to, older.behind(end - from));
            }
        }
        self.put(first, end, source);
    }

    fn put(&mut self, from: u64, to: u64, source: Source) {
        self.runs.insert(from, (to, source));
        self.blocks += to - from;
    }

    /// The source of a block; `None` if it is the base's.
    pub(crate) fn get(&self, block: u64) -> Option<Source> {
        let (from, (to, source)) = self.runs.range(..=block).next_back()?;
        (*to > block).then(|| source.behind(block - from))
    }

    /// The first block from `block` on that is not the base's.
    pub(crate) fn next(&self, block: u64) -> Option<u64> {
        match self.get(block) {
            Some(_) => Some(block),
            None => self.runs.range(block..).next().map(|(from, _)| *from),
        }
    }

    /// The runs, ascending: first block, number of blocks, source of the first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64, Source)> + '_ {
        self.runs.iter().map(|(from, (to, source))| (*from, to - from, *source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uxfs_testkit::Rng;

    #[test]
    fn the_last_run_of_a_block_counts() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut map, mut model) = (Map::default(), [None; 100]);
            for delta in 0..30 {
                let first = rng.below(100);
                let count = 1 + rng.below((100 - first).min(30));
                let zeroes = rng.below(4) == 0;
                let source = if zeroes { Source::Zeroes } else { Source::Delta(delta, 8192) };
                map.enter(first, count, source);
                for block in first..first + count {
                    model[block as usize] = Some(source.behind(block - first));
                }
            }
            let found: Vec<_> = (0..100).map(|block| map.get(block)).collect();
            assert_eq!(found, model, "seed {seed}");
            assert_eq!(map.blocks(), model.iter().flatten().count() as u64);
            assert_eq!(map.runs().map(|(_, count, _)| count).sum::<u64>(), map.blocks());
        }
    }
}
