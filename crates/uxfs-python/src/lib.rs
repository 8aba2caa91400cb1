//! The native half of the Python package `uxfs`: paths are bytes, and every call that reads or writes
//! releases the GIL. The other half, in `python/uxfs`, gives the calls the shape of `os` and `shutil`.

mod error;
mod file;
mod image;
mod volume;

use pyo3::prelude::*;

/// XFS volumes in user space; see the package `uxfs`.
#[pymodule]
mod _uxfs {
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::image::{check, import_tree};
    #[pymodule_export]
    use crate::volume::{Ticket, Volume};
}

/// A path on the volume or on the host.
pub(crate) fn path(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Runs a call of the library without the GIL.
pub(crate) fn free<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> uxfs::files::Result<T> + Send,
) -> PyResult<T> {
    py.detach(call).map_err(error::of_path)
}
