//! log
use uxfs_disk::BlockDev;
use uxfs_format::Geometry;
use uxfs_format::superblock::Superblock;
use crate::error::Result;
pub(crate) fn require_clean(_dev: &dyn BlockDev, _geo: &Geometry, _sb: &Superblock) -> Result<()> { Ok(()) }
