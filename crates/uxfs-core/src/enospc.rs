//! Trying again when space is there but not available at once. The operation fails with
//! [`Error::NoSpace`] and undoes everything; then the space is made available, and it runs again.
//!
//! 1. The wait happens with nothing locked, outside of transactions.
//! 2. Two things stand between an operation and free space: blocks whose freeing is not durable
//!    ([`crate::busy`]), which a log force ends; and groups that other transactions hold and that may not
//!    be waited for, which are free a moment later.
//! 3. It gives up after a number of attempts: each time, others have taken the space.
//!
//! Called by every operation that takes blocks, around each of its transactions.

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Attempts with busy blocks in the way: each forces the log.
const FORCES: u32 = 8;
/// Attempts with groups in the way.
const ATTEMPTS: u32 = 64;

impl Engine {
    /// Does `change`, which begins and ends a transaction of its own, again and again while it fails
    /// for want of space that is only not to be had at once.
    ///
    /// # Errors
    /// Those of `change`, or of a forced log.
    pub(crate) fn retry_enospc<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        let (mut forces, mut attempts) = (0, 0);
        loop {
            let before = self.enospc_causes.seen();
            match change() {
                Err(Error::NoSpace) => {}
                other => return other,
            }
            // Others' hindrances may be among them: then it is tried once too often.
            let now = self.enospc_causes.seen();
            if now.1 != before.1 && attempts < ATTEMPTS {
                attempts += 1;
                self.await_groups()?;
            } else if now.0 != before.0 && forces < FORCES {
                forces += 1;
                self.end_busy()?;
            } else {
                return Err(Error::NoSpace);
            }
        }
    }

    /// Waits until whoever holds a group now has let go of it.
    fn await_groups(&self) -> Result<()> {
        for ag in 0..self.geo.ag_count {
            drop(self.ag(uxfs_format::AgNo(ag))?.lock());
        }
        Ok(())
    }

    /// Waits until what is busy now is so no more.
    fn end_busy(&self) -> Result<()> {
        self.wait(self.ticket())?;
        if let Some(journal) = &self.journal {
            journal.await_pushes();
        }
        Ok(())
    }
}
