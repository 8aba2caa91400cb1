//! The writes since the last flush, kept because a server that dies may lose them.
//!
//! 1. A write is entered before it is sent, so a new server receives also what the old one confirmed in the
//!    very moment in which it died.
//! 2. A flush removes what was confirmed before the flush was sent, and nothing else.
//! 3. Of overlapping writes the later entered one counts. Callers do not overlap writes in time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Memory that an entry takes besides its data, in bytes.
const ENTRY: usize = 64;

/// What a write leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Data(Arc<[u8]>),
    /// Zeroes, this many bytes.
    Zeroes(u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Zeroes(len) => *len,
        }
    }

    fn memory(&self) -> usize {
        ENTRY + if let Self::Data(data) = self { data.len() } else { 0 }
    }
}

struct Entry {
    number: u64,
    offset: u64,
    content: Content,
    /// When it was confirmed.
    confirmed: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Unflushed {
    entries: VecDeque<Entry>,
    bytes: usize,
    numbers: u64,
    /// Counts what happens, so that before and after can be compared.
    clock: u64,
}

/// A part of what has to be written again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Data(&'a [u8]),
    Zeroes(u64),
}

impl Unflushed {
    /// Bytes of memory that the entries take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enters a write that is about to be sent. Returns its number.
    pub(crate) fn enter(&mut self, offset: u64, content: Content) -> u64 {
        self.numbers += 1;
        self.bytes += content.memory();
        let number = self.numbers;
        self.entries.push_back(Entry { number, offset, content, confirmed: None });
        number
    }

    /// Notes that the server confirmed a write.
    pub(crate) fn confirm(&mut self, number: u64) {
        self.clock += 1;
        if let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number) {
            self.entries[at].confirmed = Some(self.clock);
        }
    }

    /// Forgets a write that the server refused.
    pub(crate) fn withdraw(&mut self, number: u64) {
        if let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number)
            && let Some(entry) = self.entries.remove(at)
        {
            self.bytes -= entry.content.memory();
        }
    }

    /// The moment at which a flush is sent.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// Removes what was confirmed up to a moment: a flush that was sent then has ended.
    pub(crate) fn flushed(&mut self, moment: u64) {
        self.entries.retain(|entry| entry.confirmed.is_none_or(|at| at > moment));
        self.bytes = self.entries.iter().map(|entry| entry.content.memory()).sum();
    }

    /// What a new server has to receive: parts that do not overlap, in ascending order.
    pub(crate) fn parts(&self) -> Vec<(u64, Part<'_>)> {
        // By start: the end, and the entry with the place in it.
        let mut map: BTreeMap<u64, (u64, &Entry)> = BTreeMap::new();
        for entry in &self.entries {
            let (from, to) = (entry.offset, entry.offset + entry.content.len());
            let hidden: Vec<u64> = map
                .range(..to)
                .rev()
                .take_while(|(_, (end, _))| *end > from)
                .map(|(start, _)| *start)
                .collect();
            for start in hidden {
                let Some((end, older)) = map.remove(&start) else { continue };
                if start < from {
                    map.insert(start, (from, older));
                }
                if end > to {
                    map.insert(to, (end, older));
                }
            }
            map.insert(from, (to, entry));
        }
        map.into_iter()
            .map(|(start, (end, entry))| match &entry.content {
                Content::Data(data) => {
                    let at = |offset: u64| (offset - entry.offset) as usize;
                    (start, Part::Data(&data[at(start)..at(end)]))
                }
                Content::Zeroes(_) => (start, Part::Zeroes(end - start)),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uxfs_testkit::Rng;

    fn data(byte: u8, len: usize) -> Content {
        Content::Data(vec![byte; len].into())
    }

    #[test]
    fn a_flush_removes_what_was_confirmed_before_it() {
        let mut kept = Unflushed::default();
        let (first, second) = (kept.enter(0, data(1, 10)), kept.enter(10, data(2, 10)));
        kept.confirm(first);
        let moment = kept.now();
        kept.confirm(second);
        let third = kept.enter(20, Content::Zeroes(1 << 30));
        kept.flushed(moment);
        assert_eq!(kept.parts(), [(10, Part::Data(&[2; 10])), (20, Part::Zeroes(1 << 30))]);
        kept.withdraw(third);
        kept.flushed(kept.now());
        assert_eq!((kept.parts().len(), kept.bytes()), (0, 0));
    }

    #[test]
    fn the_parts_are_what_the_writes_leave() {
        const LEN: u64 = 200;
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut kept, mut wanted) = (Unflushed::default(), [None; LEN as usize]);
            for byte in 1..20 {
                let from = rng.below(LEN);
                let len = 1 + rng.below((LEN - from).min(60));
                let zero = rng.below(4) == 0;
                let content = if zero { Content::Zeroes(len) } else { data(byte, len as usize) };
                kept.enter(from, content);
                wanted[from as usize..(from + len) as usize].fill(Some(if zero {
                    0
                } else {
                    byte
                }));
            }
            let mut found = [None; LEN as usize];
            let mut last = 0;
            for (start, part) in kept.parts() {
                assert!(start >= last, "seed {seed}: parts overlap");
                let bytes = match part {
                    Part::Data(bytes) => bytes.to_vec(),
                    Part::Zeroes(len) => vec![0; len as usize],
                };
                last = start + bytes.len() as u64;
                for (at, byte) in bytes.into_iter().enumerate() {
                    found[start as usize + at] = Some(byte);
                }
            }
            assert_eq!(found, wanted, "seed {seed}");
        }
    }
}
