//! The operations on a volume, one file each. Each change is one transaction, or a rolling one that leaves
//! the volume consistent at each roll.

mod access;
mod atomic;
mod batches;
mod begin;
mod build;
mod create;
mod defrag;
mod extents;
mod fallocate;
mod fsx;
mod grow;
mod guard;
mod link;
mod lookup;
mod names;
mod parent;
mod quota;
mod remove;
mod rename;
mod replicate;
mod reserve;
mod restore;
mod setattr;
mod share;
mod stat;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod trim;
mod unlinked;
mod unshare;
mod xattr;

pub use access::Atime;
pub use atomic::AtomicRange;
pub use build::Content;
pub use create::{NewInode, Times};
pub use defrag::{DefragOptions, DefragPart, Fragmentation, Kept};
pub use fallocate::Fallocate;
pub use fsx::{Fsx, Xflags};
pub use grow::whole_groups;
pub(crate) use grow::{resized, set_len};
pub use names::NAME_MAX;
pub use quota::QuotaState;
pub use rename::RenameFlags;
pub use replicate::Move;
pub use setattr::SetAttr;
pub use stat::{Stat, StatFs};
pub use xattr::XattrMode;
