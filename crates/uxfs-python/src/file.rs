//! An open file: reading and writing by offset. The Python half keeps the position.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::free;
use crate::volume::{Stat, Ticket, stat_of};

/// An open file of a volume.
#[pyclass(frozen, module = "uxfs._uxfs")]
pub(crate) struct File(Mutex<Option<Arc<uxfs::File>>>);

impl File {
    pub(crate) fn new(file: uxfs::File) -> Self {
        Self(Mutex::new(Some(Arc::new(file))))
    }

    fn open(&self) -> PyResult<Arc<uxfs::File>> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

#[pymethods]
impl File {
    /// Reads up to `size` bytes at `offset`.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.open()?;
        // A caller may ask for more than there is.
        let left = free(py, || file.metadata())?.len().saturating_sub(offset);
        let want = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut len = 0;
        // Python raises MemoryError for what it cannot hold: a sparse file can be of any length.
        let data = PyBytes::new_with(py, want, |data| {
            len = free(py, || file.read_at(data, offset))?;
            Ok(())
        })?;
        if len == want { Ok(data) } else { Ok(PyBytes::new(py, &data.as_bytes()[..len])) }
    }

    /// Writes all of `data` at `offset`, or at the end of a file opened for appending.
    fn pwrite(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<usize> {
        let file = self.open()?;
        free(py, || file.write_all_at(data, offset))?;
        Ok(data.len())
    }

    /// Changes the length.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let file = self.open()?;
        free(py, || file.set_len(size))
    }

    /// Makes the file durable; without times if `data_only` is set.
    #[pyo3(signature = (data_only = false))]
    fn fsync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.open()?;
        free(py, || if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// A ticket for the durability of the file.
    fn ticket(&self, py: Python<'_>) -> PyResult<Ticket> {
        let file = self.open()?;
        free(py, || file.ticket()).map(Ticket)
    }

    /// The attributes: mode, inode number, links, owner, group, size, atime, mtime, ctime, birth time
    /// (nanoseconds), blocks of 512 bytes, block size.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let file = self.open()?;
        free(py, || file.metadata()).map(|meta| stat_of(&meta))
    }

    /// Closes the file. Does nothing to a closed one.
    fn close(&self, py: Python<'_>) {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(file));
    }
}
