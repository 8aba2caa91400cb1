//! Data that somebody else brings to the device: that of files made whole ([`Fs::build_with`]).
//!
//! 1. It is handed over before the commit that shows it.
//! 2. A checkpoint is written only when all has arrived that was handed over before it was cut.
//!
//! Asked where a checkpoint is cut ([`crate::journal`]).

use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fs::Fs;

/// Who brings data to the device.
pub trait PendingData: Send + Sync {
    /// Waits until all that was handed over has been written (not flushed). Was there anything since the
    /// last call? No call of the volume's is made meanwhile.
    ///
    /// # Errors
    /// The device's: data that is shown by commits is not there.
    fn wait(&self) -> io::Result<bool>;
}

impl Fs {
    /// Says who brings the data of files made by [`Fs::build_with`]; with a journal they are made only
    /// while that is known. `None` when all of it has arrived.
    pub fn set_pending_data(&self, pending_data: Option<Arc<dyn PendingData>>) {
        let before = core::mem::replace(&mut *self.pending_data.lock(), pending_data);
        if let (Some(_), Some(journal)) = (before, &self.journal) {
            journal.data_written();
        }
    }

    /// Waits for data that others bring and that what was committed so far shows. Was there any?
    pub(crate) fn await_pending_data(&self) -> Result<bool> {
        let Some(pending_data) = self.pending_data.lock().clone() else { return Ok(false) };
        let daddr = uxfs_format::Daddr(0);
        pending_data.wait().map_err(|source| Error::Io { what: "writing data", daddr, source })
    }
}
