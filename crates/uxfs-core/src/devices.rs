//! The devices of a volume: one for data and metadata, and for some volumes a log device and a realtime
//! device.
//!
//! 1. The engine sees the data and an external log as one device ([`JoinedDev`]), with the log at
//!    [`EXTERNAL_LOG`]: one flush covers both, as if the log were inside the volume. The log of a volume of
//!    version 4 is read only to check that it is clean.
//! 2. The realtime device must be at least as long as the superblock says, or the volume does not open.
//! 3. A device that the volume does not use is not accessed.

use std::sync::Arc;

use uxfs_disk::{BlockDev, JoinedDev};
use uxfs_format::geometry::EXTERNAL_LOG;
use uxfs_format::superblock::Superblock;
use uxfs_format::{Check, Geometry, Place};

use crate::error::{Error, Result};
use crate::sb;

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
    /// Is `log` a part of `data` already, behind the volume?
    pub(crate) joined: bool,
}

impl Devices {
    /// A volume on a single device.
    pub fn new(data: Device) -> Self {
        Self { data, log: None, realtime: None, joined: false }
    }

    /// The data device, with that of an external log joined to it if it was given: what the checker and
    /// [`replay_in_memory`](crate::replay_in_memory) take. If the superblock is damaged, or the volume longer
    /// than its data device, this is the data device alone; the checker reports the damage.
    ///
    /// # Errors
    /// If the log is longer than its device, or the data device cannot be read.
    pub fn whole(self) -> Result<Device> {
        let sector = match sb::read(&*self.data) {
            Ok(sector) => sector,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => return Ok(self.data),
        };
        let Ok(sb) = Superblock::verify(&sector) else { return Ok(self.data) };
        let geo = Geometry::new(sb);
        match self.data.len() >> geo.block_log < geo.dblocks {
            true => Ok(self.data),
            false => Ok(self.joined(&geo, true)?.data),
        }
    }

    /// The data device with that of the log joined to it, if there is one, without a look at the volume. The
    /// plan of a repair addresses both devices in this way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for devices that are too long.
    pub fn side_by_side(self) -> Result<Device> {
        let Some(log) = self.log else { return Ok(self.data) };
        let joined = JoinedDev::new(self.data, log, EXTERNAL_LOG.bytes());
        Ok(Arc::new(joined.map_err(|error| Error::Unsupported(error.to_string()))?))
    }

    /// Joins the device of an external log to that of the data, if it was given.
    ///
    /// # Errors
    /// If the log is needed for writing and was not given, or its device is too short.
    pub(crate) fn joined(self, geo: &Geometry, read_only: bool) -> Result<Self> {
        if !geo.has_external_log() || self.joined {
            return Ok(self);
        }
        let Some(log) = &self.log else {
            return match read_only {
                true => Ok(self),
                false => Err(Error::log_elsewhere()),
            };
        };
        let (needed, there) = (geo.log_bytes(), log.len());
        if needed > there {
            let problem = format!("{needed} bytes, its device has {there}");
            return Err(Error::corrupt("log", Place::Volume, Check::Range, problem));
        }
        Ok(Self { data: self.clone().side_by_side()?, joined: true, ..self })
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
