//! Data that somebody else brings to the device: that of files made whole ([`Mount::build_with`]).
//!
//! 1. It is handed over before the commit that shows it.
//! 2. A checkpoint is written only when all has arrived that was handed over before it was cut.
//!
//! Asked where a checkpoint is cut ([`crate::journal`]).

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
