//! From the name of a file to the device that holds a volume: a whole file, block device or qcow2
//! image, what lies behind an offset in it, or a partition of it.
//!
//! 1. A disk of which only a part is wanted is never cut, lengthened or emptied, whatever the mode.
//! 2. Locks are on the whole file: two parts of one disk are not written at once.
//!
//! Called by whoever opens an image by name: the command, import, resize.

use std::io;
use std::path::Path;
use std::sync::Arc;

use uxfs_disk::partition::Table;
use uxfs_disk::{BlockDev, FileDev, OpenMode, Qcow2Dev, Slice, create_qcow2, is_qcow2};
use uxfs_format::superblock::MAGIC;
use uxfs_mkfs::signature;

/// Where in a file or on a device a volume lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// Bytes before it.
    pub offset: Option<u64>,
    /// Number, label or PARTUUID of its partition. Not together with `offset`.
    pub partition: Option<String>,
}

impl Place {
    /// The whole file or device.
    pub fn whole() -> Self {
        Self::default()
    }

    /// What lies behind `offset` bytes.
    pub fn offset(offset: u64) -> Self {
        Self { offset: Some(offset), partition: None }
    }

    /// The partition with this number, or else this label or PARTUUID.
    pub fn partition(wanted: impl Into<String>) -> Self {
        Self { offset: None, partition: Some(wanted.into()) }
    }

    /// Is it the whole file or device?
    pub fn is_whole(&self) -> bool {
        self.offset.is_none() && self.partition.is_none()
    }
}

/// Opens the device that holds a volume. With [`OpenMode::Create`] a whole regular file is made
/// anew; a part of a disk has to be there, and to be long enough.
///
/// # Errors
/// As [`FileDev::open`]; [`io::ErrorKind::NotFound`] for a partition that is not there, and
/// [`io::ErrorKind::InvalidInput`] for a part that is not all on the device.
pub fn open(path: &Path, mode: OpenMode, place: &Place) -> io::Result<Arc<dyn BlockDev>> {
    let fixed = !place.is_whole() || holds_qcow2(path);
    let (mode, least) = match mode {
        OpenMode::Create(len) if fixed => (OpenMode::Write, len),
        other => (other, 0),
    };
    let part = part(disk(path, mode)?, place)?;
    if part.len() < least {
        let problem = format!("has {} bytes where {least} are needed", part.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(part)
}

/// A whole disk: in a file, on a block device, or in a qcow2 image.
fn disk(path: &Path, mode: OpenMode) -> io::Result<Arc<dyn BlockDev>> {
    let dev = FileDev::open(path, mode)?;
    match dev.as_file() {
        // The image keeps the file, and with it the lock.
        Some(file) if dev.is_regular() && is_qcow2(file)? => {
            Ok(Arc::new(Qcow2Dev::open(file, path, mode != OpenMode::Read)?))
        }
        _ => Ok(Arc::new(dev)),
    }
}

fn holds_qcow2(path: &Path) -> bool {
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    regular && std::fs::File::open(path).and_then(|file| is_qcow2(&file)).unwrap_or(false)
}

/// Formats of disk images that are made elsewhere, by the endings of their names.
const FOREIGN: [&str; 7] = ["vmdk", "vhdx", "vhd", "vpc", "vdi", "qcow", "qed"];

/// Before a volume of `len` bytes is made as the whole of `path`: where its name says qcow2, a file
/// that is empty, or not there, becomes such an image.
///
/// # Errors
/// As [`wants_qcow2`], and those of writing.
pub fn prepare(path: &Path, len: u64, place: &Place) -> io::Result<()> {
    if !wants_qcow2(path, place)? {
        return Ok(());
    }
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    create_qcow2(open.open(path)?, path, len)
}

/// Does the name of what is to be made say that it is a qcow2 image, and it is none yet?
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a name that says what is not done, with what to do.
pub fn wants_qcow2(path: &Path, place: &Place) -> io::Result<bool> {
    let refused = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    let Some(ending) = ending.as_ref().and_then(|ending| ending.to_str()) else { return Ok(false) };
    let there = std::fs::metadata(path).ok();
    if !place.is_whole() || there.as_ref().is_some_and(|meta| !meta.is_file()) {
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
            "is named as a qcow2 image, and holds none: remove it, or give another name".into(),
        );
    }
    Ok(true)
}

/// Bytes of what cannot be made longer or shorter by whoever fills it: a block device, a qcow2
/// image, or a part of a disk. `None` for a raw regular file as a whole.
///
/// # Errors
/// As [`open`] for reading.
pub fn fixed_len(path: &Path, place: &Place) -> io::Result<Option<u64>> {
    if place.is_whole() && std::fs::metadata(path)?.is_file() && !holds_qcow2(path) {
        return Ok(None);
    }
    Ok(Some(open(path, OpenMode::Read, place)?.len()))
}

fn part(disk: Arc<dyn BlockDev>, place: &Place) -> io::Result<Arc<dyn BlockDev>> {
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidInput, problem);
    match (&place.partition, place.offset) {
        (Some(_), Some(_)) => Err(invalid("give either an offset or a partition")),
        (None, None) => Ok(disk),
        (None, Some(offset)) => Ok(Arc::new(Slice::from(disk, offset)?)),
        (Some(wanted), None) => {
            let Some(table) = Table::read(&*disk)? else {
                return Err(invalid("a partition is wanted, but there is no partition table"));
            };
            Ok(Arc::new(table.find(wanted)?.open(disk)?))
        }
    }
}

/// What a device holds instead of a volume, and what to do about it, if it is known.
pub fn describe(disk: &Arc<dyn BlockDev>, place: &Place) -> Option<String> {
    if signature::existing(&**disk).is_ok_and(|name| name == Some("xfs")) {
        return None;
    }
    if place.is_whole()
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

/// Of a whole disk that is partitioned, says so and names the partitions that hold XFS: what to
/// tell whoever took it for a volume. `None` if it is none.
pub fn partitions_hint(disk: &Arc<dyn BlockDev>) -> Option<String> {
    let table = match Table::read(&**disk) {
        Ok(table) => table?,
        Err(error) => return Some(format!("a partitioned disk, but: {error}")),
    };
    let holds_xfs = |start: u64| {
        let mut magic = [0; 4];
        disk.read_at(start, &mut magic).is_ok() && u32::from_be_bytes(magic) == MAGIC
    };
    let with_xfs: Vec<String> = table
        .partitions
        .iter()
        .filter(|partition| holds_xfs(partition.start))
        .map(ToString::to_string)
        .collect();
    let rest = if with_xfs.is_empty() {
        "none of its partitions holds XFS".to_owned()
    } else {
        format!("choose one with --partition; these hold XFS: {}", with_xfs.join(", "))
    };
    Some(format!("a partitioned disk ({}): {rest}", table.kind))
}
