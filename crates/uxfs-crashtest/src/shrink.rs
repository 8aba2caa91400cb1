//! A failed state made as small as it can be: the earliest acknowledgement that is enough, and the
//! fewest writes that must be lost, torn or late.
//!
//! 1. Whatever is removed from the loss of the result, the state passes: the loss is minimal. If that could not
//!    be tried, the result says so.
//! 2. If nothing at risk must be lost, the earliest moment after an acknowledgement at which the state
//!    fails without a loss is taken.
//! 3. It asks for at most [`TRIES`] states.

use uxfs_testkit::{Event, Survivor};

use crate::recorder::{Mark, Run};
use crate::state::State;

/// Most states that are tried.
const TRIES: usize = 400;

/// A way in which a state differs from one in which every write arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Loss {
    Missing(usize),
    Torn(Survivor),
    /// The writes arrive in this order.
    Order(Vec<usize>),
}

/// What a try says of a state.
pub(crate) enum Judged {
    Fails,
    Passes,
    /// It could not be tried.
    Unknown,
}

/// A failed state, made small.
pub(crate) struct Shrunk {
    pub(crate) state: State,
    /// Was all tried that could show a smaller one?
    pub(crate) is_least: bool,
}

/// The least of a failed state. `judge` tries a state.
pub(crate) fn shrink(run: &Run, failed: &State, judge: &mut dyn FnMut(&State) -> Judged) -> Shrunk {
    let (mut left, mut is_least) = (TRIES, true);
    let state = least(run, failed, &mut |state| {
        let judged = match left {
            0 => Judged::Unknown,
            _ => judge(state),
        };
        left = left.saturating_sub(1);
        is_least &= !matches!(judged, Judged::Unknown);
        matches!(judged, Judged::Fails)
    });
    Shrunk { state, is_least }
}

fn least(run: &Run, failed: &State, fails: &mut dyn FnMut(&State) -> bool) -> State {
    let whole = state(run, failed, &[]);
    if whole != *failed && fails(&whole) || whole == *failed {
        return earliest(run, &whole, fails);
    }
    let mut losses = losses(run, failed);
    let mut parts = 2;
    while losses.len() > 1 {
        let size = losses.len().div_ceil(parts);
        let without = (0..losses.len()).step_by(size).find_map(|at| {
            let rest = [&losses[..at], &losses[(at + size).min(losses.len())..]].concat();
            fails(&state(run, failed, &rest)).then_some(rest)
        });
        match without {
            Some(rest) => {
                losses = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(losses.len()),
        }
    }
    state(run, failed, &losses)
}

/// The state after the first acknowledgement that fails without a loss.
fn earliest(run: &Run, whole: &State, fails: &mut dyn FnMut(&State) -> bool) -> State {
    let events = &run.recording.events()[..whole.at];
    let acks = events.iter().enumerate().filter_map(|(at, event)| match event {
        Event::Mark(Mark::Acknowledged(_)) => Some(at + 1),
        _ => None,
    });
    for at in acks {
        let earlier = state(run, &State { at, ..whole.clone() }, &[]);
        if fails(&earlier) {
            return earlier;
        }
    }
    whole.clone()
}

/// How a state differs from a whole one.
fn losses(run: &Run, failed: &State) -> Vec<Loss> {
    let arrived: Vec<usize> = failed.survivors.iter().map(|survivor| survivor.event).collect();
    let mut losses: Vec<Loss> = run
        .recording
        .at_risk(failed.at)
        .into_iter()
        .filter(|event| !arrived.contains(event))
        .map(Loss::Missing)
        .collect();
    let torn = failed.survivors.iter().filter(|survivor| survivor.sectors.is_some());
    losses.extend(torn.cloned().map(Loss::Torn));
    if !arrived.is_sorted() {
        losses.push(Loss::Order(arrived));
    }
    losses
}

/// The state with these losses only.
fn state(run: &Run, like: &State, losses: &[Loss]) -> State {
    let risk = run.recording.at_risk(like.at).into_iter();
    let mut survivors: Vec<Survivor> = risk
        .filter(|event| !losses.contains(&Loss::Missing(*event)))
        .map(Survivor::whole)
        .collect();
    for loss in losses {
        match loss {
            Loss::Missing(_) => {}
            Loss::Torn(torn) => {
                survivors.iter_mut().filter(|s| s.event == torn.event).for_each(|survivor| {
                    *survivor = torn.clone();
                });
            }
            Loss::Order(order) => {
                let place = |event: usize| order.iter().position(|other| *other == event);
                survivors.sort_by_key(|survivor| place(survivor.event).unwrap_or(usize::MAX));
            }
        }
    }
    State::new(&like.pace, like.at, survivors)
}

#[cfg(test)]
mod tests {
    use uxfs_disk::{BlockDev, MemDev};
    use uxfs_testkit::Rng;

    use super::*;
    use crate::recorder::Recorder;

    /// Thirty writes of two sectors after an acknowledgement and before another.
    fn run() -> Run {
        let recorder = Recorder::new(MemDev::new(1 << 16), 1 << 20);
        recorder.acknowledge("first");
        for write in 0..30 {
            recorder.write_at(write * 1024, &[1; 1024]).unwrap();
        }
        recorder.acknowledge("second");
        recorder.finish(MemDev::new(1 << 16))
    }

    fn missing(run: &Run, state: &State) -> Vec<usize> {
        let whole = |event: &usize| state.survivors.contains(&Survivor::whole(*event));
        run.recording.at_risk(state.at).into_iter().filter(|event| !whole(event)).collect()
    }

    /// A check that fails when two certain writes are lost, whatever else is.
    #[test]
    fn exactly_the_writes_that_matter_are_lost_in_the_result() {
        let run = run();
        let mut rng = Rng::new(1);
        let mut tried = 0;
        for _ in 0..200 {
            let survivors = run.recording.survivors(32, &mut rng);
            let failed = State::new("p", 32, survivors);
            let fails = |state: &State| {
                let missing = missing(&run, state);
                missing.contains(&7) && missing.contains(&20)
            };
            if !fails(&failed) {
                continue;
            }
            let least = least_of(&run, &failed, &mut |state| fails(state));
            assert_eq!(missing(&run, &least), [7, 20], "of {failed}");
            tried += 1;
        }
        assert!(tried > 20, "{tried}");
    }

    /// The least state, by a check that says whether a state fails.
    fn least_of(run: &Run, failed: &State, fails: &mut dyn FnMut(&State) -> bool) -> State {
        let shrunk = shrink(run, failed, &mut |state| match fails(state) {
            true => Judged::Fails,
            false => Judged::Passes,
        });
        assert!(shrunk.is_least);
        shrunk.state
    }

    /// A result of which not all could be tried is not called the least.
    #[test]
    fn tries_that_end_are_reported() {
        let run = run();
        let failed = State::new("p", 32, Vec::new());
        let stopped = shrink(&run, &failed, &mut |_| Judged::Unknown);
        assert!(!stopped.is_least && stopped.state == failed);
        // Each loss is needed: more states than are tried.
        let recorder = Recorder::new(MemDev::new(1 << 20), 1 << 20);
        (0..1000).for_each(|write| recorder.write_at(write * 512, &[1; 512]).unwrap());
        let many = recorder.finish(MemDev::new(1 << 20));
        let failed = State::new("p", 1000, Vec::new());
        let mut tried = 0;
        let shrunk = shrink(&many, &failed, &mut |_| {
            tried += 1;
            Judged::Passes
        });
        assert!(!shrunk.is_least && tried == TRIES, "{tried}");
    }

    #[test]
    fn a_torn_write_and_an_order_stay_if_they_are_the_cause() {
        let run = run();
        let torn = Survivor { event: 3, sectors: Some(std::iter::once(1..2).collect()) };
        let mut survivors: Vec<Survivor> = (10..30).map(Survivor::whole).collect();
        survivors.insert(5, torn.clone());
        let failed = State::new("p", 32, survivors);
        let least = least_of(&run, &failed, &mut |state| state.survivors.contains(&torn));
        assert_eq!(missing(&run, &least), [3]);
        assert!(least.survivors.contains(&torn));
        let swapped = State::new("p", 32, (1..31).rev().map(Survivor::whole).collect());
        let late = |state: &State| {
            let place = |event| state.survivors.iter().position(|s| s.event == event);
            place(5) > place(6)
        };
        let least = least_of(&run, &swapped, &mut |state| late(state));
        assert!(late(&least) && missing(&run, &least).is_empty());
    }

    /// What fails without a loss at the disk was never written: the first acknowledgement tells most.
    #[test]
    fn without_a_loss_the_earliest_acknowledgement_is_taken() {
        let run = run();
        let failed = State::new("p", 32, Vec::new());
        let least = least_of(&run, &failed, &mut |_| true);
        assert_eq!((least.at, least.survivors.len()), (1, 0));
        let least = least_of(&run, &failed, &mut |state| state.at > 1);
        assert_eq!((least.at, least.survivors.len()), (32, 30));
    }
}
