//! Dumps of metadata, written and restored: what `uxfs metadump`, `uxfs mdrestore` and the programs of
//! xfsprogs of these names have in common.
//!
//! 1. A new file stays only if the dump, or the volume, is complete. A volume in an existing file, or on
//!    a device, is marked unfinished until then.
//! 2. The file that is read is never written to, whatever links lead to it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::mkfs::random_uuid;
use uxfs::new_file::NewFile;
use uxfs::volume::Location;
use uxfs_metadump::{
    DumpError, DumpOptions, DumpSummary, Event, Info, Names, Restore, RestoreError, RestoreSummary,
    dump,
};

use crate::address;
use crate::interrupt;
use crate::session::{Failure, Result};

/// Bytes that are read or written at once.
const BUFFER: usize = 1 << 20;

/// Is it the name of standard input and output?
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// Other names for names, by a key that nobody knows, or by the user's own.
pub(crate) fn names(seed: Option<&str>) -> Result<Names> {
    let Some(seed) = seed else {
        let random = || random_uuid().map_err(|error| Failure::bare(error.to_string()));
        return Ok(Names::new(&[random()?.0, random()?.0].concat()));
    };
    Ok(Names::new(seed.as_bytes()))
}

/// Writes a dump of the volume in `source` to `target`.
pub(crate) fn write(
    source: &Path,
    location: &Location,
    target: &Path,
    options: &DumpOptions,
    on: &mut dyn FnMut(Event),
) -> Result<DumpSummary> {
    let dev = address::open(source, OpenMode::Read, location)
        .map_err(|error| Failure::host(source, &error))?;
    let host = |error: io::Error| Failure::host(target, &error);
    let mut new_file = None;
    let out = if is_stream(target) {
        if io::stdout().is_terminal() {
            return Err(Failure::bare("a dump is not for a terminal: give a file, or use a pipe"));
        }
        uxfs_host::stdout()?
    } else {
        refuse_same(source, target)?;
        interrupt::watch("metadump", target).map_err(host)?;
        new_file = Some(NewFile::create(target).map_err(host)?);
        File::create(target).map_err(host)?
    };
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let summary = dump(&*dev, options, &mut out, on).map_err(|error| match error {
        DumpError::Write(error) if is_stream(target) => Failure::from(error),
        DumpError::Write(error) => host(error),
        other => Failure::new(source, other.to_string()),
    })?;
    out.flush().map_err(host)?;
    if let Some(new_file) = new_file {
        new_file.keep();
    }
    Ok(summary)
}

/// A dump to read: a file, or standard input.
fn open(source: &Path) -> Result<Box<dyn Read>> {
    if is_stream(source) {
        return Ok(Box::new(BufReader::with_capacity(BUFFER, io::stdin())));
    }
    let file = File::open(source).map_err(|error| Failure::host(source, &error))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, file)))
}

fn failed(source: &Path, target: Option<&Path>, error: RestoreError) -> Failure {
    match (error, target) {
        (RestoreError::Read(error), _) => Failure::host(source, &error),
        (error @ (RestoreError::Write { .. } | RestoreError::TooSmall { .. }), Some(target)) => {
            Failure::new(target, error.to_string())
        }
        (error, _) => Failure::new(source, error.to_string()),
    }
}

/// What the header of a dump says.
pub(crate) fn info(source: &Path) -> Result<Info> {
    uxfs_metadump::info(open(source)?).map_err(|error| failed(source, None, error))
}

/// Makes a volume of the dump in `source`. `begun` is called with what its header says before anything
/// is written, `progress` with the bytes that are read.
pub(crate) fn restore(
    source: &Path,
    target: &Path,
    begun: &mut dyn FnMut(Info) -> Result<()>,
    progress: &mut dyn FnMut(u64),
) -> Result<RestoreSummary> {
    address::refuse(target, "restore into a file, then copy it there by qemu-img convert -n")?;
    let failed = |error| failed(source, Some(target), error);
    let host = |error: io::Error| Failure::host(target, &error);
    if !is_stream(source) {
        refuse_same(source, target)?;
    }
    let restore = Restore::begin(open(source)?).map_err(failed)?;
    begun(restore.info())?;
    interrupt::watch("mdrestore", target).map_err(host)?;
    let new_file = NewFile::create(target).map_err(host)?;
    let dev = open_target(target, restore.volume_len()).map_err(host)?;
    let summary = restore.run(&dev, dev.is_regular(), progress).map_err(failed)?;
    new_file.keep_durably().map_err(host)?;
    Ok(summary)
}

/// Opens a file or device that becomes a volume of `len` bytes. A file gets this length and is empty.
pub(crate) fn open_target(path: &Path, len: u64) -> io::Result<FileDev> {
    let device =
        std::fs::metadata(path).is_ok_and(|meta| uxfs_host::is_block_device(meta.file_type()));
    FileDev::open(path, if device { OpenMode::Write } else { OpenMode::Create(len) })
}

/// Refuses to write to the file that is read.
pub(crate) fn refuse_same(source: &Path, target: &Path) -> Result<()> {
    let id = |path: &Path| Some(uxfs_host::id_of(path, &std::fs::metadata(path).ok()?));
    match (id(source), id(target)) {
        (Some(source), Some(to)) if source == to => {
            Err(Failure::new(target, "is the file that is read: give another target"))
        }
        _ => Ok(()),
    }
}
