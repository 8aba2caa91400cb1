//! Checking names of directory entries.

use crate::error::{Error, Result};
use crate::inode::InodeState;

/// Longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;

/// Fails if a directory cannot hold this name.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Error::Invalid("not a name for a new entry"));
    }
    if name.iter().any(|b| *b == 0 || *b == b'/') {
        return Err(Error::Invalid("a name cannot hold a slash or a NUL"));
    }
    Ok(())
}

/// Fails if the inode is not a directory.
pub(crate) fn check_dir(inode: &InodeState) -> Result<()> {
    if inode.core.is_dir() { Ok(()) } else { Err(Error::NotDir) }
}
