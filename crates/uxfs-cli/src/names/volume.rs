//! Opens the image or device that a program of xfsprogs is given.

use std::path::Path;
use std::sync::Arc;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::identity::Identity;
use uxfs::volume::Location;
use uxfs::{Device, Devices};

use super::program::Stop;
use crate::address;
use crate::session::Failure;

/// The superblocks of the volume in an image or on a device.
pub(super) fn identity(path: &Path, mode: OpenMode) -> Result<Identity, Stop> {
    identity_of(path, None, mode)
}

/// The same, with the device of an external log.
pub(super) fn identity_of(
    path: &Path,
    log: Option<&Path>,
    mode: OpenMode,
) -> Result<Identity, Stop> {
    let dev = whole(path, log, mode)?;
    Ok(Identity::read(dev).map_err(|error| Failure::volume(path, error))?)
}

/// The device of a volume, with that of its external log.
pub(super) fn whole(path: &Path, log: Option<&Path>, mode: OpenMode) -> Result<Device, Stop> {
    let dev = address::open(path, mode, &Location::whole())
        .map_err(|error| Failure::host(path, &error))?;
    let mut devices = Devices::new(dev);
    if let Some(log) = log {
        let opened = FileDev::open(log, mode).map_err(|error| Failure::host(log, &error))?;
        devices.log = Some(Arc::new(opened));
    }
    Ok(devices.whole().map_err(|error| Failure::volume(path.as_os_str(), error))?)
}

/// Refuses a directory: programs of xfsprogs take the directory of a mount, too.
pub(super) fn refuse_directory(path: &Path) -> Result<(), Stop> {
    if path.is_dir() {
        let why = "is a directory; uxfs takes an image or a device that is not mounted";
        return Err(Failure::new(path, why).into());
    }
    Ok(())
}
