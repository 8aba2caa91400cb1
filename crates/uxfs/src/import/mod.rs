//! Filling a volume from a tree: a tar stream, a directory, layers of them, or a manifest, into a
//! new image or an existing one.
//!
//! 1. A new image is marked unfinished until all of it is on stable storage. One that cannot be
//!    finished is removed, if it was made by this import, or emptied; the source is opened before
//!    anything is made.
//! 2. Metadata is made by the calling thread, data is moved by others ([`data`]); all data is
//!    written before the volume is closed.
//! 3. Memory is bounded whatever the input: batches of data in flight, the caches of the volume,
//!    and the times of directories, which are set last.
//! 4. With [`ImportOptions::source_date_epoch`] and a UUID, the same input and the same options
//!    give the same bytes: what is read comes in an order that does not depend on the host, the
//!    clock stands still, and the numbers that nobody may guess come from the UUID.
//! 5. What an archive unpacks to is bounded by the volume that is to hold it, and before its size
//!    is known, by the host's room for it.

mod adjust;
pub(crate) mod data;
mod origin;
mod size;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_archive::{ArchiveError, Source};
use uxfs_core::clock::Clock;
use uxfs_core::{Fs, OpenOptions};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_format::timestamp::Timestamp;
use uxfs_mkfs as mkfs;

use crate::making::Making;
use crate::volume::{self, Place};

use adjust::Adjust;
pub use adjust::{IdMap, Owners};
pub use origin::ImportSource;
use origin::Origin;
pub use size::Headroom;
use tree::Tree;

/// What to import, and into what.
#[derive(Debug)]
#[non_exhaustive]
pub struct ImportOptions {
    /// The tree.
    pub source: ImportSource,
    /// The image.
    pub image: PathBuf,
    /// Where in it the volume lies. A part of a disk has the size it has.
    pub place: Place,
    /// Size of a new image in bytes; `None` computes one that fits.
    pub size: Option<u64>,
    /// What to leave free in an image of computed size.
    pub headroom: Headroom,
    /// How to make a new file system.
    pub mkfs: mkfs::Options,
    /// Make the image anew even if there is one.
    pub force: bool,
    /// Who is to own what is imported.
    pub owners: Owners,
    /// Seconds since 1970, as the variable `SOURCE_DATE_EPOCH` gives them: for images that are the
    /// same, byte for byte, whenever and wherever they are made. It is the time of all that has no
    /// time of its own; files that are younger get it too; and access, change and birth have the
    /// file's time of modification. A new image also has to be given its UUID (in `mkfs`). Holes
    /// are part of the input: a directory has them where the host's file system says so.
    pub source_date_epoch: Option<i64>,
    /// Make a new image so that it is whole at every moment: a cut in the midst of the import
    /// leaves a volume with what was imported by then. Without, only the finished import is one.
    /// What is added to an image that is there is always added so.
    pub durable: bool,
    /// How to open the volume.
    pub open: OpenOptions,
}

impl ImportOptions {
    /// Imports the tar archive or directory `source` into `image`, with everything else by default.
    pub fn new(source: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self::from_source(ImportSource::Tree(source.into()), image)
    }

    /// Imports `source` into `image`, with everything else by default.
    pub fn from_source(source: ImportSource, image: impl Into<PathBuf>) -> Self {
        Self {
            source,
            image: image.into(),
            place: Place::whole(),
            size: None,
            headroom: Headroom::default(),
            mkfs: mkfs::Options::default(),
            force: false,
            owners: Owners::default(),
            source_date_epoch: None,
            durable: false,
            open: OpenOptions::default(),
        }
    }

    fn adjust(&self) -> Adjust {
        Adjust { owners: self.owners.clone(), epoch: self.source_date_epoch }
    }

    /// How to open the volume if `identity` is what tells it from others.
    fn opening(&self, identity: &[u8], repeatable: bool) -> OpenOptions {
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

/// A number from bytes (FNV-1a).
fn seed(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
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
/// Whatever stands in the way; a new image is then removed, one that is there (or is made with
/// [`ImportOptions::durable`]) is left whole, with what was imported by then.
pub fn run(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    if options.force || !has_volume(options)? {
        return into_new(options, progress);
    }
    if options.size.is_some() {
        let path = options.image.display();
        let problem =
            format!("{path} holds a volume already: its size is what it is (-f to remake)");
        return Err(ImportError::Usage(problem));
    }
    let origin = Origin::new(&options.source)?;
    let device = open_device(options, OpenMode::Write)?;
    let mut identity = vec![0; SECTOR];
    device.read_at(0, &mut identity).map_err(ImportError::host(&options.image))?;
    // The counters in it make two imports one after the other differ.
    let mut open = options.opening(&identity, options.source_date_epoch.is_some());
    open.journal.get_or_insert_default();
    let fs = Fs::open(device, open)?;
    let first = origin.open(0)?;
    let summary = fill_all(&fs, (&origin, first), &options.adjust(), false, progress)?;
    fs.close()?;
    Ok(summary)
}

/// Bytes of a superblock.
const SECTOR: usize = 512;

fn into_new(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let origin = Origin::new(&options.source)?;
    origin.probe()?;
    volume::wants_qcow2(&options.image, &options.place)
        .map_err(ImportError::host(&options.image))?;
    let size = size::of_image(options, &origin)?;
    let layout = mkfs::Layout::new(&options.mkfs, size)?;
    let repeatable = options.source_date_epoch.is_some() || options.mkfs.uuid.is_some();
    let mut open = options.opening(&layout.uuid().0, repeatable);
    open.unfinished = !options.durable;
    if options.durable {
        open.journal.get_or_insert_default();
    } else {
        open.journal = None;
    }
    let zero = size::fixed(options)?.is_none();
    // Before anything is made: a name that is mistyped shall cost nothing.
    let first = origin.open(0)?;
    let host = || ImportError::host(&options.image);
    let making = Making::begin(&options.image).map_err(host())?;
    let there = zero && !making.is_new();
    let mut emptied = Emptied::new(&options.image, false);
    volume::prepare(&options.image, size, &options.place).map_err(host())?;
    let device = open_device(options, OpenMode::Create(size))?;
    emptied.armed = there;
    let mut how = mkfs::WriteOptions::default();
    (how.in_progress, how.zero_log) = (open.unfinished, zero);
    how.now = Some(open.clock.now());
    how.owner = (options.owners.uid.unwrap_or(0), options.owners.gid.unwrap_or(0));
    mkfs::write(&layout, &*device, &how)?;
    let fs = Fs::open(device, open)?;
    let kept = if options.durable {
        emptied.armed = false;
        making.keep();
        None
    } else {
        Some(making)
    };
    let mut summary = fill_all(&fs, (&origin, first), &options.adjust(), true, progress)?;
    fs.close()?;
    emptied.armed = false;
    if let Some(making) = kept {
        making.keep();
    }
    summary.created = true;
    Ok(summary)
}

fn open_device(options: &ImportOptions, mode: OpenMode) -> Result<Arc<dyn BlockDev>, ImportError> {
    volume::open(&options.image, mode, &options.place).map_err(ImportError::host(&options.image))
}

/// Is there a volume to add to? A file that holds something else is refused.
fn has_volume(options: &ImportOptions) -> Result<bool, ImportError> {
    let path = &options.image;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.place.is_whole() => {
            return Ok(false);
        }
        Err(error) => return Err(ImportError::host(path)(error)),
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(false),
        Ok(_) => {}
    }
    let device = open_device(options, OpenMode::Read)?;
    if let Some(hint) = options.place.is_whole().then(|| volume::partitions_hint(&device)).flatten()
    {
        return Err(ImportError::Usage(format!("{} is {hint}", path.display())));
    }
    match mkfs::signature::existing(&*device).map_err(ImportError::host(path))? {
        // An import or a mkfs that was cut off left nothing to add to.
        Some("xfs") if is_unfinished(&*device).map_err(ImportError::host(path))? => Ok(false),
        Some("xfs") => Ok(true),
        None => match mkfs::signature::content(&*device).map_err(ImportError::host(path))? {
            None => Ok(false),
            Some(content) => {
                let (path, words) = (path.display(), content.words);
                let problem =
                    format!("{path} holds {words}.\nUse the -f option to force overwrite.");
                Err(ImportError::Usage(problem))
            }
        },
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

/// Is it a volume whose making was not finished?
fn is_unfinished(device: &dyn BlockDev) -> io::Result<bool> {
    let mut sector = vec![0; SECTOR];
    device.read_at(0, &mut sector)?;
    Ok(Superblock::view(&sector).is_some_and(|sb| sb.inprogress == 1))
}

/// An image file that was there, and is made anew: if that fails, it is left with its length and
/// without content.
struct Emptied<'a> {
    path: &'a Path,
    len: u64,
    armed: bool,
}

impl<'a> Emptied<'a> {
    fn new(path: &'a Path, armed: bool) -> Self {
        let len = std::fs::metadata(path).map_or(0, |meta| meta.len());
        Self { path, len, armed }
    }
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Ok(file) = std::fs::OpenOptions::new().write(true).open(self.path)
        {
            // The failure that led here is the one that is told.
            let _ = file.set_len(0).and_then(|()| file.set_len(self.len));
        }
    }
}

/// How many entries pass between two reports of progress.
const REPORT_EVERY: u64 = 256;
/// Warnings that are kept; a hostile archive could give one for each entry.
const WARNINGS_MAX: usize = 1000;

/// How often an archive may fill the volume: what comes twice, or is skipped, counts too.
const FILLS: u64 = 4;
/// And what every archive may have: headers, padding, and the like.
const FREE: u64 = 1 << 30;

/// Bytes that an archive may unpack to where there is room for so many.
fn bound(room: u64) -> u64 {
    room.saturating_mul(FILLS).saturating_add(FREE)
}

/// Imports everything `source` has into an open volume.
///
/// # Errors
/// As [`run`].
pub fn fill(
    fs: &Fs,
    source: Box<dyn Source>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let adjust = Adjust::default();
    let mut filling = Filling::new(fs, &adjust, false, progress);
    filling.layer(source)?;
    Ok(filling.summary)
}

/// Imports layer after layer; `fresh` says that there is nothing in the volume yet.
fn fill_all(
    fs: &Fs,
    (origin, first): (&Origin, Box<dyn Source>),
    adjust: &Adjust,
    fresh: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let mut filling = Filling::new(fs, adjust, origin.layered, progress);
    let mut first = Some(first);
    let mut open = |number| first.take().map_or_else(|| origin.open(number), Ok);
    for number in 0..origin.len() {
        // Whiteouts are about what lies below, wherever in their layer they stand: they go first.
        if origin.layered && !(fresh && number == 0) {
            filling.hide(open(number)?)?;
        }
        filling.single = origin.len() == 1;
        filling.layer(open(number)?)?;
    }
    Ok(filling.summary)
}

/// An import under way.
struct Filling<'a> {
    fs: &'a Fs,
    adjust: &'a Adjust,
    layered: bool,
    /// Is there only one layer, whose length is that of the whole?
    single: bool,
    /// Bytes read of the layers that are done.
    done: u64,
    summary: ImportSummary,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Filling<'a> {
    fn new(
        fs: &'a Fs,
        adjust: &'a Adjust,
        layered: bool,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        let size = fs.geo.dblocks << fs.geo.block_log;
        let summary = ImportSummary { size, ..ImportSummary::default() };
        Self { fs, adjust, layered, single: true, done: 0, summary, progress }
    }

    fn warn(&mut self, warning: String) {
        if self.summary.warnings.len() < WARNINGS_MAX {
            self.summary.warnings.push(warning);
        }
    }

    fn report(&mut self, source: &dyn Source) {
        let (read, total) = source.progress();
        let (read, total) = (self.done + read, total.filter(|_| self.single));
        (self.progress)(Progress { read, total, files: self.summary.entries });
    }

    /// Takes away what a layer's whiteouts hide.
    fn hide(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(bound(self.summary.size));
        let mut tree = Tree::new(self.fs, true);
        while let Some(entry) = source.next()? {
            tree.hide(&entry)?;
        }
        tree.finish()
    }

    /// Adds a layer.
    fn layer(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(bound(self.summary.size));
        let copy = source.file().map(std::fs::File::try_clone).transpose();
        let copy = copy.map_err(ImportError::Data)?;
        let logged = self.fs.journal_options().is_some().then_some(self.fs);
        data::with_movers(self.fs.device(), copy.as_ref(), logged, |movers| {
            let mut tree = Tree::new(self.fs, self.layered);
            while let Some(mut entry) = source.next()? {
                if let Some(warning) = self.adjust.apply(&mut entry) {
                    self.warn(warning);
                }
                let added = tree.add(&entry, &mut *source, movers)?;
                self.summary.bytes += added.bytes;
                added.warnings.into_iter().for_each(|warning| self.warn(warning));
                self.summary.entries += 1;
                if self.summary.entries.is_multiple_of(REPORT_EVERY) {
                    self.report(&*source);
                }
            }
            movers.finish()?;
            tree.finish()
        })?;
        source.warnings().into_iter().for_each(|warning| self.warn(warning));
        self.report(&*source);
        self.done += source.progress().0;
        Ok(())
    }
}
