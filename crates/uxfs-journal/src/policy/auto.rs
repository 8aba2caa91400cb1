//! The policy that finds out what is best on this disk, for these callers.
//!
//! How long callers take to come again does not depend on the policy, and how long a flush takes is
//! seen all the time. So the policies need not be tried on those who wait: `auto` plays them in its
//! head ([`Dream`]) and does what the best of them would do. What has to be tried is how many flushes
//! the disk works on at a time ([`Disk`]); and it is tried only where it would pay if the answer were
//! the best one.
//!
//! 1. A lone caller never waits for anybody.
//! 2. What is done is at each moment what one of the policies of [`ARMS`] would do.
//! 3. Another policy is taken only if it is better by [`BETTER`].

use super::callers::{Callers, EPOCHS};
use super::disk::{Disk, LEVELS, Level};
use super::dream::Dream;
use super::fixed::Facts;
use super::{Decision, Ended, Fixed, Policy, View};

/// The policies that are played.
const ARMS: [Fixed; 8] = [
    Fixed::Greedy,
    Fixed::Gather(4),
    Fixed::Gather(8),
    Fixed::Gather(16),
    Fixed::Overlap(LEVELS[0]),
    Fixed::Overlap(LEVELS[1]),
    Fixed::Overlap(LEVELS[2]),
    Fixed::Overlap(LEVELS[3]),
];
/// How much better another policy must be than the present one.
const BETTER: f64 = 1.005;
/// How much better it must be if something has to be tried first.
const WORTH_TRYING: f64 = 1.01;
/// Events that are dreamt when somebody comes.
const STEP: u32 = 16;
/// Fsyncs that a policy serves in the first dream, and in later ones.
const FIRST: u64 = 128;
const LATER: u64 = 1024;
/// Fsyncs from the end of a dream to the next, at most.
const REST_MAX: u64 = 1 << 14;

/// What a dream was about.
#[derive(Clone, Copy, Debug, Default)]
struct Theme {
    flush: f64,
    callers: f64,
    think: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Until so many have come.
    Awake(u64),
    /// This arm is being played.
    Asleep(usize),
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Auto {
    disk: Disk,
    callers: Callers,
    dream: Box<Dream>,
    phase: Phase,
    theme: Theme,
    /// Dreams of this theme.
    dreams: u64,
    scores: [f64; ARMS.len()],
    arm: Fixed,
    came: u64,
    rest: u64,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            disk: Disk::new(),
            callers: Callers::new(),
            dream: Box::new(Dream::new()),
            phase: Phase::Awake(0),
            theme: Theme::default(),
            dreams: 0,
            scores: [0.0; ARMS.len()],
            arm: Fixed::Greedy,
            came: 0,
            rest: 0,
        }
    }
}

impl Auto {
    /// The policy that is followed now.
    pub fn follows(&self) -> Fixed {
        self.arm
    }

    fn theme(&self) -> Theme {
        Theme {
            flush: self.disk.flush,
            callers: self.callers.epochs.count(EPOCHS).into(),
            think: self.callers.think,
        }
    }

    /// Goes on dreaming.
    fn dream(&mut self) {
        match self.phase {
            Phase::Awake(until) if self.came < until => {}
            Phase::Awake(_) if self.dream.learn(&self.callers, &self.disk) => {
                self.theme = self.theme();
                self.begin(0);
            }
            Phase::Awake(_) => self.phase = Phase::Awake(self.came + 4),
            Phase::Asleep(arm) => {
                let Some(score) = self.dream.go_on(STEP) else { return };
                let part = 1.0 / (self.dreams + 1).min(4) as f64;
                self.scores[arm] += (score.rate - self.scores[arm]) * part;
                if arm + 1 < ARMS.len() {
                    return self.begin(arm + 1);
                }
                self.dreams += 1;
                self.rest = (self.rest * 2).clamp(64, REST_MAX);
                self.phase = Phase::Awake(self.came + self.rest);
                self.choose();
            }
        }
    }

    fn begin(&mut self, arm: usize) {
        self.phase = Phase::Asleep(arm);
        let length = if self.dreams == 0 { FIRST } else { LATER };
        self.dream.begin(ARMS[arm], length, self.dreams);
    }

    /// Takes the best policy that the disk allows, or one that finds out what it allows.
    fn choose(&mut self) {
        if self.dreams == 0 {
            return;
        }
        let good = self.disk.good();
        let possible = |fixed: &Fixed| !matches!(fixed, Fixed::Overlap(most) if *most > good);
        let mut best = (Fixed::Greedy, 0.0);
        let mut hoped = 0.0f64;
        let mut present = 0.0;
        for (fixed, score) in ARMS.iter().zip(self.scores) {
            if possible(fixed) {
                if score > best.1 {
                    best = (*fixed, score);
                }
                if *fixed == self.arm {
                    present = score;
                }
            }
            hoped = hoped.max(score);
        }
        if hoped > best.1 * WORTH_TRYING
            && let Some(level) = self.disk.next_level()
        {
            self.arm = Fixed::Overlap(level);
        } else if best.1 > present * BETTER {
            self.arm = best.0;
        }
    }

    /// Has what was dreamt of changed?
    fn look_up(&mut self) {
        let now = self.theme();
        let far = |a: f64, b: f64, by: f64| a > b * by || b > a * by;
        let then = self.theme;
        let changed = far(now.flush, then.flush, 1.25)
            || far(now.think, then.think, 1.4) && now.think.max(then.think) > 0.01 * now.flush
            || far(now.callers + 1.0, then.callers + 1.0, 1.3);
        if changed {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.dreams = 0;
        self.rest = 0;
        self.phase = Phase::Awake(self.came + 8);
        self.theme = self.theme();
    }
}

impl Policy for Auto {
    fn came(&mut self, view: &View, who: u64) {
        self.came += 1;
        self.callers.came(view.now, who, self.disk.flush as u64);
        self.dream();
    }

    fn begun(&mut self, view: &View) {
        self.callers.begun();
        self.disk.begun(view.now);
    }

    fn ended(&mut self, view: &View, flush: Ended) {
        self.callers.told(flush.number, view.now);
        let before = self.disk.levels;
        if self.disk.ended(view.now, flush) {
            self.arm = Fixed::Greedy;
            self.forget();
        } else if self.disk.levels != before {
            self.choose();
        }
        if self.disk.flushes.is_multiple_of(8) {
            self.look_up();
        }
    }

    fn decide(&mut self, view: &View) -> Decision {
        let flush = self.disk.flush as u64;
        self.callers.epochs.pass(view.now.0, flush);
        let lone = self.callers.epochs.count(EPOCHS) < 2;
        let fixed = if lone { Fixed::Greedy } else { self.arm };
        let facts = Facts { flush, expected: self.callers.epochs.expected(), other: true };
        fixed.decide(view, facts)
    }
}
