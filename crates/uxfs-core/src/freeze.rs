//! Freeze protection: what changes a volume enters it and leaves it, and a freezer closes it and waits for
//! those inside.
//!
//! 1. Who is inside when it closes is waited for. Who comes later waits outside, or is refused by
//!    [`FreezeProtection::try_enter`].
//! 2. An entrance is counted in the stripe of its thread, with no lock that threads share.
//! 3. A thread that is inside may enter again, also when it was closed meanwhile: an operation that calls
//!    another one ends.
//! 4. The counter rises before the state is read, and the state changes before the counters are read. So
//!    either the freezer sees the entrance, or the entrance sees the freezer.
//!
//! Entered by the operations ([`crate::ops`]) and the log worker, closed by [`crate::freezer`], and used by
//! servers for the requests that they hold back.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use uxfs_sync::{Condvar, Mutex, Rank};

const STRIPES: usize = 16;

/// Entrances of some threads, in a cache line of their own.
#[repr(align(128))]
#[derive(Default)]
struct Stripe(AtomicU64);

static NEXT_SEAT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SEAT: usize = NEXT_SEAT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    /// The protections that this thread is inside of, by address.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A freeze protection.
pub struct FreezeProtection {
    stripes: [Stripe; STRIPES],
    closed: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Default for FreezeProtection {
    fn default() -> Self {
        Self {
            stripes: Default::default(),
            closed: AtomicBool::new(false),
            lock: Mutex::ranked(Rank::Leaf, ()),
            changed: Condvar::default(),
        }
    }
}

/// The two levels at which a volume freezes.
#[derive(Default)]
pub(crate) struct FreezeLevels {
    /// Operations.
    pub(crate) changes: FreezeProtection,
    /// What writes for no operation.
    pub(crate) background: FreezeProtection,
    /// Changes under this lock alone; the levels are closed and opened outside of it.
    pub(crate) state: Mutex<FreezeState>,
    /// A volume grows one step at a time.
    pub(crate) growing: AtomicBool,
}

/// Why the levels are closed, if they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FreezeState {
    #[default]
    Open,
    /// A freeze that a thaw will end has begun.
    Freezing,
    /// Until a thaw.
    Frozen,
    /// Until the one that closed them opens them: for a moment.
    Internal,
}

/// A thread is inside of a protection until this is dropped, on that thread.
#[must_use = "the protection is left when this is dropped"]
pub struct Inside<'a> {
    /// `None` for a thread that was inside already.
    of: Option<&'a FreezeProtection>,
    /// Not for other threads.
    thread: PhantomData<*const ()>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Some(of) = self.of else { return };
        INSIDE.with_borrow_mut(|all| {
            if let Some(at) = all.iter().rposition(|one| *one == of.address()) {
                all.swap_remove(at);
            }
        });
        of.leave();
    }
}

/// A protection that is closed until this is dropped, also by a panic.
#[must_use = "the protection is opened when this is dropped"]
pub struct Closed<'a>(&'a FreezeProtection);

impl Closed<'_> {
    /// Leaves it closed.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl FreezeProtection {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Enters, unless it is closed.
    pub fn try_enter(&self) -> Option<Inside<'_>> {
        if INSIDE.with_borrow(|all| all.contains(&self.address())) {
            return Some(Inside { of: None, thread: PhantomData });
        }
        self.stripe().fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            self.leave();
            return None;
        }
        INSIDE.with_borrow_mut(|all| all.push(self.address()));
        Some(Inside { of: Some(self), thread: PhantomData })
    }

    /// Enters; waits while it is closed.
    pub fn enter(&self) -> Inside<'_> {
        loop {
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            let mut lock = self.lock.lock();
            while self.is_closed() {
                self.changed.wait(&mut lock);
            }
        }
    }

    /// Is it closed?
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes it. Returns false if it is closed already.
    #[must_use = "another freezer may have closed it"]
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Closes it until the result is dropped, and waits until no thread is inside; `None` if it is closed
    /// already.
    pub fn hold_back(&self) -> Option<Closed<'_>> {
        let closed = self.close().then(|| Closed(self))?;
        self.drain();
        Some(closed)
    }

    /// Waits until no thread is inside. It must be closed.
    pub fn drain(&self) {
        let mut lock = self.lock.lock();
        while self.stripes.iter().any(|stripe| stripe.0.load(Ordering::SeqCst) > 0) {
            self.changed.wait(&mut lock);
        }
    }

    /// Opens it, and lets those outside in. Returns false if it was not closed.
    pub fn open(&self) -> bool {
        let _lock = self.lock.lock();
        let was = self.closed.swap(false, Ordering::SeqCst);
        self.changed.notify_all();
        was
    }

    fn stripe(&self) -> &AtomicU64 {
        &self.stripes[SEAT.with(|seat| *seat)].0
    }

    /// The thread that left is the one that entered, so the stripe is the same.
    fn leave(&self) {
        self.stripe().fetch_sub(1, Ordering::SeqCst);
        if self.is_closed() {
            let _lock = self.lock.lock();
            self.changed.notify_all();
        }
    }
}
