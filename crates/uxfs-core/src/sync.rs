//! Threads that take turns: how a simulation runs the engine in a time of its own.
//!
//! Outside a simulation this is the machine's clock, and `parking_lot`'s locks. A thread that takes
//! part in one ([`set_scheduler`]) has the simulation's clock, and never blocks the machine: where it
//! would wait for a lock, for something to be told, or for a moment, it gives its turn to the next
//! ([`Scheduler`]). One thread at a time has the turn, so the same simulation is the same run.
//!
//! 1. Outside a simulation a lock costs no more than `parking_lot`'s: who gets it at once asks for
//!    nothing else.
//! 2. In a simulation nobody but who takes part in it uses what the others use.
//! 3. A lock that is not from here is held across neither I/O nor waiting.
//!
//! Called by all of the engine that waits or asks what time it is.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::lock_api::{ArcMutexGuard, ArcRwLockWriteGuard};
use parking_lot::{MutexGuard, RawMutex, RawRwLock, RwLockReadGuard, RwLockWriteGuard};
use uxfs_journal::Time;

/// What is waited for, by a number that stays the same as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey(pub usize);

impl WaitKey {
    fn of<T>(what: &T) -> Self {
        Self(core::ptr::from_ref(what).cast::<()>().addr())
    }
}

/// A body for a new thread.
pub type Body = Box<dyn FnOnce() + Send>;

/// Waits for the end of a thread.
pub type Join = Box<dyn FnOnce() + Send>;

/// A simulation, to the thread that has the turn.
pub trait Scheduler: Send + Sync {
    /// Now.
    fn now(&self) -> Time;

    /// The number of the thread that has the turn.
    fn thread(&self) -> u64;

    /// The date at which it began, in seconds since 1970.
    fn date(&self) -> i64;

    /// Somebody else has the lock at this place: comes back when they may have let go of it.
    fn contended(&self, key: WaitKey);

    /// Waits until the place is told of something, or until this moment.
    fn sleep(&self, key: WaitKey, until: Option<Time>);

    /// Whoever sleeps at the place, or only the first who does, may go on.
    fn wake(&self, key: WaitKey, all: bool);

    /// Lets the others go on, who are due now.
    fn yield_now(&self);

    /// Starts a thread that takes part.
    fn spawn(&self, body: Body) -> Join;
}

thread_local! {
    static SCHEDULER: RefCell<Option<Arc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// From here on this thread takes part in a simulation, or in none. It must have the turn.
pub fn set_scheduler(scheduler: Option<Arc<dyn Scheduler>>) {
    SCHEDULER.set(scheduler);
}

/// The simulation in which this thread takes part.
pub fn current() -> Option<Arc<dyn Scheduler>> {
    SCHEDULER.with_borrow(Clone::clone)
}

/// The present moment, counted from an arbitrary one.
pub fn now() -> Time {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    match current() {
        Some(scheduler) => scheduler.now(),
        None => {
            let since = BEGUN.get_or_init(Instant::now).elapsed();
            Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        }
    }
}

/// The time since a moment.
pub(crate) fn since(moment: Time) -> Duration {
    Duration::from_nanos(now().0.saturating_sub(moment.0))
}

/// Lets others go on.
pub(crate) fn yield_now() {
    match current() {
        Some(scheduler) => scheduler.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// Does nothing for so long.
pub(crate) fn pause(span: Duration) {
    match current() {
        Some(scheduler) => scheduler.sleep(WaitKey::of(&span), Some(scheduler.now() + span)),
        None => std::thread::sleep(span),
    }
}

/// A thread that was started.
pub(crate) enum Thread {
    /// One of the machine's.
    Real(std::thread::JoinHandle<()>),
    /// One of the simulation's.
    Simulated(Join),
}

impl Thread {
    /// Starts one.
    ///
    /// # Errors
    /// What the machine says to a new thread.
    pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        if let Some(scheduler) = current() {
            return Ok(Self::Simulated(scheduler.spawn(Box::new(body))));
        }
        std::thread::Builder::new().name(name.into()).spawn(body).map(Self::Real)
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        match self {
            // A panic in the thread was reported where it happened.
            Self::Real(thread) => drop(thread.join()),
            Self::Simulated(join) => join(),
        }
    }
}

/// Tries until it succeeds, if this thread takes part in a simulation.
fn retry_scheduled<G>(key: WaitKey, attempt: impl Fn() -> Option<G>) -> Option<G> {
    let scheduler = current()?;
    loop {
        scheduler.contended(key);
        if let Some(guard) = attempt() {
            return Some(guard);
        }
    }
}

/// A lock for one at a time.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock that nobody has.
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.0.try_lock() {
            return guard;
        }
        retry_scheduled(WaitKey::of(self), || self.0.try_lock()).unwrap_or_else(|| self.0.lock())
    }

    /// Takes it if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}

/// A lock for one who changes, or many who look.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that nobody has.
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    /// Waits to look.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        if let Some(guard) = self.0.try_read() {
            return guard;
        }
        retry_scheduled(WaitKey::of(self), || self.0.try_read()).unwrap_or_else(|| self.0.read())
    }

    /// Waits to change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        if let Some(guard) = self.0.try_write() {
            return guard;
        }
        retry_scheduled(WaitKey::of(self), || self.0.try_write()).unwrap_or_else(|| self.0.write())
    }

    /// Waits to look, not behind somebody who waits to change.
    pub(crate) fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        if let Some(guard) = self.0.try_read_recursive() {
            return guard;
        }
        retry_scheduled(WaitKey::of(self), || self.0.try_read_recursive())
            .unwrap_or_else(|| self.0.read_recursive())
    }

    /// Looks if nobody changes it.
    pub(crate) fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read_recursive()
    }
}

/// Waits to look, at a lock that may be held without a lifetime.
pub(crate) fn read<T>(lock: &parking_lot::RwLock<T>) -> RwLockReadGuard<'_, T> {
    if let Some(guard) = lock.try_read() {
        return guard;
    }
    retry_scheduled(WaitKey::of(lock), || lock.try_read()).unwrap_or_else(|| lock.read())
}

/// Waits to change, likewise.
pub(crate) fn write<T>(lock: &parking_lot::RwLock<T>) -> RwLockWriteGuard<'_, T> {
    if let Some(guard) = lock.try_write() {
        return guard;
    }
    retry_scheduled(WaitKey::of(lock), || lock.try_write()).unwrap_or_else(|| lock.write())
}

/// Waits to change, and keeps what is changed alive.
pub(crate) fn write_arc<T>(
    lock: &Arc<parking_lot::RwLock<T>>,
) -> ArcRwLockWriteGuard<RawRwLock, T> {
    if let Some(guard) = lock.try_write_arc() {
        return guard;
    }
    retry_scheduled(WaitKey::of(&**lock), || lock.try_write_arc())
        .unwrap_or_else(|| lock.write_arc())
}

/// Waits for a lock, and keeps it alive.
pub(crate) fn lock_arc<T>(lock: &Arc<parking_lot::Mutex<T>>) -> ArcMutexGuard<RawMutex, T> {
    if let Some(guard) = lock.try_lock_arc() {
        return guard;
    }
    retry_scheduled(WaitKey::of(&**lock), || lock.try_lock_arc()).unwrap_or_else(|| lock.lock_arc())
}

/// Where threads wait to be told of something.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One at which nobody waits.
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Waits; the lock is let go of meanwhile.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match current() {
            Some(scheduler) => {
                MutexGuard::unlocked(guard, || scheduler.sleep(WaitKey::of(self), None));
            }
            None => self.0.wait(guard),
        }
    }

    /// Waits for so long at most.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, span: Duration) {
        match current() {
            Some(scheduler) => {
                let until = scheduler.now() + span;
                MutexGuard::unlocked(guard, || scheduler.sleep(WaitKey::of(self), Some(until)));
            }
            None => drop(self.0.wait_for(guard, span)),
        }
    }

    /// Wakes one who waits.
    pub(crate) fn notify_one(&self) {
        match current() {
            Some(scheduler) => scheduler.wake(WaitKey::of(self), false),
            None => drop(self.0.notify_one()),
        }
    }

    /// Wakes all who wait.
    pub(crate) fn notify_all(&self) {
        match current() {
            Some(scheduler) => scheduler.wake(WaitKey::of(self), true),
            None => drop(self.0.notify_all()),
        }
    }
}
