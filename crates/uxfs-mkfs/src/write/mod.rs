//! Writes a computed volume to its device.
//!
//! 1. Every structure passes its verification before it is written.
//! 2. The primary superblock is written last, after a flush of everything else.

mod group;
mod inodes;
mod log;
mod stale;

use uxfs_disk::BlockDev;
use uxfs_format::features::{Incompat, Version};
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::{AgNo, Geometry, crc};
use zerocopy::IntoBytes;

use crate::error::MkfsError;
use crate::layout::Layout;

/// Options of writing a volume.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Leave the primary superblock's in-progress flag set and do not flush: the caller fills the
    /// volume and clears the flag at the end.
    pub in_progress: bool,
    /// The device reads as zeroes, so nothing needs to be zeroed.
    pub zero_log: bool,
    /// User and group id of the root directory.
    pub owner: (u32, u32),
    /// Timestamp of the first inodes; `None` means the current time.
    pub now: Option<Timestamp>,
}

/// State for writing the parts of a volume.
pub(crate) struct Writer<'a> {
    layout: &'a Layout,
    geo: Geometry,
    dev: &'a dyn BlockDev,
    /// The device of an external log.
    log_dev: Option<&'a dyn BlockDev>,
    how: &'a WriteOptions,
    /// The superblock of an existing volume that grows.
    grown: Option<&'a Superblock>,
}

/// Writes the volume. All previous content of the device is lost.
///
/// # Errors
/// If the device is too short or fails. It may then hold anything except a primary superblock. If the
/// layout has an external log, which [`write_with_log`] writes.
pub fn write(layout: &Layout, dev: &dyn BlockDev, how: &WriteOptions) -> Result<(), MkfsError> {
    if layout.log_device_bytes().is_some() {
        return crate::error::usage("the device of the external log is not there");
    }
    write_all(layout, dev, None, how)
}

/// Writes a volume whose log is external, and its log to `log_dev`. All previous content of `dev` is lost,
/// and that of `log_dev` as far as the log reaches.
///
/// # Errors
/// As [`write()`]; if the log of the layout is internal.
pub fn write_with_log(
    layout: &Layout,
    dev: &dyn BlockDev,
    log_dev: &dyn BlockDev,
    how: &WriteOptions,
) -> Result<(), MkfsError> {
    let Some(needed) = layout.log_device_bytes() else {
        return crate::error::usage("an internal log has no device");
    };
    long_enough("log", needed, log_dev)?;
    write_all(layout, dev, Some(log_dev), how)
}

fn long_enough(what: &str, needed: u64, dev: &dyn BlockDev) -> Result<(), MkfsError> {
    let there = dev.len();
    if there < needed {
        let text = format!("the {what} takes {needed} bytes, the device has {there}");
        return crate::error::geometry(text);
    }
    Ok(())
}

fn write_all(
    layout: &Layout,
    dev: &dyn BlockDev,
    log_dev: Option<&dyn BlockDev>,
    how: &WriteOptions,
) -> Result<(), MkfsError> {
    long_enough("volume", layout.size_bytes(), dev)?;
    let geo = Geometry::new(&layout.superblock());
    let writer = Writer { layout, geo, dev, log_dev, how, grown: None };
    if !how.zero_log {
        writer.clear_stale()?;
    }
    writer.log()?;
    for ag in (0..layout.groups.count).map(AgNo) {
        writer.group(ag)?;
    }
    writer.first_inodes()?;
    // A population that follows flushes only the data device.
    if let Some(log) = log_dev {
        log.flush().map_err(MkfsError::io("log"))?;
    }
    if !how.in_progress {
        dev.flush().map_err(MkfsError::io("metadata"))?;
    }
    writer.primary()?;
    if !how.in_progress {
        dev.flush().map_err(MkfsError::io("superblock"))?;
    }
    Ok(())
}

impl<'a> Writer<'a> {
    /// A writer for groups that are added to the volume of `sb`, whose layout is `layout`.
    pub(crate) fn growing(
        layout: &'a Layout,
        sb: &'a Superblock,
        dev: &'a dyn BlockDev,
        how: &'a WriteOptions,
    ) -> Self {
        Self { layout, geo: Geometry::new(sb), dev, log_dev: None, how, grown: Some(sb) }
    }

    /// Writes `bytes` at a byte offset of the device.
    fn put(&self, what: &'static str, offset: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        self.dev.write_at(offset, bytes).map_err(MkfsError::io(what))
    }

    /// Encodes a superblock with its checksum as a sector.
    fn superblock_sector(&self, sb: &Superblock) -> Result<Vec<u8>, MkfsError> {
        let mut sector = vec![0; self.layout.units.sector as usize];
        let used = superblock::used_len(sb.incompat());
        sector[..used].copy_from_slice(&sb.as_bytes()[..used]);
        crc::stamp(&mut sector, superblock::CRC_OFFSET);
        Superblock::verify(&sector)?;
        Ok(sector)
    }

    fn primary(&self) -> Result<(), MkfsError> {
        let mut sb = self.layout.superblock();
        sb.inprogress = u8::from(self.how.in_progress);
        self.put("superblock", 0, &self.superblock_sector(&sb)?)
    }

    /// The secondary superblock of an AG: its values are those before the first inodes were
    /// allocated. Two secondary superblocks name the root inode, for xfs_repair.
    fn secondary(&self, ag: AgNo) -> Result<Vec<u8>, MkfsError> {
        if let Some(sb) = self.grown {
            return self.superblock_sector(sb);
        }
        let mut sb = self.layout.superblock();
        let count = self.layout.groups.count;
        if ag.0 != count - 1 && ag.0 != (count - 1) / 2 {
            sb.rootino = u64::MAX.into();
        }
        // The ATTR bit is set with the first inodes, unless parent pointers require it from the
        // start.
        if !sb.incompat().contains(Incompat::PARENT) {
            sb.versionnum = (sb.versionnum.get() & !Version::ATTR.bits()).into();
        }
        sb.rbmino = u64::MAX.into();
        sb.rsumino = u64::MAX.into();
        sb.icount = 0.into();
        sb.ifree = 0.into();
        sb.fdblocks = self.layout.free_blocks().into();
        sb.inprogress = 1;
        self.superblock_sector(&sb)
    }
}
