//! The device of an external log, for `uxfs mkfs`.
//!
//! 1. It is a file or a block device of its own: never the one of the data, under any name.
//! 2. A file that is not there is made, and a shorter one lengthened, if the size of the log is given.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::Device;
use uxfs::disk::{FileDev, OpenMode};
use uxfs::mkfs::{self, Layout};
use uxfs::new_file::NewFile;
use uxfs::volume::Location;

use super::{Length, check_writable, length, refuse_existing};
use crate::address;
use crate::session::{Failure, Result};

/// The device that the options name.
pub(super) struct LogDevice {
    path: PathBuf,
    /// `None` if there is no file yet.
    length: Option<Length>,
}

/// The same, open.
pub(super) struct OpenLog {
    pub(super) device: Device,
    path: PathBuf,
    new_file: NewFile,
}

impl LogDevice {
    /// The device that `wanted` names for the log. Sets its length in `wanted`. `data` is the data device.
    pub(super) fn of(wanted: &mut mkfs::Options, data: &Path) -> Result<Option<Self>> {
        let Some(path) = wanted.log.device.as_ref().map(PathBuf::from) else { return Ok(None) };
        if address::is(&path) {
            return Err(Failure::new(&path, "the log must be in a file or on a block device"));
        }
        let length = length(&path, &Location::default())?;
        match length {
            Some(Length::Device(bytes)) => wanted.log.device_bytes = Some(bytes),
            Some(Length::File(bytes)) => {
                wanted.log.device_bytes = Some(bytes);
                // A file can grow.
                wanted.log.file = wanted.log.size.is_some().then_some(true);
            }
            None if wanted.log.size.is_some() => wanted.log.file = Some(true),
            None => return Err(Failure::new(&path, "no such file: give its size as -l size=SIZE")),
        }
        let id = |path: &Path| address::identity(path).ok();
        if path == data || length.is_some() && id(&path) == id(data) {
            return Err(Failure::new(&path, "the log and the data are on the same device"));
        }
        Ok(Some(Self { path, length }))
    }

    /// Checks, before anything is changed, that nothing of value is there, and that it can be written.
    pub(super) fn check(&self, force: bool, no_write: bool) -> Result<()> {
        if !force && self.length.is_some() {
            refuse_existing(&self.path, &Location::default())?;
        }
        if no_write {
            Ok(())
        } else {
            check_writable(&self.path, &Location::default(), self.length.is_some())
        }
    }

    /// Opens the device for the log of `layout`. With `keep`, what it holds is not discarded.
    pub(super) fn open(self, layout: &Layout, keep: bool) -> Result<OpenLog> {
        let path = self.path;
        let host = |error: std::io::Error| Failure::host(&path, &error);
        let needed = layout.log_device_bytes().unwrap_or(0);
        let mode = match self.length {
            None => OpenMode::Create(needed),
            Some(Length::File(bytes)) if bytes < needed => OpenMode::Create(needed),
            Some(_) => OpenMode::Write,
        };
        let mut new_file = NewFile::create_image(&path).map_err(host)?;
        let device: Device = Arc::new(new_file.open(|| FileDev::open(&path, mode)).map_err(host)?);
        if !keep && mode == OpenMode::Write {
            device.discard(0, device.len());
        }
        Ok(OpenLog { device, path, new_file })
    }
}

impl OpenLog {
    /// Keeps the file: the volume is made.
    pub(super) fn keep(self) -> Result<()> {
        let Self { path, new_file, .. } = self;
        new_file.keep_durably().map_err(|error| Failure::host(&path, &error))
    }
}
