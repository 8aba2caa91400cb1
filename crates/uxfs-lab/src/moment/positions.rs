//! A set of positions in a history: the moments that an observation allows.

use core::ops::Range;

/// Ranges of positions, ascending, apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions(Vec<Range<u64>>);

impl Positions {
    pub(super) fn all() -> Self {
        Self::of(0..u64::MAX)
    }

    pub(super) fn of(range: Range<u64>) -> Self {
        Self(if range.is_empty() { Vec::new() } else { vec![range] })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is in either.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.0.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(self.0.len());
        for range in self.0 {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        Self(joined)
    }

    /// What is in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let range = x.start.max(y.start)..x.end.min(y.end);
            if !range.is_empty() {
                common.push(range);
            }
            if x.end < y.end {
                a.next();
            } else {
                b.next();
            }
        }
        Self(common)
    }

    /// The positions, the latest first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = u64> {
        self.0.iter().rev().flat_map(|range| range.clone().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_joined_and_cut() {
        let a = Positions::of(3..6).or(Positions::of(9..12));
        assert_eq!(a.clone().or(Positions::of(6..9)), Positions::of(3..12));
        assert_eq!(a.and(&Positions::of(5..10)), Positions::of(5..6).or(Positions::of(9..10)));
        assert!(a.and(&Positions::of(6..9)).is_empty());
        assert_eq!(a.and(&Positions::all()), a);
        assert_eq!(a.latest_first().collect::<Vec<_>>(), [11, 10, 9, 5, 4, 3]);
        assert!(Positions::of(4..4).is_empty());
    }
}
