//! Which open directories the kernel may cache the entries of.
//!
//! If one listing stands at an entry that is removed, and another fills the cache anew, the kernel
//! looks for that entry in the cache. It asks the server if it does not find it, but not where the
//! cached entries fill their pages exactly: then the first listing would end early.
//!
//! 1. At most one open handle of a directory uses the cache. It fills the cache anew only when it
//!    lists from the beginning, which ends all its former positions. Other handles send requests,
//!    and continue anywhere.
//! 2. A listing from the cache sends no request that could update the access time. So a handle uses
//!    the cache only where no update is due when it is opened, or where it updates none.

use std::collections::HashSet;

use parking_lot::Mutex;
use uxfs_transport::{Handle, Node};

/// Set in the handle of a directory opened with `O_NOATIME`.
const NOATIME: u64 = 1;
/// Set in a handle that uses the cache.
const CACHED: u64 = 2;

#[derive(Default)]
pub(super) struct OpenDirs {
    cached: Mutex<HashSet<u64>>,
}

impl OpenDirs {
    /// The handle of a directory that is being opened. It uses the kernel's cache if it `may` and no
    /// other does.
    pub(super) fn open(&self, node: Node, no_atime: bool, may: bool) -> Handle {
        let cached = may && self.cached.lock().insert(node.0);
        Handle((u64::from(no_atime) * NOATIME) | (u64::from(cached) * CACHED))
    }

    pub(super) fn release(&self, node: Node, handle: Handle) {
        if uses_cache(handle) {
            self.cached.lock().remove(&node.0);
        }
    }

    /// Forgets all handles, because their kernel is gone.
    pub(super) fn release_all(&self) {
        self.cached.lock().clear();
    }
}

/// Does a handle use the kernel's cache?
pub(super) fn uses_cache(handle: Handle) -> bool {
    handle.0 & CACHED != 0
}

/// Do listings through a handle update the access time?
pub(super) fn updates_atime(handle: Handle) -> bool {
    handle.0 & NOATIME == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_handle_of_a_directory_uses_the_cache() {
        let dirs = OpenDirs::default();
        let first = dirs.open(Node(7), false, true);
        let (second, other) = (dirs.open(Node(7), true, true), dirs.open(Node(8), false, true));
        assert!(uses_cache(first) && !uses_cache(second) && uses_cache(other));
        assert!(updates_atime(first) && !updates_atime(second));
        dirs.release(Node(7), second);
        assert!(!uses_cache(dirs.open(Node(7), false, true)));
        dirs.release(Node(7), first);
        assert!(!uses_cache(dirs.open(Node(7), false, false)));
        assert!(uses_cache(dirs.open(Node(7), false, true)));
        dirs.release_all();
        assert!(uses_cache(dirs.open(Node(7), false, true)));
    }
}
