//! The values that one part of a volume had in the course of a history: a name, a page, a length.
//!
//! 1. A call may be in effect from its beginning on, and is in effect from its end on.
//! 2. Of two calls that overlap, either may be the later one.

use super::positions::Positions;

/// A call that set a value: where it began and ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Something that calls set as a whole.
#[derive(Clone, Debug)]
pub(super) struct Versions<V> {
    initial: V,
    /// In the order of their ends.
    sets: Vec<(Set, V)>,
}

impl<V> Versions<V> {
    pub(super) fn new(initial: V) -> Self {
        Self { initial, sets: Vec::new() }
    }

    pub(super) fn set(&mut self, set: Set, value: V) {
        self.sets.push((set, value));
    }

    pub(super) fn last(&self) -> &V {
        self.sets.last().map_or(&self.initial, |(_, value)| value)
    }

    /// The end of the last call; 0 if there was none.
    pub(super) fn last_end(&self) -> u64 {
        self.sets.last().map_or(0, |(set, _)| set.end)
    }

    /// The values before and after the call that ended there.
    pub(super) fn around(&self, end: u64) -> Option<(&V, &V)> {
        let at = self.sets.binary_search_by_key(&end, |(set, _)| set.end).ok()?;
        let before = at.checked_sub(1).map_or(&self.initial, |at| &self.sets[at].1);
        Some((before, &self.sets[at].1))
    }

    /// Each value, and the positions at which it may be the one in effect.
    pub(super) fn spans(&self) -> impl Iterator<Item = (&V, Positions)> {
        let initial = (Set { begin: 0, end: 0 }, &self.initial);
        let all =
            core::iter::once(initial).chain(self.sets.iter().map(|(set, value)| (*set, value)));
        all.map(|(set, value)| {
            // The first to end of those that surely came later ends the span.
            let from = self.sets.partition_point(|(other, _)| other.end <= set.end);
            let later = self.sets[from..].iter().find(|(other, _)| other.begin > set.end);
            (value, Positions::of(set.begin..later.map_or(u64::MAX, |(other, _)| other.end)))
        })
    }

    /// The positions at which a value may be in effect.
    pub(super) fn when(&self, wanted: impl Fn(&V) -> bool) -> Positions {
        let spans = self.spans().filter(|(value, _)| wanted(value));
        spans.fold(Positions::default(), |all, (_, span)| all.or(span))
    }
}

/// A length of a file: set by cuts, raised by writes.
#[derive(Clone, Debug)]
pub(super) struct Length {
    eras: Vec<Era>,
}

/// From one cut to the next.
#[derive(Clone, Debug)]
struct Era {
    cut: Set,
    base: u64,
    /// The length after all writes so far.
    last: u64,
    /// Writes, in the order of their ends, and up to which offset each wrote.
    writes: Vec<(Set, u64)>,
}

impl Era {
    fn new(cut: Set, base: u64) -> Self {
        Self { cut, base, last: base, writes: Vec::new() }
    }
}

impl Length {
    pub(super) fn new(initial: u64) -> Self {
        Self { eras: vec![Era::new(Set { begin: 0, end: 0 }, initial)] }
    }

    /// The length after all calls so far.
    pub(super) fn last(&self) -> u64 {
        self.eras.last().map_or(0, |era| era.last)
    }

    /// A write up to this offset. False if it overlapped a cut, so that its effect is unknown.
    pub(super) fn wrote(&mut self, set: Set, to: u64) -> bool {
        let Some(era) = self.eras.last_mut() else { return false };
        era.writes.push((set, to));
        era.last = era.last.max(to);
        set.begin > era.cut.end
    }

    /// A cut to this length. False if it overlapped a write.
    pub(super) fn cut(&mut self, set: Set, size: u64) -> bool {
        let last = self.eras.last().and_then(|era| era.writes.last()).map_or(0, |(set, _)| set.end);
        self.eras.push(Era::new(set, size));
        set.begin > last
    }

    /// The positions at which the file may have this length.
    pub(super) fn when(&self, length: u64) -> Positions {
        let mut all = Positions::default();
        for (number, era) in self.eras.iter().enumerate() {
            let next = self.eras.get(number + 1).map_or(u64::MAX, |next| next.cut.end);
            let longer = era.writes.iter().filter(|(_, to)| *to > length);
            let until = longer.map(|(set, _)| set.end).fold(next, u64::min);
            let same = era.writes.iter().filter(|(_, to)| *to == length).map(|(set, _)| set.begin);
            let from = match era.base == length {
                true => Some(era.cut.begin),
                false => same.min().filter(|_| era.base < length),
            };
            if let Some(from) = from {
                all = all.or(Positions::of(from..until));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(begin: u64, end: u64) -> Set {
        Set { begin, end }
    }

    #[test]
    fn a_value_may_hold_from_its_calls_begin_to_the_next_ones_end() {
        let mut versions = Versions::new('a');
        versions.set(set(2, 5), 'b');
        versions.set(set(7, 9), 'a');
        assert_eq!(versions.when(|v| *v == 'b'), Positions::of(2..9));
        assert_eq!(
            versions.when(|v| *v == 'a'),
            Positions::of(0..5).or(Positions::of(7..u64::MAX))
        );
        assert_eq!(versions.when(|v| *v == 'c'), Positions::default());
        assert_eq!(versions.around(9), Some((&'b', &'a')));
        assert_eq!(versions.around(8), None);
    }

    /// Of two calls that overlap either may be the last.
    #[test]
    fn calls_that_overlap_have_no_order() {
        let mut versions = Versions::new('a');
        versions.set(set(1, 4), 'b');
        versions.set(set(2, 5), 'c');
        versions.set(set(6, 8), 'd');
        assert_eq!(versions.when(|v| *v == 'b'), Positions::of(1..8));
        assert_eq!(versions.when(|v| *v == 'c'), Positions::of(2..8));
        assert_eq!(versions.when(|v| *v == 'a'), Positions::of(0..4));
    }

    #[test]
    fn a_length_is_raised_by_writes_and_set_by_cuts() {
        let mut length = Length::new(10);
        // Two writes that overlap, the one at the lower offset ends later.
        assert!(length.wrote(set(1, 3), 30) && length.wrote(set(2, 4), 20));
        assert_eq!(length.when(10), Positions::of(0..3));
        assert_eq!(length.when(20), Positions::of(2..3));
        assert_eq!(length.when(30), Positions::of(1..u64::MAX));
        assert!(length.cut(set(6, 7), 20) && length.wrote(set(8, 9), 25));
        assert_eq!(length.when(20), Positions::of(2..3).or(Positions::of(6..9)));
        assert_eq!(length.when(30), Positions::of(1..7));
        assert!(!length.cut(set(9, 10), 0), "it began before the write ended");
    }
}
