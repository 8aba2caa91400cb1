//! The checker, which shares no code with the engine's way of changing things, and its use on an image
//! by path.

use std::path::Path;

pub use uxfs_check::{
    CheckError, CheckOptions, Code, Finding, LogState, Phase, Place, Progress, Replay, Report,
    Severity, Totals, Verdict, check, code,
};
use uxfs_core::{Device, Devices, Error, replay_in_memory};
use uxfs_disk::OpenMode;

use crate::volume::{self, Location};

/// Why an image was not checked. Damage is not an error but a finding of the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The image could not be opened.
    #[error(transparent)]
    Host(#[from] std::io::Error),
    /// It holds no volume that can be checked.
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// Checks the volume in an image as its next mount would find it: a dirty log is replayed in memory.
/// Writes nothing.
///
/// # Errors
/// [`ImageError`].
pub fn image(path: &Path, location: &Location) -> Result<Report, ImageError> {
    let dev = Devices::new(volume::open(path, OpenMode::Read, location)?).data;
    let mut options = CheckOptions::default();
    let (dev, replay) = replayed(dev);
    options.replay = replay;
    Ok(check(&*dev, &options, &|_| {})?)
}

/// The device as the next mount would find it, and how that was achieved.
pub fn replayed(dev: Device) -> (Device, Replay) {
    match replay_in_memory(&dev) {
        Ok(Some(replayed)) => {
            let unfinished = replayed.unfinished.map(|error| error.to_string());
            (replayed.device, Replay::Done { head: replayed.head, unfinished })
        }
        Err(Error::DirtyLog(problem)) => (dev, Replay::Failed(problem)),
        // The log is clean, or the check itself reports what is wrong.
        Ok(None) | Err(_) => (dev, Replay::None),
    }
}
