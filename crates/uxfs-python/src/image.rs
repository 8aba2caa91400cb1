//! Calls on whole images: import and check.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use uxfs::import::{self, ImportOptions};
use uxfs::volume::Location;

use crate::{error, path};

/// Imports a tar archive or directory of the host into an image, which is made if it does not exist.
/// Returns (entries, bytes, size of the volume in bytes, warnings).
#[pyfunction]
#[pyo3(signature = (source, image, size = None, force = false))]
pub(crate) fn import_tree(
    py: Python<'_>,
    source: &[u8],
    image: &[u8],
    size: Option<u64>,
    force: bool,
) -> PyResult<(u64, u64, u64, Vec<String>)> {
    let mut options = ImportOptions::new(path(source), path(image));
    (options.size, options.force) = (size, force);
    let done = py.detach(|| import::run(&options, &mut |_| {}));
    let summary = done.map_err(|e| match e {
        import::ImportError::Host { path, source } => {
            error::os_error(source.raw_os_error().unwrap_or(5), source.to_string(), &path)
        }
        import::ImportError::Volume(e) => error::os_error(e.errno(), e.to_string(), path(image)),
        other => error::other(&other, path(source)),
    })?;
    Ok((summary.entries, summary.bytes, summary.size, summary.warnings))
}

/// Checks the volume in an image, as its next mount would find it. Writes nothing.
#[pyfunction]
pub(crate) fn check<'py>(py: Python<'py>, image: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let image: PathBuf = path(image).to_owned();
    let checked = py.detach(|| uxfs::check::image(&image, &Location::whole()));
    let report = checked.map_err(|e| match e {
        uxfs::check::ImageError::Host(e) => {
            error::os_error(e.raw_os_error().unwrap_or(5), e.to_string(), &image)
        }
        other => error::other(&other, &image),
    })?;
    let result = PyDict::new(py);
    result.set_item("clean", report.is_clean())?;
    result.set_item("exit_code", report.exit_code())?;
    let findings: Vec<(&str, &str, String)> = report
        .findings
        .iter()
        .map(|finding| (finding.code, finding.severity.name(), finding.message.clone()))
        .collect();
    result.set_item("findings", findings)?;
    result.set_item("text", report.to_string())?;
    Ok(result)
}
