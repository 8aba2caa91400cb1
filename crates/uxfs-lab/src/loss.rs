//! How much time a power cut may take back in ordered mode: `loss`, and what the disk took longer than half of
//! it to write.
//!
//! 1. Only time in which the disk had a write or a flush to do excuses a longer loss. An engine that
//!    waits is not excused.

use crate::sim::{Kind, Trace};

/// The times in which a disk wrote or flushed.
pub(crate) struct BusyTimes {
    /// Ascending, apart from each other.
    spans: Vec<(u64, u64)>,
    loss: u64,
}

impl BusyTimes {
    /// Of the disk of a run that promises `loss_s` seconds.
    pub(crate) fn new(trace: &Trace, loss_s: u32) -> Self {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        // Events are in the order of their submission.
        for event in trace.events.iter().filter(|event| event.kind != Kind::Read) {
            match spans.last_mut() {
                Some(last) if event.asked <= last.1 => last.1 = last.1.max(event.done),
                _ => spans.push((event.asked, event.done)),
            }
        }
        Self { spans, loss: u64::from(loss_s) * 1_000_000_000 }
    }

    /// The disk's busy nanoseconds between two times.
    fn between(&self, from: u64, until: u64) -> u64 {
        let first = self.spans.partition_point(|span| span.1 <= from);
        let spans = self.spans[first..].iter().take_while(|span| span.0 < until);
        spans.map(|span| span.1.min(until) - span.0.max(from)).sum()
    }

    /// May a cut take back everything since `from`?
    pub(crate) fn excuse(&self, from: u64, cut: u64) -> bool {
        let longer = self.between(from, cut).saturating_sub(self.loss / 2);
        cut - from <= self.loss + longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Event;

    #[test]
    fn only_a_busy_disk_excuses_a_longer_loss() {
        const S: u64 = 1_000_000_000;
        let event = |kind, asked, done| Event { asked, done, kind, at: 0, len: 0, content: None };
        let events = vec![
            event(Kind::Write, 10 * S, 13 * S),
            event(Kind::Write, 12 * S, 14 * S),
            event(Kind::Flush, 14 * S, 15 * S),
            event(Kind::Read, 15 * S, 40 * S),
        ];
        let trace = Trace { events, ..Trace::default() };
        let busy = BusyTimes::new(&trace, 4);
        assert_eq!(busy.between(0, 100 * S), 5 * S);
        assert_eq!(busy.between(11 * S, 13 * S), 2 * S);
        assert!(busy.excuse(20 * S, 24 * S) && !busy.excuse(20 * S, 24 * S + 1));
        // Busy for 5 s, of which 2 are allowed anyway.
        assert!(busy.excuse(9 * S, 16 * S) && !busy.excuse(9 * S, 16 * S + 1));
    }
}
