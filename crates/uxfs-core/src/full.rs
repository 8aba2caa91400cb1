//! A host that is full: what it has no room for stays dirty and is written later.
//!
//! The device below may be a sparse file or thinly provisioned, so that a write into the middle of it
//! fails with ENOSPC, EDQUOT or EFBIG ([`uxfs_disk::host::is_full`]). That loses nothing, and passes.
//!
//! 1. **Data** that cannot be written stays in memory, and its file's next fsync returns the error.
//!    While that lasts, each write first tries to write what is oldest, and returns the error if that
//!    fails: nobody fills the memory with data that has no place.
//! 2. **Metadata** that cannot be written in place stays in memory and in the log. Once the log is half
//!    full of it, or memory is, operations that change something fail with the error before they begin,
//!    after one attempt to write. The other half of the log is for chains that have begun; one that
//!    finds no log space even so waits [`crate::journal::JournalOptions::patience`] and then stops the
//!    volume. Reading goes on.
//! 3. **The log** has its room set aside when the volume is opened ([`Fs::open`]). A host that copies on
//!    write, or somebody who punches holes, can take that away: then the write of the log is tried
//!    again for that patience; if it still fails, the volume stops. Nothing that was acknowledged
//!    depends on that write.
//! 4. A **flush** that fails stops the volume, whatever the errno: the host has forgotten by then which
//!    writes it could not keep.
//! 5. The [`crate::journal::Service`] tries again at intervals of [`RETRY`] and more; so do each sync,
//!    fsync and close.
//! 6. A close that cannot write returns the error with what is not written, and leaves the log dirty:
//!    the next open brings back all that the log holds.
//! 7. Without a journal, as while a volume is made, the first such failure stops the volume: what is
//!    being made is not kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs_disk::host;
use uxfs_journal::Time;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::journal::Journal;
use crate::turns::{self, Mutex};

/// How long at least until the service tries again, and until operations that have ended do.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to write the log.
const BETWEEN_LOG_WRITES: Duration = Duration::from_millis(100);

/// What finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// File data.
    Data,
    /// Metadata in place.
    Home,
    /// Records of the log.
    Log,
}

impl Stuck {
    fn words(self) -> &'static str {
        match self {
            Self::Data => "writing data",
            Self::Home => "writing metadata in place",
            Self::Log => "writing the log",
        }
    }
}

/// What is stuck, and since when it was tried last.
#[derive(Default)]
pub(crate) struct Full {
    any: AtomicBool,
    last: Mutex<[Option<(Time, Cause)>; 3]>,
}

impl Error {
    /// Did the host have no room for a write? Such a write can succeed later.
    pub fn is_host_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => host::is_full(source),
            Self::Unwritten { source, .. } => source.is_host_full(),
            _ => false,
        }
    }
}

impl Full {
    fn note(&self, stuck: Stuck, error: &Error) {
        let mut last = self.last.lock();
        last[stuck as usize] = Some((turns::now(), Cause::of(stuck.words(), error)));
        self.any.store(true, Ordering::Release);
    }

    fn over(&self, stuck: Stuck) {
        if self.any.load(Ordering::Acquire) {
            let mut last = self.last.lock();
            last[stuck as usize] = None;
            self.any.store(last.iter().any(Option::is_some), Ordering::Release);
        }
    }

    fn is(&self, stuck: Stuck) -> bool {
        self.any.load(Ordering::Acquire) && self.last.lock()[stuck as usize].is_some()
    }

    /// Was it tried within [`RETRY`]?
    fn lately(&self, stuck: Stuck) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let tried = self.last.lock()[stuck as usize].as_ref().map(|(tried, _)| *tried);
        tried.is_some_and(|tried| turns::since(tried) < RETRY)
    }
}

impl Fs {
    /// What cannot be written at present for want of room on the host, and is tried again; `None`
    /// while all can be written.
    pub fn retrying(&self) -> Option<Cause> {
        self.full.last.lock().iter().flatten().next().map(|(_, cause)| cause.clone())
    }

    /// A write ended with `result`: notes whether its kind is stuck. Gives `result`.
    pub(crate) fn tried<T>(&self, stuck: Stuck, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => self.unstick(stuck),
            Err(error) => drop(self.note_stuck(stuck, error)),
        }
        result
    }

    /// Notes that such a write found no room, if that is what the error says; does it?
    pub(crate) fn note_stuck(&self, stuck: Stuck, error: &Error) -> bool {
        let full = error.is_host_full();
        if full {
            self.full.note(stuck, error);
        }
        full
    }

    /// Such writes find room.
    pub(crate) fn unstick(&self, stuck: Stuck) {
        self.full.over(stuck);
    }

    /// Does such a write find no room?
    pub(crate) fn is_stuck(&self, stuck: Stuck) -> bool {
        self.full.is(stuck)
    }

    /// Did such a write find no room a moment ago?
    pub(crate) fn stuck_lately(&self, stuck: Stuck) -> bool {
        self.full.lately(stuck)
    }

    /// Is anything stuck?
    pub(crate) fn is_anything_stuck(&self) -> bool {
        self.full.any.load(Ordering::Acquire)
    }

    /// Tries again what was not tried for a while.
    pub(crate) fn retry_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Home) && !self.stuck_lately(Stuck::Home) {
            self.push_home(journal)?;
        }
        if self.is_stuck(Stuck::Data) && !self.stuck_lately(Stuck::Data) {
            if let Some(dirty) = &self.dirty {
                self.retry_data(dirty)?;
            }
        }
        Ok(())
    }

    /// Fails before a change begins, if metadata is stuck and there is much of it.
    pub(crate) fn refuse_if_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Home) && self.is_crowded(journal) {
            return self.push_home(journal);
        }
        Ok(())
    }

    /// Does `write`, which is needed to go on, again and again while the host has no room, until it
    /// succeeds or patience ends.
    pub(crate) fn write_with_patience(
        &self,
        patience: Duration,
        mut write: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let begun = turns::now();
        loop {
            let done = self.tried(Stuck::Log, write());
            let full = done.as_ref().is_err_and(Error::is_host_full);
            if !full || turns::since(begun) >= patience || self.check_running().is_err() {
                return done;
            }
            turns::pause(BETWEEN_LOG_WRITES);
        }
    }
}
