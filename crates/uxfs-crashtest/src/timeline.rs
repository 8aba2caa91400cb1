//! What happened in a run, in its one order, and what became of it when the power failed.
//!
//! 1. Moments are in the order of the recording. A missing call stands where it belongs: behind
//!    what it would have kept.
//! 2. A write is lost, torn or reordered only if the state says so. Of the program's operations
//!    only those that the explanation names are known not to be durable.
//! 3. What came after the cut is left out, but for an operation that came too late.
//!
//! `Test` and `InProcess` make one for a failure, `Outcome` for each run. The page draws it
//! ([`Stretch`](crate::Stretch)).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uxfs_testkit::{Event, Survivor};

use crate::explain::{Explanation, Missing};
use crate::leg::Places;
use crate::names::Names;
use crate::operations::{Action, Operation};
use crate::recorder::{Mark, Run};
use crate::state::State;
use crate::tree::Tree;

/// Most letters of an acknowledgement: a program may write lines of any length.
const ACK_MAX: usize = 200;

/// What happened before the cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    pub moments: Vec<Moment>,
    /// The first event that no flush before the cut covers.
    pub at_risk: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Number of the event.
    pub event: usize,
    pub kind: MomentKind,
    pub words: String,
    /// What a write changes: a file, the log.
    pub thing: Option<String>,
    /// Bytes of a write.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MomentKind {
    /// A write that was durable at the cut, or survived it.
    Kept,
    /// A forced write (FUA), which is durable.
    Forced,
    /// A write that reached the disk after a later one.
    Reordered,
    Torn,
    Lost,
    Flush,
    Acknowledged,
    /// The program changed something.
    Changed,
    /// The program asked for durability.
    Synced,
    /// The program changed something, and a missing call would have kept it.
    Unsynced,
    /// The program changed something in a way that no call makes safe.
    Fault,
    /// A call that the program lacks.
    Missing,
    Cut,
    /// What the program did only after the cut.
    Later,
}

use MomentKind::{
    Acknowledged, Changed, Cut, Fault, Flush, Forced, Kept, Later, Lost, Reordered, Synced, Torn,
    Unsynced,
};

impl MomentKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kept => "kept",
            Forced => "forced",
            Reordered => "reordered",
            Torn => "torn",
            Lost => "lost",
            Flush => "flush",
            Acknowledged => "ack",
            Changed => "changed",
            Synced => "synced",
            Unsynced => "unsynced",
            Fault => "fault",
            Self::Missing => "missing",
            Cut => "cut",
            Later => "later",
        }
    }

    /// Is it a write of the disk?
    pub fn is_write(self) -> bool {
        matches!(self, Kept | Forced | Reordered | Torn | Lost)
    }

    /// Does it belong to a failure, and not to any run?
    pub fn is_failure(self) -> bool {
        !matches!(self, Kept | Forced | Flush | Acknowledged | Changed | Synced)
    }
}

impl Moment {
    fn new(event: usize, kind: MomentKind, words: String) -> Self {
        Self { event, kind, words, thing: None, bytes: 0 }
    }
}

impl Timeline {
    /// The timeline of a failed state. `before` are the files before the run.
    pub(crate) fn new(
        run: &Run,
        state: &State,
        places: &Places,
        explanation: &Explanation,
        before: Option<&Tree>,
    ) -> Self {
        let mut moments = Self::past(run, state, places, explanation, before);
        match explanation {
            Explanation::Unknown { .. } => add_missing_flush(&mut moments),
            Explanation::Missing(calls) => {
                // Such a change is seen only when the kernel writes it, after the cut.
                for missing in calls.iter().filter(|missing| missing.after.is_none()) {
                    add_before_ack(&mut moments, &missing.call);
                }
            }
            _ => {}
        }
        moments.push(Moment::new(state.at, Cut, "power cut".into()));
        if let Explanation::Early { operation, number } = explanation {
            let mark = Event::Mark(Mark::Operation(*number));
            let event = run.recording.events().iter().position(|event| *event == mark);
            moments.push(Moment::new(event.unwrap_or(state.at), Later, operation.clone()));
        }
        Self { moments, at_risk: run.recording.window(state.at).start }
    }

    /// The timeline of a run without a cut.
    pub(crate) fn of_run(run: &Run) -> Self {
        let end = run.recording.len();
        let all = run.recording.at_risk(end).into_iter().map(Survivor::whole).collect();
        let state = State::new("", end, all);
        let unknown = Explanation::Unknown { why: String::new() };
        let moments = Self::past(run, &state, &Places::default(), &unknown, None);
        Self { moments, at_risk: run.recording.window(end).start }
    }

    /// What happened before the cut.
    fn past(
        run: &Run,
        state: &State,
        places: &Places,
        explanation: &Explanation,
        before: Option<&Tree>,
    ) -> Vec<Moment> {
        let window = run.recording.window(state.at);
        let fates = fates(state);
        let guilty = guilty(explanation);
        let mut names = Names::new(before);
        let mut moments = Vec::new();
        for (event, what) in run.recording.events()[..state.at].iter().enumerate() {
            match what {
                Event::Write { offset, data, fua } => {
                    let kind = match fates.get(&event) {
                        _ if *fua => Forced,
                        _ if !window.contains(&event) => Kept,
                        fate => fate.copied().unwrap_or(Lost),
                    };
                    let bytes = data.len() as u64;
                    let words = places.of(*offset, bytes);
                    let thing = Some(places.thing(*offset));
                    moments.push(Moment { event, kind, words, thing, bytes });
                }
                Event::Flush => moments.push(Moment::new(event, Flush, "flush".into())),
                Event::Mark(Mark::Acknowledged(number)) => {
                    let text = run.acks.get(number - 1).map_or("", String::as_str);
                    let words = text.chars().take(ACK_MAX).collect();
                    moments.push(Moment::new(event, Acknowledged, words));
                }
                Event::Mark(Mark::Operation(number)) => {
                    let Some(operation) = run.operations.all().get(number - 1) else { continue };
                    names.apply(&operation.what);
                    let mut moment = operated(event, operation, &names);
                    let mut missing = calls_after(explanation, *number).peekable();
                    if guilty == Some(*number) {
                        moment.kind = Fault;
                    } else if missing.peek().is_some() {
                        moment.kind = Unsynced;
                    }
                    moments.push(moment);
                    for call in missing {
                        moments.push(Moment::new(event, MomentKind::Missing, call.to_owned()));
                    }
                }
                Event::Mark(Mark::Started | Mark::Ended) => {}
            }
        }
        moments
    }

    /// The writes that the state lacks.
    pub fn lost(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter().filter(|moment| matches!(moment.kind, Lost | Torn))
    }

    /// The writes that reached the disk after later ones.
    pub fn reordered(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter().filter(|moment| moment.kind == Reordered)
    }

    /// The place among the moments of the last acknowledgement before the cut, if there is a cut.
    pub fn last_ack(&self) -> Option<usize> {
        let cut = self.moments.iter().rposition(|moment| moment.kind == Cut)?;
        self.moments[..cut].iter().rposition(|moment| moment.kind == Acknowledged)
    }
}

/// What became of the writes at risk that reached the disk.
fn fates(state: &State) -> HashMap<usize, MomentKind> {
    let mut latest = 0;
    let fate = |survivor: &Survivor| {
        let late = survivor.event < latest;
        latest = latest.max(survivor.event);
        let kind = match survivor.sectors {
            Some(_) => Torn,
            None if late => Reordered,
            None => Kept,
        };
        (survivor.event, kind)
    };
    state.survivors.iter().map(fate).collect()
}

/// The number of the operation that is at fault itself, whatever is synced.
fn guilty(explanation: &Explanation) -> Option<usize> {
    match explanation {
        Explanation::Order { number, .. } | Explanation::Torn { number, .. } => Some(*number),
        _ => None,
    }
}

/// The calls that are missing after this operation.
fn calls_after(explanation: &Explanation, number: usize) -> impl Iterator<Item = &str> {
    let calls: &[Missing] = match explanation {
        Explanation::Missing(calls) => calls,
        _ => &[],
    };
    let here = move |missing: &&Missing| missing.after == Some(number);
    calls.iter().filter(here).map(|missing| missing.call.as_str())
}

fn operated(event: usize, operation: &Operation, names: &Names) -> Moment {
    let words = operation.words(&|ino| names.file(ino), &|name| names.place(name));
    let kind = match operation.what {
        Action::Synced { .. } | Action::SyncedAll => Synced,
        _ => Changed,
    };
    let (thing, bytes) = match &operation.what {
        Action::Written { ino, data, .. } => (Some(names.file(*ino)), data.len() as u64),
        Action::TooLong { ino, len, .. } => (Some(names.file(*ino)), *len),
        _ => (None, 0),
    };
    Moment { event, kind, words, thing, bytes }
}

/// Adds a missing call before the last acknowledgement.
fn add_before_ack(moments: &mut Vec<Moment>, call: &str) {
    let ack = moments.iter().rposition(|moment| moment.kind == Acknowledged);
    let at = ack.unwrap_or(moments.len());
    let event = ack.map_or(0, |ack| moments[ack].event);
    moments.insert(at, Moment::new(event, MomentKind::Missing, call.to_owned()));
}

/// Where no call is known: before the first acknowledgement that stands behind a lost write, a
/// flush is missing.
fn add_missing_flush(moments: &mut Vec<Moment>) {
    let lost = moments.iter().position(|moment| matches!(moment.kind, Lost | Torn));
    let Some(first) = lost else { return };
    let ack = moments[first..].iter().position(|moment| moment.kind == Acknowledged);
    let Some(ack) = ack.map(|ack| first + ack) else { return };
    let words = "a flush between the lost write and the acknowledgement".into();
    moments.insert(ack, Moment::new(moments[ack].event, MomentKind::Missing, words));
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;
    use uxfs_testkit::Recording;

    use super::*;
    use crate::operations::Operations;

    fn write(sector: u64, fua: bool) -> Event<Mark> {
        Event::Write { offset: sector * 512, data: vec![1; 1024].into(), fua }
    }

    fn run(events: Vec<Event<Mark>>, operations: Vec<Action>) -> Run {
        let before = MemDev::new(1 << 16);
        let recording = Recording::new(before.clone(), events, 512);
        let operations = operations.into_iter().map(|what| Operation { pid: 0, what }).collect();
        let acks = vec!["first".into(), "second".into()];
        Run { recording, before, acks, operations: Operations::new(operations) }
    }

    fn kinds(run: &Run, state: &State, explanation: &Explanation) -> Vec<(usize, MomentKind)> {
        let timeline = Timeline::new(run, state, &Places::default(), explanation, None);
        timeline.moments.iter().map(|moment| (moment.event, moment.kind)).collect()
    }

    /// Each fate that a state can give a write.
    #[test]
    fn writes_are_what_the_state_makes_of_them() {
        let ack = |number| Event::Mark(Mark::Acknowledged(number));
        let events = vec![
            write(0, false),
            Event::Flush,
            write(2, false),
            ack(1),
            write(4, true),
            write(6, false),
            write(8, false),
            write(10, false),
            ack(2),
            write(12, false),
        ];
        let run = run(events, Vec::new());
        let torn = Survivor { event: 7, sectors: Some(std::iter::once(0..1).collect()) };
        let survivors = vec![Survivor::whole(6), Survivor::whole(5), torn];
        let state = State::new("p", 9, survivors);
        let unknown = Explanation::Unknown { why: String::new() };
        let expected = [
            (0, Kept),
            (1, Flush),
            (2, Lost),
            (3, MomentKind::Missing),
            (3, Acknowledged),
            (4, Forced),
            (5, Reordered),
            (6, Kept),
            (7, Torn),
            (8, Acknowledged),
            (9, Cut),
        ];
        assert_eq!(kinds(&run, &state, &unknown), expected);
        // Nothing is lost, nothing is missing.
        let whole = State::new("p", 4, vec![Survivor::whole(2)]);
        let found = kinds(&run, &whole, &unknown);
        assert_eq!(found, [(0, Kept), (1, Flush), (2, Kept), (3, Acknowledged), (4, Cut)]);
    }

    /// Each explanation marks its place.
    #[test]
    fn a_missing_call_stands_behind_what_it_would_have_kept() {
        let operation = |number| Event::Mark(Mark::Operation(number));
        let events = vec![
            operation(1),
            operation(2),
            operation(3),
            Event::Mark(Mark::Acknowledged(1)),
            operation(4),
        ];
        let made = |name: &[u8], ino| Action::Made {
            name: (1, name.to_vec()),
            ino,
            generation: 0,
            mode: 0o100_644,
        };
        let data: std::sync::Arc<[u8]> = b"x"[..].into();
        let written = Action::Written { ino: 2, offset: 0, data, mapped: false };
        let synced = Action::Synced { ino: 2, data_only: false };
        let run = run(events, vec![made(b"a", 2), written, synced, made(b"b", 3)]);
        let state = State::new("p", 4, Vec::new());
        let call = |after| {
            Explanation::Missing(vec![Missing {
                call: "fsync of a".into(),
                keeps: String::new(),
                after,
            }])
        };
        let missing = MomentKind::Missing;
        let before_cut = [(0, Changed), (1, Changed), (2, Synced), (3, Acknowledged), (4, Cut)];
        let with = |changes: &[(usize, (usize, MomentKind))], added: (usize, MomentKind), at| {
            let mut all = before_cut.to_vec();
            changes.iter().for_each(|(at, moment)| all[*at] = *moment);
            all.insert(at, added);
            all
        };
        let unsynced = with(&[(1, (1, Unsynced))], (1, missing), 2);
        assert_eq!(kinds(&run, &state, &call(Some(2))), unsynced);
        assert_eq!(kinds(&run, &state, &call(None)), with(&[], (3, missing), 3));
        let operation = String::new();
        let torn = Explanation::Torn { operation: operation.clone(), number: 2 };
        assert_eq!(kinds(&run, &state, &torn)[1], (1, Fault));
        let early = Explanation::Early { operation, number: 4 };
        assert_eq!(kinds(&run, &state, &early), with(&[], (4, Later), 5));
        let timeline = Timeline::new(&run, &state, &Places::default(), &torn, None);
        let words: Vec<&str> = timeline.moments.iter().map(|moment| &*moment.words).collect();
        let expected =
            ["creating a", "writing 1 bytes at offset 0 of a", "syncing a", "first", "power cut"];
        assert_eq!(words, expected);
    }
}
