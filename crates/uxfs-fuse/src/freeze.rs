//! A mount that is frozen: requests that may change files are parked, and run at the thaw.
//!
//! 1. A frozen mount's threads do not wait: reads and the thaw are answered.
//! 2. Freeze, thaw and remount exclude each other.
//! 3. The end of the mount thaws it. The end of the command that froze it does not.
//! 4. A parked request is run, or its caller gets EIO.
//!
//! Called by [`crate::server`].

use parking_lot::Mutex;
use uxfs::{Error, FreezeProtection};
use uxfs_transport::{Errno, Filesystem, Parked, Transport};

use crate::volume::Volume;

/// The state of freezing.
#[derive(Default)]
pub(crate) struct Freeze {
    /// Entered by each request that may change files.
    pub(crate) requests: FreezeProtection,
    /// Is it frozen? Held while that changes.
    pub(crate) turn: Mutex<bool>,
}

impl Volume {
    /// Freezes the volume.
    ///
    /// # Errors
    /// EBUSY if it is frozen already; EOPNOTSUPP over io_uring, where parked requests would take the
    /// places of those that thaw; those of writing.
    pub(crate) fn freeze(&self) -> Result<(), Errno> {
        if self.transport() == Some(Transport::Ring) {
            return Err(Errno::OPNOTSUPP);
        }
        let Some(mut frozen) = self.freeze.turn.try_lock() else { return Err(Errno::BUSY) };
        if *frozen || !self.freeze.requests.close() {
            return Err(Errno::BUSY);
        }
        self.freeze.requests.drain();
        let done = self.with(uxfs::Fs::freeze);
        match done {
            Ok(()) => *frozen = true,
            Err(_) => drop(self.freeze.requests.open()),
        }
        done
    }

    /// Thaws the volume. The server then runs what it parked.
    ///
    /// # Errors
    /// EINVAL if it is not frozen.
    pub(crate) fn thaw(&self) -> Result<(), Errno> {
        let mut frozen = self.freeze.turn.lock();
        if !std::mem::take(&mut *frozen) {
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

/// The requests that wait for the thaw.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<Parked>>);

impl Waiting {
    /// Keeps a request, or runs it if the volume is thawed by now.
    pub(crate) fn keep(&self, parked: Parked, volume: &Volume, server: &impl Filesystem) {
        let mut all = self.0.lock();
        // Under the lock: a thaw takes what is here after it has opened the protection.
        if volume.freeze.requests.is_closed() {
            all.push(parked);
            return;
        }
        drop(all);
        parked.run(server);
    }

    /// Runs all, after a thaw.
    pub(crate) fn run(&self, server: &impl Filesystem) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_iter().for_each(|parked| parked.run(server));
    }
}
