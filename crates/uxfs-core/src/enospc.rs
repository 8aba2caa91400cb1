//! Retries when free space exists but is not available at once. The operation fails with
//! [`Error::NoSpace`] and undoes everything; then the space is made available, and the operation
//! runs again.
//!
//! 1. The wait happens outside of transactions, with nothing locked.
//! 2. Two causes keep an operation from free space: blocks whose freeing is not durable
//!    ([`crate::busy`]), which a log force solves; and AGs that other transactions hold and that
//!    the lock order does not allow to wait for, which are free a moment later.
//! 3. The number of attempts is limited: other threads may take the space each time.
//! 4. When others hold an AG again and again, an attempt locks all of them, in order, so that it gets what is there.
//!
//! Called by every operation on files that may allocate blocks, around each of its transactions. Freeing an
//! inode is not retried here: it is tried again when the volume is closed ([`crate::open_refs`]).

use crate::all_groups;
use crate::error::{Error, Result};
use crate::fs::Fs;

/// Attempts with busy blocks; each forces the log.
const FORCES: u32 = 8;
/// Attempts with locked AGs, before one that locks all.
const ATTEMPTS: u32 = 8;

impl Fs {
    /// Runs `change`, which begins and ends its own transaction. Runs it again while it fails for
    /// lack of space that is only temporarily unavailable.
    ///
    /// # Errors
    /// An error of `change`, or of a log force.
    pub(crate) fn retry_enospc<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..FORCES {
            let before = self.enospc_causes.seen();
            match self.retry_groups(&mut change) {
                // The cause may be another thread's. Then this is one attempt too many.
                Err(Error::NoSpace) if self.enospc_causes.seen().0 != before.0 => {
                    self.end_busy()?
                }
                other => return other,
            }
        }
        self.retry_groups(change)
    }

    /// As [`Fs::retry_enospc`], but does not wait for busy blocks.
    ///
    /// # Errors
    /// An error of `change`.
    pub(crate) fn retry_groups<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            let before = self.enospc_causes.seen();
            match change() {
                Err(Error::NoSpace) if self.enospc_causes.seen().1 != before.1 => {}
                other => return other,
            }
            self.await_groups()?;
        }
        all_groups::at_once(change)
    }

    /// Waits until every AG that is locked now has been released once.
    fn await_groups(&self) -> Result<()> {
        for ag in 0..self.geo.ag_count {
            drop(self.ag(uxfs_format::AgNo(ag))?.lock());
        }
        Ok(())
    }

    /// Makes the extents that are busy now available.
    fn end_busy(&self) -> Result<()> {
        if self.ordered {
            return self.settle_freed();
        }
        self.wait(self.ticket())?;
        if let Some(journal) = &self.journal {
            journal.await_pushes();
        }
        Ok(())
    }
}
