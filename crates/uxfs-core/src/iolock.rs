//! Locks of the content of files (XFS' iolock): a change of content that takes several transactions is
//! atomic to all other users of the content.
//!
//! 1. They are taken before all other locks; several of them in the order of their shards.
//! 2. Files may share a lock: a holder of one takes no other, except by [`IoLocks::change_all`].

use uxfs_format::Ino;
use uxfs_sync::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};

const SHARDS: usize = 256;

/// The iolocks of all files.
pub(crate) struct IoLocks([RwLock<()>; SHARDS]);

impl Default for IoLocks {
    fn default() -> Self {
        Self(core::array::from_fn(|_| RwLock::ranked(Rank::IoLock, ())))
    }
}

fn shard(ino: Ino) -> usize {
    (ino.0 % SHARDS as u64) as usize
}

impl IoLocks {
    /// Locks a file for reading its content.
    pub(crate) fn read(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.0[shard(ino)].read()
    }

    /// Locks a file for changing its content.
    pub(crate) fn change(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        self.0[shard(ino)].write()
    }

    /// Locks several files for changing their content.
    pub(crate) fn change_all(&self, inos: &[Ino]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut shards: Vec<usize> = inos.iter().map(|ino| shard(*ino)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| self.0[shard].write()).collect()
    }
}
