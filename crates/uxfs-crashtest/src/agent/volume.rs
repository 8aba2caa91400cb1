//! The mounted disk under test, and its files as a tree.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{lgetxattr, llistxattr};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use twox_hash::XxHash64;

use super::seen::Seen;
use crate::tree::{BYTES_MAX, Kind, Node, Tree};

/// Most bytes of an attribute's value, and of the names of a file's attributes.
const XATTR_MAX: usize = 64 << 10;

pub(crate) struct Volume {
    at: PathBuf,
    root: Seen,
}

impl Volume {
    /// Mounts a disk, which recovers it.
    pub(crate) fn mount(disk: &Path, fs: &str, options: &str, at: &Path) -> io::Result<Self> {
        let options = CString::new(options)?;
        mount(disk, at, fs, MountFlags::empty(), options.as_c_str())?;
        Ok(Self { at: at.to_owned(), root: Seen::of(at)? })
    }

    pub(crate) fn unmount(&self) -> io::Result<()> {
        Ok(unmount(&self.at, UnmountFlags::empty())?)
    }

    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// Is the file on it?
    pub(crate) fn has(&self, file: &Seen) -> bool {
        file.dev == self.root.dev
    }

    /// Its files; `None` if they are too long.
    pub(crate) fn tree(&self) -> io::Result<Option<Tree>> {
        let mut tree = Tree { root: self.root.ino, nodes: BTreeMap::new() };
        let (mut left, mut bytes) = (vec![self.at.clone()], 0);
        while let Some(path) = left.pop() {
            let named = |error| named(error, &path, &self.at);
            let seen = Seen::of(&path).map_err(named)?;
            if tree.nodes.contains_key(&seen.ino) {
                continue;
            }
            let kind = if seen.is_dir() {
                let mut names = BTreeMap::new();
                for entry in std::fs::read_dir(&path).map_err(named)? {
                    let entry = entry.map_err(named)?;
                    let below = Seen::of(&entry.path()).map_err(named)?;
                    names.insert(entry.file_name().into_vec(), below.ino);
                    left.push(entry.path());
                }
                Kind::Dir(names)
            } else if seen.is_file() {
                bytes += seen.size;
                if bytes > BYTES_MAX {
                    return Ok(None);
                }
                let mut content = Vec::new();
                open(&path).and_then(|mut file| file.read_to_end(&mut content)).map_err(named)?;
                Kind::File(Arc::new(content))
            } else if seen.is_symlink() {
                Kind::Symlink(std::fs::read_link(&path).map_err(named)?.into_os_string().into_vec())
            } else {
                Kind::Other
            };
            let attributes = attributes(&path, &seen).map_err(named)?;
            let node = Node { kind, mode: seen.mode, generation: seen.generation, attributes };
            tree.nodes.insert(seen.ino, node);
        }
        Ok(Some(tree))
    }
}

/// Opens a file for reading, and leaves its time of access.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NOATIME).open(path)
}

/// An error with the path in the volume.
fn named(error: io::Error, path: &Path, root: &Path) -> io::Error {
    let path = path.strip_prefix(root).unwrap_or(path).display();
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// A digest of what a program sees of a file beside its content.
fn attributes(path: &Path, seen: &Seen) -> io::Result<u64> {
    let mut hasher = XxHash64::with_seed(0);
    (seen.owner, seen.links, seen.rdev, seen.changed).hash(&mut hasher);
    let mut names = vec![0; XATTR_MAX];
    let len = match llistxattr(path, &mut names) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<&[u8]> = names[..len].split(|byte| *byte == 0).collect();
    names.sort_unstable();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_MAX];
        let len = lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value)?;
        (name, &value[..len]).hash(&mut hasher);
    }
    Ok(hasher.finish())
}
