//! Puts a computed volume on its device.
//!
//! 1. Every structure passes its own verification before it is written.
//! 2. The primary superblock goes last, behind a flush of all the rest.

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

/// How to write a volume.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Leave the primary superblock's in-progress flag set and flush nothing: the caller fills the
    /// volume, and clears the flag when it is done.
    pub in_progress: bool,
    /// The device is known to read as zeroes: nothing need be zeroed.
    pub zero_log: bool,
    /// User and group that the root directory belongs to.
    pub owner: (u32, u32),
    /// The moment that the first inodes carry; now, if not given.
    pub now: Option<Timestamp>,
}

/// What the parts of a volume need to be written.
pub(crate) struct Writer<'a> {
    layout: &'a Layout,
    geo: Geometry,
    dev: &'a dyn BlockDev,
    how: &'a WriteOptions,
    /// The superblock of a volume that exists and grows.
    grown: Option<&'a Superblock>,
}

/// Makes the volume: everything on the device is overwritten or lost.
///
/// # Errors
/// If the device is too short or fails; it may then hold anything, but no primary superblock.
pub fn write(layout: &Layout, dev: &dyn BlockDev, how: &WriteOptions) -> Result<(), MkfsError> {
    if dev.len() < layout.size_bytes() {
        return crate::error::geometry(format!(
            "the volume takes {} bytes, the device has {}",
            layout.size_bytes(),
            dev.len()
        ));
    }
    let geo = Geometry::new(&layout.superblock());
    let writer = Writer { layout, geo, dev, how, grown: None };
    if !how.zero_log {
        writer.clear_stale()?;
    }
    writer.log()?;
    for ag in (0..layout.groups.count).map(AgNo) {
        writer.group(ag)?;
    }
    writer.first_inodes()?;
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
    /// For groups that are added to the volume of `sb`, whose layout is `layout`.
    pub(crate) fn growing(
        layout: &'a Layout,
        sb: &'a Superblock,
        dev: &'a dyn BlockDev,
        how: &'a WriteOptions,
    ) -> Self {
        Self { layout, geo: Geometry::new(sb), dev, how, grown: Some(sb) }
    }

    /// Writes `bytes` at a byte offset of the device.
    fn put(&self, what: &'static str, offset: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        self.dev.write_at(offset, bytes).map_err(MkfsError::io(what))
    }

    /// The sector of a superblock, its checksum stored.
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

    /// The copy in an AG: as things stood before the first inodes were made, with the root inode
    /// noted in two of the copies for repair to find.
    fn secondary(&self, ag: AgNo) -> Result<Vec<u8>, MkfsError> {
        if let Some(sb) = self.grown {
            return self.superblock_sector(sb);
        }
        let mut sb = self.layout.superblock();
        let count = self.layout.groups.count;
        if ag.0 != count - 1 && ag.0 != (count - 1) / 2 {
            sb.rootino = u64::MAX.into();
        }
        // Attributes came with the first inodes, unless every file may have them.
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
