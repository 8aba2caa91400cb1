//! Makes a disk larger or smaller, with its last partition.
//!
//! 1. Growing: the disk is extended, the backup table moves to its new end, the last partition is
//!    extended to it, and an XFS volume in it grows. Shrinking cuts what is free behind the last
//!    partition; a partition never gets shorter.
//! 2. Each step leaves a disk whose partitions are whole. The backup table is written before the
//!    primary one changes; the volume grows last.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::disk::partition::{Table, TableKind};
use uxfs::disk::{BlockDev, OpenMode, Slice};
use uxfs::mkfs::signature;
use uxfs::resize::{self, ResizeOptions, Target};
use uxfs::volume::{self, Location};

use crate::error::{ImageError, Result};
use crate::gpt::{Gpt, SECTOR};
use crate::plan::UNIT;

/// What a resize did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskResize {
    /// Length of the disk before and now, in bytes.
    pub disk: (u64, u64),
    /// Number of the last partition, its length before and now; `None` if there is no partition.
    pub partition: Option<(u32, u64, u64)>,
    /// Length of the XFS volume in it before and now, if there is one.
    pub volume: Option<(u64, u64)>,
}

/// Gives the disk image `path`, raw, qcow2 or VHD of fixed length, a length of `len` bytes.
///
/// # Errors
/// [`ImageError::Usage`] if the image is no GPT disk that can be written, or if the partitions do not fit.
pub fn run(path: &Path, len: u64) -> std::result::Result<DiskResize, ImageError> {
    let host = || ImageError::host(path);
    let refused = |problem: String| ImageError::Usage(format!("{}: {problem}", path.display()));
    if !len.is_multiple_of(SECTOR) {
        return Err(refused(format!("{len} bytes are no whole sectors of {SECTOR} bytes")));
    }
    if !std::fs::metadata(path).map_err(host())?.is_file() {
        return Err(refused("is not a regular file".into()));
    }
    let dev = open(path, OpenMode::Write)?;
    let before = dev.len();
    let table = Table::read(&*dev).map_err(host())?;
    if table.is_none_or(|table| table.kind != TableKind::Gpt) {
        return Err(refused("has no GUID partition table".into()));
    }
    // Whatever copy is whole.
    let read = Gpt::read(&*dev, None).or_else(|_| Gpt::read(&*dev, Some(before)));
    let mut gpt = read.map_err(host())?;
    let last = gpt.ranges().into_iter().max_by_key(|(_, _, end)| *end);
    if last.is_some_and(|(_, _, end)| end > before) {
        return Err(refused("has a partition that ends behind the disk".into()));
    }
    let least = last.map_or(0, |(_, _, end)| end) + gpt.tail();
    if len < least {
        let problem = format!("the partitions and the table need {least} bytes, more than {len}");
        return Err(refused(problem));
    }
    drop(dev);
    if len > before {
        volume::set_disk_len(path, len).map_err(host())?;
    }
    let mut done = DiskResize { disk: (before, len), partition: None, volume: None };
    let mut grown = None;
    if let Some((number, start, end)) = last {
        let most = (len - gpt.tail()) / UNIT * UNIT;
        let new_end = if len >= before { most.max(end) } else { end };
        gpt.set_end(number, new_end);
        done.partition = Some((number, end - start, new_end - start));
        grown = (new_end > end).then_some((number, start, new_end - start));
    }
    write(path, &gpt, last.map_or(0, |(_, _, end)| end), len)?;
    if len < before {
        volume::set_disk_len(path, len).map_err(host())?;
    }
    if let Some((number, start, part_len)) = grown
        && holds_xfs(path, start, part_len)?
    {
        let mut wanted = ResizeOptions::new(PathBuf::from(path), Target::Fill);
        wanted.location = Location::partition(number.to_string());
        let summary = resize::run(&wanted)?;
        done.volume = Some((summary.before, summary.after));
    }
    Ok(done)
}

/// Opens the whole disk.
fn open(path: &Path, mode: OpenMode) -> Result<Arc<dyn BlockDev>> {
    volume::open(path, mode, &Location::whole()).map_err(ImageError::host(path))
}

/// Writes the table for the new length, and zeroes over the old backup if it is not in use for another
/// thing: `used` is the old end of the last partition.
fn write(path: &Path, gpt: &Gpt, used: u64, len: u64) -> Result<()> {
    let host = || ImageError::host(path);
    let dev = open(path, OpenMode::Write)?;
    gpt.write(&*dev, len).map_err(host())?;
    if let Some((start, end)) = gpt.old_backup()
        && start >= used
    {
        let end = end.min(len - gpt.tail());
        dev.zero(start, end.saturating_sub(start)).map_err(host())?;
        dev.flush().map_err(host())?;
    }
    Ok(())
}

fn holds_xfs(path: &Path, start: u64, len: u64) -> Result<bool> {
    let part =
        Slice::new(open(path, OpenMode::Read)?, start, len).map_err(ImageError::host(path))?;
    Ok(signature::existing(&part).map_err(ImageError::host(path))? == Some("xfs"))
}
