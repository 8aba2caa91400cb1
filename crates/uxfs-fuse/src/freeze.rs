//! A mount that is frozen: requests that may change files are parked, and run at the thaw.
//!
//! 1. A frozen mount's threads do not wait: reads and the thaw are answered.
//! 2. Freeze, thaw, growth and remount exclude each other. A thread of the server waits for none of them.
//! 3. The end of the mount thaws it, and so does what asks the server to end. The end of the command that
//!    froze it does not.
//! 4. A parked request is run as soon as requests are admitted again, or its caller gets EIO.
//!
//! Called by [`crate::server`], [`crate::growth`], and at the end of the mount.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use uxfs::{Error, FreezeProtection};
use uxfs_transport::{Errno, Parked, Transport};

use crate::volume::Volume;

/// Runs a parked request.
type Runner = Box<dyn Fn(Parked) + Send + Sync>;

/// The state of freezing.
#[derive(Default)]
pub(crate) struct Freeze {
    /// Entered by each request that may change files.
    pub(crate) requests: FreezeProtection,
    /// Held by a freeze, a thaw, a growth and a remount. While the volume is frozen it is held for a moment
    /// only.
    pub(crate) turn: Mutex<()>,
    /// Changes under `turn`.
    frozen: AtomicBool,
    /// The requests that wait.
    waiting: Mutex<Vec<Parked>>,
    runner: OnceLock<Runner>,
}

impl Freeze {
    /// Is the mount frozen?
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Sets what runs the requests that waited.
    pub(crate) fn run_with(&self, runner: Runner) {
        // Set once, because a volume is mounted once.
        drop(self.runner.set(runner));
    }

    /// Keeps a request; returns it if requests are admitted by now.
    pub(crate) fn park(&self, parked: Parked) -> Option<Parked> {
        let mut waiting = self.waiting.lock();
        // Under the lock: what opens the protection then takes what is here.
        if !self.requests.is_closed() {
            return Some(parked);
        }
        waiting.push(parked);
        None
    }

    /// Runs what waits, if requests are admitted.
    pub(crate) fn run_waiting(&self) {
        if self.requests.is_closed() {
            return;
        }
        let waiting = std::mem::take(&mut *self.waiting.lock());
        if let Some(runner) = self.runner.get() {
            waiting.into_iter().for_each(runner);
        }
    }
}

impl Volume {
    /// Freezes the volume. If that fails, requests wait that the caller has to run.
    ///
    /// # Errors
    /// EBUSY if it is frozen already; EOPNOTSUPP over io_uring, where parked requests would take the
    /// places of those that thaw; those of writing.
    pub(crate) fn freeze(&self) -> Result<(), Errno> {
        if self.transport() == Some(Transport::Ring) {
            return Err(Errno::OPNOTSUPP);
        }
        let Some(_turn) = self.freeze.turn.try_lock() else { return Err(Errno::BUSY) };
        let Some(held_back) = self.freeze.requests.hold_back() else { return Err(Errno::BUSY) };
        self.with(uxfs::Fs::freeze)?;
        held_back.keep();
        self.freeze.frozen.store(true, Ordering::Release);
        Ok(())
    }

    /// Thaws the volume. The caller then runs what waits.
    ///
    /// # Errors
    /// EINVAL if it is not frozen; EBUSY while it is being frozen, grown or remounted.
    pub(crate) fn thaw(&self) -> Result<(), Errno> {
        let turn = match self.freeze.is_frozen() {
            true => Some(self.freeze.turn.lock()),
            false => self.freeze.turn.try_lock(),
        };
        let Some(_turn) = turn else { return Err(Errno::BUSY) };
        self.thaw_in_turn()
    }

    /// Thaws the volume for the end of the mount, and runs what waits. Waits for a growth or a remount.
    pub(crate) fn thaw_to_end(&self) {
        {
            let _turn = self.freeze.turn.lock();
            // It may not be frozen.
            let _ = self.thaw_in_turn();
        }
        self.freeze.run_waiting();
    }

    fn thaw_in_turn(&self) -> Result<(), Errno> {
        if !self.freeze.frozen.swap(false, Ordering::AcqRel) {
            return Err(Errno::INVAL);
        }
        let done = self.with(|fs| match fs.thaw() {
            Err(Error::Invalid(_)) => Ok(()),
            other => other,
        });
        self.freeze.requests.open();
        done
    }
}
