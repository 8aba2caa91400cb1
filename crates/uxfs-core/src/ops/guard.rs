//! Permission checks by inode flags: immutable, append-only, project inheritance.
//!
//! Changes of content are checked where they happen ([`crate::file`]).

use uxfs_format::inode::{Flags, InodeCore};

use crate::error::{Error, Result};

fn refuse(core: &InodeCore, flags: Flags) -> Result<()> {
    if core.flags.intersects(flags) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// May a directory get another entry?
pub(super) fn may_add(dir: &InodeCore) -> Result<()> {
    refuse(dir, Flags::IMMUTABLE)
}

/// May a directory lose its entry for a file?
pub(super) fn may_remove(dir: &InodeCore, file: &InodeCore) -> Result<()> {
    refuse(dir, Flags::IMMUTABLE | Flags::APPEND)?;
    may_change(file)
}

/// May what is known of a file be changed: owner, mode, times, attributes, names?
pub(super) fn may_change(file: &InodeCore) -> Result<()> {
    refuse(file, Flags::IMMUTABLE | Flags::APPEND)
}

/// May a file's times become now?
pub(super) fn may_touch(file: &InodeCore) -> Result<()> {
    refuse(file, Flags::IMMUTABLE)
}

/// May a file come into a directory, which may hand its project on?
pub(super) fn same_project(dir: &InodeCore, file: &InodeCore) -> Result<()> {
    match dir.flags.contains(Flags::PROJINHERIT) && dir.projid != file.projid {
        true => Err(Error::OtherProject),
        false => Ok(()),
    }
}
