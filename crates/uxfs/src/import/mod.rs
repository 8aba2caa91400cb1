//! Filling a volume from a tree: a tar stream or a directory, into a new image or an existing one.
//!
//! 1. A new image is marked unfinished until all of it is on stable storage.
//! 2. Metadata is made by the calling thread, data is moved by others ([`data`]); all data is
//!    written before the volume is closed.
//! 3. Memory is bounded whatever the input: batches of data in flight, the caches of the volume,
//!    and the times of directories, which are set last.

mod data;
mod size;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_archive::{ArchiveError, Source};
use uxfs_core::{Fs, OpenOptions};
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_mkfs as mkfs;

pub use size::Headroom;
use tree::Tree;

/// What to import, and into what.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImportOptions {
    /// A tar stream, compressed or not, or a directory; `-` for standard input.
    pub source: PathBuf,
    /// The image.
    pub image: PathBuf,
    /// Size of a new image in bytes; `None` computes one that fits.
    pub size: Option<u64>,
    /// What to leave free in an image of computed size.
    pub headroom: Headroom,
    /// How to make a new file system.
    pub mkfs: mkfs::Options,
    /// Make the image anew even if there is one.
    pub force: bool,
    /// How to open the volume.
    pub open: OpenOptions,
}

impl ImportOptions {
    /// Imports `source` into `image`, with everything else by default.
    pub fn new(source: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            image: image.into(),
            size: None,
            headroom: Headroom::default(),
            mkfs: mkfs::Options::default(),
            force: false,
            open: OpenOptions::default(),
        }
    }
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the source that were read.
    pub read: u64,
    /// Bytes it has, if that is known.
    pub total: Option<u64>,
    /// Files made so far.
    pub files: u64,
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Entries of the source: files, directories, links and the rest.
    pub entries: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Was the image made anew?
    pub created: bool,
    /// Size of the volume in bytes.
    pub size: u64,
    /// What could not be kept exactly, in words.
    pub warnings: Vec<String>,
}

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The source could not be read, or is damaged.
    #[error(transparent)]
    Source(#[from] ArchiveError),
    /// A new file system could not be made.
    #[error(transparent)]
    Mkfs(#[from] mkfs::MkfsError),
    /// The volume refused something; `path` tells for which entry.
    #[error("{}: {source}", path.escape_ascii())]
    Entry {
        /// The entry's path.
        path: Vec<u8>,
        /// What the volume said.
        source: uxfs_core::Error,
    },
    /// The volume failed as a whole.
    #[error(transparent)]
    Volume(#[from] uxfs_core::Error),
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
    /// The image is there, and cannot be what was asked for.
    #[error("{0}")]
    Usage(String),
}

impl ImportError {
    fn host(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Host { path: path.to_owned(), source }
    }
}

/// Imports, telling `progress` now and then how far it is.
///
/// # Errors
/// Whatever stands in the way; a new image is then left marked unfinished, an existing one as it
/// was, unless so much was imported that some was written already: then it is marked as needing
/// repair.
pub fn run(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    if options.force || !has_volume(&options.image)? {
        return into_new(options, progress);
    }
    if options.size.is_some() {
        let path = options.image.display();
        let problem =
            format!("{path} holds a volume already: its size is what it is (-f to remake)");
        return Err(ImportError::Usage(problem));
    }
    let source = uxfs_archive::open(&options.source)?;
    let device = open_device(&options.image, OpenMode::Write)?;
    let fs = Fs::open(Arc::new(device), options.open.clone())?;
    let summary = fill(&fs, source, progress)?;
    fs.close()?;
    Ok(summary)
}

fn into_new(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let (source, size) = size::open_sized(options)?;
    let layout = mkfs::Layout::new(&options.mkfs, size)?;
    let device = open_device(&options.image, OpenMode::Create(size))?;
    let zero = device.is_regular();
    let device: Arc<dyn BlockDev> = Arc::new(device);
    let how = mkfs::WriteOptions {
        in_progress: true,
        zero_log: zero,
        now: Some(options.open.clock.now()),
    };
    mkfs::write(&layout, &*device, &how)?;
    let mut open = options.open.clone();
    open.unfinished = true;
    let fs = Fs::open(device, open)?;
    let mut summary = fill(&fs, source, progress)?;
    fs.close()?;
    summary.created = true;
    Ok(summary)
}

fn open_device(path: &Path, mode: OpenMode) -> Result<FileDev, ImportError> {
    FileDev::open(path, mode).map_err(ImportError::host(path))
}

/// Is there a volume to add to? A file that holds something else is refused.
fn has_volume(path: &Path) -> Result<bool, ImportError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(ImportError::host(path)(error)),
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(false),
        Ok(_) => {}
    }
    let device = open_device(path, OpenMode::Read)?;
    match mkfs::signature::existing(&device).map_err(ImportError::host(path))? {
        Some("xfs") => Ok(true),
        None => Ok(false),
        Some(other) => {
            let path = path.display();
            let problem = format!(
                "{path} appears to contain an existing filesystem ({other}).\n\
                 Use the -f option to force overwrite."
            );
            Err(ImportError::Usage(problem))
        }
    }
}

/// How many entries pass between two reports of progress.
const REPORT_EVERY: u64 = 256;

/// Imports everything `source` has into an open volume.
///
/// # Errors
/// As [`run`].
pub fn fill(
    fs: &Fs,
    mut source: Box<dyn Source>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let mut summary =
        ImportSummary { size: fs.geo.dblocks << fs.geo.block_log, ..ImportSummary::default() };
    let copy = source.file().map(std::fs::File::try_clone).transpose();
    let copy = copy.map_err(ImportError::Data)?;
    data::with_movers(fs.device(), copy.as_ref(), |movers| {
        let mut tree = Tree::new(fs);
        while let Some(entry) = source.next()? {
            tree.add(&entry, &mut *source, movers, &mut summary)?;
            summary.entries += 1;
            if summary.entries.is_multiple_of(REPORT_EVERY) {
                let (read, total) = source.progress();
                progress(Progress { read, total, files: summary.entries });
            }
        }
        movers.finish()?;
        tree.finish()
    })?;
    summary.warnings.extend(source.warnings());
    let (read, total) = source.progress();
    progress(Progress { read, total, files: summary.entries });
    Ok(summary)
}
