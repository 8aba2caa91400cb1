//! Grows and shrinks volumes.
//!
//! 1. Growing is done in place, as `xfs_growfs` does: the file is extended first, then the volume,
//!    by new allocation groups and a longer last group.
//! 2. Shrinking by an empty tail is also done in place. Inode numbers encode positions, so inodes
//!    cannot be moved without changing every reference to them. If the tail holds anything, the
//!    volume is therefore rebuilt in the new size, file by file ([`rebuild`]), in a new file beside
//!    the old one. The new file replaces the old one when it is complete and on stable storage. The
//!    head of [`rebuild`] says what a rebuild does not keep.
//! 3. A volume in a partition or on a block device cannot be replaced: it can only grow, or shrink
//!    by an empty tail. The partition table is never changed.
//! 4. A change in place does not go through the log, which relies on the length of the volume. The
//!    volume is marked as needing repair until all of it is written.
//!
//! Used by `uxfs resize`. A volume in use grows by [`crate::growth`].

mod rebuild;
mod replace;
mod smallest;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_core::{BulkError, Fs, OpenOptions, whole_groups};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_mkfs as mkfs;

use crate::volume::{self, Location};

/// The wanted size of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The size of the file, partition or device that holds the volume.
    Fill,
    /// This many bytes. A file is extended to hold them.
    Bytes(u64),
    /// The smallest size that holds the volume's files.
    Minimize,
}

/// What to resize, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResizeOptions {
    /// The image file or device.
    pub image: PathBuf,
    /// Where in the image the volume lies.
    pub location: Location,
    /// The wanted size.
    pub target: Target,
    /// How to open the volume.
    pub open: OpenOptions,
}

impl ResizeOptions {
    /// Resizes the volume in `image`; all other options have their defaults.
    pub fn new(image: impl Into<PathBuf>, target: Target) -> Self {
        let open = OpenOptions::unlogged();
        Self { image: image.into(), location: Location::whole(), target, open }
    }
}

/// How a volume was resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Nothing was done: the volume had this size.
    Unchanged,
    /// The volume was extended in place.
    Grown,
    /// An empty tail was cut off in place.
    Truncated,
    /// The volume was rebuilt; its inode numbers changed.
    Rebuilt,
}

/// The result of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeSummary {
    /// Size of the volume before, in bytes.
    pub before: u64,
    /// Size of the volume now, in bytes.
    pub after: u64,
    /// How the volume was resized.
    pub method: Method,
    /// Why nothing was done, if the resize looked for a smaller size.
    pub reason: Option<String>,
}

/// Why a resize failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The volume returned an error.
    #[error(transparent)]
    Volume(#[from] uxfs_core::Error),
    /// A volume of the new size cannot be created.
    #[error(transparent)]
    Mkfs(#[from] mkfs::MkfsError),
    /// A file could not be recreated.
    #[error("/{}: {source}", path.escape_ascii())]
    Entry {
        /// Path of the file in the volume.
        path: Vec<u8>,
        /// The error of the old or the new volume.
        source: uxfs_core::Error,
    },
    /// The host's file system returned an error.
    #[error("{}: {source}", path.display())]
    Host {
        /// Path on the host.
        path: PathBuf,
        /// The error of the host.
        source: io::Error,
    },
    /// The device could not be lengthened.
    #[error("lengthening the device: {0}")]
    Device(#[source] io::Error),
    /// Copying file data failed.
    #[error(transparent)]
    Data(#[from] BulkError),
    /// The request is not possible.
    #[error("{0}")]
    Usage(String),
}

impl ResizeError {
    fn host(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Host { path: path.to_owned(), source }
    }

    /// True if the files did not fit.
    fn is_no_space(&self) -> bool {
        matches!(
            self,
            Self::Volume(uxfs_core::Error::NoSpace)
                | Self::Entry { source: uxfs_core::Error::NoSpace, .. }
        )
    }
}

/// Resizes a volume.
///
/// # Errors
/// [`ResizeError`]. The volume is then unchanged; if the error came while it was being changed in
/// place, it may be marked as needing repair.
pub fn run(options: &ResizeOptions) -> Result<ResizeSummary, ResizeError> {
    let path = &options.image;
    let fixed = volume::fixed_len(path, &options.location).map_err(ResizeError::host(path))?;
    let dev = open_device(options)?;
    let fs = Fs::open(Arc::clone(&dev), options.open.clone())?;
    let sb = fs.superblock();
    let block = u64::from(sb.blocksize.get());
    let before = sb.dblocks.get() * block;
    let summary = |after, method| ResizeSummary { before, after, method, reason: None };
    let bytes = match options.target {
        Target::Fill => dev.len(),
        Target::Bytes(bytes) => bytes,
        Target::Minimize => {
            let target = ReplaceableFile::of(options, fixed)?;
            return match smallest::rebuild(&fs, &target, options)? {
                smallest::Outcome::Rebuilt(after) => Ok(summary(after, Method::Rebuilt)),
                smallest::Outcome::Kept(reason) => {
                    Ok(ResizeSummary { reason: Some(reason), ..summary(before, Method::Unchanged) })
                }
            };
        }
    };
    let dblocks = whole_groups(&fs.geo, bytes / block);
    if dblocks == sb.dblocks.get() {
        return Ok(summary(before, Method::Unchanged));
    }
    if dblocks > sb.dblocks.get() {
        drop((fs, dev));
        grow(options, bytes, fixed)?;
        return Ok(summary(dblocks * block, Method::Grown));
    }
    let groups = dblocks.div_ceil(fs.geo.ag_blocks.into());
    if groups >= GROUPS_MIN && fs.shrink(dblocks)? {
        if fixed.is_none() {
            truncate_file(path, dblocks * block)?;
        }
        return Ok(summary(dblocks * block, Method::Truncated));
    }
    let fs = Fs::open(dev, options.open.clone())?;
    let after = rebuild::replace(&fs, &ReplaceableFile::of(options, fixed)?, options, bytes)?;
    Ok(summary(after, Method::Rebuilt))
}

/// Fewest allocation groups of a volume: with one group there is no second superblock to repair
/// from.
const GROUPS_MIN: u64 = 2;

fn open_device(options: &ResizeOptions) -> Result<Arc<dyn BlockDev>, ResizeError> {
    volume::open(&options.image, OpenMode::Write, &options.location)
        .map_err(ResizeError::host(&options.image))
}

/// A regular file that holds nothing but the volume and can be replaced by another file.
struct ReplaceableFile {
    /// The path without symbolic links, so that the file is replaced and not a link to it.
    path: PathBuf,
}

impl ReplaceableFile {
    fn of(options: &ResizeOptions, fixed: Option<u64>) -> Result<Self, ResizeError> {
        let path = options.image.as_path();
        if fixed.is_some() {
            return Err(ResizeError::Usage(
                "the tail to be cut off holds files. Moving them means rebuilding the volume, \
                 which is possible only for an image that is a file of its own: copy the volume \
                 out of its disk first"
                    .into(),
            ));
        }
        let path = path.canonicalize().map_err(ResizeError::host(path))?;
        Ok(Self { path })
    }
}

fn truncate_file(path: &Path, len: u64) -> Result<(), ResizeError> {
    let truncate = || {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    };
    truncate().map_err(ResizeError::host(path))
}

/// Grows the volume in place to `bytes`. The file is extended first: a later error leaves a longer
/// file that holds an unchanged volume.
fn grow(options: &ResizeOptions, bytes: u64, fixed: Option<u64>) -> Result<(), ResizeError> {
    let path = &options.image;
    if let Some(len) = fixed
        && bytes > len
    {
        let problem = format!(
            "the volume lies in {len} bytes and cannot grow to {bytes}: enlarge the partition or device first"
        );
        return Err(ResizeError::Usage(problem));
    }
    if fixed.is_none() {
        let lengthen = || {
            let file = std::fs::OpenOptions::new().write(true).open(path)?;
            if file.metadata()?.len() < bytes { file.set_len(bytes) } else { Ok(()) }
        };
        lengthen().map_err(ResizeError::host(path))?;
    }
    let dev = open_device(options)?;
    let fs = Fs::open(Arc::clone(&dev), options.open.clone())?;
    let mut sb: Superblock = fs.superblock();
    let old_groups = sb.agcount.get();
    let dblocks = whole_groups(&fs.geo, bytes >> fs.geo.block_log);
    let Ok(groups) = u32::try_from(dblocks.div_ceil(fs.geo.ag_blocks.into())) else {
        return Err(ResizeError::Usage("more groups than a volume can have".into()));
    };
    sb.dblocks.set(dblocks);
    sb.agcount.set(groups);
    let free =
        if groups > old_groups { mkfs::write_groups(&sb, old_groups..groups, &*dev)? } else { 0 };
    Ok(fs.grow(dblocks, free)?)
}
