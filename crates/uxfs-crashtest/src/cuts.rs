//! Which states are tried, and in which order.
//!
//! 1. First the boundaries: after each acknowledgement, before and after each flush, at the end; all
//!    that is at risk is lost, or nothing of it.
//! 2. Then the windows between flushes: each write at risk missing alone, arriving alone, or torn in
//!    its middle.
//! 3. Then random states from the seed.
//! 4. The number of states decides how many of 1 and 2 there are, evenly over the run: at most half
//!    and a quarter of all. The same run, seed and number give the same states.

use std::collections::HashSet;

use uxfs_testkit::{Event, Rng, Survivor};

use crate::recorder::{Mark, Run};
use crate::state::State;

/// `count` states of a run.
pub(crate) fn states(run: &Run, pace: &str, count: usize, seed: u64) -> Vec<State> {
    let mut states = Vec::with_capacity(count);
    let mut seen = HashSet::new();
    let mut add = |at: usize, survivors: Vec<Survivor>, states: &mut Vec<State>| {
        let state = State::new(pace, at, survivors);
        if seen.insert(state.clone()) {
            states.push(state);
        }
    };
    let moments = boundaries(run);
    for at in evenly(&moments, count.div_ceil(4)) {
        add(at, Vec::new(), &mut states);
        add(at, run.recording.at_risk(at).into_iter().map(Survivor::whole).collect(), &mut states);
    }
    let windows = in_windows(run);
    for (at, survivors) in evenly(&windows, count / 4) {
        add(at, survivors, &mut states);
    }
    let mut rng = Rng::spread(seed);
    let start = run.start();
    // A short run has fewer states than were asked for.
    for _ in 0..count.saturating_mul(4) {
        if states.len() >= count {
            break;
        }
        let at = run.recording.choose(&mut rng).max(start);
        let survivors = run.recording.survivors(at, &mut rng);
        add(at, survivors, &mut states);
    }
    states.truncate(count);
    states
}

/// The moments at which something becomes durable or acknowledged.
fn boundaries(run: &Run) -> Vec<usize> {
    let mut moments = Vec::new();
    let start = run.start();
    for (at, event) in run.recording.events().iter().enumerate().skip(start) {
        match event {
            Event::Flush => moments.extend([at, at + 1]),
            Event::Mark(Mark::Acknowledged(_) | Mark::Ended) => moments.push(at + 1),
            Event::Write { .. } | Event::Mark(_) => {}
        }
    }
    moments.push(run.recording.len());
    moments.dedup();
    moments
}

/// Each single loss before each flush.
fn in_windows(run: &Run) -> Vec<(usize, Vec<Survivor>)> {
    let mut found = Vec::new();
    let events = run.recording.events();
    let flushes = (run.start()..events.len()).filter(|at| matches!(events[*at], Event::Flush));
    for at in flushes.chain([events.len()]) {
        let risk = run.recording.at_risk(at);
        let others = |but: usize| risk.iter().copied().filter(move |event| *event != but);
        for &event in &risk {
            let without: Vec<Survivor> = others(event).map(Survivor::whole).collect();
            let sectors = run.recording.sectors(event);
            if sectors > 1 {
                let half =
                    Survivor { event, sectors: Some(std::iter::once(0..sectors / 2).collect()) };
                let mut torn = without.clone();
                torn.push(half);
                torn.sort_by_key(|survivor| survivor.event);
                found.push((at, torn));
            }
            found.push((at, without));
            found.push((at, vec![Survivor::whole(event)]));
        }
    }
    found
}

/// At most `most` of them, evenly.
fn evenly<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    let most = most.max(1);
    if all.len() <= most {
        return all.to_vec();
    }
    (0..most).map(|at| all[at * all.len() / most].clone()).collect()
}

#[cfg(test)]
mod tests {
    use uxfs_disk::{BlockDev, MemDev};

    use super::*;
    use crate::recorder::Recorder;

    fn run() -> Run {
        let recorder = Recorder::new(MemDev::new(1 << 16), 1 << 20);
        recorder.write_at(0, &[1; 512]).unwrap();
        recorder.write_at(512, &[1; 1024]).unwrap();
        recorder.flush().unwrap();
        recorder.acknowledge("a");
        recorder.write_at(4096, &[1; 512]).unwrap();
        recorder.ended();
        recorder.finish(MemDev::new(1 << 16))
    }

    #[test]
    fn boundaries_and_single_losses_come_first() {
        let run = run();
        assert_eq!(boundaries(&run), [2, 3, 4, 6]);
        let names: Vec<String> =
            states(&run, "p", 100, 1).iter().map(ToString::to_string).collect();
        for wanted in ["p:2:", "p:2:0-1", "p:4:", "p:6:", "p:6:4", "p:2:1", "p:2:0", "p:2:0,1[0]"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} is not in {names:?}");
        }
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn a_seed_and_a_number_repeat_their_states() {
        let run = run();
        let states = |count, seed| states(&run, "p", count, seed);
        assert_eq!(states(10, 3), states(10, 3));
        assert!(states(7, 3).len() <= 7);
        assert_ne!(states(12, 3), states(12, 4));
    }
}
