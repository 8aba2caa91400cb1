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
//! 5. The [`crate::journal::LogWorker`] tries again at intervals of [`RETRY`] and more; so do each sync,
//!    fsync and close.
//! 6. A close that cannot write returns the error with what is not written. If that is metadata, the log
//!    stays dirty, and the next open applies it.
//! 7. Without a journal, as while a volume is made, the first such failure stops the volume: what is
//!    being made is not kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs_disk::host;
use uxfs_journal::Time;

use crate::cause::Cause;
use crate::error::Error;
use crate::sync::{self, Mutex};

/// How long at least until the service tries again, and until operations that have ended do.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to write what is needed to go on.
pub(crate) const BETWEEN: Duration = Duration::from_millis(100);

/// What finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// File data.
    Data,
    /// Metadata in place.
    Metadata,
    /// Records of the log.
    Log,
}

impl Stuck {
    fn words(self) -> &'static str {
        match self {
            Self::Data => "writing data",
            Self::Metadata => "writing metadata in place",
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
    /// Is anything stuck?
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The first of what is stuck.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.last.lock().iter().flatten().next().map(|(_, cause)| cause.clone())
    }

    /// Such a write found no room.
    pub(crate) fn note(&self, stuck: Stuck, error: &Error) {
        let mut last = self.last.lock();
        last[stuck as usize] = Some((sync::now(), Cause::of(stuck.words(), error)));
        self.any.store(true, Ordering::Release);
    }

    /// Such writes find room.
    pub(crate) fn over(&self, stuck: Stuck) {
        if self.any.load(Ordering::Acquire) {
            let mut last = self.last.lock();
            last[stuck as usize] = None;
            self.any.store(last.iter().any(Option::is_some), Ordering::Release);
        }
    }

    /// Does such a write find no room?
    pub(crate) fn is(&self, stuck: Stuck) -> bool {
        self.any.load(Ordering::Acquire) && self.last.lock()[stuck as usize].is_some()
    }

    /// Was it tried within [`RETRY`]?
    pub(crate) fn lately(&self, stuck: Stuck) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let tried = self.last.lock()[stuck as usize].as_ref().map(|(tried, _)| *tried);
        tried.is_some_and(|tried| sync::since(tried) < RETRY)
    }
}
