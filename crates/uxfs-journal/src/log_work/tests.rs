//! The planner over a simulated log: random commits, pinned items and pauses, from a seed.

use uxfs_testkit::Rng;

use super::*;

const LENGTH: u64 = 1 << 20;
const AGE: Duration = Duration::from_secs(20);

/// A simulated log: the open checkpoint, and the active items with their positions.
struct Sim {
    rng: Rng,
    now: Time,
    planner: LogWorkPlanner,
    head: u64,
    tail: u64,
    /// Active items: position, when it was logged, and whether it is pinned.
    active: Vec<(u64, Time, bool)>,
    open: Option<(Time, u64)>,
    covers: u32,
    last_work: Time,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Time(0),
            planner: LogWorkPlanner::new(LogWorkOptions::default()),
            head: LENGTH,
            tail: LENGTH,
            active: Vec::new(),
            open: None,
            covers: 0,
            last_work: Time(0),
        }
    }

    fn view(&self) -> LogView {
        LogView {
            length: LENGTH,
            head: LogPos(self.head),
            tail: LogPos(self.tail),
            active: self.active.iter().map(|(at, ..)| LogPos(*at)).min(),
            quiet: self.open.is_none(),
            alarm: self.open.map(|(since, _)| since + AGE),
        }
    }

    fn commit(&mut self) {
        let bytes = 512 * (1 + self.rng.below(60));
        let (_, open_bytes) = self.open.get_or_insert((self.now, 0));
        *open_bytes += bytes;
        self.covers = 0;
        self.last_work = self.now;
    }

    fn cut(&mut self) {
        let Some((_, bytes)) = self.open.take() else { return };
        self.active.push((self.head, self.now, self.rng.below(8) == 0));
        self.head += bytes;
        assert!(self.head - self.tail <= LENGTH, "the log overflows");
    }

    fn write_back(&mut self, until: u64) {
        self.active.retain(|(at, _, pinned)| *at >= until || *pinned);
        self.tail = self.active.iter().map(|(at, ..)| *at).min().unwrap_or(self.head);
    }

    /// Carries out work until there is none; returns when to wake up.
    fn work(&mut self) -> Option<Time> {
        for _ in 0..20 {
            let view = self.view();
            match self.planner.next(self.now, &view) {
                LogWork::Tick => {
                    assert!(view.alarm.is_some_and(|alarm| alarm <= self.now));
                    self.cut();
                }
                LogWork::Push(until) => {
                    assert!(view.active.is_some_and(|at| at < until), "nothing to push");
                    self.write_back(until.0);
                }
                LogWork::Cover => {
                    assert!(self.active.is_empty() && self.open.is_none());
                    assert!(self.now >= self.last_work + Duration::from_secs(30));
                    self.head += 1024;
                    self.tail = self.head;
                    self.covers += 1;
                    assert!(self.covers <= 2, "a third cover");
                    self.planner.covered(self.now, LogPos(self.head));
                }
                LogWork::Sleep(until) => {
                    assert!(
                        until.is_none_or(|until| until > self.now),
                        "the planner sleeps until a time that has passed"
                    );
                    return until;
                }
            }
        }
        panic!("the planner never sleeps");
    }

    /// Advances time, and asks the planner whenever it wants to wake up.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(wake) = self.work().filter(|wake| *wake <= end) {
            self.now = wake;
        }
        self.now = end;
        self.work();
    }
}

fn run(seed: u64) -> u32 {
    let mut sim = Sim::new(seed);
    sim.work();
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
                // An item may be logged just after the mark is set, so allow twice the limit.
                assert!(
                    oldest.is_none_or(|when| sim.now < when + Duration::from_secs(61)),
                    "an item was not written in place in time"
                );
            }
        }
        sim.work();
        if sim.head - sim.tail > LENGTH / 2 {
            // A push of pinned items is retried soon.
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
    assert_eq!((sim.head, sim.work()), (sim.tail, None), "an idle log needs work");
    sim.covers
}

#[test]
fn random_commits_keep_the_invariants() {
    for seed in 0..3000 {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_log_opened_clean_is_not_covered() {
    let mut sim = Sim::new(1);
    sim.pass(Duration::from_secs(1000));
    assert_eq!((sim.covers, sim.head), (0, LENGTH));
}
