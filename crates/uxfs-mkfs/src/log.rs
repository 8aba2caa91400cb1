//! Computes size and position of the log, which is in an allocation group or on a device of its own.

use uxfs_format::geometry::CHUNK_INODES;
use uxfs_format::{AgBlock, AgNo};

use crate::error::{MkfsError, geometry, usage};
use crate::groups::Groups;
use crate::layout::{MIN_LOG_BYTES, MIN_VOLUME_BYTES};
use crate::minlog;
use crate::options::Options;
use crate::stripe::Stripe;
use crate::units::Units;

/// Minimum number of blocks of a log.
const MIN_BLOCKS: u64 = 512;
/// Minimum size of a log in bytes.
const MIN_BYTES: u64 = 2 << 20;
/// Maximum number of blocks of a log.
const MAX_BLOCKS: u64 = 1 << 20;
/// Maximum size of a log in bytes.
const MAX_BYTES: u64 = 2038 << 20;
/// The default log is the volume's size divided by this.
const SHARE: u64 = 2048;

/// Size and position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    /// Allocation group that holds the log, and its first block there; `None` if the log is on a device of
    /// its own, from its first byte on.
    pub(crate) inside: Option<(AgNo, AgBlock)>,
    /// Length of the log in blocks.
    pub(crate) blocks: u32,
    /// Stripe unit in blocks, 0 for none.
    pub(crate) unit: u32,
}

impl LogPlace {
    pub(crate) fn new(
        options: &Options,
        units: &Units,
        groups: Groups,
        unit: u32,
        stripe: Stripe,
    ) -> Result<Self, MkfsError> {
        match options.log.device {
            Some(_) => Self::external(options, units, groups, unit),
            None => Self::internal(options, units, groups, unit, stripe),
        }
    }

    /// The log on its own device: as long as that, if no size is given.
    fn external(
        options: &Options,
        units: &Units,
        groups: Groups,
        unit: u32,
    ) -> Result<Self, MkfsError> {
        let block = u64::from(units.block);
        let room = options.log.device_bytes.unwrap_or(0) / block;
        let least = minlog::blocks(units, groups, unit).max(MIN_BLOCKS).max(MIN_BYTES / block);
        let blocks = match options.log.size {
            Some(size) => {
                let bytes = size.bytes(units.block, units.sector)?;
                if options.log.file != Some(true) && bytes / block > room {
                    return usage(format!(
                        "size {size} specified for log subvolume is too large, maximum is {room} blocks"
                    ));
                }
                let most = MAX_BLOCKS.min(MAX_BYTES / block);
                given(bytes, units, unit, least, most)?
            }
            None if room < least => {
                return geometry(format!(
                    "external log device size {room} blocks too small, must be at least {least} blocks"
                ));
            }
            None if room > MAX_BLOCKS => {
                return geometry(format!(
                    "log size {room} blocks too large, maximum size is {MAX_BLOCKS} blocks"
                ));
            }
            None if room * block > MAX_BYTES => {
                return geometry(format!(
                    "log size {} bytes too large, maximum size is {MAX_BYTES} bytes",
                    room * block
                ));
            }
            // mkfs.xfs rounds up to the stripe unit, beyond the end of the device.
            None => room - room % u64::from(unit.max(1)),
        };
        // At most MAX_BLOCKS.
        Ok(Self { inside: None, blocks: blocks as u32, unit })
    }

    fn internal(
        options: &Options,
        units: &Units,
        groups: Groups,
        unit: u32,
        stripe: Stripe,
    ) -> Result<Self, MkfsError> {
        let ag = match options.log.agnum {
            Some(ag) if ag >= groups.count => {
                let count = groups.count;
                return usage(format!("log ag number {ag} too large, must be less than {count}"));
            }
            Some(ag) => AgNo(ag),
            None => AgNo(groups.count / 2),
        };
        let room = room(units, groups);
        let least = minlog::blocks(units, groups, unit).max(MIN_BLOCKS);
        if least > room {
            return geometry(format!(
                "max log size {room} smaller than min log size {least}, filesystem is too small"
            ));
        }
        let align = if unit > 0 { unit } else { stripe.unit.max(1) };
        let start = start(ag, units, groups, align);
        let blocks = match options.log.size {
            Some(size) => given(size.bytes(units.block, units.sector)?, units, unit, least, room)?,
            None => usual(units, groups, align.into(), least, room),
        };
        if ag == AgNo(0) {
            // The first inode chunk, and some space for more, must fit behind the log.
            let chunk = CHUNK_INODES * units.inode / units.block;
            let room = room.saturating_sub(4 * u64::from(chunk));
            if blocks > room {
                return geometry(format!(
                    "internal log size {blocks} too large, must be less than {room}"
                ));
            }
        }
        // The log may be in the last group, which may be shorter than the others.
        let len = groups.len(ag);
        if start + blocks > u64::from(len) {
            return geometry(format!(
                "internal log size {blocks} too large, it ends beyond its allocation group: AG {ag} \
                 has {len} blocks"
            ));
        }
        // Both lie inside an AG, which has fewer than 2^32 blocks.
        let inside = Some((ag, AgBlock(start as u32)));
        Ok(Self { inside, blocks: blocks as u32, unit })
    }

    /// First block and length of the log in an allocation group, if it holds the log.
    pub(crate) fn within(&self, group: AgNo) -> Option<(AgBlock, u32)> {
        let (_, start) = self.inside.filter(|(ag, _)| *ag == group)?;
        Some((start, self.blocks))
    }

    /// Blocks of the data device that the log takes.
    pub(crate) fn blocks_inside(&self) -> u32 {
        if self.inside.is_some() { self.blocks } else { 0 }
    }

    /// Refuses a log in AG 0 whose alignment moves the root inode. xfs_repair expects the first
    /// inodes directly behind headers, free list and log, without gaps.
    pub(crate) fn check_root(
        &self,
        units: &Units,
        free_list: u32,
        align: u32,
        chunk: u32,
    ) -> Result<(), MkfsError> {
        let Some((start, blocks)) = self.within(AgNo(0)) else { return Ok(()) };
        let free = units.fixed_blocks() + free_list;
        let before = free.next_multiple_of(align);
        let end = start.0 + blocks;
        // The free list is taken from before the log if enough blocks are free there.
        let behind = if start.0 >= free { end } else { end + free_list };
        let found = if before + chunk <= start.0 { before } else { behind };
        let expected = free + blocks;
        if found.next_multiple_of(align) != expected.next_multiple_of(align) {
            return geometry(
                "the log's alignment in AG 0 moves the root inode from its fixed block: choose another \
                 -l agnum or a smaller log stripe unit",
            );
        }
        Ok(())
    }
}

/// First block of the log in its AG. The stripe unit aligns the block number in the volume, not the
/// block number in the AG.
fn start(ag: AgNo, units: &Units, groups: Groups, align: u32) -> u64 {
    let base = u64::from(ag.0) << groups.blklog();
    let fixed = base + u64::from(units.fixed_blocks());
    fixed.next_multiple_of(align.max(1).into()) - base
}

/// Maximum number of blocks of a log that leaves its AG usable.
fn room(units: &Units, groups: Groups) -> u64 {
    let taken = u64::from(units.fixed_blocks()) + 4 + 1;
    u64::from(groups.blocks).saturating_sub(taken)
}

fn given(bytes: u64, units: &Units, unit: u32, least: u64, room: u64) -> Result<u64, MkfsError> {
    let blocks = bytes / u64::from(units.block);
    if bytes > MAX_BYTES || blocks > MAX_BLOCKS {
        return usage(format!("Invalid value {bytes} for -l size option. Value is too large."));
    }
    if bytes < MIN_BYTES {
        return usage(format!("Invalid value {bytes} for -l size option. Value is too small."));
    }
    if blocks < least {
        return geometry(format!(
            "log size {blocks} blocks too small, minimum size is {least} blocks"
        ));
    }
    if blocks > room {
        return geometry(format!("internal log size {blocks} too large, must be less than {room}"));
    }
    if !blocks.is_multiple_of(unit.max(1).into()) {
        return usage(format!("log size {blocks} is not a multiple of the log stripe unit {unit}"));
    }
    Ok(blocks)
}

fn usual(units: &Units, groups: Groups, align: u64, least: u64, room: u64) -> u64 {
    let block = u64::from(units.block);
    let most = MAX_BLOCKS.min(MAX_BYTES / block).min(room);
    let wanted = match groups.dblocks * block {
        // A volume below the supported size gets the minimum log.
        ..MIN_VOLUME_BYTES => least,
        _ => (groups.dblocks / SHARE).max(MIN_LOG_BYTES / block).max(least),
    };
    let up = wanted.min(most).next_multiple_of(align);
    if up <= most { up } else { up - align }
}
