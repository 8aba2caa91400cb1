//! Inodes in memory, and the cache of them.
//!
//! 1. There is at most one [`InodeState`] for an inode number; all users share it.
//! 2. The state is the truth. The inode's bytes in its cluster buffer are out of date until
//!    [`Inodes::flush`], or an AIL push, writes the state there.
//! 3. A dirty inode is never evicted.
//! 4. Forks are kept as they are on disk, so that writing, logging and undoing are copies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};
use uxfs_format::inode::{Fork, InodeCore};
use uxfs_format::timestamp::Timestamp;
use uxfs_format::verify::{BufKind, Owner};
use uxfs_format::{Check, Geometry, Ino, Place, inode};
use uxfs_sync::{self as sync, Mutex};

use crate::buf::BufRef;
use crate::error::{Error, Result};
use crate::hints::Hints;
use crate::mount::Mount;

bitflags::bitflags! {
    /// Which parts of an inode a transaction changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Changed: u8 {
        /// The core.
        const CORE = 1;
        /// The data fork.
        const DATA = 2;
        /// The attribute fork.
        const ATTR = 4;
    }
}

/// A shared handle on an inode in memory.
pub type InodeRef = Arc<InodeCell>;

/// An inode in memory.
pub type InodeCell = RwLock<InodeState>;

/// An inode in memory.
#[derive(Clone)]
pub struct InodeState {
    /// Its number.
    pub ino: Ino,
    /// Its core, decoded.
    pub core: InodeCore,
    /// The bytes behind the core: data fork, then attribute fork.
    pub literal: Box<[u8]>,
    /// Hints about a directory's content.
    pub(crate) hints: Hints,
    pub(crate) dirty: bool,
    /// The reflink flag is right: a file without it shares no blocks. Not known of an inode that was read.
    pub(crate) sharing_known: bool,
    /// The journal's state of it.
    pub(crate) log: InodeLog,
}

/// The journal's state of an inode.
#[derive(Clone, Copy, Default)]
pub(crate) struct InodeLog {
    /// The checkpoint in which it changed last; 0 for none.
    pub(crate) changed: u64,
    /// Its place in that checkpoint's list.
    pub(crate) slot: u32,
    /// The checkpoint in which something other than times changed last; 0 for none.
    pub(crate) needed: u64,
    /// mtime and ctime as last logged, if those in memory are newer and not logged: writes change
    /// them whose data is not on disk yet.
    pub(crate) unlogged: Option<(Timestamp, Timestamp)>,
    /// The parts that changed since it was last written in place.
    pub(crate) parts: Changed,
    /// Its unlinked list pointer changed since then.
    pub(crate) unlinked: bool,
    /// Regions and bytes that it has in the checkpoint in which it changed last.
    pub(crate) counted: (u32, u32),
}

impl InodeState {
    /// A copy for a write in place, without hints.
    pub(crate) fn copy(&self) -> Self {
        Self {
            core: self.core.clone(),
            literal: self.literal.clone(),
            hints: Hints::default(),
            ..*self
        }
    }

    /// A new inode with empty forks.
    pub(crate) fn new(ino: Ino, core: InodeCore, geo: &Geometry) -> Self {
        let literal = vec![0; geo.literal_len()].into_boxed_slice();
        Self {
            ino,
            core,
            literal,
            hints: Hints::default(),
            dirty: false,
            sharing_known: true,
            log: InodeLog::default(),
        }
    }

    /// The bytes of a fork.
    pub fn fork(&self, fork: Fork) -> &[u8] {
        &self.literal[self.core.fork_range(fork, self.literal.len())]
    }

    /// The bytes of a fork, for change; for transactions only.
    pub(crate) fn fork_mut(&mut self, fork: Fork) -> &mut [u8] {
        let range = self.core.fork_range(fork, self.literal.len());
        &mut self.literal[range]
    }

    /// The core as the journal has it, or will have it when the present transaction commits.
    pub(crate) fn logged_core(&self) -> InodeCore {
        let mut core = self.core.clone();
        (core.mtime, core.ctime) = self.log.unlogged.unwrap_or((core.mtime, core.ctime));
        core
    }

    /// An error about this inode.
    pub fn corrupt(&self, check: Check, detail: impl Into<String>) -> Error {
        Error::corrupt("inode", Place::Inode(self.ino), check, detail)
    }
}

const SHARDS: usize = 16;
/// How often a locked inode that should be free is examined again before it counts as in use, with
/// a pause each time: five seconds in all, on a damaged volume only.
const LOOKS: u32 = 5000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

struct Slot {
    cell: InodeRef,
    used: bool,
}

#[derive(Default)]
struct Shard {
    slots: FxHashMap<u64, Slot>,
    /// Size at which unused inodes are dropped.
    sweep_at: usize,
}

impl Shard {
    /// Drops unused inodes, but not those used lately, if they have a second chance.
    fn sweep(&mut self, second_chance: bool) {
        self.slots.retain(|_, slot| {
            let busy = Arc::strong_count(&slot.cell) > 1;
            core::mem::take(&mut slot.used) && second_chance || busy
        });
        // Most inodes may have to stay. Search again only when as many were added.
        self.sweep_at = 2 * self.slots.len();
    }
}

/// The inodes in memory.
pub struct Inodes {
    shards: [Mutex<Shard>; SHARDS],
    dirty: Mutex<BTreeMap<u64, InodeRef>>,
    dirty_count: AtomicUsize,
    /// Incremented whenever changed state leaves memory. What was read from a cluster before may
    /// then be out of date.
    epoch: AtomicU64,
    /// Blocks of freed inode chunks. On the device they may still hold inodes in use, which must
    /// not be read as such.
    given_back: Mutex<FxHashSet<u64>>,
    /// Most clean inodes of a shard.
    limit: usize,
}

impl Inodes {
    /// An empty cache that keeps about `limit` clean inodes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: core::array::from_fn(|_| Mutex::default()),
            dirty: Mutex::default(),
            dirty_count: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            given_back: Mutex::default(),
            limit: (limit / SHARDS).max(64),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// Number of dirty inodes.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty_count.load(Ordering::Relaxed)
    }

    /// The inode, from memory or from the volume. It may be a free one.
    ///
    /// # Errors
    /// If the number is not possible, or the inode cannot be read or is damaged;
    /// [`Error::Shutdown`].
    pub fn get(&self, fs: &Mount, ino: Ino) -> Result<InodeRef> {
        fs.check_running()?;
        loop {
            if let Some(slot) = self.shard(ino).lock().slots.get_mut(&ino.0) {
                slot.used = true;
                return Ok(Arc::clone(&slot.cell));
            }
            let epoch = self.epoch.load(Ordering::Acquire);
            if self.given_back.lock().contains(&(ino.0 >> fs.geo.inopb_log)) {
                return Err(Error::NotFound);
            }
            let state = read(fs, ino)?;
            let mut shard = self.shard(ino).lock();
            if self.epoch.load(Ordering::Acquire) == epoch {
                return Ok(self.insert_into(&mut shard, state).0);
            }
        }
    }

    /// Adds an inode that was just read or created. If there is one of that number already, returns
    /// that one, and the one that was not added.
    pub(crate) fn insert(&self, state: InodeState) -> (InodeRef, Option<InodeState>) {
        let mut shard = self.shard(state.ino).lock();
        self.insert_into(&mut shard, state)
    }

    fn insert_into(&self, shard: &mut Shard, state: InodeState) -> (InodeRef, Option<InodeState>) {
        let ino = state.ino;
        if let Some(slot) = shard.slots.get(&ino.0) {
            return (Arc::clone(&slot.cell), Some(state));
        }
        let cell = Arc::new(RwLock::new(state));
        shard.slots.insert(ino.0, Slot { cell: Arc::clone(&cell), used: true });
        if shard.slots.len() > shard.sweep_at.max(self.limit) {
            shard.sweep(true);
        }
        (cell, None)
    }

    /// Drops unused clean inodes where there are too many, after many were written in place.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.slots.len() > self.limit {
                shard.sweep(true);
            }
            if shard.slots.len() > self.limit {
                shard.sweep(false);
            }
            if shard.slots.capacity() > 4 * shard.slots.len().max(self.limit) {
                shard.slots.shrink_to_fit();
            }
        }
    }

    /// Number of inodes in memory.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// Is the inode in memory, and free there? Returns `false` if it is not in memory. The caller
    /// has not locked it.
    ///
    /// # Errors
    /// If it is in use.
    pub(crate) fn is_free_in_memory(&self, ino: Ino) -> Result<bool> {
        let cell = match self.shard(ino).lock().slots.get(&ino.0) {
            Some(slot) => Arc::clone(&slot.cell),
            None => return Ok(false),
        };
        // No thread can be changing a free inode, because freeing one takes its group's lock. A
        // thread that still knows its number may lock it to find that it is free, and waits for
        // nothing meanwhile. A thread that has locked one in use may be waiting for locks held
        // here.
        let looks = (0..LOOKS).find_map(|look| {
            if look > 0 {
                sync::pause(BETWEEN_LOOKS);
            }
            cell.try_read()
        });
        if looks.is_some_and(|state| state.core.mode == 0) {
            return Ok(true);
        }
        let problem = "is in use, against its chunk's record";
        Err(Error::corrupt("inode", Place::Inode(ino), Check::State, problem))
    }

    /// Drops `count` inodes from `first` on, whose chunk was freed.
    pub(crate) fn chunk_gone(&self, geo: &Geometry, first: Ino, count: u32) {
        self.given_back.lock().extend(blocks_of(geo, first, count));
        for ino in first.0..first.0 + u64::from(count) {
            self.forget(Ino(ino));
        }
    }

    /// Allows `count` inodes from `first` on to be read, which are those of a new chunk.
    pub(crate) fn chunk_made(&self, geo: &Geometry, first: Ino, count: u32) {
        let mut given_back = self.given_back.lock();
        if !given_back.is_empty() {
            for block in blocks_of(geo, first, count) {
                given_back.remove(&block);
            }
        }
    }

    /// Drops an inode whose state in memory is no longer valid.
    pub(crate) fn forget(&self, ino: Ino) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.shard(ino).lock().slots.remove(&ino.0);
        if self.dirty.lock().remove(&ino.0).is_some() {
            self.dirty_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds an inode whose change was committed to the dirty set.
    pub(crate) fn mark_dirty(&self, cell: &InodeRef, state: &mut InodeState) {
        // A dirty inode is held by the dirty set, so it is not evicted.
        if !core::mem::replace(&mut state.dirty, true) {
            self.dirty.lock().insert(state.ino.0, Arc::clone(cell));
            self.dirty_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that an inode was written in place and has not changed since.
    pub(crate) fn mark_clean(&self, state: &mut InodeState) {
        state.log.parts = Changed::empty();
        state.log.unlinked = false;
        if core::mem::take(&mut state.dirty) {
            self.epoch.fetch_add(1, Ordering::AcqRel);
            if self.dirty.lock().remove(&state.ino.0).is_some() {
                self.dirty_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The inodes in memory of `count` from `first` on.
    pub(crate) fn in_memory(&self, first: Ino, count: u32) -> Vec<(Ino, InodeRef)> {
        let all = (first.0..first.0 + u64::from(count)).map(Ino);
        all.filter_map(|ino| {
            let shard = self.shard(ino).lock();
            shard.slots.get(&ino.0).map(|slot| (ino, Arc::clone(&slot.cell)))
        })
        .collect()
    }

    /// Writes dirty inodes into their cluster buffers, in ascending order, until `most` bytes of buffers are
    /// dirty. Returns whether there are more. The caller has closed the gate.
    pub(crate) fn flush(&self, fs: &Mount, most: usize) -> Result<bool> {
        let mut cluster: Option<BufRef> = None;
        while let Some((ino, cell)) = self.take_dirty() {
            let ino = Ino(ino);
            let mut state = sync::write(&cell);
            let (daddr, offset) = locate(&fs.geo, ino);
            let buf = match cluster.take() {
                Some(buf) if buf.daddr() == daddr => buf,
                _ => read_cluster(fs, ino)?.0,
            };
            let size = fs.geo.inode_size as usize;
            let mut content = buf.content.write();
            let raw = &mut content.bytes[offset..offset + size];
            raw[inode::CORE_LEN..].copy_from_slice(&state.literal);
            state.core.encode(raw, ino, &fs.geo.meta_uuid);
            state.dirty = false;
            self.epoch.fetch_add(1, Ordering::AcqRel);
            drop(content);
            fs.bufs.mark_dirty(&buf);
            if fs.bufs.dirty_bytes() >= most {
                return Ok(self.dirty_count() > 0);
            }
            cluster = Some(buf);
        }
        Ok(false)
    }

    /// The first dirty inode. The caller makes it clean.
    fn take_dirty(&self) -> Option<(u64, InodeRef)> {
        let first = self.dirty.lock().pop_first()?;
        self.dirty_count.fetch_sub(1, Ordering::Relaxed);
        Some(first)
    }
}

fn blocks_of(geo: &Geometry, first: Ino, count: u32) -> core::ops::RangeInclusive<u64> {
    let last = first.0 + u64::from(count.saturating_sub(1));
    first.0 >> geo.inopb_log..=last >> geo.inopb_log
}

/// Where an inode lies: the address of its cluster and its offset there.
pub(crate) fn locate(geo: &Geometry, ino: Ino) -> (uxfs_format::Daddr, usize) {
    let (block, offset) = geo.cluster_of(geo.ino_agino(ino));
    (geo.ag_daddr(geo.ino_ag(ino), block), offset)
}

/// The cluster buffer of an inode, and the inode's offset in it.
pub(crate) fn read_cluster(fs: &Mount, ino: Ino) -> Result<(BufRef, usize)> {
    let (daddr, offset) = locate(&fs.geo, ino);
    let len = fs.geo.cluster_blocks() << fs.geo.block_log;
    let buf = fs.bufs.get(daddr, len, &[BufKind::InodeCluster], Owner::Volume)?;
    Ok((buf, offset))
}

fn read(fs: &Mount, ino: Ino) -> Result<InodeState> {
    if !fs.geo.ino_valid(ino) {
        return Err(Error::corrupt(
            "inode",
            Place::Inode(ino),
            Check::Range,
            "lies outside the volume",
        ));
    }
    let (buf, offset) = read_cluster(fs, ino)?;
    let content = buf.read();
    let raw = &content[offset..offset + fs.geo.inode_size as usize];
    let core = match fs.geo.has_crc() {
        true => InodeCore::decode(raw, ino, &fs.geo.meta_uuid)?,
        false => InodeCore::decode_v4(raw, ino)?,
    };
    Ok(InodeState {
        ino,
        core,
        literal: raw[fs.geo.inode_core_len()..].into(),
        hints: Hints::default(),
        dirty: false,
        sharing_known: false,
        log: InodeLog::default(),
    })
}
