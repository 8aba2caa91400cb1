//! The operations: what a caller does with a volume. One file each; every change is one
//! transaction, or a chain of them that leaves the volume consistent at each link.

mod access;
mod batches;
mod build;
mod create;
mod extents;
mod fallocate;
mod fsx;
mod grow;
mod guard;
mod link;
mod lookup;
mod parent;
mod remove;
mod rename;
mod replicate;
mod reserve;
mod setattr;
mod share;
mod stat;
#[cfg(test)]
mod tests;
mod trim;
mod unlinked;
mod unshare;
mod xattr;

pub use access::Atime;
pub use build::Content;
pub use create::{NewInode, Times};
pub use fallocate::Fallocate;
pub use fsx::{Fsx, Xflags};
pub use grow::whole_groups;
pub use rename::RenameFlags;
pub use replicate::Move;
pub use setattr::SetAttr;
pub use stat::{Stat, StatFs};
pub use xattr::XattrMode;

use crate::error::{Error, Result};
use crate::inode::InodeState;

/// Longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;

/// Is this a name that a directory can hold?
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

pub(crate) fn check_dir(inode: &InodeState) -> Result<()> {
    if inode.core.is_dir() { Ok(()) } else { Err(Error::NotDir) }
}
