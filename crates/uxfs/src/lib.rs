//! XFS in user space: opens, reads, writes and creates real XFS v5 volumes without root, a loop
//! device or a kernel driver.
//!
//! A [`Volume`] has the functions of [`std::fs`], and a [`File`] is one that implements
//! [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`]; see [`files`].
//!
//! ```
//! use std::io::Write;
//! use uxfs::Volume;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = tempfile::tempdir()?;
//! # let image = host.path().join("disk.img");
//! let volume = Volume::create(&image, 512 << 20)?;
//! volume.create_dir_all("notes/2026")?;
//! let mut file = volume.create_file("notes/2026/today")?;
//! file.write_all(b"an XFS file system, without a kernel\n")?;
//! // What was written is on stable storage when this returns, and a power cut does not take it away.
//! file.sync_all()?;
//! for entry in volume.walk("/")? {
//!     println!("{}", entry?.path().display());
//! }
//! // Leaves a clean log. Dropping the volume does so too, but has no one to tell of an error.
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The engine
//!
//! Below is an [`Fs`] over a device ([`disk::BlockDev`]). The device can be a file, a block
//! device, memory, a partition or a qcow2 image ([`volume::open`]). The methods of [`Fs`] are file
//! system calls that take inode numbers ([`format::Ino`]): [`Fs::lookup`] and [`Fs::resolve`] find
//! an inode, [`Fs::create`] creates one, [`Fs::read_at`] and [`Fs::write_at`] read and write data.
//! All calls block and take `&self`; threads may share an [`Fs`].
//!
//! ```
//! use std::sync::Arc;
//! use uxfs::disk::{BlockDev, MemDev};
//! use uxfs::{Fs, NewInode, OpenOptions, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A volume of 1 GiB in memory, made as mkfs.xfs would.
//! let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(1 << 30));
//! let layout = mkfs::Layout::new(&mkfs::Options::default(), dev.len())?;
//! mkfs::write(&layout, &*dev, &mkfs::WriteOptions::default())?;
//!
//! let fs = Fs::open(Arc::clone(&dev), OpenOptions::default())?;
//! let dir = fs.create(fs.root(), b"notes", &NewInode::dir(0o755))?;
//! let file = fs.create(dir, b"today", &NewInode::file(0o644))?;
//! fs.write_at(file, 0, b"an XFS file system, without a kernel\n")?;
//! // What was done is on the device when this returns; dropping an `Fs` writes nothing.
//! fs.close()?;
//!
//! let fs = Fs::open(dev, OpenOptions::read_only())?;
//! let file = fs.resolve(b"/notes/today", true)?;
//! let mut text = [0; 6];
//! assert_eq!(fs.read_at(file, 0, &mut text)?, 6);
//! assert_eq!(&text, b"an XFS");
//! assert_eq!(fs.stat(file)?.nlink, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `mkfs` | yes | [`mkfs`], [`Volume::create`] |
//! | `archive` | yes | [`import`], [`export`], [`archive`], [`resize`]: tar archives and directories |
//! | `gzip`, `xz`, `zstd` | no | compressed archives; the last two build C libraries |
//! | `oci` | no | import of OCI images and of composefs' manifests |
//! | `qcow2` | no | volumes in qcow2 images |
//! | `vm-images` | no | volumes in VMDK, VHDX and dynamic VHD images, for reading |
//! | `check` | no | [`check`], the checker; [`scrub`], the checker of volumes in use |
//! | `full` | no | all of these |
//!
//! An archive or image that needs a feature which is off is refused with the feature's name. Without
//! any feature the library opens, reads and changes volumes.
//!
//! # Trees
//!
//! [`import`] fills a volume from a tar archive, a directory, a manifest or a container image;
//! [`export()`](export::export) writes a tree as a tar archive; [`copy`] copies between volumes and
//! the host; [`labels`] gives files their SELinux labels; [`resize`] makes volumes larger and smaller;
//! [`identity`] changes a volume's label and UUID.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use uxfs::disk::{FileDev, OpenMode};
//! use uxfs::import::{self, ImportOptions};
//! use uxfs::{Fs, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let host = tempfile::tempdir()?;
//! # let (tree, image) = (host.path().join("tree"), host.path().join("disk.img"));
//! # std::fs::create_dir(&tree)?;
//! std::fs::write(tree.join("hello"), "world")?;
//! let mut options = ImportOptions::new(&tree, &image);
//! options.size = Some(512 << 20);
//! let summary = import::run(&options, &mut |_progress| {})?;
//! assert_eq!(summary.entries, 2);
//!
//! let dev = FileDev::open(&image, OpenMode::Read)?;
//! let fs = Fs::open(Arc::new(dev), OpenOptions::read_only())?;
//! let mut names = Vec::new();
//! fs.read_dir(fs.root(), 0, &mut |entry| {
//!     names.push(entry.name.to_vec());
//!     ControlFlow::Continue(())
//! })?;
//! assert!(names.contains(&b"hello".to_vec()));
//!
//! let (tar, _) = uxfs::export::export(&fs, fs.root(), Vec::new())?;
//! assert_eq!(tar.len() % 512, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! A [`PathError`] names the call and the path, and becomes an [`std::io::Error`] of the kind that
//! `std::fs` would report. Below it, an [`Error`] says what happened, where ([`Error::place`]: group, block, inode or device address)
//! and which errno a system call would have given ([`Error::errno`]). A damaged structure is an
//! [`Error::Corrupt`] that names it; nothing is written on it.
//!
//! ```
//! use std::sync::Arc;
//! use uxfs::disk::MemDev;
//! use uxfs::{Error, Fs, OpenOptions};
//!
//! let error = Fs::open(Arc::new(MemDev::new(1 << 20)), OpenOptions::default()).err().unwrap();
//! assert!(matches!(error, Error::NotXfs(_)));
//! assert_eq!(error.errno(), 22);
//! ```
//!
//! # Durability
//!
//! Changes go through the volume's log ([`OpenOptions::journal`]). A change is durable after
//! [`Fs::sync`], [`Fs::fsync`], [`Fs::wait`] for a [`journal::Ticket`], or [`Fs::close`]. After a
//! power cut the volume holds a consistent state that is at least as new as the last durable
//! change; the next open, by uxfs or by the kernel, replays the log. Dropping the last handle of a
//! [`Volume`] closes it, and [`files::drop_errors`] has the errors of that. Dropping an [`Fs`] without
//! [`Fs::close`] writes nothing: changes that were not durable are lost.

#![warn(missing_docs)]

#[cfg(feature = "archive")]
pub mod import;

#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "archive")]
pub mod copy;
pub mod diff;
#[cfg(feature = "archive")]
pub mod export;
pub mod files;
#[cfg(feature = "forks")]
pub mod forks;
#[cfg(feature = "archive")]
pub mod growth;
#[cfg(feature = "selinux")]
mod held;
pub mod identity;
#[cfg(feature = "selinux")]
pub mod labels;
pub mod new_file;
pub mod posix;
#[cfg(feature = "archive")]
pub mod resize;
#[cfg(feature = "check")]
pub mod scrub;
pub mod space;
pub mod volume;

pub use uxfs_core::Atime;
pub use uxfs_core::{
    AtomicRange, BegunFsync, BulkError, BulkWriter, Cached, Cause, Closed, Content, DeferredFsync,
    DefragOptions, DefragPart, Device, Devices, Drive, Engine, Error, ErrorCursor, Fallocate,
    Fragmentation, FreezeProtection, Fs, Fsx, Growth, Histogram, Inside, Kept, LogWorker, Mount,
    NAME_MAX, NewInode, OpenOptions, Recovery, RenameFlags, Replayed, Result, Segment, SetAttr,
    Stat, StatFs, Stats, SyncKind, SyncMode, Times, Unwritten, WritebackOptions, XattrMode, Xflags,
    clock, journal, replay_in_memory,
};

pub use files::{File, FileOptions, PathError, Volume, VolumeOptions};

/// Trees as streams: tar archives, dumps of xfsdump, directories, container images.
#[cfg(feature = "archive")]
pub mod archive {
    #[cfg(feature = "xfsdump")]
    pub use uxfs_archive::open_dump_to_list;
    pub use uxfs_archive::{
        ArchiveError, DataReader, DirOptions, DirSource, Entry, Fsx, Kind, Meta, Source, SparseMap,
        TarWriter, Time, Xattrs, open,
    };
    #[cfg(feature = "oci")]
    pub use uxfs_archive::{DumpSource, OciImage, Platform};
}

/// Devices: image files, block devices, qcow2 images, memory, parts of others, and the trait of one's
/// own.
pub mod disk {
    pub use uxfs_disk::{
        BlockDev, FileDev, MemDev, OpenMode, Overlay, Slice, emulate, forward, is_qcow2, partition,
        vhd_checksum, vhd_geometry, vhd_len, without,
    };
    #[cfg(feature = "qcow2")]
    pub use uxfs_disk::{Qcow2Dev, create_qcow2};
}

/// The terms of the format that this library's interface uses.
pub mod format {
    pub use uxfs_format::{
        Check, Corrupt, Daddr, FsBlock, Geometry, Ino, Naming, Place, Uuid, acl, timestamp,
    };

    /// Directory entries.
    pub mod dir {
        pub use uxfs_core::dir::DirEntry;
        pub use uxfs_format::dir::FileType;
    }

    /// Modes and flags of inodes.
    pub mod inode {
        pub use uxfs_format::inode::{
            Flags, Flags2, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
        };
    }
}

/// Quotas: what users, groups and projects use, and their limits.
pub mod quota {
    pub use uxfs_core::{Limits, QuotaState};
    pub use uxfs_format::dquot::{Dquot, GRACE, QuotaFlags, QuotaType, Resource};
}

/// Volumes made new, as by mkfs.xfs.
#[cfg(feature = "mkfs")]
pub mod mkfs {
    pub use uxfs_mkfs::{
        Layout, MAX_CONFIG_BYTES, MIN_LOG_BYTES, MIN_VOLUME_BYTES, MkfsError, Options, PRESETS,
        Preset, Size, WriteOptions, random_uuid, signature, table, table_7, table_of, table_of_7,
        write, write_with_log,
    };
}

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// These types can be shared between threads.
const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<Fs>();
    shareable::<Error>();
    shareable::<Devices>();
    shareable::<OpenOptions>();
    shareable::<Volume>();
    shareable::<File>();
    shareable::<PathError>();
    #[cfg(feature = "archive")]
    shareable::<import::ImportError>();
    #[cfg(feature = "archive")]
    shareable::<export::ExportError>();
};
