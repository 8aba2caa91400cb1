//! Logs that are not replayed: those of version 4 volumes. Such a log must be clean. An external log whose device
//! was not given is refused here.

use uxfs_format::superblock::Superblock;
use uxfs_format::{Check, Geometry, Place};
use uxfs_journal::recovery::{Log, State};

use crate::devices::Devices;
use crate::error::{Error, Result};

/// Fails if the log holds changes that are not written in place.
pub(crate) fn require_clean(devices: &Devices, geo: &Geometry, sb: &Superblock) -> Result<()> {
    let (dev, log) = match (geo.log_start.0, &devices.log) {
        (0, None) => {
            return Err(Error::log_elsewhere());
        }
        (0, Some(dev)) => (dev, Log::external(sb)?),
        _ => (&devices.data, Log::new(sb)?),
    };
    let bytes = geo.log_bytes();
    if bytes > dev.len() {
        let problem = format!("{bytes} bytes, its device has {}", dev.len());
        return Err(Error::corrupt("log", Place::Volume, Check::Range, problem));
    }
    match log.state(&**dev)? {
        State::Clean => Ok(()),
        State::Dirty => Err(Error::DirtyLog(
            "it holds changes that are not on the volume yet; mount the volume once with the \
             kernel, or open it read-only with norecovery"
                .into(),
        )),
    }
}
