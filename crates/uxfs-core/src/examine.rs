//! A volume before it is opened: its superblock verified, its features and length checked, room for its
//! log set aside.
//!
//! 1. A volume is opened for writing only if every feature is known and no repair is due. Version 4 and
//!    realtime data are for reading only; a volume with an external log needs its log device.
//! 2. The log's blocks are allocated on the host before a volume that is open for writing is changed.
//!    A host without room for them is warned of ([`crate::mount::Mount::device_warning`]).

use std::sync::Arc;

use uxfs_disk::host;
use uxfs_format::superblock::Superblock;
use uxfs_format::{Check, Geometry, Place};

use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::growing::GrowingGeometry;
use crate::options::OpenOptions;
use crate::{features, sb};

/// A volume that may be opened with these options.
pub(crate) struct Examined {
    pub(crate) devices: Devices,
    /// The primary superblock's sector, verified.
    pub(crate) sector: Vec<u8>,
    pub(crate) geo: Arc<GrowingGeometry>,
    pub(crate) options: OpenOptions,
    /// The host has no room for the whole log.
    pub(crate) log_without_room: bool,
}

impl Examined {
    /// Looks at the volume on these devices.
    ///
    /// # Errors
    /// [`Error::NotXfs`], [`Error::Corrupt`], or [`Error::Unsupported`] with the names of the features
    /// that stand in the way.
    pub(crate) fn new(devices: Devices, options: OpenOptions) -> Result<Self> {
        let dev = &devices.data;
        let sector = sb::read(&**dev)?;
        let sb = Superblock::verify(&sector)?;
        let log_read_only = devices.log.as_ref().is_some_and(|log| log.read_only());
        let read_only = options.read_only || dev.read_only() || log_read_only;
        let options = OpenOptions { read_only, ..options };
        features::check(sb, &options)?;
        let geo = Arc::new(GrowingGeometry::new(Geometry::new(sb)));
        if dev.len() >> geo.block_log < geo.dblocks {
            let (blocks, size) = (geo.dblocks, geo.block_size);
            let (needed, there) = (blocks.saturating_mul(size.into()), dev.len());
            let problem = format!(
                "the volume has {needed} bytes and its device only {there}: an image that was cut \
                 short, or not all of it was copied"
            );
            return Err(Error::corrupt("superblock", Place::Volume, Check::Size, problem));
        }
        // A volume that is recovered in memory, or made, is used without its log.
        let devices = match options.unfinished || sb.is_v4() {
            true => devices,
            false => devices.joined(&geo, read_only)?,
        };
        let dev = &devices.data;
        let mut log_without_room = false;
        if !read_only && !options.unfinished && options.recovered == 0 {
            // Before anything is changed. A host without room now may have some when it is needed;
            // until then writes of the log are tried again ([`crate::full`]).
            let (daddr, len) = (geo.log_daddr(), geo.log_bytes());
            let what = "setting aside room for the log on the host";
            let allocated = dev.allocate(daddr.bytes(), len);
            match allocated {
                Err(error) if host::is_full_for_now(&error) => log_without_room = true,
                other => other.map_err(|source| Error::Io { what, daddr, source })?,
            }
        }
        Ok(Self { devices, sector, geo, options, log_without_room })
    }
}
