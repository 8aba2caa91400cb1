//! A full host: what the host has no space for stays dirty and is written later.
//!
//! The device may be a sparse file or thinly provisioned. Then a write into the middle of it can
//! fail with ENOSPC, EDQUOT or EFBIG ([`uxfs_disk::host::is_full`]). Such a failure loses nothing
//! and is temporary.
//!
//! 1. **Data** that cannot be written stays in memory, and its file's next fsync returns the error.
//!    While that lasts, each write first tries to write the oldest data, and returns the error if
//!    that fails. So the memory does not fill with data that cannot be written.
//! 2. **Metadata** that cannot be written in place stays in memory and in the log. Once it fills
//!    half of the log or of the memory, operations that change something first try to write it
//!    once, and fail with the error before they begin if that fails. The other half of the log is
//!    for transactions that have begun. A rolling transaction that finds no log space waits
//!    [`crate::journal::JournalOptions::host_full_timeout`], and then the volume is shut down. Reading still
//!    works.
//! 3. **The log**'s space on the host is allocated when the volume is opened ([`Fs::open`]). A host
//!    that copies on write, or a hole punched into the file, can take that space away. Then log
//!    writes are retried for the same time; if they still fail, the volume is shut down. Nothing
//!    that was acknowledged depends on such a write.
//! 4. A failed **flush** shuts the volume down, whatever the errno: the host no longer knows which
//!    writes it has lost.
//! 5. The [`crate::LogWorker`] retries at intervals of at least [`RETRY`]; so does each
//!    sync, fsync and close.
//! 6. A close that cannot write returns the error and what is not written. If that is metadata, the
//!    log stays dirty, and the next open replays it.
//! 7. Without a journal, as while a volume is made, the first such failure shuts the volume down:
//!    the unfinished volume is discarded anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs_disk::host;
use uxfs_journal::Time;
use uxfs_sync::{self as sync, Mutex};

use crate::cause::Cause;
use crate::error::Error;

/// Minimum time between retries of the log worker, and between retries at the end of operations.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// Time between two attempts of a write that is needed to continue.
pub(crate) const BETWEEN: Duration = Duration::from_millis(100);

/// Kinds of writes that fail because the host is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// File data.
    Data,
    /// Metadata in place.
    Metadata,
    /// Log records.
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

/// The kinds of writes that are stuck, and when each was last tried.
#[derive(Default)]
pub(crate) struct Full {
    any: AtomicBool,
    last: Mutex<[Option<(Time, Cause)>; 3]>,
}

impl Error {
    /// Did a write fail because the host is full? It can succeed later.
    pub fn is_host_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => host::is_full(source),
            Self::Unwritten { source, .. } => source.is_host_full(),
            _ => false,
        }
    }
}

impl Full {
    /// Is any kind stuck?
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The cause of the first kind that is stuck.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.last.lock().iter().flatten().next().map(|(_, cause)| cause.clone())
    }

    /// Notes that a write of this kind failed.
    pub(crate) fn note(&self, stuck: Stuck, error: &Error) {
        let mut last = self.last.lock();
        last[stuck as usize] = Some((sync::now(), Cause::of(stuck.words(), error)));
        self.any.store(true, Ordering::Release);
    }

    /// Notes that writes of this kind succeed again.
    pub(crate) fn over(&self, stuck: Stuck) {
        if self.any.load(Ordering::Acquire) {
            let mut last = self.last.lock();
            last[stuck as usize] = None;
            self.any.store(last.iter().any(Option::is_some), Ordering::Release);
        }
    }

    /// Is this kind stuck?
    pub(crate) fn is(&self, stuck: Stuck) -> bool {
        self.any.load(Ordering::Acquire) && self.last.lock()[stuck as usize].is_some()
    }

    /// Was this kind tried within [`RETRY`]?
    pub(crate) fn lately(&self, stuck: Stuck) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let tried = self.last.lock()[stuck as usize].as_ref().map(|(tried, _)| *tried);
        tried.is_some_and(|tried| sync::since(tried) < RETRY)
    }
}
