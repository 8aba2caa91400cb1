//! The write cache of a hard disk: sectors that are written for the host, but not on the platters.
//!
//! A sector that is written twice before it is on the platters keeps the age of its first write, so
//! a flush between the two writes still waits for it.

use std::collections::BTreeMap;

/// A run of sectors in the cache.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    age: u64,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    runs: BTreeMap<u64, Run>,
    sectors: u64,
    /// Number of runs of each age.
    ages: BTreeMap<u64, u64>,
}

impl Cache {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.ages.keys().next().copied()
    }

    /// Are all sectors in `from..to` cached?
    pub(super) fn holds(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            match self.runs.range(..=at).next_back() {
                Some((_, run)) if run.end > at => at = run.end,
                _ => return false,
            }
        }
        true
    }

    /// Adds sectors that were written at `age`.
    pub(super) fn add(&mut self, from: u64, to: u64, age: u64) {
        let mut at = from;
        while at < to {
            if let Some((_, run)) = self.runs.range(..=at).next_back()
                && run.end > at
            {
                at = run.end;
                continue;
            }
            let next = self.runs.range(at..to).next().map_or(to, |(start, _)| *start);
            self.runs.insert(at, Run { end: next, age });
            *self.ages.entry(age).or_default() += 1;
            self.sectors += next - at;
            at = next;
        }
    }

    /// Removes sectors that are written to the platters directly, and returns the age of the oldest. Parts
    /// of runs may remain.
    pub(super) fn remove(&mut self, from: u64, to: u64) -> Option<u64> {
        let begin = self.runs.range(..=from).next_back().filter(|(_, run)| run.end > from);
        let begin = begin.map_or(from, |(start, _)| *start);
        let hit: Vec<(u64, Run)> = self.runs.range(begin..to).map(|(s, r)| (*s, *r)).collect();
        let oldest = hit.iter().map(|(_, run)| run.age).min();
        for (start, run) in hit {
            self.take(start);
            for (left, right) in [(start, run.end.min(from)), (start.max(to), run.end)] {
                if left < right {
                    self.add(left, right, run.age);
                }
            }
        }
        oldest
    }

    fn take(&mut self, start: u64) -> Option<Run> {
        let run = self.runs.remove(&start)?;
        self.sectors -= run.end - start;
        if let Some(count) = self.ages.get_mut(&run.age) {
            *count -= 1;
            if *count == 0 {
                self.ages.remove(&run.age);
            }
        }
        Some(run)
    }

    /// Start of the next run at or behind `sector`; wraps around to the first run.
    pub(super) fn next(&self, sector: u64) -> Option<u64> {
        let behind = self.runs.range(sector..).next();
        behind.or_else(|| self.runs.iter().next()).map(|(start, _)| *start)
    }

    /// Removes the run at `start` and those that continue it, up to about `most` sectors. Returns
    /// their end and the age of the oldest.
    pub(super) fn take_from(&mut self, start: u64, most: u64) -> Option<(u64, u64)> {
        let first = self.take(start)?;
        let (mut end, mut age) = (first.end, first.age);
        while end - start < most
            && let Some(run) = self.take(end)
        {
            (end, age) = (run.end, age.min(run.age));
        }
        Some((end, age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewritten_sectors_keep_their_age() {
        let mut cache = Cache::default();
        cache.add(10, 20, 1);
        cache.add(5, 30, 2);
        assert_eq!((cache.sectors(), cache.oldest()), (25, Some(1)));
        assert!(cache.holds(5, 30) && !cache.holds(4, 6) && !cache.holds(29, 31));
        assert_eq!(cache.take_from(5, 100), Some((30, 1)));
        assert!(cache.is_empty() && cache.oldest().is_none() && cache.sectors() == 0);
    }

    #[test]
    fn removing_a_part_keeps_the_rest() {
        let mut cache = Cache::default();
        cache.add(0, 100, 7);
        cache.remove(20, 30);
        assert_eq!((cache.sectors(), cache.next(20), cache.next(90)), (90, Some(30), Some(0)));
        assert_eq!(cache.take_from(30, 100), Some((100, 7)));
        cache.remove(0, 20);
        assert!(cache.is_empty());
    }

    #[test]
    fn a_drain_stops_at_its_limit() {
        let mut cache = Cache::default();
        for (age, start) in (0..10).map(|i| (i, i * 10)) {
            cache.add(start, start + 10, age);
        }
        assert_eq!(cache.take_from(30, 20), Some((50, 3)));
        assert_eq!(cache.sectors(), 80);
    }
}
