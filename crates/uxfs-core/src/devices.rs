//! The devices of a volume: one for data and metadata, and for some volumes a log device and a realtime
//! device.
//!
//! 1. The log device is read only to check that the log is clean. A volume with a log device is opened
//!    for reading only.
//! 2. The realtime device must be at least as long as the superblock says, or the volume does not open.
//! 3. A device that the volume does not use is not accessed.

use std::sync::Arc;

use uxfs_disk::BlockDev;
use uxfs_format::Geometry;

use crate::error::{Error, Result};

/// A device.
pub type Device = Arc<dyn BlockDev>;

/// The devices that hold a volume.
#[derive(Clone)]
#[non_exhaustive]
pub struct Devices {
    /// Metadata, and the content of all files except realtime files.
    pub data: Device,
    /// The log, if it is not on the data device.
    pub log: Option<Device>,
    /// The content of realtime files.
    pub realtime: Option<Device>,
}

impl Devices {
    /// A volume on a single device.
    pub fn new(data: Device) -> Self {
        Self { data, log: None, realtime: None }
    }

    /// Returns the realtime device, if the volume uses one and it was given.
    ///
    /// # Errors
    /// If the device is too short for the volume.
    pub(crate) fn realtime_of(&self, geo: &Geometry) -> Result<Option<Device>> {
        let Some(device) = self.realtime.as_ref().filter(|_| geo.rt_blocks > 0) else {
            return Ok(None);
        };
        let need = u128::from(geo.rt_blocks) << geo.block_log;
        if u128::from(device.len()) < need {
            return Err(Error::Unsupported(format!(
                "the realtime device has {} bytes, but the volume needs {need}: name the right device",
                device.len()
            )));
        }
        Ok(Some(Arc::clone(device)))
    }
}
