//! What a base is recognized by.

use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use uxfs_delta::Hash;
use uxfs_disk::BlockDev;
use uxfs_host::OsStrExt;

/// Bytes at the beginning that are hashed: of an XFS volume its superblock and the headers of its first
/// group.
const HEAD: usize = 64 << 10;

/// The identity of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The path of its file, relative to the directory of the fork; or the address of a disk elsewhere that never
    /// changes.
    pub path: PathBuf,
    /// Bytes of the disk in it.
    pub len: u64,
    /// When its file was last changed, in nanoseconds since 1970; 0 if the host does not say.
    pub changed: u64,
    /// The hash of its first bytes.
    pub(crate) head: Hash,
}

impl Base {
    /// The identity of an open disk whose file is at `path`, for a fork in `dir`.
    pub(crate) fn of(path: &Path, dir: &Path, disk: &dyn BlockDev) -> io::Result<Self> {
        if is_address(path) {
            return Ok(Self {
                path: path.to_owned(),
                len: disk.len(),
                changed: 0,
                head: head_of(disk)?,
            });
        }
        let whole = path.canonicalize()?;
        let path = match whole.strip_prefix(dir.canonicalize()?) {
            Ok(inside) => inside.to_owned(),
            Err(_) => whole.clone(),
        };
        Ok(Self { path, len: disk.len(), changed: changed(&whole), head: head_of(disk)? })
    }

    /// Its path for a fork in `dir`, or its address.
    pub(crate) fn found_from(&self, dir: &Path) -> PathBuf {
        if is_address(&self.path) { self.path.clone() } else { dir.join(&self.path) }
    }

    /// Takes the time at which the file was last changed as that of the base.
    pub(crate) fn note_time(&mut self, path: &Path) {
        self.changed = changed(path);
    }

    /// Fails unless the open disk, whose file is at `path`, is the one that is recognized.
    pub(crate) fn check(&self, path: &Path, disk: &dyn BlockDev) -> io::Result<()> {
        let what = if disk.len() != self.len {
            "its length is another one"
        } else if head_of(disk)? != self.head {
            "its superblock is another one"
        } else if changed(path) != self.changed {
            "its file was changed, or is a copy with another time; if you know that its content is \
             the same, run uxfs fork --rebase"
        } else {
            return Ok(());
        };
        let text = format!("the base {} is not what it was: {what}", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// Does it name a disk elsewhere, as `scheme://…`? The path of a file that was looked up has no empty part.
pub fn is_address(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(3).any(|part| part == b"://")
}

fn head_of(disk: &dyn BlockDev) -> io::Result<Hash> {
    let mut head = vec![0; disk.len().min(HEAD as u64) as usize];
    disk.read_at(0, &mut head)?;
    Ok(Hash::of(&head))
}

/// When the file was last changed. Device files do not say.
fn changed(path: &Path) -> u64 {
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let time = meta.and_then(|meta| meta.modified().ok());
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    // The nanoseconds of the next 500 years.
    since.map_or(0, |since| since.as_nanos() as u64)
}
