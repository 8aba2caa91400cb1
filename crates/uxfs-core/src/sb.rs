//! Reading and verifying the primary superblock. If it is damaged, the error names a good copy.

use uxfs_disk::BlockDev;
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::{Check, Corrupt, Daddr, Place, copies};

use crate::error::{Error, Result};

/// Bytes of the device to search for a copy if the usual locations have none.
const SCAN: u64 = 256 << 20;

/// Reads the sector of the primary superblock, in the volume's sector size, and verifies it.
///
/// # Errors
/// [`Error::NotXfs`], [`Error::Unsupported`] for an unknown version, or [`Error::Corrupt`], which
/// names a group with a good copy if there is one.
pub fn read(dev: &dyn BlockDev) -> Result<Vec<u8>> {
    read_verified(dev).map_err(|error| match error {
        Error::Io { .. } => error,
        error => with_copy(dev, error),
    })
}

fn with_copy(dev: &dyn BlockDev, error: Error) -> Error {
    let mut read = |at: u64, buf: &mut [u8]| dev.read_at(at, buf).is_ok();
    let Some(copy) = copies::find(dev.len(), SCAN, &mut read) else { return error };
    let (check, why) = match error {
        Error::Corrupt(Corrupt { check, detail, .. }) => (check, detail),
        error @ Error::Unsupported(_) => (Check::Version, error.to_string()),
        other => (Check::Magic, other.to_string()),
    };
    let problem = format!("{why}; a good copy is at AG {}: xfs_repair can restore it", copy.ag);
    Error::corrupt("primary superblock", Place::Device(Daddr(0)), check, problem)
}

fn read_verified(dev: &dyn BlockDev) -> Result<Vec<u8>> {
    let read = |len: usize| {
        let mut sector = vec![0; len];
        dev.read_at(0, &mut sector).map_err(|source| Error::Io {
            what: "reading",
            daddr: Daddr(0),
            source,
        })?;
        Ok::<_, Error>(sector)
    };
    if dev.len() < 512 {
        return Err(Error::NotXfs(format!("only {} bytes", dev.len())));
    }
    let first = read(512)?;
    let Some(sb) = Superblock::view(&first) else {
        return Err(Error::NotXfs("no superblock".into()));
    };
    if sb.magicnum.get() != superblock::MAGIC {
        return Err(Error::NotXfs(format!("starts with {:#010x}", sb.magicnum.get())));
    }
    if !matches!(sb.version(), 4 | 5) {
        let version = sb.version();
        return Err(Error::Unsupported(format!("XFS version {version} is not supported")));
    }
    let size = usize::from(sb.sectsize.get());
    if !size.is_power_of_two() || !(512..=32768).contains(&size) || dev.len() < size as u64 {
        return Err(Error::corrupt(
            "superblock",
            Place::Volume,
            Check::Geometry,
            format!("sector size {size}"),
        ));
    }
    let sector = read(size)?;
    Superblock::verify(&sector)?;
    Ok(sector)
}
