//! Locks, condition variables, time and threads of the engine and its journal.
//!
//! Outside a simulation these are `parking_lot`'s locks and the machine's clock and threads. A thread
//! that takes part in a simulation ([`set_scheduler`]) uses the simulation's clock. Instead of
//! blocking on a lock, a condition variable or a timer, it yields to the [`Scheduler`], which runs one
//! thread at a time. A simulation with the same seed therefore runs the same way each time.
//!
//! 1. Outside a simulation an uncontended lock costs what `parking_lot`'s costs.
//! 2. Only threads of a simulation use the locks that its threads use.
//! 3. A lock that does not come from this crate is never held across I/O or a wait.
//! 4. Every lock has a [`Rank`]; debug builds assert the order.
//!
//! Used by every module of the engine that waits or reads the clock.

mod rank;
mod time;

use core::cell::RefCell;
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::lock_api::{ArcMutexGuard, ArcRwLockWriteGuard};
use parking_lot::{RawMutex, RawRwLock};

pub use rank::Rank;
pub use time::Time;

/// Identifies a lock or condition variable that a thread waits for, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey(pub usize);

impl WaitKey {
    fn of<T>(what: &T) -> Self {
        Self(core::ptr::from_ref(what).cast::<()>().addr())
    }
}

/// The function that a new thread runs.
pub type Body = Box<dyn FnOnce() + Send>;

/// Waits for a thread to end.
pub type Join = Box<dyn FnOnce() + Send>;

/// The scheduler of a simulation, as the running thread sees it.
pub trait Scheduler: Send + Sync {
    /// The simulated time.
    fn now(&self) -> Time;

    /// The number of the running thread.
    fn thread(&self) -> u64;

    /// The date at which the simulation started, in seconds since 1970.
    fn date(&self) -> i64;

    /// Another thread holds the lock: returns when that thread may have released it.
    fn contended(&self, key: WaitKey);

    /// Waits for a wake-up of `key`, or until this time.
    fn sleep(&self, key: WaitKey, until: Option<Time>);

    /// Wakes the first or all of the threads that sleep on `key`.
    fn wake(&self, key: WaitKey, all: bool);

    /// Runs the other threads that are ready.
    fn yield_now(&self);

    /// Starts a thread of the simulation.
    fn spawn(&self, body: Body) -> Join;
}

thread_local! {
    static SCHEDULER: RefCell<Option<Arc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// Makes this thread take part in a simulation, or in none. It must be the running thread.
pub fn set_scheduler(scheduler: Option<Arc<dyn Scheduler>>) {
    SCHEDULER.set(scheduler);
}

/// The scheduler of this thread's simulation, if it takes part in one.
pub fn current() -> Option<Arc<dyn Scheduler>> {
    SCHEDULER.with_borrow(Clone::clone)
}

/// The current time, since an arbitrary start.
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

/// The time that has passed since `moment`.
pub fn since(moment: Time) -> Duration {
    Duration::from_nanos(now().0.saturating_sub(moment.0))
}

/// Lets other threads run.
pub fn yield_now() {
    match current() {
        Some(scheduler) => scheduler.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// Sleeps for `span`.
pub fn pause(span: Duration) {
    match current() {
        Some(scheduler) => scheduler.sleep(WaitKey::of(&span), Some(scheduler.now() + span)),
        None => std::thread::sleep(span),
    }
}

/// A started thread.
pub enum Thread {
    /// A thread of the machine.
    Real(std::thread::JoinHandle<()>),
    /// A thread of the simulation.
    Simulated(Join),
}

impl Thread {
    /// Starts a thread.
    ///
    /// # Errors
    /// If the machine refuses a new thread.
    pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        if let Some(scheduler) = current() {
            return Ok(Self::Simulated(scheduler.spawn(Box::new(body))));
        }
        std::thread::Builder::new().name(name.into()).spawn(body).map(Self::Real)
    }

    /// Waits for the thread to end.
    pub fn join(self) {
        match self {
            // The panic handler has already reported a panic of the thread.
            Self::Real(thread) => drop(thread.join()),
            Self::Simulated(join) => join(),
        }
    }
}

/// Repeats `attempt` until it succeeds, if this thread takes part in a simulation.
fn retry_scheduled<G>(key: WaitKey, attempt: impl Fn() -> Option<G>) -> Option<G> {
    let scheduler = current()?;
    loop {
        scheduler.contended(key);
        if let Some(guard) = attempt() {
            return Some(guard);
        }
    }
}

/// Defines a guard that records its lock as held while it lives.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $inner:ident) => {
        $(#[$doc])*
        pub struct $name<'a, T: ?Sized> {
            guard: parking_lot::$inner<'a, T>,
            _held: rank::Held,
        }

        impl<T: ?Sized> Deref for $name<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }
    };
    ($(#[$doc:meta])* mut $name:ident, $inner:ident) => {
        guard!($(#[$doc])* $name, $inner);

        impl<T: ?Sized> DerefMut for $name<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }
    };
}

guard!(
    /// A [`Mutex`], locked.
    mut MutexGuard, MutexGuard
);
guard!(
    /// A [`RwLock`], locked for reading.
    RwLockReadGuard, RwLockReadGuard
);
guard!(
    /// A [`RwLock`], locked for writing.
    mut RwLockWriteGuard, RwLockWriteGuard
);
guard!(
    /// A part of a [`RwLock`]'s value, locked for writing.
    mut MappedRwLockWriteGuard, MappedRwLockWriteGuard
);

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// Narrows the guard to a part of the value.
    pub fn map<U: ?Sized>(
        self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U> {
        let guard = parking_lot::RwLockWriteGuard::map(self.guard, part);
        MappedRwLockWriteGuard { guard, _held: self._held }
    }
}

/// A lock for one thread at a time.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    lock: parking_lot::Mutex<T>,
    rank: rank::Of,
}

impl<T> Mutex<T> {
    /// A lock of rank [`Rank::Leaf`].
    pub const fn new(value: T) -> Self {
        Self::ranked(Rank::Leaf, value)
    }

    /// A lock of this rank.
    pub const fn ranked(rank: Rank, value: T) -> Self {
        Self { lock: parking_lot::Mutex::new(value), rank: rank::Of::new(rank) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.rank.wait();
        let guard = self.lock.try_lock().unwrap_or_else(|| {
            retry_scheduled(WaitKey::of(self), || self.lock.try_lock())
                .unwrap_or_else(|| self.lock.lock())
        });
        MutexGuard { guard, _held: held }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.lock.try_lock()?;
        Some(MutexGuard { guard, _held: self.rank.hold() })
    }
}

/// A lock for one writer or many readers.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    lock: parking_lot::RwLock<T>,
    rank: rank::Of,
}

impl<T> RwLock<T> {
    /// A lock of this rank.
    pub const fn ranked(rank: Rank, value: T) -> Self {
        Self { lock: parking_lot::RwLock::new(value), rank: rank::Of::new(rank) }
    }

    /// Waits to lock for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.rank.wait();
        let guard = self.lock.try_read().unwrap_or_else(|| {
            retry_scheduled(WaitKey::of(self), || self.lock.try_read())
                .unwrap_or_else(|| self.lock.read())
        });
        RwLockReadGuard { guard, _held: held }
    }

    /// Waits to lock for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.rank.wait();
        let guard = self.lock.try_write().unwrap_or_else(|| {
            retry_scheduled(WaitKey::of(self), || self.lock.try_write())
                .unwrap_or_else(|| self.lock.write())
        });
        RwLockWriteGuard { guard, _held: held }
    }

    /// Waits to read, ahead of waiting writers. A thread that already holds the lock for reading may
    /// call it.
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        let guard = self.lock.try_read_recursive().unwrap_or_else(|| {
            retry_scheduled(WaitKey::of(self), || self.lock.try_read_recursive())
                .unwrap_or_else(|| self.lock.read_recursive())
        });
        RwLockReadGuard { guard, _held: self.rank.hold() }
    }

    /// Locks for reading if no writer holds the lock.
    pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.lock.try_read_recursive()?;
        Some(RwLockReadGuard { guard, _held: self.rank.hold() })
    }
}

/// Waits to write to an inode, and keeps the inode alive. The rank is checked but not recorded: a
/// rolling transaction keeps its inodes locked while it leaves and re-enters the gate.
pub fn write_arc<T>(lock: &Arc<parking_lot::RwLock<T>>) -> ArcRwLockWriteGuard<RawRwLock, T> {
    rank::check(Rank::Inode);
    write_arc_new(lock)
}

/// Waits to write to an inode that was just allocated, under its group's lock. This cannot deadlock: any
/// other holder reads a free inode and waits for nothing.
pub fn write_arc_new<T>(lock: &Arc<parking_lot::RwLock<T>>) -> ArcRwLockWriteGuard<RawRwLock, T> {
    if let Some(guard) = lock.try_write_arc() {
        return guard;
    }
    retry_scheduled(WaitKey::of(&**lock), || lock.try_write_arc())
        .unwrap_or_else(|| lock.write_arc())
}

/// Waits to read an inode. The rank is checked but not recorded.
pub fn read<T>(lock: &parking_lot::RwLock<T>) -> parking_lot::RwLockReadGuard<'_, T> {
    rank::check(Rank::Inode);
    if let Some(guard) = lock.try_read() {
        return guard;
    }
    retry_scheduled(WaitKey::of(lock), || lock.try_read()).unwrap_or_else(|| lock.read())
}

/// Waits to write to an inode. The rank is checked but not recorded.
pub fn write<T>(lock: &parking_lot::RwLock<T>) -> parking_lot::RwLockWriteGuard<'_, T> {
    rank::check(Rank::Inode);
    if let Some(guard) = lock.try_write() {
        return guard;
    }
    retry_scheduled(WaitKey::of(lock), || lock.try_write()).unwrap_or_else(|| lock.write())
}

/// Waits for a file's write-back lock, and keeps the lock alive. The rank is checked but not recorded.
pub fn lock_arc<T>(lock: &Arc<parking_lot::Mutex<T>>) -> ArcMutexGuard<RawMutex, T> {
    rank::check(Rank::Writeback);
    if let Some(guard) = lock.try_lock_arc() {
        return guard;
    }
    retry_scheduled(WaitKey::of(&**lock), || lock.try_lock_arc()).unwrap_or_else(|| lock.lock_arc())
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a wake-up, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match current() {
            Some(scheduler) => {
                let key = WaitKey::of(self);
                parking_lot::MutexGuard::unlocked(&mut guard.guard, || scheduler.sleep(key, None));
            }
            None => self.0.wait(&mut guard.guard),
        }
    }

    /// As [`Condvar::wait`], for at most `span`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, span: Duration) {
        match current() {
            Some(scheduler) => {
                let (key, until) = (WaitKey::of(self), Some(scheduler.now() + span));
                parking_lot::MutexGuard::unlocked(&mut guard.guard, || scheduler.sleep(key, until));
            }
            None => drop(self.0.wait_for(&mut guard.guard, span)),
        }
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        match current() {
            Some(scheduler) => scheduler.wake(WaitKey::of(self), false),
            None => drop(self.0.notify_one()),
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        match current() {
            Some(scheduler) => scheduler.wake(WaitKey::of(self), true),
            None => drop(self.0.notify_all()),
        }
    }
}
