//! Computes the stripe geometry of data section and log.

use crate::error::{MkfsError, usage};
use crate::options::Options;
use crate::units::Units;

/// Stripe geometry of the data section in blocks; zeroes for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stripe {
    pub(crate) unit: u32,
    pub(crate) width: u32,
}

const BASIC: u64 = uxfs_format::BASIC_BLOCK as u64;
/// Maximum log stripe unit in bytes.
const MAX_LOG_UNIT: u64 = 256 << 10;
/// Log stripe unit in bytes if the data stripe unit exceeds the maximum.
const FALLBACK_LOG_UNIT: u64 = 32 << 10;

impl Stripe {
    pub(crate) fn new(options: &Options, units: &Units) -> Result<Self, MkfsError> {
        let (unit, width) = bytes(options, units)?;
        if unit > width {
            return usage(format!(
                "stripe unit ({unit}) is larger than the stripe width ({width})"
            ));
        }
        if unit == 0 {
            if width != 0 {
                return usage("a stripe width needs a stripe unit");
            }
            return Ok(Self::default());
        }
        if !width.is_multiple_of(unit) {
            return usage(format!(
                "stripe width ({width}) must be a multiple of the stripe unit ({unit})"
            ));
        }
        let block = u64::from(units.block);
        if !unit.is_multiple_of(block) || !width.is_multiple_of(block) {
            return usage(format!(
                "Stripe unit({unit}) or stripe width({width}) is not a multiple of the block \
                 size({block})"
            ));
        }
        match (u32::try_from(unit / block), u32::try_from(width / block)) {
            (Ok(unit), Ok(width)) => Ok(Self { unit, width }),
            _ => usage(format!("stripe width ({width}) is too large")),
        }
    }

    pub(crate) fn is_set(self) -> bool {
        self.unit != 0
    }

    /// Does a stripe have several units, that is, several disks?
    pub(crate) fn is_wide(self) -> bool {
        self.width > self.unit
    }
}

/// Stripe unit and width in bytes, as given by the options.
fn bytes(options: &Options, units: &Units) -> Result<(u64, u64), MkfsError> {
    let data = &options.data;
    match (data.su, data.sw, data.sunit, data.swidth) {
        (Some(su), Some(sw), None, None) => {
            let unit = su.bytes(units.block, units.sector)?;
            if !unit.is_multiple_of(units.sector.into()) {
                let sector = units.sector;
                return usage(format!(
                    "stripe unit ({unit}) must be a multiple of the sector size ({sector})"
                ));
            }
            let width = unit.checked_mul(sw.into());
            match width.filter(|width| *width <= i64::MAX as u64) {
                // With su=0, the width is 0 for any sw.
                Some(width) => Ok((unit, width)),
                None => usage("stripe width is too large"),
            }
        }
        (None, None, Some(sunit), Some(swidth)) => {
            Ok((u64::from(sunit) * BASIC, u64::from(swidth) * BASIC))
        }
        (None, None, None, None) => Ok((0, 0)),
        (Some(_), None, ..) | (None, Some(_), ..) => {
            usage("both data su and data sw options must be specified")
        }
        _ => usage("both data sunit and data swidth options must be specified"),
    }
}

/// Stripe unit of the log in blocks; 0 for none.
pub(crate) fn log_unit(options: &Options, units: &Units, data: Stripe) -> Result<u32, MkfsError> {
    let block = u64::from(units.block);
    let given = match (options.log.su, options.log.sunit) {
        (Some(su), _) => Some(su.bytes(units.block, units.sector)?),
        (None, Some(sunit)) => Some(u64::from(sunit) * BASIC),
        (None, None) => None,
    };
    let bytes = match given {
        Some(bytes) if !(BASIC..=MAX_LOG_UNIT).contains(&bytes) => {
            return usage(format!("log stripe unit ({bytes}) must be 512 bytes to 256 KiB"));
        }
        Some(bytes) => bytes,
        // On a device with large sectors, the log must be written in whole sectors.
        None if units.sector > 512 => block,
        None if data.is_set() && options.log.device.is_none() => u64::from(data.unit) * block,
        None => 0,
    };
    if !bytes.is_multiple_of(block) {
        return usage(format!(
            "log stripe unit ({bytes}) must be a multiple of the block size ({block})"
        ));
    }
    // If a block is longer than the fallback, the log has no stripe unit.
    let bytes = if bytes > MAX_LOG_UNIT { FALLBACK_LOG_UNIT } else { bytes };
    Ok(u32::try_from(bytes / block).unwrap_or(0))
}
