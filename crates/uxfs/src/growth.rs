//! Grows a volume that is open, while its files are used.
//!
//! 1. The device is lengthened first: a later error leaves a longer file that holds an unchanged volume.
//! 2. What must be on the device when is in the engine's growth ([`uxfs_core::Fs::grow_in_use`]).
//!
//! Called by servers of mounts. [`crate::resize`] grows volumes that are not in use.

use std::io;

use uxfs_core::{Error, Fs, whole_groups};
use uxfs_mkfs as mkfs;

use crate::resize::{Method, ResizeError, ResizeSummary, Target};

/// Grows a volume in use. [`Target::Fill`] takes over the present length of its file or device.
///
/// # Errors
/// [`ResizeError`], also for a smaller size. The volume is unchanged, or it has stopped.
pub fn grow_in_use(fs: &Fs, target: Target) -> Result<ResizeSummary, ResizeError> {
    let block = u64::from(fs.geo.block_size);
    let least = match target {
        Target::Fill => 0,
        Target::Bytes(bytes) => bytes,
        Target::Minimize => return Err(too_small()),
    };
    let before = fs.geo.dblocks * block;
    let summary = |after, method| ResizeSummary { before, after, method, reason: None };
    let there = match fs.device().lengthen(least) {
        Ok(there) => there,
        // A device that keeps its length may be longer than the volume.
        Err(error) if error.kind() == io::ErrorKind::Unsupported && least <= fs.device().len() => {
            fs.device().len()
        }
        Err(error) => return Err(ResizeError::Device(error)),
    };
    let bytes = if target == Target::Fill { there } else { least };
    if target != Target::Fill && bytes < before {
        return Err(too_small());
    }
    let dblocks = whole_groups(&fs.geo, bytes / block);
    if dblocks <= fs.geo.dblocks {
        return Ok(summary(before, Method::Unchanged));
    }
    fs.grow_in_use(dblocks, &|sb, groups, dev| {
        mkfs::write_groups(sb, groups, dev).map_err(ResizeError::from)
    })?;
    Ok(summary(dblocks * block, Method::Grown))
}

fn too_small() -> ResizeError {
    ResizeError::Volume(Error::Invalid("a volume in use can only grow"))
}
