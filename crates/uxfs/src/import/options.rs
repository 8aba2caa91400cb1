//! The options of an import.

use std::path::PathBuf;

use uxfs_core::OpenOptions;
use uxfs_core::clock::Clock;
use uxfs_format::timestamp::Timestamp;
use uxfs_mkfs as mkfs;

use super::adjust::{Adjust, Owners, Times};
use super::error::ImportError;
use super::labelling::Labelling;
use super::origin::{ImportSource, Origin};
use super::size::Headroom;
use crate::labels::Labels;
use crate::volume::Location;

/// What to import, and into which image.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImportOptions {
    /// The tree to import.
    pub source: ImportSource,
    /// The image file or device.
    pub image: PathBuf,
    /// Where in the image the volume lies. A part of a disk cannot change its size.
    pub location: Location,
    /// Size of a new image in bytes; `None` computes one that fits.
    pub size: Option<u64>,
    /// Space to leave free in an image whose size is computed.
    pub headroom: Headroom,
    /// Options for a new file system.
    pub mkfs: mkfs::Options,
    /// Create a new file system even if the image holds one.
    pub force: bool,
    /// Owners of the imported files.
    pub owners: Owners,
    /// SELinux labels for the imported files, instead of those that the source has; `None` keeps the
    /// source's. [`Labels::Auto`] takes the policy of the tree as it is after the import, and labels
    /// all files of the volume by it.
    pub labels: Option<Labels>,
    /// Seconds since 1970, as in the variable `SOURCE_DATE_EPOCH`: for images that are identical
    /// byte for byte whenever and wherever they are made. This time is used for everything that has
    /// no time of its own, and as the upper limit of modification times. Times of access, change
    /// and birth become the modification time. A new image also needs a fixed UUID (in `mkfs`).
    /// Holes are part of the input: a directory has them where the host's file system reports them.
    pub source_date_epoch: Option<i64>,
    /// Files and directories of the host that are left out if they lie in the directory that is imported.
    /// The image itself always is.
    pub left_out: Vec<PathBuf>,
    /// Keep a new image consistent at every moment: after a crash during the import it is a volume
    /// with what was imported by then. Without this option only the finished import is a usable
    /// volume. Imports into an existing volume always work this way.
    pub durable: bool,
    /// How to open the volume. By default with a small cache: an import rarely comes back to what it
    /// wrote.
    pub open: OpenOptions,
}

/// The size of the cache, unless another one is asked for.
pub(super) const CACHE_BYTES: usize = 8 << 20;

impl ImportOptions {
    /// Imports the tar archive or directory `source` into `image`; all other options have their
    /// defaults.
    pub fn new(source: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self::from_source(ImportSource::Tree(source.into()), image)
    }

    /// Imports `source` into `image`; all other options have their defaults.
    pub fn from_source(source: ImportSource, image: impl Into<PathBuf>) -> Self {
        let mut open = OpenOptions::default();
        open.cache_bytes = CACHE_BYTES;
        Self {
            source,
            image: image.into(),
            location: Location::whole(),
            size: None,
            headroom: Headroom::default(),
            mkfs: mkfs::Options::default(),
            force: false,
            owners: Owners::default(),
            labels: None,
            source_date_epoch: None,
            left_out: Vec::new(),
            durable: false,
            open,
        }
    }

    /// The changes to the entries, for a new volume or for one that has files.
    pub(super) fn adjust(&self, fresh: bool) -> Result<Adjust, ImportError> {
        let labelling = Labelling::new(self.labels.as_ref(), &self.source, fresh)?;
        let times = self.source_date_epoch.map_or(Times::Source, Times::UpTo);
        Ok(Adjust { owners: self.owners.clone(), times, labelling })
    }

    /// The source, without the image.
    pub(super) fn origin(&self) -> Result<Origin, ImportError> {
        let mut origin = Origin::new(&self.source)?;
        origin.leave_out(&self.image);
        self.left_out.iter().for_each(|path| origin.leave_out(path));
        Ok(origin)
    }

    /// The options for opening a volume; `identity` distinguishes it from others.
    pub(super) fn open_options(&self, identity: &[u8], repeatable: bool) -> OpenOptions {
        let mut open = self.open.clone();
        if let Some(sec) = self.source_date_epoch {
            open.clock = Clock::Fixed(Timestamp { sec, nsec: 0 });
        }
        if repeatable && open.seed.is_none() {
            open.seed = Some(seed(identity));
        }
        open
    }
}

/// Hashes bytes to a seed (FNV-1a).
pub(super) fn seed(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
