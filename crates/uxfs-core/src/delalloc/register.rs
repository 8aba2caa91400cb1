//! The register of files with data in memory only, and their shared resources: memory, reserved
//! blocks, errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use uxfs_format::Ino;
use uxfs_sync::{Mutex, Rank};

use super::errors::Errors;
use super::file::{File, Pages};
use super::options::WritebackOptions;
use super::page::Memory;
use super::policy::Policy;
use crate::dquot::Limiting;
use crate::inode::{InodeRef, InodeState};
use crate::limits::TREE_BLOCKS;
use crate::reserve_floor::ReserveFloor;

const SHARDS: usize = 16;
/// Blocks kept reserved for btrees during write-back, in addition to each file's own.
pub(super) const POOL: u64 = 2 * TREE_BLOCKS;

/// Log space for each run of dirty blocks, in bytes, until an epoch has shown how much they take.
const RUN_LOG_BYTES: u64 = 8 << 10;

/// Files in the order in which they became dirty.
#[derive(Default)]
pub(super) struct Order {
    pub(super) next: u64,
    pub(super) files: BTreeMap<u64, Ino>,
}

/// The dirty data of an open volume.
pub(crate) struct Delalloc {
    pub(super) options: WritebackOptions,
    pub(super) shards: [Mutex<FxHashMap<u64, Arc<File>>>; SHARDS],
    pub(super) order: Mutex<Order>,
    pub(super) memory: Arc<Memory>,
    /// Blocks of [`POOL`] that are available.
    pub(super) pool: Mutex<u64>,
    /// Also counts the files on the register, so that readers can skip an empty register.
    pub(super) floor: Arc<ReserveFloor>,
    pub(super) errors: Mutex<Errors>,
    pub(super) policy: Mutex<Policy>,
    /// In ordered mode: runs of dirty blocks since the last epoch, and the log space that each may take.
    pub(crate) runs: AtomicU64,
    pub(crate) run_log_bytes: AtomicU64,
}

impl Delalloc {
    /// Creates an empty register.
    pub(crate) fn new(options: WritebackOptions, floor: Arc<ReserveFloor>) -> Self {
        Self {
            options,
            shards: core::array::from_fn(|_| Mutex::ranked(Rank::DirtyFiles, FxHashMap::default())),
            order: Mutex::default(),
            memory: Arc::default(),
            pool: Mutex::new(0),
            floor,
            errors: Mutex::default(),
            policy: Mutex::new(Policy::new(options)),
            runs: AtomicU64::new(0),
            run_log_bytes: AtomicU64::new(RUN_LOG_BYTES),
        }
    }

    pub(super) fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<u64, Arc<File>>> {
        &self.shards[(ino.0 as usize / 2) % SHARDS]
    }

    /// The changes of a file, if it has any.
    pub(crate) fn file(&self, ino: Ino) -> Option<Arc<File>> {
        if self.floor.files.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shard(ino).lock().get(&ino.0).cloned()
    }

    /// The changes of a file; registers it if necessary.
    pub(super) fn file_or_new(
        &self,
        cell: &InodeRef,
        inode: &InodeState,
        limits: Limiting,
    ) -> Arc<File> {
        let mut shard = self.shard(inode.ino).lock();
        let made = || {
            self.floor.files.fetch_add(1, Ordering::AcqRel);
            Arc::new(File::new(inode.ino, Arc::clone(cell), &self.memory, limits))
        };
        Arc::clone(shard.entry(inode.ino.0).or_insert_with(made))
    }

    /// Is there any file with data or times in memory only?
    pub(crate) fn is_dirty(&self) -> bool {
        self.floor.files.load(Ordering::Acquire) > 0
    }

    /// All registered files, in order of inode numbers.
    pub(super) fn all(&self) -> Vec<Arc<File>> {
        let mut all = Vec::with_capacity(self.floor.files.load(Ordering::Relaxed));
        for shard in &self.shards {
            all.extend(shard.lock().values().cloned());
        }
        all.sort_unstable_by_key(|file| file.ino);
        all
    }

    /// Files with data in memory only, with their number of dirty blocks, in order of inode
    /// numbers.
    pub(crate) fn by_file(&self) -> Vec<(Ino, u64)> {
        let all = self.all().into_iter().map(|file| (file.ino, file.pages().map.len() as u64));
        all.filter(|(_, blocks)| *blocks > 0).collect()
    }

    /// The files that have been dirty longest: at most `most` files with a turn below `below`, in
    /// order of inode numbers.
    pub(super) fn oldest(&self, below: u64, most: usize) -> Vec<Arc<File>> {
        let inos: Vec<Ino> = {
            let order = self.order.lock();
            order.files.range(..below).take(most).map(|(_, ino)| *ino).collect()
        };
        let mut files: Vec<_> = inos.into_iter().filter_map(|ino| self.file(ino)).collect();
        files.sort_unstable_by_key(|file| file.ino);
        files
    }

    /// Gives a dirty file a turn, unless it has one.
    pub(super) fn take_turn(&self, file: &File, pages: &mut Pages) {
        if pages.turn.is_none() && !pages.gone {
            let mut order = self.order.lock();
            let turn = order.next;
            order.next += 1;
            order.files.insert(turn, file.ino);
            pages.turn = Some(turn);
        }
    }

    /// Takes a file's turn away: nothing is dirty, or it is about to be written.
    pub(super) fn leave_turn(&self, pages: &mut Pages) {
        if let Some(turn) = pages.turn.take() {
            self.order.lock().files.remove(&turn);
        }
    }

    /// Removes a file from the register if nothing is dirty; otherwise makes sure that it has a
    /// turn.
    pub(super) fn update_entry(&self, file: &File) {
        let inode = uxfs_sync::read(&file.cell);
        let mut shard = self.shard(file.ino).lock();
        let mut pages = file.pages();
        if pages.gone {
            return;
        }
        if !pages.map.is_empty() || inode.log.unlogged.is_some() {
            return self.take_turn(file, &mut pages);
        }
        self.unregister(&mut shard, file, &mut pages);
    }

    pub(super) fn unregister(
        &self,
        shard: &mut FxHashMap<u64, Arc<File>>,
        file: &File,
        pages: &mut Pages,
    ) {
        self.leave_turn(pages);
        pages.gone = true;
        shard.remove(&file.ino.0);
        self.floor.files.fetch_sub(1, Ordering::AcqRel);
    }

    /// Blocks in the pool.
    pub(crate) fn pooled(&self) -> u64 {
        *self.pool.lock()
    }

    /// Returns blocks reserved for btrees to the pool, and returns how many the pool did not need.
    pub(super) fn refill(&self, blocks: u64) -> u64 {
        let mut pool = self.pool.lock();
        let taken = blocks.min(POOL.saturating_sub(*pool));
        *pool += taken;
        blocks - taken
    }
}
