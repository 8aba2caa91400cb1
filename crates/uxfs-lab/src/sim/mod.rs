//! The simulation: threads that run one at a time in virtual time, on modelled disks and a stated
//! number of processors.
//!
//! Each simulated client is a thread of the machine that runs the real engine. Only one thread runs
//! at a time. A thread that waits (for a disk, a processor, a lock, a wake-up, a time) hands over
//! to the thread that is due next. Time advances only when no thread is due.
//!
//! 1. A run is a function of its inputs: the order of threads depends on virtual time and the order
//!    of calls, and on nothing of the machine.
//! 2. Virtual time never goes back.
//! 3. A thread that waits for a held lock tries again, in order of arrival, whenever another thread
//!    ran that may have changed something, before time advances.
//! 4. If no thread will ever be due, the run has failed and reports so. A panic of one thread ends
//!    all.

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
use uxfs::format::timestamp::Timestamp;
use uxfs_disk::fault::{Fault, plant};
use uxfs_journal::Time;
use uxfs_models::{Disk, Done, Request, Tag};
use uxfs_sync::{Body, Join, Scheduler, WaitKey};

pub use dev::SimDev;
pub use store::{Content, Store, StoreDev};
pub(crate) use store::{PAGE, Page};
pub use trace::{Event, Kind, Trace};
pub use uxfs_models::DeviceFault;

/// The date of every run: volumes are made at it, and it does not advance with virtual time.
pub(crate) const DATE: Timestamp = Timestamp { sec: 1_274_661_039, nsec: 0 };
/// Bytes of a simulated thread's stack.
const STACK: usize = 4 << 20;
/// Longest run in nanoseconds, thirty days; a longer one has failed.
const LIMIT: u64 = 30 * 86_400 * 1_000_000_000;

/// Why a simulation did not end.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// No thread will ever be due.
    #[error("the simulation is stuck at {0:?}: all threads wait, and none will be due")]
    Deadlock(Time),
    #[error("a simulated thread panicked: {0}")]
    Panic(String),
}

/// The state shared by the threads.
pub struct Sim {
    myself: Weak<Self>,
    inner: Mutex<Inner>,
    running: AtomicUsize,
    failed: AtomicBool,
    fault: Option<Fault>,
}

struct Slot {
    thread: Option<Thread>,
    /// Number of its waits. Wake-ups for an earlier wait are ignored.
    wait: u64,
    ended: bool,
}

/// The threads that wait for one lock.
struct LockQueue {
    key: WaitKey,
    waiting: VecDeque<usize>,
    /// The first one has tried since the last change.
    tried: bool,
}

struct SimDisk {
    model: Box<dyn Disk>,
    next: u64,
    waiting: FxHashMap<Tag, (usize, u64, usize)>,
    trace: Trace,
}

struct Inner {
    now: u64,
    order: u64,
    /// Due threads by time and order: thread and number of its wait.
    due: BTreeMap<(u64, u64), (usize, u64)>,
    slots: Vec<Slot>,
    sleepers: FxHashMap<WaitKey, VecDeque<(usize, u64)>>,
    lock_queues: Vec<LockQueue>,
    /// The running thread was asked to try this lock again.
    asked: Option<WaitKey>,
    disks: Vec<SimDisk>,
    /// Time at which each processor is free.
    processors: Vec<u64>,
    busy: u64,
    found: Vec<Done>,
    stuck: Option<SimError>,
}

/// The panic payload that ends the other threads when one has failed.
struct Stopped;

impl Sim {
    /// Runs `body` as the first thread of a simulation with this many processors and these disks.
    ///
    /// # Errors
    /// [`SimError`].
    pub fn run<R>(
        processors: usize,
        disks: Vec<Box<dyn Disk>>,
        fault: Option<Fault>,
        body: impl FnOnce(&Arc<Self>) -> R,
    ) -> Result<R, SimError> {
        let drive = |model| SimDisk {
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
                lock_queues: Vec::new(),
                asked: None,
                disks: disks.into_iter().map(drive).collect(),
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
        uxfs_sync::set_scheduler(Some(sim.clone()));
        let result = catch_unwind(AssertUnwindSafe(|| body(&sim)));
        uxfs_sync::set_scheduler(None);
        plant(None);
        if let Err(panic) = &result {
            sim.fail(SimError::Panic(panic_message(&**panic)));
        } else if sim.inner.lock().slots.iter().skip(1).any(|slot| !slot.ended) {
            sim.fail(SimError::Panic("a thread was still running at the end".into()));
        }
        if let Some(stuck) = sim.inner.lock().stuck.take() {
            return Err(stuck);
        }
        result.map_err(|panic| SimError::Panic(panic_message(&*panic)))
    }

    pub fn now(&self) -> Time {
        Time(self.inner.lock().now)
    }

    /// Uses a processor for this long, once one is free.
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

    /// Waits for this long.
    pub fn rest(&self, span: Duration) {
        let inner = self.inner.lock();
        let until = (Time(inner.now) + span).0;
        self.wait_until(inner, until);
    }

    /// Nanoseconds of processor time.
    pub fn busy_ns(&self) -> u64 {
        self.inner.lock().busy
    }

    /// Takes the recorded requests of a disk.
    pub fn take_trace(&self, disk: usize) -> Trace {
        core::mem::take(&mut self.inner.lock().disks[disk].trace)
    }

    /// Starts to record the requests of a disk.
    pub fn record(&self, disk: usize) {
        let mut inner = self.inner.lock();
        inner.disks[disk].trace = Trace { recording: true, ..Trace::default() };
    }

    /// Reads the recorded requests of a disk.
    pub fn with_trace<R>(&self, disk: usize, read: impl FnOnce(&Trace) -> R) -> R {
        read(&self.inner.lock().disks[disk].trace)
    }

    /// Submits a request to a disk and waits for its completion.
    fn ask(&self, disk: usize, request: Request, content: Option<Content>) {
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        let now = inner.now;
        inner.advance(disk);
        inner.slots[thread].wait += 1;
        let wait = inner.slots[thread].wait;
        let drive = &mut inner.disks[disk];
        let tag = Tag(drive.next);
        drive.next += 1;
        let event = drive.trace.begin(now, request, content);
        drive.waiting.insert(tag, (thread, wait, event));
        drive.model.submit(Time(now), tag, request);
        self.switch(inner, thread);
    }

    fn wait_until(&self, mut inner: MutexGuard<'_, Inner>, until: u64) {
        let thread = self.running.load(Ordering::Relaxed);
        let wait = inner.begin_wait(thread);
        inner.set_due(until, thread, wait);
        self.switch(inner, thread);
    }

    /// Hands over to other threads, and returns when this one is due. Anything may have changed.
    fn switch(&self, mut inner: MutexGuard<'_, Inner>, thread: usize) {
        inner.changed(None);
        self.switch_to_next(inner, thread);
    }

    fn switch_to_next(&self, mut inner: MutexGuard<'_, Inner>, thread: usize) {
        let next = inner.next();
        let Some(next) = next else {
            let stuck = SimError::Deadlock(Time(inner.now));
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
        self.wait_until_running(thread);
    }

    fn wait_until_running(&self, thread: usize) {
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

    fn fail(&self, stuck: SimError) {
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
            sim.wait_for_first_run(number);
            plant(sim.fault);
            uxfs_sync::set_scheduler(Some(sim.clone()));
            let ended = catch_unwind(AssertUnwindSafe(body));
            uxfs_sync::set_scheduler(None);
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
                self.fail(SimError::Panic(format!("cannot start a thread: {error}")));
            }
        }
        let sim = Arc::clone(self);
        Box::new(move || sim.join(number))
    }

    /// As the first run of a thread: a failure before it only keeps it from starting.
    fn wait_for_first_run(&self, thread: usize) {
        while self.running.load(Ordering::Acquire) != thread && !self.is_failed() {
            std::thread::park();
        }
    }

    fn join_key(&self, number: usize) -> WaitKey {
        // Below all addresses.
        WaitKey(number)
    }

    fn join(&self, number: usize) {
        while !self.is_failed() && !self.inner.lock().slots[number].ended {
            Scheduler::sleep(self, self.join_key(number), None);
        }
    }

    fn ended(&self, number: usize, how: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = how
            && !panic.is::<Stopped>()
        {
            self.fail(SimError::Panic(panic_message(&*panic)));
        }
        let mut inner = self.inner.lock();
        inner.slots[number].ended = true;
        // It may still be due: at the timeout of a wait from which it was woken.
        inner.begin_wait(number);
        if self.is_failed() {
            return;
        }
        inner.wake(self.join_key(number), true);
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
                let stuck = SimError::Deadlock(Time(inner.now));
                drop(inner);
                self.fail(stuck);
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "no message".into())
}

impl Inner {
    /// Starts a wait of a thread, and cancels its earlier one.
    fn begin_wait(&mut self, thread: usize) -> u64 {
        self.slots[thread].wait += 1;
        self.slots[thread].wait
    }

    fn set_due(&mut self, at: u64, thread: usize, wait: u64) {
        self.order += 1;
        self.due.insert((at.max(self.now), self.order), (thread, wait));
    }

    fn wake(&mut self, key: WaitKey, all: bool) {
        let now = self.now;
        let Some(mut sleepers) = self.sleepers.remove(&key) else { return };
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
            self.sleepers.insert(key, sleepers);
        }
    }

    /// Advances a disk to the present time. Threads whose requests completed become due.
    fn advance(&mut self, disk: usize) {
        let mut found = core::mem::take(&mut self.found);
        let now = self.now;
        let drive = &mut self.disks[disk];
        drive.model.advance(Time(now), &mut found);
        for done in found.drain(..) {
            let drive = &mut self.disks[disk];
            let Some((thread, wait, event)) = drive.waiting.remove(&done.tag) else { continue };
            drive.trace.end(event, done.at.0);
            self.set_due(done.at.0, thread, wait);
        }
        self.found = found;
    }

    /// Notes that locks other than this one may have been released.
    fn changed(&mut self, but: Option<WaitKey>) {
        for line in &mut self.lock_queues {
            line.tried = Some(line.key) == but;
        }
    }

    /// Picks the next thread, and advances time if necessary.
    fn next(&mut self) -> Option<usize> {
        self.asked = None;
        loop {
            if let Some(at) = self.lock_queues.iter().position(|line| !line.tried) {
                let line = &mut self.lock_queues[at];
                line.tried = true;
                self.asked = Some(line.key);
                let first = line.waiting.pop_front();
                if line.waiting.is_empty() {
                    self.lock_queues.remove(at);
                }
                return first;
            }
            let first = self.due.first_key_value().map(|(key, thread)| (*key, *thread));
            if let Some((key, (thread, wait))) = first
                && key.0 <= self.now
            {
                self.due.remove(&key);
                if self.slots[thread].wait == wait {
                    return Some(thread);
                }
                continue;
            }
            let waiting = self.disks.iter().any(|drive| !drive.waiting.is_empty());
            let disks = self.disks.iter().filter_map(|drive| drive.model.next_event());
            let disk = disks.min().filter(|_| waiting || first.is_some());
            let next = first.map(|(key, _)| key.0).into_iter().chain(disk.map(|t| t.0)).min()?;
            if next > LIMIT {
                return None;
            }
            self.now = self.now.max(next);
            for disk in 0..self.disks.len() {
                if self.disks[disk].model.next_event().is_some_and(|t| t.0 <= self.now) {
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
        DATE.sec
    }

    fn now(&self) -> Time {
        Self::now(self)
    }

    fn contended(&self, key: WaitKey) {
        if self.is_failed() {
            std::thread::yield_now();
            return self.stop();
        }
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        inner.begin_wait(thread);
        let again = inner.asked == Some(key);
        match inner.lock_queues.iter_mut().find(|line| line.key == key) {
            Some(line) if again => line.waiting.push_front(thread),
            Some(line) => line.waiting.push_back(thread),
            None => {
                let waiting = VecDeque::from([thread]);
                inner.lock_queues.push(LockQueue { key, waiting, tried: true });
            }
        }
        if !again {
            // This thread may have released other locks.
            inner.changed(Some(key));
        }
        self.switch_to_next(inner, thread);
    }

    fn sleep(&self, key: WaitKey, until: Option<Time>) {
        if self.is_failed() {
            return self.stop();
        }
        let mut inner = self.inner.lock();
        let thread = self.running.load(Ordering::Relaxed);
        let wait = inner.begin_wait(thread);
        inner.sleepers.entry(key).or_default().push_back((thread, wait));
        if let Some(until) = until {
            inner.set_due(until.0, thread, wait);
        }
        self.switch(inner, thread);
    }

    fn wake(&self, key: WaitKey, all: bool) {
        self.inner.lock().wake(key, all);
    }

    fn yield_now(&self) {
        if self.is_failed() {
            return self.stop();
        }
        // A short wait, so that a thread that tries again and again does not stop time.
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
