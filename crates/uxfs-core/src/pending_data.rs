//! Pending file data: data of files created by [`crate::Fs::build_with`] that another writer has
//! not written yet.
//!
//! 1. The data is passed to the writer before the commit that makes it visible.
//! 2. A checkpoint is written only when all data passed to the writer before its cut has been
//!    written.
//!
//! Called where a checkpoint is cut ([`crate::journal`]).

use std::io;

/// A writer of pending data.
pub trait PendingData: Send + Sync {
    /// Waits until all data passed to the writer has been written (not flushed). Returns whether
    /// there was any since the last call. The writer must not call the volume meanwhile.
    ///
    /// # Errors
    /// A device error: data of committed files is missing.
    fn wait(&self) -> io::Result<bool>;
}
