//! Permission checks by inode flags: immutable, append-only, project inheritance.
//!
//! Changes of content are checked where they happen ([`crate::file`]).

use uxfs_format::inode::{Flags, InodeCore};

use crate::error::{Error, Result};

fn refuse(core: &InodeCore, flags: Flags) -> Result<()> {
    if core.flags.intersects(flags) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Fails if the directory's flags forbid adding an entry.
pub(super) fn may_add(dir: &InodeCore) -> Result<()> {
    refuse(dir, Flags::IMMUTABLE)
}

/// Fails if the flags of the directory or the file forbid removing the entry.
pub(super) fn may_remove(dir: &InodeCore, file: &InodeCore) -> Result<()> {
    refuse(dir, Flags::IMMUTABLE | Flags::APPEND)?;
    may_change(file)
}

/// Fails if the file's flags forbid changing its owner, mode, times, attributes or names.
pub(super) fn may_change(file: &InodeCore) -> Result<()> {
    refuse(file, Flags::IMMUTABLE | Flags::APPEND)
}

/// Fails if the file's flags forbid setting its times to the present.
pub(super) fn may_touch(file: &InodeCore) -> Result<()> {
    refuse(file, Flags::IMMUTABLE)
}

/// Fails if the directory passes on its project ID and the file has another one.
pub(super) fn same_project(dir: &InodeCore, file: &InodeCore) -> Result<()> {
    match dir.flags.contains(Flags::PROJINHERIT) && dir.projid != file.projid {
        true => Err(Error::OtherProject),
        false => Ok(()),
    }
}
