//! Grows a volume that is open, while its files are used.
//!
//! 1. What cannot grow is refused before its device is touched. Then the device is lengthened: a later error
//!    leaves a longer file that holds an unchanged volume.
//! 2. What must be on the device when is in the engine's growth ([`uxfs_core::Fs::prepare_growth`]).
//!
//! Called by servers of mounts. [`crate::resize`] grows volumes that are not in use.

use std::io;

use uxfs_core::{Error, Fs, Growth, whole_groups};
use uxfs_mkfs as mkfs;

use crate::resize::{Method, ResizeError, ResizeSummary, Target};

/// A growth that is written behind the end of its volume. Until [`Prepared::commit`] the volume is as it was.
#[must_use = "the volume grows when this is committed"]
pub struct Prepared<'a> {
    /// `None` if there is nothing to do.
    growth: Option<Growth<'a>>,
    summary: ResizeSummary,
}

impl Prepared<'_> {
    /// Makes the new room part of the volume. Changes wait meanwhile: for a moment.
    ///
    /// # Errors
    /// [`ResizeError`]. The volume is unchanged, or it has stopped.
    pub fn commit(self) -> Result<ResizeSummary, ResizeError> {
        self.growth.map_or(Ok(()), Growth::commit)?;
        Ok(self.summary)
    }
}

/// Grows a volume in use. [`Target::Fill`] takes over the present length of its file or device.
///
/// # Errors
/// [`ResizeError`], also for a smaller size. The volume is unchanged, or it has stopped.
pub fn grow_in_use(fs: &Fs, target: Target) -> Result<ResizeSummary, ResizeError> {
    prepare(fs, target)?.commit()
}

/// Does what takes long in a growth: the device is lengthened, and the new groups are written. Nothing waits.
///
/// # Errors
/// As [`grow_in_use`]. The volume is unchanged.
pub fn prepare(fs: &Fs, target: Target) -> Result<Prepared<'_>, ResizeError> {
    let block = u64::from(fs.geo.block_size);
    let before = fs.geo.dblocks * block;
    let least = match target {
        Target::Fill => 0,
        Target::Bytes(bytes) if bytes >= before => bytes,
        Target::Bytes(_) | Target::Minimize => return Err(too_small()),
    };
    fs.check_growable()?;
    let there = match fs.device().lengthen(least) {
        Ok(there) => there,
        // A device that keeps its length may be longer than the volume.
        Err(error) if error.kind() == io::ErrorKind::Unsupported && least <= fs.device().len() => {
            fs.device().len()
        }
        Err(error) => return Err(ResizeError::Device(error)),
    };
    let bytes = if target == Target::Fill { there } else { least };
    let dblocks = whole_groups(&fs.geo, bytes / block);
    let summary = |after, method| ResizeSummary { before, after, method, reason: None };
    if dblocks <= fs.geo.dblocks {
        return Ok(Prepared { growth: None, summary: summary(before, Method::Unchanged) });
    }
    let growth = fs.prepare_growth(dblocks, &|sb, groups, dev| {
        mkfs::write_groups(sb, groups, dev).map_err(ResizeError::from)
    })?;
    Ok(Prepared { growth: Some(growth), summary: summary(dblocks * block, Method::Grown) })
}

fn too_small() -> ResizeError {
    ResizeError::Volume(Error::Invalid("a volume in use can only grow"))
}
