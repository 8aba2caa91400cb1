//! File data that is written at once, and pending data of another writer.

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

    /// Sets the writer of data for files created by [`crate::Fs::build_with`]. With a journal,
    /// these files can be created only while it is set. `None` when all data has been written.
    pub fn set_pending_data(&self, pending_data: Option<Arc<dyn PendingData>>) {
        let before = core::mem::replace(&mut *self.pending_data.lock(), pending_data);
        if let (Some(_), Some(journal)) = (before, &self.journal) {
            journal.data_written();
        }
    }
}
