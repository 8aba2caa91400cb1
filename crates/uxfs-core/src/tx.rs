//! The transaction: every change to metadata is made in one.
//!
//! A transaction locks what it works on (inodes, then allocation groups), records which 128-byte chunks of
//! which buffers and which parts of which inodes it changes, and ends in a commit or a cancel, of everything
//! or of nothing.
//!
//! 1. It locks inodes first, in ascending order, then allocation groups. A group below one that it holds
//!    already is only tried, never waited for.
//! 2. It keeps the old content of everything that it changes until it ends: dropping a transaction without
//!    a commit puts everything back.
//! 3. Space is reserved before anything changes, so that what was begun can be finished.
//! 4. Freed extents, reverse mappings and reference counts are deferred: they change in the order in which
//!    they were added, after the caller's own changes and before the commit ([`crate::defer`]), in the same
//!    transaction or in further ones after a [`roll`].
//! 5. What it changes in the usage of users, groups and projects changes their dquots as it commits.
//! 6. Inside the gate it never waits for an inode; to wait, it gives up everything that it holds.
//!
//! Called by everything that changes metadata. It commits into the journal's open checkpoint
//! ([`crate::journal`]), or, without a journal, into the dirty sets of buffers and inodes.

mod account;
mod bufs;
mod cancel;
mod commit;
mod groups;
mod label;
mod locks;
mod owed;
mod roll;
pub(crate) mod scratch;

use std::sync::atomic::Ordering;

use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use smallvec::SmallVec;
use uxfs_format::inode::Fork;
use uxfs_format::{AgNo, Check, Ino};
use uxfs_sync::{MutexGuard, RwLockReadGuard};

use crate::ag::AgState;
use crate::deferred::Deferred;
use crate::dquot::{Changes, Holds};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::{Changed, InodeRef, InodeState};
use crate::journal::Op;
use crate::mount::Counters;
pub(crate) use label::label;
use owed::Rolling;
use scratch::{TxBuf, UndoChunk};

/// Granularity at which changes to buffers are recorded: that of XFS' log.
pub const CHUNK: usize = 128;

/// An inode that a transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeSlot(usize);

struct TxInode {
    cell: InodeRef,
    guard: ArcRwLockWriteGuard<RawRwLock, InodeState>,
    before: Option<Box<InodeState>>,
    changed: Changed,
    /// Created in this transaction. A cancel drops it.
    fresh: bool,
    /// Blocks that it holds of the quotas of its owners.
    held: u64,
}

impl TxInode {
    /// Did only times change, and the change count, which each commit moves? fdatasync(2) need not make these
    /// durable: the file's data is found without them.
    fn only_times(&self) -> bool {
        let Some(before) = self.before.as_ref().filter(|_| self.changed == Changed::CORE) else {
            return false;
        };
        let (old, new) = (&before.core, &self.guard.core);
        let mut as_before = new.clone();
        (as_before.atime, as_before.mtime, as_before.ctime) = (old.atime, old.mtime, old.ctime);
        as_before.crtime = old.crtime;
        as_before.changecount = old.changecount;
        as_before == *old
    }
}

/// An open transaction.
pub struct Tx<'fs> {
    fs: &'fs Engine,
    id: u64,
    inodes: SmallVec<[TxInode; 4]>,
    ags: SmallVec<[(AgNo, MutexGuard<'fs, AgState>); 4]>,
    bufs: Vec<TxBuf>,
    undo_chunks: Vec<UndoChunk>,
    undo_bytes: Vec<u8>,
    pub(crate) deferred: Vec<Deferred>,
    rolling: Rolling,
    reserved: u64,
    counters: Counters,
    /// Dquots that it changes.
    dquots: Changes,
    /// What it holds of quotas.
    holds: Holds,
    /// No limits of quotas bind it.
    unlimited: bool,
    gone: Vec<(Ino, u32)>,
    made: Vec<(Ino, u32)>,
    /// Freed buffers that were not in memory: address and bytes.
    forgotten: SmallVec<[(uxfs_format::Daddr, usize); 1]>,
    /// Freed blocks and new inode chunks, for the journal.
    freed: SmallVec<[(AgNo, uxfs_format::AgBlock, u32); 4]>,
    chunks_made: SmallVec<[uxfs_format::log::Icreate; 1]>,
    /// Blocks of groups that it keeps for the refcountbt.
    kept: SmallVec<[(AgNo, u32); 1]>,
    /// Log space granted to it.
    granted: u64,
    /// Log space that it holds after each roll.
    link: u64,
    done: bool,
    rolled: bool,
    /// It met free blocks that are busy, or a group that was locked.
    saw_busy: bool,
    saw_taken: bool,
    /// Held shared, so that the volume cannot grow or be quiesced meanwhile; released only to wait.
    /// Released after all other locks but the next.
    gate: Option<RwLockReadGuard<'fs, ()>>,
    /// Held shared in ordered mode from start to end, so that no epoch is cut in between.
    freeze: Option<RwLockReadGuard<'fs, ()>>,
}

impl<'fs> Tx<'fs> {
    /// Begins a transaction that allocates at most `blocks` blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are not as many free blocks, [`Error::ReadOnly`],
    /// [`Error::Shutdown`].
    pub fn begin(fs: &'fs Engine, blocks: u64) -> Result<Self> {
        Self::begin_for(fs, Op::Extents, blocks)
    }

    /// As [`Tx::begin`], for an operation of this kind.
    ///
    /// # Errors
    /// As [`Tx::begin`].
    pub(crate) fn begin_for(fs: &'fs Engine, op: Op, blocks: u64) -> Result<Self> {
        fs.check_writable()?;
        let granted = fs.reserve_log(op)?;
        Self::enter(fs, granted, fs.hold_off_freeze(), blocks)
    }

    /// As [`Tx::begin`], for the thread that cuts an epoch and has a reservation of blocks.
    ///
    /// # Errors
    /// [`Error::Shutdown`].
    pub(crate) fn begin_in_epoch(fs: &'fs Engine) -> Result<Self> {
        fs.check_writable()?;
        let granted = match &fs.journal {
            Some(journal) => journal.reserve_in_epoch(fs, fs.log_link(Op::Extents))?,
            None => 0,
        };
        Self::enter(fs, granted, None, 0)
    }

    fn enter(
        fs: &'fs Engine,
        granted: u64,
        freeze: Option<RwLockReadGuard<'fs, ()>>,
        blocks: u64,
    ) -> Result<Self> {
        let gate = fs.gate.read();
        if let Err(error) = fs.reserve(blocks) {
            if let Some(journal) = &fs.journal {
                journal.release(granted);
            }
            return Err(error);
        }
        let scratch = fs.scratch.lock().pop().unwrap_or_default();
        Ok(Self {
            fs,
            id: fs.next_tx.fetch_add(1, Ordering::Relaxed),
            inodes: SmallVec::new(),
            ags: SmallVec::new(),
            bufs: scratch.bufs,
            undo_chunks: scratch.undo_chunks,
            undo_bytes: scratch.undo_bytes,
            deferred: Vec::new(),
            rolling: Rolling::default(),
            reserved: blocks,
            counters: Counters::default(),
            dquots: scratch.dquots,
            holds: Holds::new(),
            unlimited: false,
            gone: Vec::new(),
            made: Vec::new(),
            freed: SmallVec::new(),
            forgotten: SmallVec::new(),
            chunks_made: SmallVec::new(),
            kept: SmallVec::new(),
            granted,
            link: granted,
            done: false,
            rolled: false,
            saw_busy: false,
            saw_taken: false,
            gate: Some(gate),
            freeze,
        })
    }

    /// As [`Tx::begin`], for a change that gives more space back than it takes: a full volume
    /// does not stop it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Shutdown`].
    pub(crate) fn begin_freeing(fs: &'fs Engine, blocks: u64) -> Result<Self> {
        Self::begin_freeing_for(fs, Op::Extents, blocks)
    }

    /// As [`Tx::begin_freeing`], for an operation of this kind.
    ///
    /// # Errors
    /// As [`Tx::begin_freeing`].
    pub(crate) fn begin_freeing_for(fs: &'fs Engine, op: Op, blocks: u64) -> Result<Self> {
        match Self::begin_for(fs, op, blocks) {
            Err(Error::NoSpace) => Self::begin_for(fs, op, 0),
            other => other,
        }
        .map(Self::without_limits)
    }

    /// The file system.
    pub fn fs(&self) -> &'fs Engine {
        self.fs
    }

    // ---- inodes ----------------------------------------------------------------------------

    /// Adds an inode that this transaction just allocated, in its first state.
    pub(crate) fn join_new(&mut self, state: InodeState) -> InodeSlot {
        let (cell, left) = self.fs.inodes.insert(state);
        let mut guard = uxfs_sync::write_arc_new(&cell);
        // If the transaction is cancelled, a free inode that is still in memory returns to its old
        // state.
        let before = left.map(|state| {
            let state = InodeState { dirty: guard.dirty, log: guard.log, ..state };
            Box::new(core::mem::replace(&mut *guard, state))
        });
        let slot = self.join(cell, guard, before.is_none());
        let entry = &mut self.inodes[slot.0];
        entry.before = before;
        entry.changed = Changed::all();
        slot
    }

    /// Drops `count` inodes from `first` on from memory after the commit, because their chunk was
    /// freed.
    pub(crate) fn forget_inodes(&mut self, first: Ino, count: u32) {
        self.gone.push((first, count));
    }

    /// Allows `count` new inodes from `first` on to be read after the commit.
    pub(crate) fn admit_inodes(&mut self, first: Ino, count: u32) {
        self.made.push((first, count));
    }

    fn join(
        &mut self,
        cell: InodeRef,
        guard: ArcRwLockWriteGuard<RawRwLock, InodeState>,
        fresh: bool,
    ) -> InodeSlot {
        let changed = Changed::empty();
        self.inodes.push(TxInode { cell, guard, before: None, changed, fresh, held: 0 });
        InodeSlot(self.inodes.len() - 1)
    }

    /// Has this transaction locked the inode?
    pub(crate) fn has_inode(&self, ino: Ino) -> bool {
        self.inodes.iter().any(|held| held.guard.ino == ino)
    }

    /// An inode of this transaction.
    pub fn inode(&self, slot: InodeSlot) -> &InodeState {
        &self.inodes[slot.0].guard
    }

    /// The core of an inode of this transaction, for change.
    pub fn core_mut(&mut self, slot: InodeSlot) -> &mut uxfs_format::inode::InodeCore {
        &mut self.inode_mut(slot, Changed::CORE).core
    }

    /// Adds to the block count of an inode.
    ///
    /// # Errors
    /// If the inode counts more blocks already than are possible; [`Error::QuotaExceeded`].
    pub(crate) fn count_blocks(&mut self, slot: InodeSlot, blocks: u64) -> Result<()> {
        let Some(total) = self.inode(slot).core.nblocks.checked_add(blocks) else {
            return Err(self
                .inode(slot)
                .corrupt(Check::Counter, "counts more blocks than are possible"));
        };
        self.core_mut(slot).nblocks = total;
        self.hold_blocks(slot)
    }

    /// The bytes of an inode's fork, for change.
    pub fn fork_mut(&mut self, slot: InodeSlot, fork: Fork) -> &mut [u8] {
        let part = match fork {
            Fork::Data => Changed::DATA,
            Fork::Attr => Changed::ATTR,
        };
        self.inode_mut(slot, part | Changed::CORE).fork_mut(fork)
    }

    /// The first `len` bytes of a fork's space, whatever the fork's length.
    pub(crate) fn literal_mut(&mut self, slot: InodeSlot, fork: Fork, len: usize) -> &mut [u8] {
        let part = match fork {
            Fork::Data => Changed::DATA,
            Fork::Attr => Changed::ATTR,
        };
        let inode = self.inode_mut(slot, part | Changed::CORE);
        let start = inode.core.fork_range(fork, inode.literal.len()).start;
        &mut inode.literal[start..start + len]
    }

    /// An inode of this transaction, for change of the named parts.
    pub fn inode_mut(&mut self, slot: InodeSlot, parts: Changed) -> &mut InodeState {
        let entry = &mut self.inodes[slot.0];
        if entry.before.is_none() && !entry.fresh {
            entry.before = Some(Box::new(InodeState::clone(&entry.guard)));
        }
        if entry.changed.is_empty() || entry.fresh {
            entry.changed |= Changed::CORE;
        }
        entry.changed |= parts;
        &mut entry.guard
    }

    // ---- space -----------------------------------------------------------------------------

    /// Adds `change` to the superblock's counters at commit.
    pub fn count(&mut self, change: Counters) {
        self.counters.fdblocks += change.fdblocks;
        self.counters.icount += change.icount;
        self.counters.ifree += change.ifree;
    }

    /// Reserved blocks that are not allocated yet.
    pub fn blocks_left(&self) -> u64 {
        (self.reserved as i64 + self.counters.fdblocks.min(0)).max(0) as u64
    }

    /// Keeps blocks of a locked group for reference counts until the transaction ends.
    pub(crate) fn keep(&mut self, ag: AgNo, blocks: u32) {
        self.fs.keep(ag, blocks, false);
        self.kept.push((ag, blocks));
    }

    /// Reserves more blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn reserve_more(&mut self, blocks: u64) -> Result<()> {
        self.saw_busy |= self.fs.unsettled.blocks() > 0;
        self.fs.reserve(blocks)?;
        self.reserved += blocks;
        Ok(())
    }

    /// Takes over a reservation of the caller.
    pub(crate) fn adopt(&mut self, blocks: u64) {
        self.reserved += blocks;
    }

    /// Notes a new inode chunk.
    pub(crate) fn note_chunk(&mut self, chunk: uxfs_format::log::Icreate) {
        if self.fs.journal.is_some() {
            self.chunks_made.push(chunk);
        }
    }
}
