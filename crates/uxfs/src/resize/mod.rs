//! Making a volume longer or shorter, as `xfs_growfs` does and as it does not.
//!
//! 1. Growing is done in place: the file is lengthened first, then the volume, by new groups and a
//!    longer last one.
//! 2. Shrinking by a tail that holds nothing is done in place too. Inode numbers tell where an inode
//!    lies, so what holds inodes cannot be moved without giving them other numbers everywhere they
//!    are named; a volume with something in its tail is therefore made again in the new size, file
//!    by file ([`rebuild`]), beside the old one, which is replaced when the new one is whole and on
//!    stable storage. What that does not keep is said there.
//! 3. A volume in a partition or on a block device cannot be replaced so, and is only grown, or
//!    shrunk by an empty tail. The partition table is never changed.
//!
//! Called by `uxfs resize`.

mod rebuild;
mod replace;
mod smallest;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_core::{Fs, OpenOptions, whole_groups};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_mkfs as mkfs;

use crate::import::ImportError;
use crate::volume::{self, Place};

/// How long a volume is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// As long as the file, partition or device it lies in.
    Fill,
    /// So many bytes. A file grows to hold them.
    Bytes(u64),
    /// As short as will hold its files.
    Minimize,
}

/// What to resize, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResizeOptions {
    /// The image.
    pub image: PathBuf,
    /// Where in it the volume lies.
    pub place: Place,
    /// How long the volume is to become.
    pub target: Target,
    /// How to open the volume.
    pub open: OpenOptions,
}

impl ResizeOptions {
    /// Resizes the volume in `image`, with everything else by default.
    pub fn new(image: impl Into<PathBuf>, target: Target) -> Self {
        let mut open = OpenOptions::default();
        // The mark that a repair is needed stands for the log while the length changes.
        open.journal = None;
        let place = Place::whole();
        Self { image: image.into(), place, target, open }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing: the volume had this length.
    Unchanged,
    /// It was lengthened in place.
    Grown,
    /// An empty tail was cut off in place.
    Cut,
    /// It was made again; inodes have other numbers.
    Rebuilt,
}

/// What a resize did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeSummary {
    /// Bytes of the volume before.
    pub before: u64,
    /// Bytes of the volume now.
    pub after: u64,
    /// How it came to that.
    pub how: How,
    /// Why nothing was done, if there was something to try.
    pub why: Option<String>,
}

/// Why a resize failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The volume refused something.
    #[error(transparent)]
    Volume(#[from] uxfs_core::Error),
    /// A volume of the new size cannot be made.
    #[error(transparent)]
    Mkfs(#[from] mkfs::MkfsError),
    /// A file could not be made again.
    #[error("/{}: {source}", path.escape_ascii())]
    Entry {
        /// Its path.
        path: Vec<u8>,
        /// What the old or the new volume said.
        source: uxfs_core::Error,
    },
    /// The host's file system failed.
    #[error("{}: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// What the host said.
        source: io::Error,
    },
    /// Moving file data failed.
    #[error("moving file data: {0}")]
    Data(#[source] io::Error),
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
}

impl ResizeError {
    fn host(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Host { path: path.to_owned(), source }
    }

    /// Was there too little room for the files?
    fn is_no_space(&self) -> bool {
        matches!(
            self,
            Self::Volume(uxfs_core::Error::NoSpace)
                | Self::Entry { source: uxfs_core::Error::NoSpace, .. }
        )
    }
}

impl From<ImportError> for ResizeError {
    /// Of moving data: the import's movers are used for that.
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Data(source) => Self::Data(source),
            ImportError::Volume(source) => Self::Volume(source),
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Resizes.
///
/// # Errors
/// Whatever stands in the way. The volume is then as it was, or, if it was being changed in place,
/// may be marked as needing repair.
pub fn run(options: &ResizeOptions) -> Result<ResizeSummary, ResizeError> {
    let path = &options.image;
    let fixed = volume::fixed_len(path, &options.place).map_err(ResizeError::host(path))?;
    let dev = open_device(options)?;
    let fs = Fs::open(Arc::clone(&dev), options.open.clone())?;
    let sb = fs.superblock();
    let block = u64::from(sb.blocksize.get());
    let before = sb.dblocks.get() * block;
    let summary = |after, how| ResizeSummary { before, after, how, why: None };
    let bytes = match options.target {
        Target::Fill => dev.len(),
        Target::Bytes(bytes) => bytes,
        Target::Minimize => {
            let target = Whole::of(options, fixed)?;
            return match smallest::rebuild(&fs, &target, options)? {
                smallest::Outcome::Rebuilt(after) => Ok(summary(after, How::Rebuilt)),
                smallest::Outcome::Kept(why) => {
                    Ok(ResizeSummary { why: Some(why), ..summary(before, How::Unchanged) })
                }
            };
        }
    };
    let dblocks = whole_groups(&fs.geo, bytes / block);
    if dblocks == sb.dblocks.get() {
        return Ok(summary(before, How::Unchanged));
    }
    if dblocks > sb.dblocks.get() {
        drop((fs, dev));
        grow(options, bytes, fixed)?;
        return Ok(summary(dblocks * block, How::Grown));
    }
    let groups = dblocks.div_ceil(fs.geo.ag_blocks.into());
    if groups >= GROUPS_MIN && fs.shrink(dblocks)? {
        if fixed.is_none() {
            cut_file(path, dblocks * block)?;
        }
        return Ok(summary(dblocks * block, How::Cut));
    }
    let fs = Fs::open(dev, options.open.clone())?;
    let after = rebuild::replace(&fs, &Whole::of(options, fixed)?, options, bytes)?;
    Ok(summary(after, How::Rebuilt))
}

/// Fewest groups of a volume: with one alone there is no copy of the superblock to repair it by.
const GROUPS_MIN: u64 = 2;

fn open_device(options: &ResizeOptions) -> Result<Arc<dyn BlockDev>, ResizeError> {
    volume::open(&options.image, OpenMode::Write, &options.place)
        .map_err(ResizeError::host(&options.image))
}

/// A regular file that is a volume as a whole, and can be replaced by another.
struct Whole {
    /// Its path without symbolic links, so that it is replaced and not a link to it.
    path: PathBuf,
}

impl Whole {
    fn of(options: &ResizeOptions, fixed: Option<u64>) -> Result<Self, ResizeError> {
        let path = options.image.as_path();
        if fixed.is_some() {
            return Err(ResizeError::Usage(
                "the tail to be cut off holds files: moving them takes making the volume again, \
                 which is done only for an image that is a file of its own; copy it out of its \
                 disk first"
                    .into(),
            ));
        }
        let path = path.canonicalize().map_err(ResizeError::host(path))?;
        Ok(Self { path })
    }
}

fn cut_file(path: &Path, len: u64) -> Result<(), ResizeError> {
    let cut = || {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    };
    cut().map_err(ResizeError::host(path))
}

/// Grows in place to `bytes`. A file is lengthened first: what fails afterwards leaves a longer
/// file around a volume that is as it was.
fn grow(options: &ResizeOptions, bytes: u64, fixed: Option<u64>) -> Result<(), ResizeError> {
    let path = &options.image;
    if let Some(len) = fixed
        && bytes > len
    {
        let problem = format!("the volume lies in {len} bytes, which do not become {bytes} by it");
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
