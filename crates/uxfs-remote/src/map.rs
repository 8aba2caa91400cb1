//! Which delta of a checkpoint holds each block.

use std::collections::BTreeMap;

use uxfs_delta::Extent;

/// Where a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the content of the layer with this number, from this byte on.
    Layer(usize, u64),
    Zeroes,
}

/// A run of blocks with one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) source: Source,
}

impl Run {
    /// The part of the run in `first..end`, which overlaps it.
    fn within(&self, first: u64, end: u64, block: u64) -> Self {
        let start = self.first.max(first);
        let stop = (self.first + self.count).min(end);
        let source = match self.source {
            Source::Layer(layer, at) => Source::Layer(layer, at + (start - self.first) * block),
            Source::Zeroes => Source::Zeroes,
        };
        Self { first: start, count: stop - start, source }
    }
}

/// The runs of a checkpoint. What is in no run is zero.
#[derive(Debug)]
pub(crate) struct Map {
    block: u64,
    runs: BTreeMap<u64, Run>,
}

impl Map {
    /// Nothing, in blocks of `block` bytes.
    pub(crate) fn new(block: u64) -> Self {
        Self { block, runs: BTreeMap::new() }
    }

    /// Lays a delta over what is there.
    pub(crate) fn lay(&mut self, layer: usize, extents: &[Extent]) {
        for extent in extents {
            let source = extent.at.map_or(Source::Zeroes, |at| Source::Layer(layer, at));
            self.put(Run { first: extent.first, count: extent.count, source });
        }
    }

    fn put(&mut self, new: Run) {
        let end = new.first + new.count;
        let before = self.runs.range(..new.first).next_back().map(|(_, run)| *run);
        if let Some(run) = before.filter(|run| run.first + run.count > new.first) {
            let old_end = run.first + run.count;
            self.runs.insert(run.first, run.within(run.first, new.first, self.block));
            if old_end > end {
                self.runs.insert(end, run.within(end, old_end, self.block));
            }
        }
        let covered: Vec<Run> = self.runs.range(new.first..end).map(|(_, run)| *run).collect();
        for run in covered {
            self.runs.remove(&run.first);
            if run.first + run.count > end {
                self.runs.insert(end, run.within(end, run.first + run.count, self.block));
            }
        }
        self.runs.insert(new.first, new);
    }

    /// All runs, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// The runs of `count` blocks from `first` on, without gaps.
    pub(crate) fn find(&self, first: u64, count: u64) -> Vec<Run> {
        let end = first + count;
        let from = self.runs.range(..=first).next_back().map_or(first, |(at, _)| *at);
        let mut found = Vec::new();
        let mut next = first;
        for run in self.runs.range(from..end).map(|(_, run)| run) {
            if run.first + run.count <= first {
                continue;
            }
            if run.first > next {
                found.push(Run { first: next, count: run.first - next, source: Source::Zeroes });
            }
            let part = run.within(first, end, self.block);
            next = part.first + part.count;
            found.push(part);
        }
        if next < end {
            found.push(Run { first: next, count: end - next, source: Source::Zeroes });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use uxfs_testkit::Rng;

    use super::*;

    /// A map agrees with a table of all blocks, whatever is laid over it.
    #[test]
    fn the_last_layer_holds() {
        const BLOCKS: u64 = 200;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut map = Map::new(10);
            let mut table = vec![Source::Zeroes; BLOCKS as usize];
            for layer in 0..6 {
                let (mut at, mut content) = (rng.below(40), 0);
                let mut extents = Vec::new();
                while at < BLOCKS {
                    let count = 1 + rng.below((BLOCKS - at).min(30));
                    let stored = !rng.once_in(4);
                    extents.push(Extent { first: at, count, at: stored.then_some(content) });
                    for number in 0..count {
                        let source = Source::Layer(layer, content + 10 * number);
                        table[(at + number) as usize] =
                            if stored { source } else { Source::Zeroes };
                    }
                    content += if stored { 10 * count } else { 0 };
                    at += count + rng.below(40);
                }
                map.lay(layer, &extents);
            }
            for _ in 0..50 {
                let first = rng.below(BLOCKS);
                let count = 1 + rng.below(BLOCKS - first);
                let mut next = first;
                for run in map.find(first, count) {
                    assert_eq!(run.first, next, "seed {seed}");
                    for number in 0..run.count {
                        let source = match run.source {
                            Source::Layer(layer, at) => Source::Layer(layer, at + 10 * number),
                            Source::Zeroes => Source::Zeroes,
                        };
                        assert_eq!(source, table[(next + number) as usize], "seed {seed}");
                    }
                    next += run.count;
                }
                assert_eq!(next, first + count, "seed {seed}");
            }
        }
    }
}
