//! File data that another writer has not written yet: that of files made whole
//! ([`crate::Fs::build_with`]).
//!
//! 1. The data is handed to the writer before the commit that shows it.
//! 2. A checkpoint is written only when all data that was handed over before its cut has been written.
//!
//! Called where a checkpoint is cut ([`crate::journal`]).

use std::io;

/// Who brings data to the device.
pub trait PendingData: Send + Sync {
    /// Waits until all that was handed over has been written (not flushed). Was there anything since the
    /// last call? No call of the volume's is made meanwhile.
    ///
    /// # Errors
    /// The device's: data that is shown by commits is not there.
    fn wait(&self) -> io::Result<bool>;
}
