//! Opens the image or device that a program of xfsprogs is given.

use std::path::Path;

use uxfs::disk::OpenMode;
use uxfs::identity::Identity;
use uxfs::volume::Location;

use super::program::Stop;
use crate::address;
use crate::session::Failure;

/// The superblocks of the volume in an image or on a device.
pub(super) fn identity(path: &Path, mode: OpenMode) -> Result<Identity, Stop> {
    let dev = address::open(path, mode, &Location::whole())
        .map_err(|error| Failure::host(path, &error))?;
    Ok(Identity::read(dev).map_err(|error| Failure::volume(path, error))?)
}

/// Refuses a directory: programs of xfsprogs take the directory of a mount, too.
pub(super) fn refuse_directory(path: &Path) -> Result<(), Stop> {
    if path.is_dir() {
        let why = "is a directory; uxfs takes an image or a device that is not mounted";
        return Err(Failure::new(path, why).into());
    }
    Ok(())
}
