//! Finds the smallest size that holds a volume's files, by trial.
//!
//! The size of a volume's metadata trees depends on how its files are laid out, so no formula is
//! exact. A trial writes all metadata to a temporary file and no data. The search narrows the range
//! between a size that was too small and a size that fits.
//!
//! 1. The chosen size was tried. It leaves the kernel's reserve free, so that the kernel mounts the
//!    volume without a warning.
//! 2. The number of trials is bounded; the remaining uncertainty stays as free space.

use uxfs_core::Fs;
use uxfs_mkfs::MIN_VOLUME_BYTES;

use super::rebuild::{LogSize, layout_like, make};
use super::replace::ReplacementFile;
use super::{ReplaceableFile, ResizeError, ResizeOptions};

const MIB: u64 = 1 << 20;
/// Two groups of the minimum length.
const MIN_BYTES: u64 = 32 * MIB;
/// Largest number of trials.
const MAX_TRIALS: u32 = 14;

/// The result of the search.
pub(super) enum Outcome {
    /// The volume was rebuilt with this many bytes.
    Rebuilt(u64),
    /// No smaller size was found, and why.
    Kept(String),
}

/// Bounds of the search, in bytes.
struct Search {
    /// The largest size that is known to be too small.
    low: u64,
    /// Why `low` is too small.
    reason: String,
    /// The smallest size that is known to fit, or the current size.
    high: u64,
}

/// Rebuilds the volume in the smallest size found and replaces the old file.
pub(super) fn rebuild(
    old: &Fs,
    target: &ReplaceableFile,
    options: &ResizeOptions,
) -> Result<Outcome, ResizeError> {
    let present = old.geo.dblocks << old.geo.block_log;
    let used = old.geo.dblocks - old.free_blocks().min(old.geo.dblocks);
    let used = used.saturating_sub(old.geo.log_blocks.into()) << old.geo.block_log;
    let reason = format!("no volume is shorter than {MIN_BYTES} bytes");
    let mut search = Search { low: MIN_BYTES - MIB, reason, high: present.next_multiple_of(MIB) };
    let mut candidate = (used + used / 64 + 8 * MIB).max(MIN_BYTES);
    for _ in 0..MAX_TRIALS {
        if search.high - search.low <= search.step() {
            break;
        }
        let floor = search.low + MIB;
        let bytes = candidate.next_multiple_of(MIB).clamp(floor, (search.high - MIB).max(floor));
        if bytes >= search.high {
            break;
        }
        match free_at(old, target, options, bytes)? {
            Ok(free) => {
                search.high = bytes;
                // Most of the free space will be free in a smaller volume too, but not all.
                let less = bytes.saturating_sub(free - free / 16);
                candidate = less.max(search.low + (bytes - search.low) / 4);
            }
            Err(reason) => {
                (search.low, search.reason) = (bytes, reason);
                candidate = bytes + ((search.high - bytes) / 2).min(bytes / 8);
            }
        }
    }
    search.try_below_large_log(old, target, options)?;
    if search.high >= present {
        return Ok(Outcome::Kept(search.reason));
    }
    let layout = layout_like(old, search.high, LogSize::Default)?;
    let replacement =
        ReplacementFile::new(&target.path).map_err(ResizeError::host(&target.path))?;
    make(old, &layout, replacement.path(), options, true)?;
    replacement.replace().map_err(ResizeError::host(&target.path))?;
    Ok(Outcome::Rebuilt(layout.size_bytes()))
}

impl Search {
    /// The range of sizes at which the search ends.
    fn step(&self) -> u64 {
        (self.high / 256).max(MIB)
    }

    /// A volume of 300 MiB or more gets a log of 64 MiB: the size just below may fit where a
    /// slightly larger one does not.
    fn try_below_large_log(
        &mut self,
        old: &Fs,
        target: &ReplaceableFile,
        options: &ResizeOptions,
    ) -> Result<(), ResizeError> {
        let below = MIN_VOLUME_BYTES - MIB;
        let near = (MIN_VOLUME_BYTES..=MIN_VOLUME_BYTES + 80 * MIB).contains(&self.high);
        if near && free_at(old, target, options, below)?.is_ok() {
            self.high = below;
        }
        Ok(())
    }
}

/// Tries a size. Returns the bytes left free beyond the kernel's reserve, or why the size does not
/// fit.
fn free_at(
    old: &Fs,
    target: &ReplaceableFile,
    options: &ResizeOptions,
    bytes: u64,
) -> Result<Result<u64, String>, ResizeError> {
    // A size that no volume can have counts as too small.
    let layout = match layout_like(old, bytes, LogSize::Default) {
        Ok(layout) => layout,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let replacement =
        ReplacementFile::new(&target.path).map_err(ResizeError::host(&target.path))?;
    match make(old, &layout, replacement.path(), options, false) {
        Ok(blocks) => Ok(match u64::try_from(blocks) {
            Ok(left) => Ok(left << old.geo.block_log),
            Err(_) => {
                let missing = blocks.unsigned_abs() << old.geo.block_log;
                Err(format!("in {bytes} bytes the kernel's reserve lacks {missing} bytes"))
            }
        }),
        Err(error) if error.is_no_space() => Ok(Err(match error {
            ResizeError::Entry { path, .. } => {
                format!("{bytes} bytes are too few for /{}", path.escape_ascii())
            }
            _ => format!("{bytes} bytes are too few for the files"),
        })),
        Err(error) => Err(error),
    }
}
