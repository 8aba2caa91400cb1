//! Opens the device that holds a volume: a whole file, block device, qcow2 image, fork or VHD image of fixed
//! length, for reading a VMDK, VHDX or dynamic VHD image; the part of it behind an offset, or a partition.
//!
//! 1. If the volume is only a part of a disk, the disk is never truncated, extended or emptied,
//!    whatever the open mode.
//! 2. Locks cover the whole file: two parts of one disk cannot be open for writing at once.
//!
//! Used by every caller that opens an image by path: the command line, import, resize.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs_disk::partition::Table;
use uxfs_disk::{BlockDev, FileDev, Foreign, OpenMode, Slice, is_qcow2, vhd_len};
#[cfg(feature = "qcow2")]
use uxfs_disk::{Qcow2Dev, create_qcow2};
use uxfs_format::superblock;
#[cfg(feature = "mkfs")]
use uxfs_mkfs::signature;

/// The location of a volume in a file or on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// Offset of the volume in bytes.
    pub offset: Option<u64>,
    /// Number, label or PARTUUID of the partition. Excludes `offset`.
    pub partition: Option<String>,
}

impl Location {
    /// The whole file or device.
    pub fn whole() -> Self {
        Self::default()
    }

    /// Everything from `offset` (bytes) to the end.
    pub fn offset(offset: u64) -> Self {
        Self { offset: Some(offset), partition: None }
    }

    /// The partition with this number; else with this label or PARTUUID.
    pub fn partition(wanted: impl Into<String>) -> Self {
        Self { offset: None, partition: Some(wanted.into()) }
    }

    /// True if the volume is the whole file or device.
    pub fn is_whole(&self) -> bool {
        self.offset.is_none() && self.partition.is_none()
    }
}

/// Opens the device that holds a volume. [`OpenMode::Create`] creates or replaces a whole regular
/// file; a part of a disk must exist and be long enough.
///
/// # Errors
/// The errors of [`FileDev::open`]; [`io::ErrorKind::NotFound`] if the partition does not exist;
/// [`io::ErrorKind::InvalidInput`] if the part does not lie completely on the device.
pub fn open(path: &Path, mode: OpenMode, location: &Location) -> io::Result<Arc<dyn BlockDev>> {
    open_over(path, mode, location, &|base| {
        let text = format!("{} is an address, which is not opened here", base.display());
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    })
}

/// Opens a disk at an address (`scheme://…`) for reading.
pub type Elsewhere<'a> = &'a dyn Fn(&Path) -> io::Result<Arc<dyn BlockDev>>;

/// As [`open`], also for forks of disks at addresses, which `elsewhere` opens.
///
/// # Errors
/// As [`open`]; those of `elsewhere`.
pub fn open_over(
    path: &Path,
    mode: OpenMode,
    location: &Location,
    elsewhere: Elsewhere<'_>,
) -> io::Result<Arc<dyn BlockDev>> {
    let fixed = !location.is_whole() || holds_fixed(path);
    let (mode, least) = match mode {
        OpenMode::Create(len) if fixed => (OpenMode::Write, len),
        other => (other, 0),
    };
    let part = part(disk(path, mode, elsewhere)?, location)?;
    if part.len() < least {
        let problem = format!("has {} bytes, but {least} are needed", part.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(part)
}

/// Most forks of forks.
#[cfg(feature = "forks")]
pub(crate) const FORKS_MAX: u32 = 16;

/// Opens a whole disk: a file, a block device, an image in a format that is known, or a fork.
fn disk(path: &Path, mode: OpenMode, elsewhere: Elsewhere<'_>) -> io::Result<Arc<dyn BlockDev>> {
    disk_below(path, mode, 0, elsewhere)
}

/// Opens a whole disk that is the base of so many forks.
fn disk_below(
    path: &Path,
    mode: OpenMode,
    forks: u32,
    elsewhere: Elsewhere<'_>,
) -> io::Result<Arc<dyn BlockDev>> {
    let dev = FileDev::open(path, mode)?;
    let vhd = dev.as_file().filter(|_| dev.is_regular()).map(vhd_len).transpose()?.flatten();
    if let Some(len) = vhd {
        return Ok(Arc::new(Slice::new(Arc::new(dev), 0, len)?));
    }
    let Some(file) = dev.as_file().filter(|_| dev.is_regular()) else { return Ok(Arc::new(dev)) };
    let disk = if is_qcow2(file)? {
        qcow2(file, path, mode != OpenMode::Read)?
    } else if let Some(format) = Foreign::of(file)? {
        foreign(file, format, mode)?
    } else {
        return fork_or_raw(dev, path, forks, elsewhere);
    };
    Ok(Arc::new(InFile { disk, _file: dev }))
}

/// A disk in an image with tables, with the file in which it lies, and so with its lock.
struct InFile {
    disk: Arc<dyn BlockDev>,
    _file: FileDev,
}

impl BlockDev for InFile {
    uxfs_disk::forward!(self => self.disk; len, read_at, write_at, write_vectored_at, write_bulk_at,
        has_fua, write_fua_at, flush, discard, will_read, will_write_bulk, zero, allocate, check_present, warning, read_only,
        sector_size, lengthen, as_file);
}

#[cfg(feature = "forks")]
fn fork_or_raw(
    dev: FileDev,
    path: &Path,
    forks: u32,
    elsewhere: Elsewhere<'_>,
) -> io::Result<Arc<dyn BlockDev>> {
    if !dev.as_file().is_some_and(|file| uxfs_fork::is_fork(file).unwrap_or(false)) {
        return Ok(Arc::new(dev));
    }
    if forks == FORKS_MAX {
        let text = format!("more than {FORKS_MAX} forks of forks: commit some of them");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let open_base = |base: &Path| match uxfs_fork::is_address(base) {
        true => elsewhere(base),
        false => disk_below(base, OpenMode::Read, forks + 1, elsewhere),
    };
    Ok(Arc::new(uxfs_fork::ForkDev::open(dev, path, &open_base)?))
}

#[cfg(not(feature = "forks"))]
fn fork_or_raw(
    dev: FileDev,
    _: &Path,
    _forks: u32,
    _elsewhere: Elsewhere<'_>,
) -> io::Result<Arc<dyn BlockDev>> {
    Ok(Arc::new(dev))
}

/// Gives a whole disk another length, durably: a raw image, a qcow2 image, or a VHD image of fixed length.
/// What was behind the new end is lost; what is new reads as zeroes.
///
/// # Errors
/// The errors of [`open`]; those of the host; [`io::ErrorKind::InvalidInput`] if the path is no regular
/// file.
pub fn set_disk_len(path: &Path, len: u64) -> io::Result<()> {
    let dev = FileDev::open(path, OpenMode::Write)?;
    let Some(file) = dev.as_file().filter(|_| dev.is_regular()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    };
    if vhd_len(file)?.is_some() {
        return uxfs_disk::set_vhd_len(file, len);
    }
    if is_qcow2(file)? {
        return set_qcow2_len(file, path, len);
    }
    if holds_fork(path) {
        let text =
            "is a fork, which has the length of its base: resize the base, or a copy of the fork";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    if let Some(format) = Foreign::of(file)? {
        return foreign(file, format, OpenMode::Write).map(drop);
    }
    file.set_len(len)?;
    file.sync_all()
}

#[cfg(feature = "qcow2")]
fn set_qcow2_len(file: &File, path: &Path, len: u64) -> io::Result<()> {
    Qcow2Dev::open(file, path, true)?.set_len(len)
}

#[cfg(not(feature = "qcow2"))]
fn set_qcow2_len(_: &File, _: &Path, _len: u64) -> io::Result<()> {
    Err(no_qcow2())
}

#[cfg(feature = "vm-images")]
fn foreign(file: &File, format: Foreign, mode: OpenMode) -> io::Result<Arc<dyn BlockDev>> {
    if mode == OpenMode::Read {
        return Ok(Arc::new(uxfs_disk::ForeignDev::open(file, format)?));
    }
    let text = format!(
        "is a {} image, which uxfs only reads: convert it by qemu-img convert -O raw, or -O qcow2",
        format.name()
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg(not(feature = "vm-images"))]
fn foreign(_: &File, format: Foreign, _mode: OpenMode) -> io::Result<Arc<dyn BlockDev>> {
    Err(uxfs_disk::not_built(format))
}

#[cfg(feature = "qcow2")]
fn qcow2(file: &std::fs::File, path: &Path, write: bool) -> io::Result<Arc<dyn BlockDev>> {
    Ok(Arc::new(Qcow2Dev::open(file, path, write)?))
}

#[cfg(not(feature = "qcow2"))]
fn qcow2(_: &std::fs::File, _: &Path, _write: bool) -> io::Result<Arc<dyn BlockDev>> {
    Err(no_qcow2())
}

/// The error of a build without the feature.
#[cfg(not(feature = "qcow2"))]
fn no_qcow2() -> io::Error {
    let text = "a qcow2 image, which this build does not read or write (feature 'qcow2')";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn holds_qcow2(path: &Path) -> bool {
    regular(path).is_some_and(|file| is_qcow2(&file).unwrap_or(false))
}

/// Does the file hold a disk whose length is not the file's?
fn holds_fixed(path: &Path) -> bool {
    holds_qcow2(path) || holds_vhd(path) || holds_fork(path)
}

#[cfg(feature = "forks")]
fn holds_fork(path: &Path) -> bool {
    regular(path).is_some_and(|file| uxfs_fork::is_fork(&file).unwrap_or(false))
}

#[cfg(not(feature = "forks"))]
fn holds_fork(_: &Path) -> bool {
    false
}

fn holds_vhd(path: &Path) -> bool {
    regular(path).is_some_and(|file| vhd_len(&file).is_ok_and(|len| len.is_some()))
}

fn regular(path: &Path) -> Option<File> {
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    regular.then(|| File::open(path).ok()).flatten()
}

/// Disk image formats that uxfs does not write, by file name extension.
const FOREIGN: [&str; 7] = ["vmdk", "vhdx", "vhd", "vpc", "vdi", "qcow", "qed"];

/// Prepares `path` for a new volume of `len` bytes that takes the whole file: creates a qcow2 image
/// if the name ends in `.qcow2` and the file is empty or missing.
///
/// # Errors
/// The errors of [`wants_qcow2`] and of writing.
pub fn prepare(path: &Path, len: u64, location: &Location) -> io::Result<()> {
    if !wants_qcow2(path, location)? {
        return Ok(());
    }
    new_qcow2(path, len)
}

#[cfg(feature = "qcow2")]
fn new_qcow2(path: &Path, len: u64) -> io::Result<()> {
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    create_qcow2(open.open(path)?, path, len)
}

#[cfg(not(feature = "qcow2"))]
fn new_qcow2(_: &Path, _len: u64) -> io::Result<()> {
    Err(no_qcow2())
}

/// True if the name of a volume to be created ends in `.qcow2` and the file is not a qcow2 image
/// yet.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the name's extension is that of a format that uxfs does not
/// write; the text says what to do.
pub fn wants_qcow2(path: &Path, location: &Location) -> io::Result<bool> {
    let refused = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    let Some(ending) = ending.as_ref().and_then(|ending| ending.to_str()) else { return Ok(false) };
    let there = std::fs::metadata(path).ok();
    if !location.is_whole() || there.as_ref().is_some_and(|meta| !meta.is_file()) {
        return Ok(false);
    }
    let raw = path.with_extension("img");
    let (name, raw) = (path.display(), raw.display());
    if FOREIGN.contains(&ending) {
        let format = if ending == "vhd" { "vpc" } else { ending };
        return refused(format!(
            "is named as a {ending} image, which uxfs does not write: make {raw}, then \
             'qemu-img convert -O {format} {raw} {name}'"
        ));
    }
    if ending != "qcow2" || holds_qcow2(path) {
        return Ok(false);
    }
    if there.is_some_and(|meta| meta.len() > 0) {
        return refused(
            "is named as a qcow2 image, but is not one: remove it, or give another name".into(),
        );
    }
    Ok(true)
}

/// The length in bytes of a target that an import cannot extend or truncate: a block device, a
/// qcow2 or VHD image or a part of a disk. `None` for a raw regular file as a whole.
///
/// # Errors
/// The errors of [`open`] for reading.
pub fn fixed_len(path: &Path, location: &Location) -> io::Result<Option<u64>> {
    let raw = std::fs::metadata(path)?.is_file() && !holds_fixed(path);
    if location.is_whole() && raw {
        return Ok(None);
    }
    Ok(Some(open(path, OpenMode::Read, location)?.len()))
}

/// The part of an open disk that holds a volume.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if the partition does not exist; [`io::ErrorKind::InvalidInput`] if the part
/// does not lie completely on the disk.
pub fn part(disk: Arc<dyn BlockDev>, location: &Location) -> io::Result<Arc<dyn BlockDev>> {
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem);
    match (&location.partition, location.offset) {
        (Some(_), Some(_)) => Err(invalid("give either an offset or a partition")),
        (None, None) => Ok(disk),
        (None, Some(offset)) => Ok(Arc::new(Slice::from(disk, offset)?)),
        (Some(wanted), None) => {
            let Some(table) = Table::read(&*disk)? else {
                return Err(invalid("a partition was given, but the disk has no partition table"));
            };
            Ok(Arc::new(table.find(wanted)?.open(disk)?))
        }
    }
}

#[cfg(feature = "mkfs")]
/// Says what a device holds instead of an XFS volume and what to do about it. `None` if the content
/// is XFS or unknown.
pub fn describe(disk: &Arc<dyn BlockDev>, location: &Location) -> Option<String> {
    if signature::existing(&**disk).is_ok_and(|name| name == Some("xfs")) {
        return None;
    }
    if location.is_whole()
        && let Some(hint) = partitions_hint(disk)
    {
        return Some(hint);
    }
    let content = signature::content(&**disk).ok()??;
    let what = match content.advice {
        Some(advice) => format!("{}: {advice}", content.words),
        None => content.words.to_owned(),
    };
    Some(what)
}

/// If `disk` is partitioned, says so and lists the partitions that hold XFS: a hint for users that
/// took the disk for a volume. `None` if there is no partition table.
pub fn partitions_hint(disk: &Arc<dyn BlockDev>) -> Option<String> {
    let table = match Table::read(&**disk) {
        Ok(table) => table?,
        Err(error) => return Some(format!("a partitioned disk, but: {error}")),
    };
    let starts_with_xfs = |start: u64| {
        let mut magic = [0; 4];
        disk.read_at(start, &mut magic).is_ok() && superblock::has_magic(&magic)
    };
    let with_xfs: Vec<String> = table
        .partitions
        .iter()
        .filter(|partition| starts_with_xfs(partition.start))
        .map(ToString::to_string)
        .collect();
    let rest = if with_xfs.is_empty() {
        "none of its partitions holds XFS".to_owned()
    } else {
        format!("choose one with --partition; these hold XFS: {}", with_xfs.join(", "))
    };
    Some(format!("a partitioned disk ({}): {rest}", table.kind))
}
