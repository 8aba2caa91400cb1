//! A FUSE server that does almost nothing: it keeps names in memory and discards writes. With the
//! same crate and settings, no mount can be faster.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, sync::Mutex, sync::PoisonError};

use uxfs_transport::SetAttr;

use super::bare::{self, Content, ENOENT, Node, ROOT};

/// Names are spread over this many tables, each with a lock of its own.
const SHARDS: usize = 64;

/// Names of a shard, with the inode each stands for.
type Names = Mutex<HashMap<(u64, OsString), u64>>;

struct Empty {
    names: [Names; SHARDS],
    next: AtomicU64,
}

/// Mounts the server on a directory and serves it until it is unmounted.
///
/// # Errors
/// The kernel refuses the mount, or serving it fails.
pub fn serve(dir: &Path) -> io::Result<()> {
    let names = core::array::from_fn(|_| Mutex::default());
    bare::serve(Empty { names, next: AtomicU64::new(2) }, "empty", dir)
}

/// All directories but the root have even numbers.
fn node(ino: u64) -> Node {
    Node { ino, is_dir: ino == ROOT || ino.is_multiple_of(2), size: 0 }
}

impl Empty {
    fn names(&self, dir: u64, name: &OsStr) -> &Names {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = name.as_bytes().iter().fold(dir, mix);
        &self.names[(hash % SHARDS as u64) as usize]
    }
}

impl Content for Empty {
    fn find(&self, dir: u64, name: &OsStr) -> io::Result<Option<Node>> {
        let names = self.names(dir, name).lock().unwrap_or_else(PoisonError::into_inner);
        Ok(names.get(&(dir, name.into())).copied().map(node))
    }

    fn node(&self, ino: u64) -> io::Result<Node> {
        Ok(node(ino))
    }

    fn make(&self, dir: u64, name: &OsStr, is_dir: bool) -> io::Result<Node> {
        let ino = 2 * self.next.fetch_add(1, Ordering::Relaxed) + u64::from(!is_dir);
        let mut names = self.names(dir, name).lock().unwrap_or_else(PoisonError::into_inner);
        names.insert((dir, name.into()), ino);
        Ok(node(ino))
    }

    fn remove(&self, dir: u64, name: &OsStr, _: bool) -> io::Result<()> {
        let mut names = self.names(dir, name).lock().unwrap_or_else(PoisonError::into_inner);
        let gone = names.remove(&(dir, name.into()));
        gone.map(drop).ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn change(&self, _: u64, _: &SetAttr) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _: u64, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, _: u64, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
