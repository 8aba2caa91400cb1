//! Forks of images: copy-on-write children, made in milliseconds whatever the size of the base.
//!
//! A fork is a file that names its base and holds what was changed since. It is opened as any image
//! ([`crate::volume::open`]); `uxfs-fork` has its format.
//!
//! 1. The base stays as it is, and cannot be written while a child of it is open.
//! 2. [`commit`] writes a child's changes into its base. Meanwhile the base's superblock says that the
//!    volume is unfinished, so that after a power cut nothing takes it for whole; the commit is then run
//!    again. Other children of the base are useless afterwards, and refused.
//!
//! ```
//! use uxfs::disk::OpenMode;
//! use uxfs::volume::{self, Location};
//! use uxfs::{Fs, NewInode, OpenOptions, forks, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let (base, child) = (dir.path().join("base.img"), dir.path().join("child"));
//! let open = |path, mode| volume::open(path, mode, &Location::whole());
//! let dev = open(&base, OpenMode::Create(400 << 20))?;
//! mkfs::write(&mkfs::Layout::new(&mkfs::Options::default(), dev.len())?, &*dev, &Default::default())?;
//! drop(dev);
//!
//! forks::create(&base, &child)?;
//! let fs = Fs::open(open(&child, OpenMode::Write)?, OpenOptions::default())?;
//! fs.create(fs.root(), b"only in the child", &NewInode::file(0o644))?;
//! fs.close()?;
//!
//! let fs = Fs::open(open(&base, OpenMode::Read)?, OpenOptions::read_only())?;
//! assert!(fs.resolve(b"/only in the child", true).is_err());
//! fs.close()?;
//! forks::commit(&child)?;
//! let fs = Fs::open(open(&base, OpenMode::Read)?, OpenOptions::read_only())?;
//! assert!(fs.resolve(b"/only in the child", true).is_ok());
//! # Ok(())
//! # }
//! ```

use std::io;
use std::path::{Path, PathBuf};

use uxfs_disk::{BlockDev, FileDev, OpenMode};
pub use uxfs_fork::{Committed, base_of};
use uxfs_format::superblock::{self, Superblock};

use crate::diff::Changed;
use crate::volume::{self, Location};

/// Makes a child of the image `base` in the new file `fork`.
///
/// # Errors
/// Those of [`volume::open`] for the base; [`io::ErrorKind::AlreadyExists`] if there is a file; those of
/// writing it.
pub fn create(base: &Path, fork: &Path) -> io::Result<()> {
    let disk = volume::open(base, OpenMode::Read, &Location::whole())?;
    uxfs_fork::create(fork, base, &*disk)
}

/// As [`create`], of an open disk. `base` is its path, or an address (`scheme://…`) if it is elsewhere and never
/// changes; such a child is opened by [`volume::open_over`].
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is a file; those of writing it.
pub fn create_of(base: &Path, disk: &dyn BlockDev, fork: &Path) -> io::Result<()> {
    uxfs_fork::create(fork, base, disk)
}

/// As [`rebase`], to an open disk, whose path or address is `base`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if its length or superblock is another one; those of the file.
pub fn rebase_to(base: &Path, disk: &dyn BlockDev, fork: &Path) -> io::Result<()> {
    uxfs_fork::rebase(fork, base, disk)
}

/// Gives a child another file as its base: a copy of the old one, or the old one at another place.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if its length or superblock is another one; those of opening both.
pub fn rebase(base: &Path, fork: &Path) -> io::Result<()> {
    let disk = volume::open(base, OpenMode::Read, &Location::whole())?;
    uxfs_fork::rebase(fork, base, &*disk)
}

/// Is the file a fork?
///
/// # Errors
/// Those of reading the file.
pub fn is_fork(path: &Path) -> io::Result<bool> {
    uxfs_fork::is_fork(&std::fs::File::open(path)?)
}

/// Writes a child's changes into its base, after which the child is as its base.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if the base or the child is in use; [`io::ErrorKind::InvalidInput`] if the
/// file is no fork; [`io::ErrorKind::InvalidData`] if it is damaged or the base is not what it was; those of
/// writing, after which the commit has to be run again.
pub fn commit(fork: &Path) -> io::Result<Committed> {
    if !is_fork(fork)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a fork"));
    }
    if uxfs_fork::is_address(&base_of(fork)?) {
        let text = "is a fork of a disk elsewhere, which stays as it is: ship the fork to an address of its own";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let file = FileDev::open(fork, OpenMode::Write)?;
    let open_base = |base: &Path| volume::open(base, OpenMode::Write, &Location::whole());
    uxfs_fork::commit(&file, fork, &open_base, &mark)
}

/// An image, with the runs of blocks in which it may differ from its base.
type Ancestor = (PathBuf, Runs);

/// An image and what it is a child of, from the child on.
fn ancestors(image: &Path) -> io::Result<Vec<Ancestor>> {
    let mut found = Vec::new();
    let whole = |path: &Path| {
        if uxfs_fork::is_address(path) { Ok(path.to_owned()) } else { path.canonicalize() }
    };
    let mut path = whole(image)?;
    // A child of itself would be refused when it is opened.
    while found.len() <= volume::FORKS_MAX as usize
        && !uxfs_fork::is_address(&path)
        && is_fork(&path)?
    {
        let base = whole(&base_of(&path)?)?;
        found.push((path.clone(), uxfs_fork::changes(&path)?));
        path = base;
    }
    found.push((path, Vec::new()));
    Ok(found)
}

/// Runs of blocks of 4 KiB: the first, and how many.
pub type Runs = Vec<(u64, u64)>;

/// Where the disks at two addresses may differ; `None` if that is not known.
pub type Differing<'a> = &'a dyn Fn(&Path, &Path) -> io::Result<Option<Runs>>;

/// The bytes of their disks in which two images may differ: what was changed since they had a common base.
/// `None` if they have none. `elsewhere` gives the runs of blocks in which the disks at two addresses may differ.
///
/// # Errors
/// Those of reading the images; [`io::ErrorKind::ResourceBusy`] if one is being written.
pub fn differing(
    one: &Path,
    other: &Path,
    elsewhere: Differing<'_>,
) -> io::Result<Option<Changed>> {
    let (mut one, mut other) = (ancestors(one)?, ancestors(other)?);
    if let (Some((a, runs)), Some((b, _))) = (one.last_mut(), other.last_mut())
        && a != b
        && uxfs_fork::is_address(a)
        && uxfs_fork::is_address(b)
    {
        // Two disks elsewhere may have a common origin there: the first one is then a child of the second.
        let Some(found) = elsewhere(a, b)? else { return Ok(None) };
        *runs = found;
        let origin = b.clone();
        one.push((origin, Vec::new()));
    }
    let common = one.iter().enumerate().find_map(|(at, (path, _))| {
        other.iter().position(|(candidate, _)| candidate == path).map(|found| (at, found))
    });
    let Some((own, others)) = common else { return Ok(None) };
    let mut changed = Changed::default();
    for (_, runs) in one[..own].iter().chain(&other[..others]) {
        for (first, count) in runs {
            let block = uxfs_fork::BLOCK as u64;
            changed.add(first * block..(first + count) * block);
        }
    }
    Ok(Some(changed))
}

/// Marks a superblock as that of an unfinished volume, or removes the mark.
fn mark(block: &mut [u8], unfinished: bool) {
    let sector = match Superblock::view(block) {
        Some(sb) if superblock::has_magic(block) => usize::from(sb.sectsize.get()),
        _ => return,
    };
    if let Some(sector) = block.get_mut(..sector)
        && let Some(sb) = Superblock::view_mut(sector)
    {
        sb.inprogress = u8::from(unfinished);
        let has_checksum = !sb.is_v4();
        if has_checksum {
            uxfs_format::crc::stamp(sector, superblock::CRC_OFFSET);
        }
    }
}
