//! XFS in user space: open, look up, read, write, create, link, rename, remove, walk.
//!
//! A volume is a [`Fs`] over a device ([`disk::BlockDev`]): a file, a block device, or memory.

pub mod import;

pub mod copy;
pub mod export;
pub mod posix;
pub mod resize;
pub mod space;
pub mod volume;

pub use uxfs_archive as archive;
pub use uxfs_core::{
    Content, Device, Devices, Error, Fallocate, Fs, Fsx, NAME_MAX, NewInode, OpenOptions, Recovery,
    RenameFlags, Result, Segment, SetAttr, Stat, StatFs, Times, XattrMode, Xflags, clock, dir,
};
pub use uxfs_disk as disk;
pub use uxfs_format as format;
pub use uxfs_log as log;
pub use uxfs_mkfs as mkfs;
