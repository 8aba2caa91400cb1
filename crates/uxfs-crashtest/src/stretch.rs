//! Parts of a timeline, few enough to be drawn.
//!
//! 1. Neighbours of one kind that change one thing are one stretch, with their number. The last
//!    acknowledgement before the cut, a missing call and the cut stand alone.
//! 2. If there are still too many, those far from the failure are folded: a folded stretch says how
//!    many events of which kind it holds.
//! 3. There are at most as many stretches as asked for, whatever the recording.

use std::ops::Range;

use crate::timeline::{Moment, MomentKind, Timeline};

/// Fewest stretches that can be asked for.
pub(crate) const LEAST: usize = 12;

/// Moments that are drawn as one mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// `None` if several kinds are folded.
    pub kind: Option<MomentKind>,
    /// The first event and the last.
    pub events: (usize, usize),
    pub count: usize,
    pub words: String,
}

impl Timeline {
    /// All of it in at most `most` stretches.
    pub fn stretches(&self, most: usize) -> Vec<Stretch> {
        let most = most.max(LEAST);
        let groups = self.groups();
        let last_ack = self.last_ack();
        let matters = |group: &Range<usize>| {
            self.moments[group.start].kind.is_failure() || last_ack == Some(group.start)
        };
        let matters: Vec<usize> = (0..groups.len()).filter(|at| matters(&groups[*at])).collect();
        let mut stretches = Vec::new();
        let mut next = 0;
        for shown in shown(groups.len(), &matters, most) {
            // What is folded is not shorter than it.
            if shown.start > next {
                let folded = groups[next].start..groups[shown.start - 1].end;
                stretches.push(self.folded(folded, shown.start - next));
            }
            stretches.extend(groups[shown.clone()].iter().map(|group| self.merged(group)));
            next = shown.end;
        }
        if let (true, Some(last)) = (next < groups.len(), groups.last()) {
            stretches.push(self.folded(groups[next].start..last.end, groups.len() - next));
        }
        stretches
    }

    /// Neighbours that are alike.
    fn groups(&self) -> Vec<Range<usize>> {
        let last_ack = self.last_ack();
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (at, moment) in self.moments.iter().enumerate() {
            let alone = |at: usize| last_ack == Some(at) || stands_alone(&self.moments[at]);
            match groups.last_mut() {
                Some(group)
                    if alike(&self.moments[group.start], moment)
                        && !alone(at)
                        && !alone(group.start) =>
                {
                    group.end = at + 1;
                }
                _ => groups.push(at..at + 1),
            }
        }
        groups
    }

    /// A group as one stretch.
    fn merged(&self, group: &Range<usize>) -> Stretch {
        let moments = &self.moments[group.clone()];
        let (first, last) = (&moments[0], &moments[moments.len() - 1]);
        let bytes: u64 = moments.iter().map(|moment| moment.bytes).sum();
        let thing = first.thing.as_deref().unwrap_or_default();
        let count = moments.len();
        let words = match first.kind {
            _ if count == 1 => first.words.clone(),
            MomentKind::Acknowledged => {
                format!("{count} acknowledgements: {} to {}", first.words, last.words)
            }
            MomentKind::Flush => format!("{count} flushes"),
            kind if kind.is_write() => format!("{count} writes, {bytes} bytes of {thing}"),
            _ => format!("writing {bytes} bytes of {thing} in {count} parts"),
        };
        Stretch { kind: Some(first.kind), events: (first.event, last.event), count, words }
    }

    /// Groups that are left out of the picture.
    fn folded(&self, range: Range<usize>, groups: usize) -> Stretch {
        if groups == 1 {
            return self.merged(&range);
        }
        let moments = &self.moments[range];
        let count = |wanted: fn(MomentKind) -> bool| {
            moments.iter().filter(|moment| wanted(moment.kind)).count()
        };
        let parts = [
            (count(MomentKind::is_write), "writes"),
            (
                count(|kind| matches!(kind, MomentKind::Lost | MomentKind::Torn)),
                "of them lost or torn",
            ),
            (count(|kind| kind == MomentKind::Flush), "flushes"),
            (count(|kind| kind == MomentKind::Acknowledged), "acknowledgements"),
            (
                count(|kind| matches!(kind, MomentKind::Changed | MomentKind::Unsynced)),
                "changes of files",
            ),
            (count(|kind| kind == MomentKind::Synced), "syncs"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        let events = (moments[0].event, moments[moments.len() - 1].event);
        Stretch { kind: None, events, count: moments.len(), words: parts.join(", ") }
    }
}

fn stands_alone(moment: &Moment) -> bool {
    moment.kind.is_failure()
        && !matches!(moment.kind, MomentKind::Lost | MomentKind::Torn | MomentKind::Reordered)
}

fn alike(one: &Moment, other: &Moment) -> bool {
    let plain = matches!(one.kind, MomentKind::Flush | MomentKind::Acknowledged);
    one.kind == other.kind && one.thing == other.thing && (plain || one.thing.is_some())
}

/// Which of `all` groups are shown: as much as fits around those that matter, or, where none does,
/// the start and the end.
fn shown(all: usize, matters: &[usize], most: usize) -> Vec<Range<usize>> {
    if all <= most {
        return std::iter::once(0..all).collect();
    }
    // With each range goes the folded stretch before it, and one at the end.
    let fits =
        |ranges: &[Range<usize>]| ranges.iter().map(|range| range.len() + 1).sum::<usize>() < most;
    if matters.is_empty() {
        let half = (most - 1) / 2;
        return vec![0..half, all - half..all];
    }
    let mut radius = most;
    loop {
        let ranges = around(all, matters, radius, radius / 2);
        if fits(&ranges) {
            return ranges;
        }
        if radius == 0 {
            break;
        }
        radius = radius * 3 / 4;
    }
    // Too many matter: the first of them, and the last, where the cut is.
    let (first, last) = (most / 8, most / 4);
    let few = [&matters[..first], &matters[matters.len() - last..]].concat();
    around(all, &few, 0, 0)
}

/// The ranges from `before` groups before each to `after` behind it.
fn around(all: usize, matters: &[usize], before: usize, after: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in matters {
        let range = at.saturating_sub(before)..(at + after + 1).min(all);
        match ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = range.end.max(last.end),
            _ => ranges.push(range),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(event: usize, kind: MomentKind, thing: Option<&str>) -> Moment {
        let words = format!("{} {event}", kind.name());
        Moment { event, kind, words, thing: thing.map(Into::into), bytes: 10 }
    }

    fn timeline(moments: Vec<Moment>) -> Timeline {
        Timeline { moments, at_risk: 0 }
    }

    #[test]
    fn neighbours_that_are_alike_are_one_and_what_matters_stands_alone() {
        use MomentKind::{Acknowledged, Cut, Flush, Kept, Lost};
        let kinds = [
            (Kept, Some("log")),
            (Kept, Some("log")),
            (Kept, Some("m0")),
            (Lost, Some("m0")),
            (Lost, Some("m0")),
            (Flush, None),
            (Acknowledged, None),
            (Acknowledged, None),
            (Acknowledged, None),
            (Cut, None),
        ];
        let moments =
            kinds.iter().enumerate().map(|(at, (kind, thing))| moment(at, *kind, *thing)).collect();
        let stretches = timeline(moments).stretches(100);
        let shown: Vec<(usize, usize)> =
            stretches.iter().map(|stretch| (stretch.events.0, stretch.count)).collect();
        assert_eq!(shown, [(0, 2), (2, 1), (3, 2), (5, 1), (6, 2), (8, 1), (9, 1)]);
        assert_eq!(stretches[2].words, "2 writes, 20 bytes of m0");
        assert_eq!(stretches[4].words, "2 acknowledgements: ack 6 to ack 7");
    }

    /// Whatever matters where, nothing is left out without a fold that counts it, and there is
    /// never more than was asked for.
    #[test]
    fn there_are_never_more_than_asked_for_and_each_moment_is_counted_once() {
        use MomentKind::{Acknowledged, Cut, Flush, Kept, Lost};
        for step in [1, 2, 3, 7, 50, 999] {
            let kind = |at: usize| match at {
                2999 => Cut,
                at if at % step == 0 => Lost,
                at if at % 3 == 0 => Flush,
                at if at % 3 == 1 => Acknowledged,
                _ => Kept,
            };
            let thing = |at: usize| ["a", "b"][at / 2 % 2];
            let moments = (0..3000).map(|at| moment(at, kind(at), Some(thing(at)))).collect();
            let timeline = timeline(moments);
            for most in [LEAST, 13, 36, 100, 240] {
                let stretches = timeline.stretches(most);
                assert!(stretches.len() <= most, "{step}: {} for {most}", stretches.len());
                assert_eq!(stretches.iter().map(|stretch| stretch.count).sum::<usize>(), 3000);
                assert!(stretches.is_sorted_by_key(|stretch| stretch.events.0));
                assert_eq!(stretches.last().map(|stretch| stretch.kind), Some(Some(Cut)));
            }
        }
    }
}
