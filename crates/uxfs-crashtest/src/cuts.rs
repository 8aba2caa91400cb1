//! Which states are tried, and in which order.
//!
//! 1. First the boundaries: after each acknowledgement, before and after each flush, at the end; all
//!    that is at risk is lost, or nothing of it.
//! 2. Then the windows between flushes: each write at risk missing alone, arriving alone, or torn in
//!    its middle.
//! 3. Then random states from the seed.
//! 4. The number of states decides how many of 1 and 2 there are, evenly over the run, with its first and its
//!    last: at most half and a quarter of all. The same run, seed and number give the same states.
//! 5. The kinds of 2 occur equally often, and not in step with the writes: a program repeats itself.
//! 6. Which writes survive is listed for the chosen states only.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use uxfs_testkit::{Event, Rng, Survivor};

use crate::recorder::{Mark, Run};
use crate::state::State;

/// `count` states of a run.
pub(crate) fn states(run: &Run, pace: &str, count: usize, seed: u64) -> Vec<State> {
    let mut states = Vec::with_capacity(count);
    let mut seen = HashSet::new();
    let mut add = |at: usize, survivors: Vec<Survivor>, states: &mut Vec<State>| {
        let state = State::new(pace, at, survivors);
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if seen.insert(hasher.finish()) {
            states.push(state);
        }
    };
    let moments = boundaries(run);
    for at in evenly(&moments, count.div_ceil(4)) {
        add(at, Vec::new(), &mut states);
        add(at, run.recording.at_risk(at).into_iter().map(Survivor::whole).collect(), &mut states);
    }
    for loss in losses(run, count / 4) {
        add(loss.at, loss.survivors(run), &mut states);
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

/// What becomes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its first half arrives, and all others.
    Torn,
    /// All others arrive.
    Missing,
    /// It alone arrives.
    Alone,
}

/// A loss before a flush, or before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loss {
    at: usize,
    event: usize,
    fate: Fate,
}

/// The fates of a write: one of a single sector cannot be torn.
fn fates(run: &Run, event: usize) -> &'static [Fate] {
    const ALL: &[Fate] = &[Fate::Torn, Fate::Missing, Fate::Alone];
    if run.recording.sectors(event) > 1 { ALL } else { &ALL[1..] }
}

/// Single losses before each flush: all, or `most` of them, evenly over the writes.
fn losses(run: &Run, most: usize) -> Vec<Loss> {
    let most = most.max(1);
    let events = run.recording.events();
    let flushes = (run.start()..events.len()).filter(|at| matches!(events[*at], Event::Flush));
    let mut writes = Vec::new();
    for at in flushes.chain([events.len()]) {
        writes.extend(run.recording.at_risk(at).into_iter().map(|event| (at, event)));
    }
    let all: usize = writes.iter().map(|(_, event)| fates(run, *event).len()).sum();
    let mut found = Vec::with_capacity(most.min(all));
    let mut taken = |(at, event): (usize, usize), first: usize, count: usize| {
        let fates = fates(run, event).iter().cycle().skip(first);
        found.extend(fates.take(count).map(|fate| Loss { at, event, fate: *fate }));
    };
    if all <= most {
        writes.iter().for_each(|write| taken(*write, 0, fates(run, write.1).len()));
        return found;
    }
    let chosen = evenly(&writes, most);
    // Those that are left over go to the first writes.
    let (each, more) = (most / chosen.len(), most % chosen.len());
    for (number, write) in chosen.into_iter().enumerate() {
        let fates = fates(run, write.1).len();
        taken(write, turned(number, fates), (each + usize::from(number < more)).min(fates));
    }
    found
}

/// A number below `below`, each equally often, in an order that has no period.
fn turned(number: usize, below: usize) -> usize {
    // 2^64 divided by the golden ratio.
    let turned = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    usize::try_from((turned * below as u64) >> 32).unwrap_or(0)
}

impl Loss {
    /// The writes that arrive.
    fn survivors(self, run: &Run) -> Vec<Survivor> {
        let Self { at, event, fate } = self;
        if fate == Fate::Alone {
            return vec![Survivor::whole(event)];
        }
        let half = 0..run.recording.sectors(event) / 2;
        let arrived = run.recording.at_risk(at).into_iter().filter_map(|other| {
            let torn =
                || Survivor { event, sectors: Some(std::iter::once(half.clone()).collect()) };
            match other == event {
                false => Some(Survivor::whole(other)),
                true => (fate == Fate::Torn).then(torn),
            }
        });
        arrived.collect()
    }
}

/// At most `most` of them, evenly, with the first and the last.
fn evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let most = most.max(1);
    if all.len() <= most {
        return all.to_vec();
    }
    let last = all.len() - 1;
    (0..most).map(|at| all[at * last / (most - 1).max(1)]).collect()
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

    /// `writes` writes of two sectors, and a flush.
    fn of_writes(writes: usize) -> Run {
        let len = writes as u64 * 1024;
        let recorder = Recorder::new(MemDev::new(len), 1 << 40);
        (0..writes as u64).for_each(|write| recorder.write_at(write * 1024, &[1; 1024]).unwrap());
        recorder.flush().unwrap();
        recorder.finish(MemDev::new(len))
    }

    /// Also where there are as many writes as states, or a multiple.
    #[test]
    fn every_kind_of_loss_occurs_for_every_kind_of_write() {
        for (writes, most) in [(83, 83), (166, 83), (249, 83), (250, 250), (100, 230), (70, 10)] {
            let run = of_writes(writes);
            let losses = losses(&run, most);
            assert_eq!(losses.len(), most);
            let each: HashSet<_> =
                losses.iter().map(|loss| (loss.event, loss.fate as u8)).collect();
            assert_eq!(each.len(), most, "{writes} {most}: one occurs twice");
            for fate in [Fate::Torn, Fate::Missing, Fate::Alone] {
                // A program that writes data, an index and a log in turn: each meets each fate.
                let turns = if most < writes { 1 } else { 3 };
                for turn in 0..turns {
                    let in_turn = |loss: &&Loss| loss.event % turns == turn;
                    let met = losses.iter().filter(in_turn).any(|loss| loss.fate == fate);
                    assert!(met, "{writes} {most}: no {fate:?} at {turn}");
                }
            }
        }
        assert_eq!(losses(&of_writes(4), 100).len(), 12);
        let ends = |most| evenly(&[1, 2, 3, 4, 5, 6, 7], most);
        assert_eq!((ends(1), ends(2), ends(3)), (vec![1], vec![1, 7], vec![1, 4, 7]));
    }

    /// Each state lists the writes that arrive: it is made for those that are tried, and not for all.
    #[test]
    fn a_long_window_needs_little_memory() {
        let run = of_writes(20_000);
        let states = states(&run, "p", 100, 1);
        assert_eq!(states.len(), 100);
        assert_eq!(losses(&run, 25).len(), 25);
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
