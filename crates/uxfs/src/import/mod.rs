//! Fills a volume from a tree: a tar stream, a directory, layers, an OCI image, a manifest or a
//! protofile, into a new image or an existing one.
//!
//! 1. A new image is marked unfinished until all of it is on stable storage. If the import fails,
//!    an image file that this import created is removed and an existing file is emptied. The source
//!    is opened before anything is created.
//! 2. The calling thread writes metadata, other threads read files and write data. All data is written
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
mod fill;
mod forward;
mod labelled;
mod labelling;
mod limit;
mod options;
mod origin;
mod populate;
mod progress;
mod size;
mod tree;
mod without;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs_core::Fs;
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::superblock::Superblock;
use uxfs_mkfs as mkfs;

use crate::new_file::NewFile;
use crate::volume;

pub use adjust::{IdMap, Owners};
pub use error::ImportError;
pub use fill::fill;
use fill::fill_all;
pub use options::ImportOptions;
pub use origin::ImportSource;
pub use populate::{Population, populate};
pub use progress::{ImportSummary, Progress};
pub use size::Headroom;

/// Runs an import and calls `progress` from time to time.
///
/// # Errors
/// [`ImportError`]. A new image is then removed. An existing volume, and a new one with
/// [`ImportOptions::durable`], stays consistent and keeps what was imported by then.
pub fn run(
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let found = if options.force { Found::Nothing } else { look(options)? };
    if found != Found::Volume {
        return into_new(options, found, progress);
    }
    if options.size.is_some() {
        let path = options.image.display();
        let problem = format!(
            "{path} already holds a volume, whose size is fixed: leave out --size, or give -f to overwrite it"
        );
        return Err(ImportError::Usage(problem));
    }
    let origin = options.origin()?;
    let adjust = options.adjust(false)?;
    let device = open_device(options, OpenMode::Write)?;
    let mut identity = vec![0; SECTOR];
    device.read_at(0, &mut identity).map_err(ImportError::host(&options.image))?;
    // The superblock's counters make the seeds of successive imports differ.
    let open = options.open_options(&identity, options.source_date_epoch.is_some());
    let fs = Fs::open(device, open)?;
    let first = origin.open(0)?;
    let summary = fill_all(&fs, (&origin, first), &adjust, false, progress)
        .map_err(|error| error.of_image(&options.image))?;
    fs.close()?;
    Ok(summary)
}

/// Bytes of a superblock.
const SECTOR: usize = 512;
/// Bytes read at a time where a file should read as zeroes.
const BLANK_STEP: usize = 1 << 20;

fn into_new(
    options: &ImportOptions,
    found: Found,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    if options.mkfs.population != mkfs::PopulationOptions::default() {
        let problem =
            "-p, or the section [proto] of an option file, is for mkfs: an import names its source";
        return Err(ImportError::Usage(problem.into()));
    }
    if options.mkfs.log.device.is_some() {
        let problem = "-l logdev is for mkfs: an import makes volumes with the log inside";
        return Err(ImportError::Usage(problem.into()));
    }
    let mut origin = options.origin()?;
    origin.probe()?;
    volume::wants_qcow2(&options.image, &options.location)
        .map_err(ImportError::host(&options.image))?;
    let size = match (options.size, found) {
        (None, Found::Blank(len)) => len,
        _ => size::of_image(options, &mut origin)?,
    };
    let layout = mkfs::Layout::new(&options.mkfs, size)?;
    let repeatable = options.source_date_epoch.is_some() || options.mkfs.uuid.is_some();
    let mut open = options.open_options(&layout.uuid().0, repeatable);
    open.unfinished = !options.durable;
    let zero = size::fixed(options)?.is_none();
    // Before anything is created: a mistyped source must not cost an existing image.
    let first = origin.open(0)?;
    let adjust = options.adjust(true)?;
    let host = || ImportError::host(&options.image);
    let mut new_file = NewFile::create_image(&options.image).map_err(host())?;
    let existed = zero && !new_file.is_new();
    let mut empty_on_error = EmptyOnError::new(&options.image, false);
    volume::prepare(&options.image, size, &options.location).map_err(host())?;
    let device = new_file
        .open(|| volume::open(&options.image, OpenMode::Create(size), &options.location))
        .map_err(host())?;
    empty_on_error.armed = existed;
    let mut write_options = mkfs::WriteOptions::default();
    (write_options.in_progress, write_options.zero_log) = (open.unfinished, zero);
    write_options.now = Some(open.clock.now());
    write_options.owner = (options.owners.uid.unwrap_or(0), options.owners.gid.unwrap_or(0));
    mkfs::write(&layout, &*device, &write_options)?;
    let fs = Fs::open(device, open)?;
    let unfinished = if options.durable {
        empty_on_error.armed = false;
        new_file.keep_durably().map_err(host())?;
        None
    } else {
        Some(new_file)
    };
    let mut summary = fill_all(&fs, (&origin, first), &adjust, true, progress)
        .map_err(|error| error.of_image(&options.image))?;
    fs.close()?;
    empty_on_error.armed = false;
    if let Some(new_file) = unfinished {
        new_file.keep_durably().map_err(host())?;
    }
    summary.created = true;
    Ok(summary)
}

fn open_device(options: &ImportOptions, mode: OpenMode) -> Result<Arc<dyn BlockDev>, ImportError> {
    volume::open(&options.image, mode, &options.location).map_err(ImportError::host(&options.image))
}

/// What there is where the image is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// A volume to add to.
    Volume,
    /// Nothing that must stay.
    Nothing,
    /// A file of this length that reads as zeroes: made in advance, with the size of the volume.
    Blank(u64),
}

/// Looks for a volume in the image. A file that holds something else is refused.
fn look(options: &ImportOptions) -> Result<Found, ImportError> {
    let path = &options.image;
    let regular = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.location.is_whole() => {
            return Ok(Found::Nothing);
        }
        Err(error) => return Err(ImportError::host(path)(error)),
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(Found::Nothing),
        Ok(meta) => meta.is_file(),
    };
    let device = open_device(options, OpenMode::Read)?;
    if let Some(hint) =
        options.location.is_whole().then(|| volume::partitions_hint(&device)).flatten()
    {
        return Err(ImportError::Usage(format!("{} is {hint}", path.display())));
    }
    let host = || ImportError::host(path);
    let in_the_way = |what: &str| {
        let problem = format!("{} {what}.\nUse the -f option to force overwrite.", path.display());
        Err(ImportError::Usage(problem))
    };
    match mkfs::signature::existing(&*device).map_err(host())? {
        // An interrupted import or mkfs left no usable volume.
        Some("xfs") if is_unfinished(&*device).map_err(host())? => Ok(Found::Nothing),
        Some("xfs") => Ok(Found::Volume),
        None => match mkfs::signature::content(&*device).map_err(host())? {
            Some(content) => in_the_way(&format!("holds {}", content.words)),
            // Of a device only signatures count, as for mkfs.
            None if !regular || !options.location.is_whole() => Ok(Found::Nothing),
            None => match device.as_file() {
                None => Ok(Found::Nothing),
                Some(file) if is_blank(file, &*device).map_err(host())? => {
                    Ok(Found::Blank(device.len()))
                }
                Some(_) => in_the_way("holds data that is no file system"),
            },
        },
        Some(other) => in_the_way(&format!("appears to contain an existing filesystem ({other})")),
    }
}

/// True if the file reads as zeroes. Its holes are not read where the host names them.
fn is_blank(file: &File, device: &dyn BlockDev) -> io::Result<bool> {
    let mut buf = vec![0; BLANK_STEP];
    let mut at = 0;
    while at < device.len() {
        match uxfs_host::next_data(file, at)? {
            uxfs_host::Next::At(data) => at = data,
            uxfs_host::Next::Nowhere => break,
            uxfs_host::Next::Unknown => {}
        }
        let step = buf.len().min((device.len() - at) as usize);
        device.read_at(at, &mut buf[..step])?;
        if buf[..step].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += step as u64;
    }
    Ok(true)
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
