//! Checking a volume's feature flags: which allow opening it, and which allow writing.

use uxfs_format::features::{Incompat, LogIncompat, RoCompat, Version, describe};
use uxfs_format::superblock::Superblock;

use crate::error::{Error, Result};
use crate::options::OpenOptions;

/// Incompatible features that are supported for reading and writing.
const INCOMPAT_KNOWN: Incompat = Incompat::FTYPE
    .union(Incompat::SPINODES)
    .union(Incompat::META_UUID)
    .union(Incompat::BIGTIME)
    .union(Incompat::NREXT64)
    .union(Incompat::EXCHRANGE)
    .union(Incompat::PARENT);

/// Version 4 does not tell compatible features from incompatible ones, so an unknown feature
/// prevents opening.
fn check_v4(sb: &Superblock) -> Result<()> {
    let unknown = sb.version_flags().bits() & !Version::all().bits();
    if unknown != 0 {
        return Err(Error::Unsupported(format!("version 4 feature unknown: {unknown:#x}")));
    }
    if !sb.version_flags().contains(Version::EXTFLG) {
        let why = "extents without a state (version 4, before EXTFLG) are not supported";
        return Err(Error::Unsupported(why.into()));
    }
    Ok(())
}

pub(crate) fn check(sb: &Superblock, options: &OpenOptions) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported(what));
    let incompat = sb.incompat();
    if incompat.contains(Incompat::NEEDSREPAIR) && !options.resuming {
        return refuse(
            "the volume needs a repair (an earlier change did not finish): run \
                       xfs_repair on it first"
                .into(),
        );
    }
    let unknown = incompat - INCOMPAT_KNOWN - Incompat::NEEDSREPAIR;
    if !unknown.is_empty() {
        return refuse(format!("incompatible feature not supported: {}", describe(unknown)));
    }
    if sb.inprogress != 0 && !options.unfinished {
        return refuse("the volume is unfinished (its making or import was interrupted)".into());
    }
    if sb.is_v4() {
        check_v4(sb)?;
    }
    if options.read_only {
        return Ok(());
    }
    if sb.is_v4() {
        return refuse(
            "writing XFS version 4 (v4, made with crc=0) is not supported; it can be read".into(),
        );
    }
    let ro = sb.ro_compat() - RoCompat::all();
    if !ro.is_empty() {
        return refuse(format!(
            "read-only compatible feature unknown: {}; the volume can be read only",
            describe(ro)
        ));
    }
    let log = sb.log_incompat() - LogIncompat::all();
    if !log.is_empty() {
        return refuse(format!("log feature unknown: {}", describe(log)));
    }
    if sb.rblocks.get() != 0 {
        return refuse("writing a volume with a realtime section is not supported".into());
    }
    Ok(())
}
