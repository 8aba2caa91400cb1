//! Fills a volume from a tree: a tar stream, a directory, layers, an OCI image or a manifest, into
//! a new image or an existing one.
//!
//! 1. A new image is marked unfinished until all of it is on stable storage. If the import fails,
//!    an image file that this import created is removed and an existing file is emptied. The source
//!    is opened before anything is created.
//! 2. The calling thread writes metadata, other threads write data ([`BulkWriter`]). All data is written
//!    before the volume is closed.
//! 3. Memory is bounded for any input: batches of data in flight, the caches of the volume, and the
//!    times of directories, which are set last.
//! 4. With [`ImportOptions::source_date_epoch`] and a UUID, the same input and options give the
//!    same bytes: entries come in an order that does not depend on the host, the clock stands
//!    still, and random numbers are derived from the UUID.
//! 5. The data that an archive may unpack to is bounded by the size of the volume; before that size
//!    is known, by the free space of the host.

mod adjust;
mod error;
mod labelling;
mod options;
mod origin;
mod size;
mod tree;

use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs_archive::Source;
use uxfs_core::{BulkWriter, Fs};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_mkfs as mkfs;

use crate::new_file::NewFile;
use crate::volume;

use adjust::Adjust;
pub use adjust::{IdMap, Owners};
pub use error::ImportError;
pub use options::ImportOptions;
pub use origin::ImportSource;
use origin::Origin;
pub use size::Headroom;
use tree::Tree;

/// The progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read from the source.
    pub read: u64,
    /// Bytes of the whole source, if known.
    pub total: Option<u64>,
    /// Files created so far.
    pub files: u64,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Entries of the source: files, directories, links and others.
    pub entries: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// True if a new file system was created.
    pub created: bool,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Texts about what could not be kept exactly.
    pub warnings: Vec<String>,
}

/// Runs an import and calls `progress` from time to time.
///
/// # Errors
/// [`ImportError`]. A new image is then removed. An existing volume, and a new one with
/// [`ImportOptions::durable`], stays consistent and keeps what was imported by then.
pub fn run(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    if options.force || !has_volume(options)? {
        return into_new(options, progress);
    }
    if options.size.is_some() {
        let path = options.image.display();
        let problem = format!(
            "{path} already holds a volume, whose size is fixed: leave out --size, or give -f to overwrite it"
        );
        return Err(ImportError::Usage(problem));
    }
    let origin = Origin::new(&options.source)?;
    let adjust = options.adjust(false)?;
    let device = open_device(options, OpenMode::Write)?;
    let mut identity = vec![0; SECTOR];
    device.read_at(0, &mut identity).map_err(ImportError::host(&options.image))?;
    // The superblock's counters make the seeds of successive imports differ.
    let open = options.open_options(&identity, options.source_date_epoch.is_some());
    let fs = Fs::open(device, open)?;
    let first = origin.open(0)?;
    let summary = fill_all(&fs, (&origin, first), &adjust, false, progress)?;
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
    volume::wants_qcow2(&options.image, &options.location)
        .map_err(ImportError::host(&options.image))?;
    let size = size::of_image(options, &origin)?;
    let layout = mkfs::Layout::new(&options.mkfs, size)?;
    let repeatable = options.source_date_epoch.is_some() || options.mkfs.uuid.is_some();
    let mut open = options.open_options(&layout.uuid().0, repeatable);
    open.unfinished = !options.durable;
    let zero = size::fixed(options)?.is_none();
    // Before anything is created: a mistyped source must not cost an existing image.
    let first = origin.open(0)?;
    let adjust = options.adjust(true)?;
    let host = || ImportError::host(&options.image);
    let new_file = NewFile::create(&options.image).map_err(host())?;
    let existed = zero && !new_file.is_new();
    let mut empty_on_error = EmptyOnError::new(&options.image, false);
    volume::prepare(&options.image, size, &options.location).map_err(host())?;
    let device = open_device(options, OpenMode::Create(size))?;
    empty_on_error.armed = existed;
    let mut write_options = mkfs::WriteOptions::default();
    (write_options.in_progress, write_options.zero_log) = (open.unfinished, zero);
    write_options.now = Some(open.clock.now());
    write_options.owner = (options.owners.uid.unwrap_or(0), options.owners.gid.unwrap_or(0));
    mkfs::write(&layout, &*device, &write_options)?;
    let fs = Fs::open(device, open)?;
    let unfinished = if options.durable {
        empty_on_error.armed = false;
        new_file.keep();
        None
    } else {
        Some(new_file)
    };
    let mut summary = fill_all(&fs, (&origin, first), &adjust, true, progress)?;
    fs.close()?;
    empty_on_error.armed = false;
    if let Some(new_file) = unfinished {
        new_file.keep();
    }
    summary.created = true;
    Ok(summary)
}

fn open_device(options: &ImportOptions, mode: OpenMode) -> Result<Arc<dyn BlockDev>, ImportError> {
    volume::open(&options.image, mode, &options.location).map_err(ImportError::host(&options.image))
}

/// True if the image holds a volume to add to. A file that holds something else is refused.
fn has_volume(options: &ImportOptions) -> Result<bool, ImportError> {
    let path = &options.image;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.location.is_whole() => {
            return Ok(false);
        }
        Err(error) => return Err(ImportError::host(path)(error)),
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(false),
        Ok(_) => {}
    }
    let device = open_device(options, OpenMode::Read)?;
    if let Some(hint) =
        options.location.is_whole().then(|| volume::partitions_hint(&device)).flatten()
    {
        return Err(ImportError::Usage(format!("{} is {hint}", path.display())));
    }
    match mkfs::signature::existing(&*device).map_err(ImportError::host(path))? {
        // An interrupted import or mkfs left no usable volume.
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

/// True if creating the volume was not finished.
fn is_unfinished(device: &dyn BlockDev) -> io::Result<bool> {
    let mut sector = vec![0; SECTOR];
    device.read_at(0, &mut sector)?;
    Ok(Superblock::view(&sector).is_some_and(|sb| sb.inprogress == 1))
}

/// Empties an existing image file that is overwritten, unless disarmed: the file keeps its length
/// and loses its content.
struct EmptyOnError<'a> {
    path: &'a Path,
    len: u64,
    armed: bool,
}

impl<'a> EmptyOnError<'a> {
    fn new(path: &'a Path, armed: bool) -> Self {
        let len = std::fs::metadata(path).map_or(0, |meta| meta.len());
        Self { path, len, armed }
    }
}

impl Drop for EmptyOnError<'_> {
    fn drop(&mut self) {
        if self.armed
            && let Ok(file) = std::fs::OpenOptions::new().write(true).open(self.path)
        {
            // The caller reports the error that led here.
            let _ = file.set_len(0).and_then(|()| file.set_len(self.len));
        }
    }
}

/// Entries between two progress reports.
const REPORT_EVERY: u64 = 256;
/// Largest number of warnings kept; a hostile archive could cause one for each entry.
const WARNINGS_MAX: usize = 1000;

/// How often an archive may fill the volume: entries that are replaced or skipped count too.
const FILLS: u64 = 4;
/// Bytes that every archive may have in addition: headers, padding and the like.
const ALLOWANCE: u64 = 1 << 30;

/// Bytes that an archive may unpack to for `room` bytes of space.
fn unpack_limit(room: u64) -> u64 {
    room.saturating_mul(FILLS).saturating_add(ALLOWANCE)
}

/// Imports all entries of `source` into an open volume.
///
/// # Errors
/// The errors of [`run`].
pub fn fill(
    fs: &Fs,
    source: Box<dyn Source>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let adjust = Adjust::default();
    let mut import = Import::new(fs, &adjust, false, progress);
    import.layer(source)?;
    Ok(import.summary)
}

/// Imports all layers in order; `fresh` says that the volume is empty.
fn fill_all(
    fs: &Fs,
    (origin, first): (&Origin, Box<dyn Source>),
    adjust: &Adjust,
    fresh: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let mut import = Import::new(fs, adjust, origin.layered, progress);
    let mut first = Some(first);
    let mut open = |number| first.take().map_or_else(|| origin.open(number), Ok);
    if fresh {
        adjust.labelling.begin(fs)?;
    }
    for number in 0..origin.len() {
        // Whiteouts apply to the layers below, wherever they stand in their own layer: apply them
        // first.
        if origin.layered && !(fresh && number == 0) {
            import.apply_whiteouts(open(number)?)?;
        }
        import.single = origin.len() == 1;
        import.layer(open(number)?)?;
    }
    adjust.labelling.finish(fs)?;
    Ok(import.summary)
}

/// A running import.
struct Import<'a> {
    fs: &'a Fs,
    adjust: &'a Adjust,
    layered: bool,
    /// True if there is one layer, whose length is the total.
    single: bool,
    /// Bytes read from finished layers.
    done: u64,
    summary: ImportSummary,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Import<'a> {
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

    /// Removes what the whiteouts of a layer hide.
    fn apply_whiteouts(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(unpack_limit(self.summary.size));
        let mut tree = Tree::new(self.fs, true, None);
        while let Some(entry) = source.next()? {
            tree.apply_whiteout(&entry)?;
        }
        tree.finish()
    }

    /// Adds a layer.
    fn layer(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(unpack_limit(self.summary.size));
        let copy = source.file().map(std::fs::File::try_clone).transpose();
        let copy = copy.map_err(ImportError::Data)?;
        let writer = BulkWriter::start(self.fs, copy.as_ref())?;
        let contexts = self.adjust.labelling.contexts();
        let mut tree = Tree::new(self.fs, self.layered, contexts);
        while let Some(mut entry) = source.next()? {
            if let Some(warning) = self.adjust.apply(&mut entry) {
                self.warn(warning);
            }
            let added = tree.add(&entry, &mut *source, &writer)?;
            self.summary.bytes += added.bytes;
            added.warnings.into_iter().for_each(|warning| self.warn(warning));
            self.summary.entries += 1;
            if self.summary.entries.is_multiple_of(REPORT_EVERY) {
                self.report(&*source);
            }
        }
        writer.finish().map_err(ImportError::Data)?;
        tree.finish()?;
        source.warnings().into_iter().for_each(|warning| self.warn(warning));
        self.report(&*source);
        self.done += source.progress().0;
        Ok(())
    }
}
