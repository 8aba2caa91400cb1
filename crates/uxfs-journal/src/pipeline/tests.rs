//! Tests of the pipeline with a simulated device: random commits, forces, delays and failures, from
//! a seed. The tests check each invariant against what would survive a power cut.

use std::collections::BTreeMap;
use std::time::Duration;

use uxfs_testkit::Rng;

use super::*;
use crate::policy::Fixed;

/// An operation of the simulated device in progress.
enum Busy {
    Cut(Seq),
    Write { seq: Seq, part: u32, fua: bool },
    Flush(FlushId),
}

/// What the device has in its cache, and what is on stable storage.
#[derive(Default)]
struct Device {
    /// Data writes that ended, and how many of them are stable.
    data: u64,
    data_stable: u64,
    /// Parts of each checkpoint: written, stable.
    parts: BTreeMap<Seq, (u32, u32)>,
    /// For each flush in progress, what it covers: data writes, and parts of each checkpoint.
    flushes: BTreeMap<FlushId, (u64, BTreeMap<Seq, u32>)>,
}

struct Sim {
    rng: Rng,
    fsync: FsyncPolicy,
    pipe: Pipeline<u64>,
    now: Time,
    device: Device,
    busy: Vec<Busy>,
    /// For each checkpoint that was cut: its parts, and the data writes on which it depends.
    cuts: BTreeMap<Seq, (u32, u64)>,
    /// The last data write on which commits depend.
    depends: u64,
    /// Waiters whose commit is deferred, and their writes.
    deferred: BTreeMap<u64, Generation>,
    /// Number of resumed callers that have not committed, and of all that were deferred.
    committing: u32,
    deferrals: u64,
    /// For each generation, the number of data writes up to it.
    data_at: Vec<u64>,
    waiting: BTreeMap<u64, Need>,
    woken: u64,
    failed: bool,
    commits_in: BTreeMap<Seq, Time>,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let policies = [
            "own",
            "journal",
            "average",
            "fixed:1",
            "greedy",
            "gather",
            "gather:32",
            "overlap:2",
            "overlap:16",
            "auto",
            "auto",
        ];
        let fsync = policies[rng.below(policies.len() as u64) as usize].parse().unwrap();
        let options = Options {
            size_max: 1 + rng.below(2000),
            age_max: Duration::from_nanos(1 + rng.below(5000)),
            fua: rng.below(2) == 0,
            fsync,
            elide_covered: rng.below(4) > 0,
            elide_clean: rng.below(4) > 0,
            epochs: false,
        };
        Self {
            rng,
            fsync,
            pipe: Pipeline::new(options),
            now: Time(0),
            device: Device::default(),
            busy: Vec::new(),
            cuts: BTreeMap::new(),
            depends: 0,
            deferred: BTreeMap::new(),
            committing: 0,
            deferrals: 0,
            data_at: vec![0],
            waiting: BTreeMap::new(),
            woken: 0,
            failed: false,
            commits_in: BTreeMap::new(),
        }
    }

    fn note_generations(&mut self) {
        let known = self.pipe.data_written().0 as usize;
        self.data_at.resize(known + 1, self.device.data);
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.pipe.next_action() {
            match action {
                Action::Cut(seq) => self.busy.push(Busy::Cut(seq)),
                Action::Write { seq, part, fua } => {
                    assert!(!self.failed, "a write after a failure");
                    let (parts, data) = self.cuts[&seq];
                    assert_eq!(part, self.device.parts.get(&seq).map_or(0, |p| p.0));
                    assert!(part < parts);
                    if part == 0 {
                        assert!(
                            self.device.data_stable >= data,
                            "a commit is written before its data is stable"
                        );
                        let before = self.device.parts.iter().all(|(_, (w, s))| w == s);
                        assert!(before, "an earlier checkpoint is not stable");
                    } else {
                        assert_eq!(
                            self.device.parts[&seq].1, part,
                            "two parts are written without a flush"
                        );
                    }
                    self.busy.push(Busy::Write { seq, part, fua });
                }
                Action::Flush(id) => {
                    let parts = self.device.parts.iter().map(|(s, (w, _))| (*s, *w)).collect();
                    let before = self.device.flushes.insert(id, (self.device.data, parts));
                    assert!(before.is_none(), "two flushes have the same number");
                    let one = !matches!(
                        self.fsync,
                        FsyncPolicy::Auto | FsyncPolicy::Fixed(Fixed::Own | Fixed::Overlap(_))
                    );
                    assert!(!one || self.device.flushes.len() == 1, "flushes overlap");
                    self.busy.push(Busy::Flush(id));
                }
                Action::Durable(seq) => self.check_durable(seq),
                Action::Wake(waiter, result) if self.deferred.contains_key(&waiter) => {
                    let written = self.deferred.remove(&waiter).unwrap();
                    assert_eq!(result.is_err(), self.failed);
                    if result.is_err() {
                        continue;
                    }
                    assert!(self.pipe.is_resumed(written));
                    self.committing += 1;
                    let data = self.data_at[written.0 as usize];
                    if self.device.data_stable < data {
                        self.depends = self.depends.max(data);
                    }
                }
                Action::Wake(waiter, result) => {
                    let need = self.waiting.remove(&waiter).expect("woken once");
                    self.woken += 1;
                    match result {
                        Ok(()) => {
                            assert!(!self.failed, "success after a failure");
                            (1..=need.seq.0).for_each(|seq| self.check_durable(Seq(seq)));
                            let data = self.data_at[need.data.0 as usize];
                            assert!(
                                self.device.data_stable >= data,
                                "a waiter's data is not stable"
                            );
                        }
                        Err(_) => assert!(self.failed),
                    }
                }
            }
        }
    }

    fn check_durable(&self, seq: Seq) {
        let parts = self.cuts[&seq].0;
        let stable = self.device.parts.get(&seq).map_or(0, |p| p.1);
        assert_eq!(stable, parts, "{seq:?} is reported durable");
    }

    fn finish(&mut self, at: usize) {
        let fail = self.rng.below(400) == 0;
        let result = if fail { Err(Failure("planted".into())) } else { Ok(()) };
        match self.busy.swap_remove(at) {
            Busy::Cut(seq) => {
                let parts = self.rng.below(4) as u32;
                self.cuts.insert(seq, (parts, self.depends));
                self.pipe.cut(self.now, parts);
            }
            Busy::Write { seq, part, fua } => {
                self.failed |= fail;
                if !fail {
                    let entry = self.device.parts.entry(seq).or_default();
                    entry.0 = part + 1;
                    if fua {
                        entry.1 = part + 1;
                    }
                }
                self.pipe.written(self.now, result);
            }
            Busy::Flush(id) => {
                self.failed |= fail;
                let (data, parts) = self.device.flushes.remove(&id).unwrap();
                if !fail {
                    self.device.data_stable = self.device.data_stable.max(data);
                    for (seq, written) in parts {
                        let entry = self.device.parts.get_mut(&seq).unwrap();
                        entry.1 = entry.1.max(written);
                    }
                }
                self.pipe.flushed(self.now, id, result);
            }
        }
        self.note_generations();
    }

    fn step(&mut self, waiter: u64) {
        self.now = Time(self.now.0 + self.rng.below(200));
        match self.rng.below(14) {
            // The log runs short, or the engine fails.
            10 if self.rng.below(100) == 0 => {
                self.failed = true;
                self.pipe.fail(Failure("from outside".into()));
            }
            10 => {
                let seq = Seq(self.rng.below(self.pipe.open_seq().0 + 1));
                self.pipe.want(self.now, seq);
            }
            0..3 => self.commit(),
            3 => {
                self.device.data += 1;
                self.depends = self.device.data;
                self.pipe.data();
                self.note_generations();
            }
            11 => {
                self.commit();
                let seq = self.pipe.last();
                self.pipe.sync_without_data(seq);
                self.force(waiter, Need { seq, data: Generation(0) });
            }
            12 if self.pipe.defers_commits() => {
                self.device.data += 1;
                let written = self.pipe.independent_write();
                let caller = self.rng.below(6);
                self.pipe.defer_commit(self.now, written, caller, waiter);
                self.note_generations();
                self.deferred.insert(waiter, written);
                self.deferrals += 1;
            }
            13 if self.committing > 0 => self.commit_deferred(waiter),
            4 => {
                self.pipe.independent_write();
                self.note_generations();
            }
            5..7 => {
                let seq = Seq(self.rng.below(self.pipe.last().0 + 1));
                let data = Generation(self.rng.below(self.pipe.data_written().0 + 1));
                let need = match self.rng.below(3) {
                    0 => Need { seq: self.pipe.last(), data: self.pipe.data_written() },
                    1 => Need { seq: Seq(0), data },
                    _ => Need { seq, data },
                };
                let caller = [None, Some(self.rng.below(6))][self.rng.below(2) as usize];
                let need = if caller.is_some() { self.pipe.due(need) } else { need };
                self.note_generations();
                self.waiting.insert(waiter, need);
                self.pipe.force(self.now, need, caller, waiter);
            }
            7 => self.pipe.tick(self.now),
            _ if self.busy.is_empty() => {}
            _ => {
                let at = self.rng.below(self.busy.len() as u64) as usize;
                self.finish(at);
            }
        }
        self.take_actions();
        let waits = !self.waiting.is_empty() || !self.deferred.is_empty();
        assert!(
            !waits || !self.busy.is_empty() || self.pipe.next_decision().is_some(),
            "a waiter waits, but nothing is in progress"
        );
    }

    fn commit(&mut self) {
        let bytes = self.rng.below(600);
        let seq = self.pipe.commit(self.now, bytes);
        self.commits_in.entry(seq).or_insert(self.now);
    }

    fn force(&mut self, waiter: u64, need: Need) {
        let need = self.pipe.due(need);
        self.note_generations();
        self.waiting.insert(waiter, need);
        let caller = Some(self.rng.below(6));
        self.pipe.force(self.now, need, caller, waiter);
    }

    /// A resumed caller commits, and waits for its commit.
    fn commit_deferred(&mut self, waiter: u64) {
        self.committing -= 1;
        self.commit();
        let need = Need { seq: self.pipe.last(), data: Generation(0) };
        self.pipe.deferred_committed(self.now);
        self.force(waiter, need);
    }
}

fn run(seed: u64) -> (u64, u64, u64, bool) {
    let mut sim = Sim::new(seed);
    for waiter in 0..600 {
        if sim.failed && sim.busy.is_empty() {
            break;
        }
        sim.step(waiter);
    }
    loop {
        if !sim.busy.is_empty() {
            sim.now = Time(sim.now.0 + 10);
            sim.finish(0);
        } else if let Some(until) = sim.pipe.next_decision() {
            sim.now = sim.now.max(until);
            sim.pipe.tick(sim.now);
        } else {
            break;
        }
        sim.take_actions();
    }
    assert!(sim.waiting.is_empty() && sim.deferred.is_empty(), "a waiter was never woken");
    if !sim.failed {
        // The maximum age makes the rest durable.
        if let Some(alarm) = sim.pipe.alarm() {
            sim.now = alarm;
            sim.pipe.tick(alarm);
            sim.take_actions();
            while !sim.busy.is_empty() {
                sim.finish(0);
                sim.take_actions();
            }
        }
        assert!(sim.failed || sim.pipe.durable() == sim.pipe.last());
    }
    (sim.woken, sim.pipe.durable().0, sim.deferrals, sim.failed)
}

#[test]
fn random_forces_and_failures_keep_the_invariants() {
    let (mut woken, mut checkpoints, mut deferrals, mut failures) = (0, 0, 0, 0);
    for seed in 0..5000 {
        let result = std::panic::catch_unwind(|| run(seed));
        let Ok((w, c, deferred, failed)) = result else { panic!("seed {seed}") };
        woken += w;
        checkpoints += c;
        deferrals += deferred;
        failures += u64::from(failed);
    }
    println!(
        "{woken} woken, {checkpoints} checkpoints, {deferrals} deferred, {failures} runs with a failure"
    );
    assert!(woken > 100_000 && checkpoints > 50_000 && deferrals > 10_000 && failures > 500);
}

#[test]
fn one_flush_serves_all_forces_made_before_it_began() {
    let mut pipe = Pipeline::new(Options::default());
    let now = Time(0);
    let data = pipe.data();
    for waiter in 0..3 {
        pipe.force(now, Need { seq: Seq(0), data }, None, waiter);
    }
    assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(0))));
    let later = pipe.data();
    pipe.force(now, Need { seq: Seq(0), data: later }, None, 3);
    assert_eq!(pipe.next_action(), None);
    pipe.flushed(now, FlushId(0), Ok(()));
    for waiter in 0..3 {
        assert_eq!(pipe.next_action(), Some(Action::Wake(waiter, Ok(()))));
    }
    assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(1))));
}

#[test]
fn a_checkpoint_without_data_costs_one_flush() {
    let mut pipe = Pipeline::new(Options::default());
    let now = Time(0);
    let seq = pipe.commit(now, 100);
    pipe.force(now, Need { seq, data: pipe.data_written() }, None, 7);
    assert_eq!(pipe.next_action(), Some(Action::Cut(seq)));
    pipe.cut(now, 1);
    assert_eq!(pipe.next_action(), Some(Action::Write { seq, part: 0, fua: false }));
    pipe.written(now, Ok(()));
    assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(0))));
    pipe.flushed(now, FlushId(0), Ok(()));
    assert_eq!(pipe.next_action(), Some(Action::Durable(seq)));
    assert_eq!(pipe.next_action(), Some(Action::Wake(7, Ok(()))));
}

/// A caller waits for the next checkpoint while the records of one are written. The next one is cut
/// before the flush of these records, so that the flush covers its data too.
#[test]
fn consecutive_checkpoints_cost_one_flush_each() {
    let mut pipe = Pipeline::new(Options::default());
    let now = Time(0);
    let force = |pipe: &mut Pipeline<u64>, waiter| {
        pipe.data();
        let seq = pipe.commit(now, 100);
        pipe.force(now, Need { seq, data: pipe.data_written() }, None, waiter);
        seq
    };
    let first = force(&mut pipe, 1);
    assert_eq!(pipe.next_action(), Some(Action::Cut(first)));
    pipe.cut(now, 1);
    assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(0))));
    pipe.flushed(now, FlushId(0), Ok(()));
    for number in 1..5 {
        let seq = Seq(number);
        assert_eq!(pipe.next_action(), Some(Action::Write { seq, part: 0, fua: false }));
        let next = force(&mut pipe, number + 1);
        assert_eq!(pipe.next_action(), None, "no cut before the records are written");
        pipe.written(now, Ok(()));
        assert_eq!(pipe.next_action(), Some(Action::Cut(next)));
        assert_eq!(pipe.next_action(), None, "the flush begins after the cut");
        pipe.cut(now, 1);
        assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(number))));
        pipe.flushed(now, FlushId(number), Ok(()));
        assert_eq!(pipe.next_action(), Some(Action::Durable(seq)));
        assert_eq!(pipe.next_action(), Some(Action::Wake(number, Ok(()))));
    }
}

/// Callers with new data and callers without new data come in turns. Each flush covers the log for callers
/// without new data, and the data of the others. Those commit afterwards, and delay no caller.
#[test]
fn one_flush_serves_the_log_of_some_and_the_data_of_others() {
    let options = Options { fsync: FsyncPolicy::Fixed(Fixed::Greedy), ..Options::default() };
    let mut pipe = Pipeline::new(options);
    let now = Time(0);
    let rename = |pipe: &mut Pipeline<u64>, waiter| {
        let seq = pipe.commit(now, 100);
        pipe.sync_without_data(seq);
        pipe.force(now, Need { seq, data: Generation(0) }, Some(waiter), waiter);
        seq
    };
    assert!(!pipe.defers_commits(), "nobody came who has no new data");
    let mut seq = rename(&mut pipe, 0);
    for round in 0..5 {
        let (without, with) = (10 * round, 10 * round + 5);
        assert_eq!(pipe.next_action(), Some(Action::Cut(seq)));
        pipe.cut(now, 1);
        assert_eq!(pipe.next_action(), Some(Action::Write { seq, part: 0, fua: false }));
        assert!(pipe.defers_commits());
        let written = pipe.independent_write();
        pipe.defer_commit(now, written, with, with);
        assert_eq!(pipe.next_action(), None, "the flush of the log is to come");
        pipe.written(now, Ok(()));
        assert_eq!(pipe.next_action(), Some(Action::Flush(FlushId(round))));
        seq = rename(&mut pipe, without + 10);
        assert!(!pipe.is_resumed(written));
        pipe.flushed(now, FlushId(round), Ok(()));
        assert_eq!(pipe.next_action(), Some(Action::Wake(with, Ok(()))));
        assert_eq!(pipe.next_action(), Some(Action::Durable(Seq(round + 1))));
        assert_eq!(pipe.next_action(), Some(Action::Wake(without, Ok(()))));
        if round > 0 {
            let committed = Some(Action::Wake(with - 10 + 1, Ok(())));
            assert_eq!(pipe.next_action(), committed, "of the round before");
        }
        assert_eq!(pipe.next_action(), None, "the cut waits for the resumed caller");
        let need = Need { seq: pipe.commit(now, 100), data: written };
        assert_eq!(need.seq, seq);
        pipe.force(now, need, Some(with), with + 1);
        pipe.deferred_committed(now);
    }
}

/// A resumed caller that does not commit delays others for a while only.
#[test]
fn a_cut_does_not_wait_for_ever() {
    let mut pipe = Pipeline::new(Options::default());
    let now = Time(1);
    let seq = pipe.commit(now, 100);
    pipe.sync_without_data(seq);
    pipe.force(now, Need { seq, data: Generation(0) }, Some(1), 1);
    assert_eq!(pipe.next_action(), Some(Action::Cut(seq)));
    let written = pipe.independent_write();
    pipe.defer_commit(now, written, 2, 2);
    pipe.cut(now, 0);
    let mut next = || pipe.next_action();
    assert_eq!(next(), Some(Action::Durable(seq)));
    assert_eq!(next(), Some(Action::Wake(1, Ok(()))));
    assert_eq!(next(), Some(Action::Wake(2, Ok(()))), "an empty checkpoint brings no flush");
    let seq = pipe.commit(now, 100);
    pipe.force(now, Need { seq, data: Generation(0) }, Some(3), 3);
    assert_eq!(pipe.next_action(), None);
    let until = pipe.next_decision().unwrap();
    pipe.tick(until);
    assert_eq!(pipe.next_action(), Some(Action::Cut(seq)));
}

/// The next checkpoint is cut before the waiters of the previous one are woken.
#[test]
fn the_next_checkpoint_is_cut_before_waiters_wake() {
    let mut pipe = Pipeline::new(Options::default());
    let now = Time(0);
    let first = pipe.commit(now, 100);
    pipe.force(now, Need { seq: first, data: Generation(0) }, None, 1);
    assert_eq!(pipe.next_action(), Some(Action::Cut(first)));
    let second = pipe.commit(now, 100);
    pipe.force(now, Need { seq: second, data: Generation(0) }, None, 2);
    pipe.cut(now, 1);
    assert_eq!(pipe.next_action(), Some(Action::Write { seq: first, part: 0, fua: false }));
    pipe.written(now, Ok(()));
    assert_eq!(
        pipe.next_action(),
        Some(Action::Flush(FlushId(0))),
        "no data to flush, so no early cut"
    );
    pipe.flushed(now, FlushId(0), Ok(()));
    assert_eq!(pipe.next_action(), Some(Action::Durable(first)));
    assert_eq!(pipe.next_action(), Some(Action::Cut(second)));
    assert_eq!(pipe.next_action(), Some(Action::Wake(1, Ok(()))));
}

#[test]
fn age_and_size_limits_cut_the_checkpoint() {
    let options =
        Options { size_max: 100, age_max: Duration::from_secs(1), fua: true, ..Options::default() };
    let mut pipe = Pipeline::<()>::new(options);
    let seq = pipe.commit(Time(0), 10);
    assert_eq!(pipe.alarm(), Some(Time(1_000_000_000)));
    pipe.tick(Time(999_999_999));
    assert_eq!(pipe.next_action(), None);
    pipe.tick(Time(1_000_000_000));
    assert_eq!(pipe.next_action(), Some(Action::Cut(seq)));
    let next = pipe.commit(Time(1_000_000_000), 100);
    pipe.cut(Time(1_000_000_000), 1);
    assert_eq!(pipe.next_action(), Some(Action::Write { seq, part: 0, fua: true }));
    pipe.written(Time(1_000_000_001), Ok(()));
    assert_eq!(pipe.next_action(), Some(Action::Durable(seq)));
    assert_eq!(pipe.next_action(), Some(Action::Cut(next)));
}

/// With epochs, size, age, and waiters make an epoch due, and only its owner cuts it. It may cut a second
/// one while the first is being written.
#[test]
fn epochs_are_cut_by_their_owner_only() {
    let options = Options { epochs: true, size_max: 100, ..Options::default() };
    let mut pipe: Pipeline<u32> = Pipeline::new(options);
    let now = Time(0);
    assert_eq!(pipe.cut_epoch(now), None, "nothing changed");
    let first = pipe.commit(now, 500);
    pipe.force(now, Need { seq: first, data: Generation(0) }, Some(7), 1);
    pipe.tick(Time(3_600_000_000_000));
    assert_eq!(pipe.next_action(), None);
    assert!(pipe.is_epoch_due(now));
    pipe.data();
    assert_eq!(pipe.cut_epoch(now), Some(first));
    assert_eq!(pipe.next_action(), Some(Action::Cut(first)));
    pipe.cut(now, 1);
    assert!(!pipe.is_epoch_due(now) && pipe.has_room_for_cut());
    let second = pipe.commit(now, 1);
    pipe.data();
    assert_eq!(pipe.cut_epoch(now), Some(second));
    assert!(!pipe.has_room_for_cut());
    let mut durable = Vec::new();
    let mut woken = Vec::new();
    while let Some(action) = pipe.next_action() {
        match action {
            Action::Cut(_) => pipe.cut(now, 1),
            Action::Flush(id) => pipe.flushed(now, id, Ok(())),
            Action::Write { .. } => pipe.written(now, Ok(())),
            Action::Durable(seq) => durable.push(seq),
            Action::Wake(waiter, result) => woken.push((waiter, result.is_ok())),
        }
    }
    assert_eq!((durable, woken), (vec![first, second], vec![(1, true)]));
}
