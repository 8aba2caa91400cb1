//! The keeper over a simulated log: random commits, slow homes and stalls, from a seed.

use super::*;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const LENGTH: u64 = 1 << 20;
const AGE: Duration = Duration::from_secs(20);

/// A log: what gathers, and what is active at which position.
struct Sim {
    rng: Rng,
    now: Time,
    planner: LogWorkPlanner,
    head: u64,
    tail: u64,
    /// Active objects: position, when it was logged, and whether it is pinned for now.
    active: Vec<(u64, Time, bool)>,
    open_seq: Option<(Time, u64)>,
    covers: u32,
    last_work: Time,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng(seed),
            now: Time(0),
            planner: LogWorkPlanner::new(LogWorkOptions::default()),
            head: LENGTH,
            tail: LENGTH,
            active: Vec::new(),
            open_seq: None,
            covers: 0,
            last_work: Time(0),
        }
    }

    fn seen(&self) -> LogView {
        LogView {
            length: LENGTH,
            head: self.head,
            tail: self.tail,
            active: self.active.iter().map(|(at, ..)| *at).min(),
            quiet: self.open_seq.is_none(),
            alarm: self.open_seq.map(|(since, _)| since + AGE),
        }
    }

    fn commit(&mut self) {
        let bytes = 512 * (1 + self.rng.below(60));
        let (_, open_bytes) = self.open_seq.get_or_insert((self.now, 0));
        *open_bytes += bytes;
        self.covers = 0;
        self.last_work = self.now;
    }

    fn cut(&mut self) {
        let Some((_, bytes)) = self.open_seq.take() else { return };
        self.active.push((self.head, self.now, self.rng.below(8) == 0));
        self.head += bytes;
        assert!(self.head - self.tail <= LENGTH, "the log overflows");
    }

    fn write_back(&mut self, until: u64) {
        self.active.retain(|(at, _, pinned)| *at >= until || *pinned);
        self.tail = self.active.iter().map(|(at, ..)| *at).min().unwrap_or(self.head);
    }

    /// Does chores until there are none; the moment to wake up.
    fn chores(&mut self) -> Option<Time> {
        for _ in 0..20 {
            let seen = self.seen();
            match self.planner.next(self.now, &seen) {
                LogWork::Tick => {
                    assert!(seen.alarm.is_some_and(|alarm| alarm <= self.now));
                    self.cut();
                }
                LogWork::Push(until) => {
                    assert!(seen.active.is_some_and(|at| at < until), "nothing to push");
                    self.write_back(until);
                }
                LogWork::Cover => {
                    assert!(self.active.is_empty() && self.open_seq.is_none());
                    assert!(self.now >= self.last_work + Duration::from_secs(30));
                    self.head += 1024;
                    self.tail = self.head;
                    self.covers += 1;
                    assert!(self.covers <= 2, "a third cover");
                    self.planner.covered(self.now, self.head);
                }
                LogWork::Sleep(until) => {
                    assert!(until.is_none_or(|until| until > self.now), "no sleep at all");
                    return until;
                }
            }
        }
        panic!("chores without end");
    }

    /// Lets time pass, waking the keeper when it wants to be.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(wake) = self.chores().filter(|wake| *wake <= end) {
            self.now = wake;
        }
        self.now = end;
        self.chores();
    }
}

fn run(seed: u64) -> u32 {
    let mut sim = Sim::new(seed);
    sim.chores();
    for _ in 0..200 {
        match sim.rng.below(6) {
            0..4 => {
                sim.commit();
                if sim.rng.below(3) == 0 || sim.head - sim.tail > LENGTH / 4 {
                    sim.cut();
                }
            }
            4 => sim.active.iter_mut().for_each(|(.., pinned)| *pinned = false),
            _ => {
                let millis = 1 + sim.rng.below(40_000);
                sim.pass(Duration::from_millis(millis));
                let oldest = sim.active.iter().filter(|(.., pinned)| !pinned);
                let oldest = oldest.map(|(_, when, _)| *when).min();
                // Twice: it may be young when the mark is set.
                assert!(
                    oldest.is_none_or(|when| sim.now < when + Duration::from_secs(61)),
                    "something was not written in place for too long"
                );
            }
        }
        sim.chores();
        if sim.head - sim.tail > LENGTH / 2 {
            // What was pinned a moment ago is tried again soon.
            sim.pass(Duration::from_millis(60));
        }
        assert!(
            sim.head - sim.tail <= LENGTH / 2 || sim.active.iter().any(|(.., pinned)| *pinned),
            "more than half of the log is live"
        );
        if sim.head - sim.tail > LENGTH * 3 / 4 {
            sim.active.iter_mut().for_each(|(.., pinned)| *pinned = false);
            sim.pass(Duration::from_secs(1));
        }
    }
    sim.commit();
    sim.active.iter_mut().for_each(|(.., pinned)| *pinned = false);
    for _ in 0..10 {
        sim.pass(Duration::from_secs(40));
        sim.active.iter_mut().for_each(|(.., pinned)| *pinned = false);
    }
    assert_eq!((sim.covers, sim.active.len()), (2, 0), "the log is not covered");
    assert_eq!((sim.head, sim.chores()), (sim.tail, None), "an idle log wakes somebody");
    sim.covers
}

#[test]
fn thousands_of_seeds() {
    for seed in 0..3000 {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_log_that_was_opened_clean_is_left_alone() {
    let mut sim = Sim::new(1);
    sim.pass(Duration::from_secs(1000));
    assert_eq!((sim.covers, sim.head), (0, LENGTH));
}
