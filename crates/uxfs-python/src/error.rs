//! The library's errors as OSError: Python picks the subclass by errno.

use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;
use uxfs::PathError;

/// An OSError with errno, text and path.
pub(crate) fn os_error(errno: i32, text: String, path: &Path) -> PyErr {
    // As text: Python's own errors hold a string, not an object of pathlib.
    PyOSError::new_err((errno, text, path.as_os_str().to_owned()))
}

pub(crate) fn of_path(error: PathError) -> PyErr {
    // The path stands beside the text in Python.
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), text_of);
    os_error(error.errno(), text, error.path())
}

fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    error.to_string()
}

/// An error without an errno: EIO, with the text.
pub(crate) fn other(error: &dyn std::error::Error, path: &Path) -> PyErr {
    os_error(5, error.to_string(), path)
}
