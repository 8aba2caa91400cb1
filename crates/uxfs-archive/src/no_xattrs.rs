//! Extended attributes on systems whose attributes are not those of Linux: none is read. Stands in for
//! `host_xattrs` there.

use std::fs::File;
use std::io;

use crate::entry::Xattrs;
use crate::error::Warnings;

/// What failed, and the error.
pub(crate) type Failed = (String, io::Error);

/// Reads no attributes.
#[derive(Default)]
pub(crate) struct HostXattrs;

impl HostXattrs {
    /// The attributes of an open file: none, with a warning.
    ///
    /// # Errors
    /// None.
    pub(crate) fn of_file(&mut self, _: &File, warnings: &mut Warnings) -> Result<Xattrs, Failed> {
        warnings.push_once("extended attributes are not read on this system".into());
        Ok(Xattrs::new())
    }
}
