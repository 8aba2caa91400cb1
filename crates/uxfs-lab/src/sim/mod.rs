//! The simulation: threads that take turns in virtual time, on modelled disks and a stated number
//! of processors.
//!
//! Each simulated client is a thread of the machine, running the real engine; but one at a time has
//! the turn, and who waits (for a disk, a processor, a lock, another's word, a moment) gives it to
//! whoever is due next. Time goes on only when nobody is due.
//!
//! 1. A run is a function of what it is given: the order in which turns are taken depends on
//!    virtual time and on the order of calls, on nothing of the machine's.
//! 2. Virtual time never goes back.
//! 3. Whoever waits for a lock that somebody else has is asked again, first come first served,
//!    after each turn in which something may have changed, before time goes on.
//! 4. If nobody will ever be due the run has failed, and says so; a panic of one is one of all.

mod dev;
mod store;
mod trace;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use uxfs::disk::fault::{Fault, plant};
use uxfs::sync::{self, Body, Join, Scheduler, WaitKey};
use uxfs_journal::Time;
use uxfs_models::{Disk, Done, Request, Tag};

pub use dev::{SimDev, Weakness};
pub use store::{Content, Store, StoreDev};
pub use trace::{Event, Kind, Trace};

/// Bytes of a simulated thread's stack.
const STACK: usize = 4 << 20;
/// A run that lasts longer than this has gone wrong: thirty days.
const LIMIT: u64 = 30 * 86_400 * 1_000_000_000;

/// Why a simulation came to no end.
#[derive(Debug, thiserror::Error)]
pub enum Stuck {
    /// Nobody will ever be due.
    #[error("the simulation is stuck at {0:?}: everybody waits, and nothing will happen")]
    Nobody(Time),
    /// A thread panicked.
    #[error("a simulated thread panicked: {0}")]
    Panic(String),
}

/// What the threads that take turns share.
pub struct Sim {
    myself: Weak<Self>,
    inner: Mutex<Inner>,
    /// Who has the turn.
    running: AtomicUsize,
    failed: AtomicBool,
    fault: Option<Fault>,
}

struct Slot {
    thread: Option<Thread>,
    /// Counts its waits: what was meant for an earlier one is out of date.
    wait: u64,
    ended: bool,
}

/// Those who wait for one lock.
struct Line {
    place: WaitKey,
    waiting: VecDeque<usize>,
    /// The first was asked since anything changed.
    tried: bool,
}

struct Drive {
    model: Box<dyn Disk>,
    next: u64,
    waiting: FxHashMap<Tag, (usize, u64, usize)>,
    trace: Trace,
}

struct Inner {
    now: u64,
    order: u64,
    /// Who is due when: thread and number of its wait, in order.
    due: BTreeMap<(u64, u64), (usize, u64)>,
    slots: Vec<Slot>,
    sleepers: FxHashMap<WaitKey, VecDeque<(usize, u64)>>,
    lines: Vec<Line>,
    /// The thread with the turn was asked whether it can have this lock now.
    asked: Option<WaitKey>,
    drives: Vec<Drive>,
    /// When each processor is free.
    processors: Vec<u64>,
    busy: u64,
    found: Vec<Done>,
    stuck: Option<Stuck>,
}

/// What stops the other threads when one has failed.
struct Stopped;

impl Sim {
    /// Runs `body` as the first thread of a simulation with so many processors and these disks.
    ///
    /// # Errors
    /// [`Stuck`].
    pub fn run<R>(
        processors: usize,
        disks: Vec<Box<dyn Disk>>,
        fault: Option<Fault>,
        body: impl FnOnce(&Arc<Self>) -> R,
    ) -> Result<R, Stuck> {
        let drive = |model| Drive {
            model,
            next: 0,
            waiting: FxHashMap::default(),
            trace: Trace::default(),
        };
        let first = Slot { thread: Some(std::thread::current()), wait: 0, ended: false };
        let sim = Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            inner: Mutex::new(Inner {
                now: 0,
                order: 0,
                due: BTreeMap::new(),
                slots: vec![first],
                sleepers: FxHashMap::default(),
                lines: Vec::new(),
                asked: None,
                drives: disks.into_iter().map(drive).collect(),
                processors: vec![0; processors.max(1)],
                busy: 0,
                found: Vec::new(),
                stuck: None,
            }),
            running: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            fault,
        });
        plant(fault);
        sync::set_scheduler(Some(sim.clone()));
        let result = catch_unwind(AssertUnwindSafe(|| body(&sim)));
        sync::set_scheduler(None);
        plant(None);
        if let Err(panic) = &result {
            sim.fail(Stuck::Panic(words(&**panic)));
        } else if sim.inner.lock().slots.iter().skip(1).any(|slot| !slot.ended) {
            sim.fail(Stuck::Panic("somebody was left behind".into()));
        }
        if let Some(stuck) = sim.inner.lock().stuck.take() {
            return Err(stuck);
        }
        result.map_err(|panic| Stuck::Panic(words(&*panic)))
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time(self.inner.lock().now)
    }

    /// Works for so long on a processor, once one is free.
    pub fn work(&self, span: Duration) {
        let mut inner = self.inner.lock();
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let now = inner.now;
        let Some(free) = inner.processors.iter_mut().min() else { return };
        *free = (*free).max(now) + span;
        let until = *free;
        inner.busy += span;
        self.wait_until(inner, until);
    }

    /// Waits for so long.
    pub fn rest(&self, span: Duration) {
        let inner = self.inner.lock();
        let until = (Time(inner.now) + span).0;
        self.wait_until(inner, until);
    }

    /// Nanoseconds for which processors worked.
    pub fn worked(&self) -> u64 {
        self.inner.lock().busy
    }

    /// Takes what was recorded of a disk so far.
    pub fn take_trace(&self, disk: usize) -> Trace {
        core::mem::take(&mut self.inner.lock().drives[disk].trace)
    }

    /// From now on what a disk is asked is recorded.
    pub fn record(&self, disk: usize) {
        let mut inner = self.inner.lock();
        inner.drives[disk].trace = Trace { recording: true, ..Trace::default() };
    }

    /// Looks at what was recorded of a disk so far.
    pub fn look<R>(&self, disk: usize, look: impl FnOnce(&Trace) -> R) -> R {
        look(&self.inner.lock().drives[disk].trace)
    }

    /// Asks a disk for something and waits until it is done.
    fn ask(&self, disk: usize, request: Request, content: Option<Content>) {
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        let now = inner.now;
        inner.advance(disk);
        inner.slots[thread].wait += 1;
        let wait = inner.slots[thread].wait;
        let drive = &mut inner.drives[disk];
        let tag = Tag(drive.next);
        drive.next += 1;
        let event = drive.trace.begin(now, request, content);
        drive.waiting.insert(tag, (thread, wait, event));
        drive.model.submit(Time(now), tag, request);
        self.give(inner, thread);
    }

    fn wait_until(&self, mut inner: MutexGuard<'_, Inner>, until: u64) {
        let thread = self.running.load(Ordering::Relaxed);
        let wait = inner.begin_wait(thread);
        inner.set_due(until, thread, wait);
        self.give(inner, thread);
    }

    /// Gives the turn away, and comes back with it. Something may have changed.
    fn give(&self, mut inner: MutexGuard<'_, Inner>, thread: usize) {
        inner.changed(None);
        self.hand_on(inner, thread);
    }

    fn hand_on(&self, mut inner: MutexGuard<'_, Inner>, thread: usize) {
        let next = inner.next();
        let Some(next) = next else {
            let stuck = Stuck::Nobody(Time(inner.now));
            drop(inner);
            self.fail(stuck);
            return self.stop();
        };
        if next == thread {
            return;
        }
        let handle = inner.slots[next].thread.clone();
        self.running.store(next, Ordering::Release);
        drop(inner);
        if let Some(handle) = handle {
            handle.unpark();
        }
        self.await_turn(thread);
    }

    fn await_turn(&self, thread: usize) {
        while self.running.load(Ordering::Acquire) != thread {
            if self.failed.load(Ordering::Acquire) {
                return self.stop();
            }
            std::thread::park();
        }
        if self.failed.load(Ordering::Acquire) {
            self.stop();
        }
    }

    /// Ends this thread, unless it is ending.
    fn stop(&self) {
        if !std::thread::panicking() {
            resume_unwind(Box::new(Stopped));
        }
    }

    fn fail(&self, stuck: Stuck) {
        let mut inner = self.inner.lock();
        inner.stuck.get_or_insert(stuck);
        self.failed.store(true, Ordering::Release);
        for slot in &inner.slots {
            if let Some(thread) = &slot.thread {
                thread.unpark();
            }
        }
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Starts a thread that is due now.
    pub fn start(self: &Arc<Self>, body: impl FnOnce() + Send + 'static) -> Join {
        let mut inner = self.inner.lock();
        let number = inner.slots.len();
        inner.slots.push(Slot { thread: None, wait: 0, ended: false });
        let sim = Arc::clone(self);
        let spawned = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            sim.await_turn_first(number);
            plant(sim.fault);
            sync::set_scheduler(Some(sim.clone()));
            let ended = catch_unwind(AssertUnwindSafe(body));
            sync::set_scheduler(None);
            sim.ended(number, ended);
        });
        let now = inner.now;
        let wait = inner.begin_wait(number);
        match spawned {
            Ok(thread) => {
                inner.slots[number].thread = Some(thread.thread().clone());
                inner.set_due(now, number, wait);
            }
            Err(error) => {
                inner.slots[number].ended = true;
                drop(inner);
                self.fail(Stuck::Panic(format!("no thread to be had: {error}")));
            }
        }
        let sim = Arc::clone(self);
        Box::new(move || sim.join(number))
    }

    /// As a thread's first turn: a failure before it only keeps it from beginning.
    fn await_turn_first(&self, thread: usize) {
        while self.running.load(Ordering::Acquire) != thread && !self.is_failed() {
            std::thread::park();
        }
    }

    fn join_place(&self, number: usize) -> WaitKey {
        // Below all addresses.
        WaitKey(number)
    }

    fn join(&self, number: usize) {
        while !self.is_failed() && !self.inner.lock().slots[number].ended {
            Scheduler::sleep(self, self.join_place(number), None);
        }
    }

    fn ended(&self, number: usize, how: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = how
            && !panic.is::<Stopped>()
        {
            self.fail(Stuck::Panic(words(&*panic)));
        }
        let mut inner = self.inner.lock();
        inner.slots[number].ended = true;
        if self.is_failed() {
            return;
        }
        inner.wake(self.join_place(number), true);
        inner.changed(None);
        match inner.next() {
            Some(next) => {
                let thread = inner.slots[next].thread.clone();
                self.running.store(next, Ordering::Release);
                drop(inner);
                if let Some(thread) = thread {
                    thread.unpark();
                }
            }
            None => {
                let stuck = Stuck::Nobody(Time(inner.now));
                drop(inner);
                self.fail(stuck);
            }
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "without words".into())
}

impl Inner {
    /// A thread begins to wait: what it waited for before is out of date.
    fn begin_wait(&mut self, thread: usize) -> u64 {
        self.slots[thread].wait += 1;
        self.slots[thread].wait
    }

    fn set_due(&mut self, at: u64, thread: usize, wait: u64) {
        self.order += 1;
        self.due.insert((at.max(self.now), self.order), (thread, wait));
    }

    fn wake(&mut self, place: WaitKey, all: bool) {
        let now = self.now;
        let Some(mut sleepers) = self.sleepers.remove(&place) else { return };
        while let Some((thread, wait)) = sleepers.pop_front() {
            if self.slots[thread].wait != wait {
                continue;
            }
            self.set_due(now, thread, wait);
            if !all {
                break;
            }
        }
        if !sleepers.is_empty() {
            self.sleepers.insert(place, sleepers);
        }
    }

    /// The disk is told the time; who waited for what it did by then is due.
    fn advance(&mut self, disk: usize) {
        let mut found = core::mem::take(&mut self.found);
        let now = self.now;
        let drive = &mut self.drives[disk];
        drive.model.advance(Time(now), &mut found);
        for done in found.drain(..) {
            let drive = &mut self.drives[disk];
            let Some((thread, wait, event)) = drive.waiting.remove(&done.tag) else { continue };
            drive.trace.end(event, done.at.0);
            self.set_due(done.at.0, thread, wait);
        }
        self.found = found;
    }

    /// Locks may have been let go of, but not this one.
    fn changed(&mut self, but: Option<WaitKey>) {
        for line in &mut self.lines {
            line.tried = Some(line.place) == but;
        }
    }

    /// Whose turn is next; time goes on if it has to.
    fn next(&mut self) -> Option<usize> {
        self.asked = None;
        loop {
            if let Some(at) = self.lines.iter().position(|line| !line.tried) {
                let line = &mut self.lines[at];
                line.tried = true;
                self.asked = Some(line.place);
                let first = line.waiting.pop_front();
                if line.waiting.is_empty() {
                    self.lines.remove(at);
                }
                return first;
            }
            let first = self.due.first_key_value().map(|(key, who)| (*key, *who));
            if let Some((key, (thread, wait))) = first
                && key.0 <= self.now
            {
                self.due.remove(&key);
                if self.slots[thread].wait == wait {
                    return Some(thread);
                }
                continue;
            }
            let waiting = self.drives.iter().any(|drive| !drive.waiting.is_empty());
            let disks = self.drives.iter().filter_map(|drive| drive.model.next_event());
            let disk = disks.min().filter(|_| waiting || first.is_some());
            let next = first.map(|(key, _)| key.0).into_iter().chain(disk.map(|t| t.0)).min()?;
            if next > LIMIT {
                return None;
            }
            self.now = self.now.max(next);
            for disk in 0..self.drives.len() {
                if self.drives[disk].model.next_event().is_some_and(|t| t.0 <= self.now) {
                    self.advance(disk);
                }
            }
        }
    }
}

impl Scheduler for Sim {
    fn thread(&self) -> u64 {
        self.running.load(Ordering::Relaxed) as u64
    }

    fn date(&self) -> i64 {
        crate::bed::MOMENT.sec
    }

    fn now(&self) -> Time {
        Self::now(self)
    }

    fn contended(&self, place: WaitKey) {
        if self.is_failed() {
            std::thread::yield_now();
            return self.stop();
        }
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        inner.begin_wait(thread);
        let again = inner.asked == Some(place);
        match inner.lines.iter_mut().find(|line| line.place == place) {
            Some(line) if again => line.waiting.push_front(thread),
            Some(line) => line.waiting.push_back(thread),
            None => {
                let waiting = VecDeque::from([thread]);
                inner.lines.push(Line { place, waiting, tried: true });
            }
        }
        if !again {
            // This turn may have let go of other locks.
            inner.changed(Some(place));
        }
        self.hand_on(inner, thread);
    }

    fn sleep(&self, place: WaitKey, until: Option<Time>) {
        if self.is_failed() {
            return self.stop();
        }
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        let wait = inner.begin_wait(thread);
        inner.sleepers.entry(place).or_default().push_back((thread, wait));
        if let Some(until) = until {
            inner.set_due(until.0, thread, wait);
        }
        self.give(inner, thread);
    }

    fn wake(&self, place: WaitKey, all: bool) {
        self.inner.lock().wake(place, all);
    }

    fn yield_now(&self) {
        if self.is_failed() {
            return self.stop();
        }
        // A moment, so that who tries again and again does not keep time from going on.
        self.rest(Duration::from_micros(10));
    }

    fn spawn(&self, body: Body) -> Join {
        match self.myself.upgrade() {
            Some(sim) => Box::new(sim.start(body)),
            None => Box::new(|| {}),
        }
    }
}

#[cfg(test)]
mod tests;
