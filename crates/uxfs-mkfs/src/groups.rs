//! Computes number and length of the allocation groups.
//!
//! 1. A group has at least 16 MiB and at most one block less than 1 TiB.
//! 2. With a stripe, groups start at multiples of the stripe unit; if possible they do not all
//!    start on the same disk.
//! 3. A last group below 16 MiB is cut off.

use uxfs_format::AgNo;

use crate::error::{MkfsError, geometry, usage};
use crate::options::Options;
use crate::stripe::Stripe;
use crate::units::Units;

const MIN_AG_BYTES: u64 = 16 << 20;
const MAX_AG_BYTES: u64 = 1 << 40;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Number and length of the allocation groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Blocks of the volume.
    pub(crate) dblocks: u64,
    /// Blocks of every group but the last.
    pub(crate) blocks: u32,
    /// Number of groups.
    pub(crate) count: u32,
}

impl Groups {
    /// Bits of a block number inside a group.
    pub(crate) fn blklog(&self) -> u32 {
        u64::from(self.blocks).next_power_of_two().trailing_zeros()
    }

    /// Blocks of one group; the last may be shorter than the others.
    pub(crate) fn len(&self, ag: AgNo) -> u32 {
        let before = u64::from(ag.0) * u64::from(self.blocks);
        let left = self.dblocks.saturating_sub(before);
        u32::try_from(left).unwrap_or(u32::MAX).min(self.blocks)
    }

    pub(crate) fn new(
        options: &Options,
        units: &Units,
        stripe: Stripe,
        device_bytes: u64,
    ) -> Result<Self, MkfsError> {
        let block = u64::from(units.block);
        let dblocks = data_blocks(options, units, device_bytes)?;
        let limits = Limits { min: MIN_AG_BYTES / block, max: (MAX_AG_BYTES - block) / block };
        let given = options.data.agcount.is_some() || options.data.agsize.is_some();
        let size = match (options.data.agcount, options.data.agsize) {
            (Some(count), _) => dblocks.div_ceil(u64::from(count.max(1))),
            (None, Some(size)) => {
                let bytes = size.bytes(units.block, units.sector)?;
                if !(MIN_AG_BYTES..=MAX_AG_BYTES).contains(&bytes) {
                    return usage(format!(
                        "Invalid value {size} for -d agsize option: must be 16 MiB to 1 TiB"
                    ));
                }
                if !bytes.is_multiple_of(block) {
                    return usage(format!(
                        "agsize ({bytes}) not a multiple of fs blk size ({block})"
                    ));
                }
                bytes / block
            }
            (None, None) => default_size(dblocks, block, limits.max, stripe.is_set()),
        };
        let size = if stripe.is_set() { align(size, stripe, limits, dblocks, given) } else { size };
        finish(dblocks, size, limits)
    }
}

/// Minimum and maximum length of a group in blocks.
#[derive(Clone, Copy)]
struct Limits {
    min: u64,
    max: u64,
}

fn data_blocks(options: &Options, units: &Units, device_bytes: u64) -> Result<u64, MkfsError> {
    let device = device_bytes / u64::from(units.block);
    let Some(size) = options.data.size else {
        if options.data.file == Some(true) {
            return usage("if -d file then -d name and -d size are required");
        }
        if device_bytes > i64::MAX as u64 {
            return usage("the size of the volume must be given");
        }
        return Ok(device);
    };
    let bytes = size.bytes(units.block, units.sector)?;
    if bytes < MIN_AG_BYTES {
        return usage(format!("Invalid value {size} for -d size option. Value is too small."));
    }
    let blocks = bytes / u64::from(units.block);
    if blocks > device {
        return geometry(format!(
            "size {size} specified for data subvolume is too large, maximum is {device} blocks"
        ));
    }
    Ok(blocks)
}

/// Default length of a group in blocks.
fn default_size(dblocks: u64, block: u64, max: u64, striped: bool) -> u64 {
    let bytes = dblocks.saturating_mul(block);
    // Several disks can serve more groups in parallel.
    let most = if striped { 32 * TIB } else { 4 * TIB };
    let shift = match bytes {
        _ if bytes >= most => return max,
        _ if bytes > 512 * GIB && striped => 5,
        _ if bytes > 8 * GIB && striped => 4,
        _ if bytes >= 128 * MIB && striped => 3,
        _ if bytes >= 64 * MIB => 2,
        _ if bytes >= 32 * MIB => 1,
        _ => 0,
    };
    dblocks.div_ceil(1 << shift).min(max)
}

/// Rounds the length of a group to the stripe unit. If the length is a default (not `given`), also
/// avoids multiples of the stripe width.
fn align(size: u64, stripe: Stripe, limits: Limits, dblocks: u64, given: bool) -> u64 {
    let (unit, width) = (u64::from(stripe.unit), u64::from(stripe.width));
    let up = size.next_multiple_of(unit);
    let size = if up <= limits.max { up } else { size / unit * unit };
    let alone = dblocks <= size;
    if given || alone || !stripe.is_wide() || !size.is_multiple_of(width) {
        return size;
    }
    if size - unit >= limits.min { size - unit } else { size + unit }
}

fn finish(dblocks: u64, size: u64, limits: Limits) -> Result<Groups, MkfsError> {
    if size < limits.min {
        let min = limits.min;
        return geometry(format!("agsize ({size} blocks) too small, need at least {min} blocks"));
    }
    if size > limits.max {
        let max = limits.max;
        return geometry(format!("agsize ({size} blocks) too big, maximum is {max} blocks"));
    }
    if size > dblocks {
        return geometry(format!("agsize ({size} blocks) too big, data area is {dblocks} blocks"));
    }
    let mut dblocks = dblocks;
    let last = dblocks % size;
    if last != 0 && last < limits.min {
        dblocks -= last;
    }
    let count = dblocks.div_ceil(size);
    match (u32::try_from(size), u32::try_from(count)) {
        (Ok(blocks), Ok(count)) if count > 0 && count < u32::MAX => {
            Ok(Groups { dblocks, blocks, count })
        }
        _ => geometry(format!("{count} allocation groups are too many")),
    }
}
