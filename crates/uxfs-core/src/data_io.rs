//! File data written at once, and data that another writer brings.

use std::sync::Arc;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Daddr;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pending_data::PendingData;

impl Engine {
    pub(crate) fn write_device(&self, at: u64, data: &[u8]) -> Result<()> {
        self.before_data()?;
        let daddr = Daddr(at >> 9);
        let written = self.dev.write_at(at, data);
        written.map_err(|source| Error::Io { what: "writing data", daddr, source })?;
        if let Some(journal) = &self.journal
            && !planted(Fault::DataUnflushed)
        {
            journal.data_written();
        }
        Ok(())
    }

    /// Says who brings the data of files made by [`crate::Fs::build_with`]; with a journal they are made only
    /// while that is known. `None` when all of it has arrived.
    pub fn set_pending_data(&self, pending_data: Option<Arc<dyn PendingData>>) {
        let before = core::mem::replace(&mut *self.pending_data.lock(), pending_data);
        if let (Some(_), Some(journal)) = (before, &self.journal) {
            journal.data_written();
        }
    }
}
