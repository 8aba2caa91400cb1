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

/// As [`of_path`], for a call with two paths: Python shows both.
pub(crate) fn of_paths(error: PathError, from: &Path, to: &Path) -> PyErr {
    let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), text_of);
    let (from, to) = (from.as_os_str().to_owned(), to.as_os_str().to_owned());
    PyOSError::new_err((error.errno(), text, from, None::<i32>, to))
}

/// An error of a larger call: the errno of the error that caused it, with the text of the whole.
pub(crate) fn other(error: &(dyn std::error::Error + 'static), path: &Path) -> PyErr {
    os_error(errno_of(error), error.to_string(), path)
}

/// The errno of the first error in the chain that has one, or EIO.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> i32 {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let found = chain.filter_map(|error| {
        if let Some(host) = error.downcast_ref::<std::io::Error>() {
            // An error of the volume may have passed through a reader.
            let inner = host.get_ref().and_then(|inner| inner.downcast_ref::<uxfs::Error>());
            return host.raw_os_error().or_else(|| inner.map(uxfs::Error::errno));
        }
        error.downcast_ref::<uxfs::Error>().map(uxfs::Error::errno)
    });
    found.into_iter().next().unwrap_or(5)
}
