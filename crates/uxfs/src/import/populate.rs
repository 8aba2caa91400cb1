//! Fills a volume as `mkfs.xfs -p` does, from a directory or a protofile.
//!
//! 1. The volume was just made and is marked unfinished. The mark goes when all is on stable storage:
//!    a population that fails leaves no usable volume.
//! 2. Content, owners, modes and modification times are those of the source, and access times if they
//!    are asked for. All other times are those of the population.

use std::path::Path;

use uxfs_archive::{ProtoOptions, Time};
use uxfs_core::clock::Clock;
use uxfs_core::{Devices, Fs, OpenOptions};
use uxfs_mkfs::Layout;

use super::adjust::{Adjust, Owners, Times};
use super::error::ImportError;
use super::fill::fill_all;
use super::labelling::Labelling;
use super::options::{CACHE_BYTES, seed};
use super::origin::{ImportSource, Origin};
use super::progress::{ImportSummary, Progress};
use crate::labels::Labels;

/// What fills a new volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Population {
    /// The tree.
    pub source: ImportSource,
    /// Keep the access times of a directory's files.
    pub atime: bool,
    /// SELinux labels for the files, instead of those of the source.
    pub labels: Option<Labels>,
    /// Gives the time of the population.
    pub clock: Clock,
    /// Seed of inode generations; `None` derives one from the time.
    pub seed: Option<u64>,
}

impl Population {
    /// Fills a volume from `source`; all other options have their defaults.
    pub fn new(source: ImportSource) -> Self {
        Self { source, atime: false, labels: None, clock: Clock::Real, seed: None }
    }

    /// The population of `mkfs.xfs -p PATH` of a volume with this layout: from a directory, or by a
    /// protofile, in whose names slashes may mean spaces.
    ///
    /// # Errors
    /// If there is no such file or directory.
    pub fn named(
        path: &Path,
        slashes_are_spaces: bool,
        layout: &Layout,
        clock: Clock,
    ) -> Result<Self, ImportError> {
        let meta = std::fs::metadata(path).map_err(ImportError::host(path))?;
        let source = if meta.is_dir() {
            ImportSource::Tree(path.to_owned())
        } else {
            let mut options = ProtoOptions::at(time(clock));
            options.slashes_are_spaces = slashes_are_spaces;
            options.block_size = layout.block_size();
            options.sector_size = layout.sector_size();
            ImportSource::Protofile(path.to_owned(), options)
        };
        Ok(Self { clock, ..Self::new(source) })
    }

    /// Makes the same content from the same source: what is random is derived from `identity`.
    pub fn repeat(&mut self, identity: &[u8]) {
        self.seed = Some(seed(identity));
    }

    /// Looks for mistakes in the source before a volume is made.
    ///
    /// # Errors
    /// A source that cannot be opened; mistakes in a protofile, with their line.
    pub fn check(&self) -> Result<(), ImportError> {
        Origin::new(&self.source)?.probe()
    }
}

fn time(clock: Clock) -> Time {
    let now = clock.now();
    Time { sec: now.sec, nsec: now.nsec }
}

/// Fills the volume on `devices`, which was made with
/// [`WriteOptions::in_progress`](uxfs_mkfs::WriteOptions::in_progress), and finishes it.
///
/// # Errors
/// [`ImportError`]. The volume is then still marked unfinished.
pub fn populate(
    devices: Devices,
    population: &Population,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let origin = Origin::new(&population.source)?;
    let first = origin.open(0)?;
    let adjust = Adjust {
        owners: Owners::default(),
        times: Times::Made { now: time(population.clock), atime: population.atime },
        labelling: Labelling::new(population.labels.as_ref(), &population.source, true)?,
    };
    let mut open = OpenOptions::default();
    open.unfinished = true;
    open.cache_bytes = CACHE_BYTES;
    open.clock = population.clock;
    open.seed = population.seed;
    let fs = Fs::open_devices(devices, open)?;
    let mut summary = fill_all(&fs, (&origin, first), &adjust, true, progress)?;
    fs.close()?;
    summary.created = true;
    Ok(summary)
}
