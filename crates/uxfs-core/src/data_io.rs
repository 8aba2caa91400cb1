//! File data that is written at once, and the bulk data of a volume.

use std::sync::Arc;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Daddr;

use crate::bulk_data::BulkData;
use crate::engine::Engine;
use crate::error::{Error, Result};

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

    /// Makes checkpoints wait for this bulk data.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they wait for that of another writer.
    pub(crate) fn set_bulk_data(&self, data: Arc<BulkData>) -> Result<()> {
        let mut current = self.bulk_data.lock();
        if current.is_some() {
            return Err(Error::Invalid("the volume has a bulk writer already"));
        }
        *current = Some(data);
        Ok(())
    }

    /// No bulk data will come: what was sent is written.
    pub(crate) fn clear_bulk_data(&self) {
        let before = self.bulk_data.lock().take();
        if let (Some(_), Some(journal)) = (before, &self.journal) {
            journal.data_written();
        }
    }
}
