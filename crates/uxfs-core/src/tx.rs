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
mod label;
mod locks;
mod owed;
mod roll;
pub(crate) mod scratch;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use smallvec::SmallVec;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::bytes::{Field, Number};
use uxfs_format::inode::Fork;
use uxfs_format::verify::BufKind;
use uxfs_format::{AgNo, Check, Ino};
use uxfs_sync::{MappedRwLockWriteGuard, MutexGuard, RwLockReadGuard};

use crate::ag::AgState;
use crate::buf::{BufRef, Pieces};
use crate::deferred::Deferred;
use crate::dquot::{Changes, Holds};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::{Changed, InodeRef, InodeState};
use crate::journal::{
    Cil, Handle, ImmediateWriter, Journal, Op, buf_item, dquot_item, inode_item, superblock_item,
};
use crate::mount::Counters;
pub(crate) use label::label;
use owed::Rolling;
use scratch::{Scratch, TxBuf, UndoChunk};

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

/// Undo memory above this size is not kept for later transactions.
const SCRATCH_MAX: usize = 1 << 20;

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

    // ---- allocation groups -----------------------------------------------------------------

    /// Locks an allocation group, and waits for it if the order allows that. Returns `false` if it
    /// is locked and must not be waited for. The caller then tries another group.
    ///
    /// # Errors
    /// If its headers cannot be read or are damaged.
    pub fn lock_ag(&mut self, ag: AgNo) -> Result<bool> {
        if self.holds_ag(ag) {
            return Ok(true);
        }
        let cell = self.fs.ag(ag)?;
        let in_order = self.ags.iter().all(|(held, _)| *held < ag);
        let mut guard = if in_order {
            cell.lock()
        } else {
            match cell.try_lock() {
                Some(guard) => guard,
                None => {
                    self.saw_taken = true;
                    return Ok(false);
                }
            }
        };
        guard.load(self.fs, ag)?;
        self.ags.push((ag, guard));
        Ok(true)
    }

    /// Unlocks a group in which nothing was changed.
    pub(crate) fn unlock_ag(&mut self, ag: AgNo) {
        let changed = |buf: &BufRef| buf.holder.load(Ordering::Relaxed) == self.id;
        let headers = self.ag(ag).headers();
        if !changed(&headers.agf) && !changed(&headers.agi) {
            self.ags.retain(|(held, _)| *held != ag);
        }
    }

    /// Drops the cached buffer of a block that becomes free.
    pub(crate) fn forget_block(&mut self, ag: AgNo, block: uxfs_format::AgBlock) {
        let geo = &self.fs.geo;
        self.forget(geo.ag_daddr(ag, block), geo.block_size as usize);
    }

    /// Drops the buffer of `len` bytes at `daddr`, whose blocks are freed, and cancels its items in
    /// the log, also if it is not in memory.
    pub(crate) fn forget(&mut self, daddr: uxfs_format::Daddr, len: usize) {
        let Some(buf) = self.fs.bufs.cached_at(daddr) else {
            self.fs.keeper.freed(daddr, len);
            if self.fs.journal.is_some() {
                self.forgotten.push((daddr, len));
            }
            return;
        };
        self.invalidate(&buf);
    }

    /// Has this transaction locked the group?
    pub fn holds_ag(&self, ag: AgNo) -> bool {
        self.ags.iter().any(|(held, _)| *held == ag)
    }

    /// The state of a locked group.
    ///
    /// # Panics
    /// If the transaction has not locked it, which is an error of the caller.
    pub fn ag(&self, ag: AgNo) -> &AgState {
        let held = self.ags.iter().find(|(held, _)| *held == ag);
        &held.expect("the transaction has locked the AG").1
    }

    /// The state of a locked group, for change. It holds hints only, which a cancel does not
    /// restore.
    ///
    /// # Panics
    /// As [`Tx::ag`].
    pub fn ag_mut(&mut self, ag: AgNo) -> &mut AgState {
        let held = self.ags.iter_mut().find(|(held, _)| *held == ag);
        &mut held.expect("the transaction has locked the AG").1
    }

    /// A copy of the AGF of a held group.
    pub fn agf(&self, ag: AgNo) -> Agf {
        *Agf::view(&self.ag(ag).headers().agf.read())
    }

    /// A copy of the AGI of a held group.
    pub fn agi(&self, ag: AgNo) -> Agi {
        *Agi::view(&self.ag(ag).headers().agi.read())
    }

    /// Changes the AGF of a held group.
    pub fn edit_agf(&mut self, ag: AgNo, change: impl FnOnce(&mut Agf)) {
        let buf = Arc::clone(&self.ag(ag).headers().agf);
        change(Agf::view_mut(&mut self.edit(&buf, 0..size_of::<Agf>())));
    }

    /// Changes the AGI of a held group.
    pub fn edit_agi(&mut self, ag: AgNo, change: impl FnOnce(&mut Agi)) {
        let buf = Arc::clone(&self.ag(ag).headers().agi);
        change(Agi::view_mut(&mut self.edit(&buf, 0..size_of::<Agi>())));
    }

    // ---- buffers ---------------------------------------------------------------------------

    fn take(&mut self, buf: &BufRef, fresh: bool) -> usize {
        if buf.holder.load(Ordering::Relaxed) == self.id {
            return buf.holder_slot.load(Ordering::Relaxed) as usize;
        }
        let words = buf.len().div_ceil(CHUNK).div_ceil(64);
        let kind_before = {
            // Counted under the content lock, so that write-back sees both changes or neither.
            let content = buf.content.write();
            let other = buf.holder.swap(self.id, Ordering::AcqRel);
            debug_assert_eq!(other, 0, "two transactions change the buffer at {:?}", buf.place());
            buf.holder_slot.store(self.bufs.len() as u32, Ordering::Relaxed);
            content.kind
        };
        self.bufs.push(TxBuf {
            buf: Arc::clone(buf),
            chunks: SmallVec::from_elem(0, words),
            fresh,
            stale: false,
            kind_before,
            replaced: None,
        });
        self.bufs.len() - 1
    }

    /// Bytes `range` of a buffer, for change.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn edit<'b>(
        &mut self,
        buf: &'b BufRef,
        range: core::ops::Range<usize>,
    ) -> MappedRwLockWriteGuard<'b, [u8]> {
        let slot = self.take(buf, false);
        let content = buf.content.write();
        let entry = &mut self.bufs[slot];
        entry.stale = false;
        if !range.is_empty() {
            for chunk in range.start / CHUNK..=(range.end - 1) / CHUNK {
                let (word, bit) = (chunk / 64, 1u64 << (chunk % 64));
                if entry.chunks[word] & bit != 0 {
                    continue;
                }
                entry.chunks[word] |= bit;
                if !entry.fresh {
                    let at = chunk * CHUNK;
                    let end = (at + CHUNK).min(content.bytes.len());
                    self.undo_chunks.push(UndoChunk { slot: slot as u32, chunk: chunk as u32 });
                    self.undo_bytes.extend_from_slice(&content.bytes[at..end]);
                    self.undo_bytes.resize(self.undo_chunks.len() * CHUNK, 0);
                }
            }
        }
        content.map(|c| &mut c.bytes[range])
    }

    /// All bytes of a buffer, for change.
    pub fn edit_all<'b>(&mut self, buf: &'b BufRef) -> MappedRwLockWriteGuard<'b, [u8]> {
        self.edit(buf, 0..buf.len())
    }

    /// Changes one number of a buffer.
    pub fn set<T: Number>(&mut self, buf: &BufRef, field: Field<T>, number: T) {
        number.write(&mut self.edit(buf, field.range()), 0);
    }

    /// Changes the kind of a buffer, for example when a directory grows into its next form.
    pub fn set_kind(&mut self, buf: &BufRef, kind: BufKind) {
        self.take(buf, false);
        buf.content.write().kind = kind;
    }

    /// A new buffer over blocks just allocated: zeroes, of `kind`, all of it changed.
    pub fn make_buf(&mut self, pieces: Pieces, kind: BufKind) -> BufRef {
        // AGFL blocks can be freed and allocated again within one transaction. The old buffer is
        // then still held and is used again.
        if let Some(entry) = self.bufs.iter().find(|b| b.buf.daddr() == pieces[0].daddr) {
            let buf = Arc::clone(&entry.buf);
            if buf.len() == pieces.iter().map(|p| p.len as usize).sum::<usize>() {
                self.edit_all(&buf).fill(0);
                self.set_kind(&buf, kind);
                return buf;
            }
        }
        let (buf, replaced) = self.fs.bufs.make(pieces, kind);
        let slot = self.take(&buf, true);
        self.bufs[slot].replaced = replaced;
        let chunks = buf.len().div_ceil(CHUNK);
        for chunk in 0..chunks {
            self.bufs[slot].chunks[chunk / 64] |= 1 << (chunk % 64);
        }
        buf
    }

    /// Marks a buffer whose block is freed. It is not written again.
    pub fn invalidate(&mut self, buf: &BufRef) {
        for piece in buf.pieces() {
            self.fs.keeper.freed(piece.daddr, piece.len as usize);
        }
        let slot = self.take(buf, false);
        self.bufs[slot].stale = true;
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

    // ---- the end ---------------------------------------------------------------------------

    /// Runs the deferred operations and commits all changes.
    ///
    /// # Errors
    /// If a deferred operation fails. All changes are then undone.
    pub fn commit(mut self) -> Result<()> {
        (self.fs.finish_deferred)(&mut self)?;
        self.account()?;
        self.commit_items(false);
        self.done = true;
        Ok(())
    }

    /// As [`Tx::commit`], but keeps at most `most` of the unused reserved blocks for the caller.
    /// Returns their number.
    ///
    /// # Errors
    /// As [`Tx::commit`].
    pub(crate) fn commit_keeping(mut self, most: u64) -> Result<u64> {
        (self.fs.finish_deferred)(&mut self)?;
        self.account()?;
        self.commit_items(false);
        self.done = true;
        let kept = self.reserved.min(most);
        self.reserved -= kept;
        Ok(kept)
    }

    /// Adds the changes to the open checkpoint. `goes_on` tells that operations are still pending.
    fn commit_items(&mut self, goes_on: bool) {
        for entry in self.inodes.iter_mut().filter(|entry| !entry.changed.is_empty()) {
            entry.guard.core.changecount = entry.guard.core.changecount.wrapping_add(1);
        }
        match &self.fs.journal {
            Some(journal) => self.log(journal, goes_on),
            None => self.put_dquots(),
        }
        self.dquots.clear();
        self.undo_chunks.clear();
        self.undo_bytes.clear();
        for entry in self.bufs.drain(..) {
            entry.buf.holder.store(0, Ordering::Release);
            if entry.stale {
                self.fs.bufs.forget(&entry.buf);
            } else {
                self.fs.bufs.mark_dirty(&entry.buf);
            }
            if let Some(old) = entry.replaced {
                self.fs.bufs.clean(&old);
            }
        }
        for entry in &mut self.inodes {
            if !entry.changed.is_empty() {
                self.fs.inodes.mark_dirty(&entry.cell, &mut entry.guard);
            }
            entry.before = None;
            entry.changed = Changed::empty();
            entry.fresh = false;
            entry.held = 0;
        }
        for (first, count) in self.gone.drain(..) {
            self.fs.inodes.chunk_gone(&self.fs.geo, first, count);
        }
        for (first, count) in self.made.drain(..) {
            self.fs.inodes.chunk_made(&self.fs.geo, first, count);
        }
        let left = self.blocks_left();
        self.fs.apply(self.reserved, self.counters, left);
        self.reserved = left;
        self.counters = Counters::default();
    }

    /// Adds the changed objects to the open checkpoint.
    fn log(&mut self, journal: &Journal, goes_on: bool) {
        let empty = self.bufs.is_empty()
            && self.dquots.is_empty()
            && self.inodes.iter().all(|i| i.changed.is_empty());
        self.fs.counts.transaction(empty, journal.wsync());
        let mut gathering = journal.cil();
        let cil = &mut *gathering;
        for (daddr, len) in self.forgotten.drain(..) {
            cil.cancel_place(daddr, len);
        }
        for entry in &self.bufs {
            if entry.stale {
                buf_item::cancel(cil, &entry.buf);
            } else if entry.chunks.iter().any(|word| *word != 0) {
                buf_item::add(cil, &entry.buf, &entry.chunks, entry.fresh);
            }
        }
        for entry in self.inodes.iter_mut().filter(|entry| !entry.changed.is_empty()) {
            let (mut parts, mut unlinked) = (entry.changed, false);
            entry.guard.log.unlogged = None;
            if !entry.only_times() {
                entry.guard.log.needed = cil.seq.0;
            }
            if let Some(before) = &entry.before {
                let (old, new) = (&before.core, &entry.guard.core);
                unlinked = old.next_unlinked != new.next_unlinked;
                if old.forkoff != new.forkoff {
                    parts |= Changed::DATA | Changed::ATTR;
                }
            }
            inode_item::add(cil, self.fs, &entry.cell, &mut entry.guard, parts, unlinked);
        }
        self.log_dquots(cil);
        for (first, count) in &self.gone {
            for (ino, cell) in self.fs.inodes.in_memory(*first, *count) {
                self.fs.freed_inodes.add(&cell);
                cil.gone.push(Handle::Inode(ino, cell));
            }
        }
        for chunk in self.chunks_made.drain(..) {
            if !planted(Fault::IcreateMissing) {
                cil.chunk(chunk);
            }
        }
        if self.fs.take_superblock_change() {
            superblock_item::add(cil, self.fs);
        }
        self.log_steps(cil, goes_on);
        self.log_single(journal, cil);
        let seq = cil.seq.0;
        if self.fs.ordered && !self.freed.is_empty() {
            let blocks = self.freed.iter().map(|(_, _, len)| u64::from(*len)).sum();
            self.fs.unsettled.add(seq, blocks);
        }
        for (ag, start, len) in self.freed.drain(..) {
            if let Some((_, state)) = self.ags.iter_mut().find(|(held, _)| *held == ag) {
                state.busy.add(seq, journal.batches_begun(), start, len);
            }
        }
        let added = journal.taken_in(cil, &mut self.granted);
        drop(gathering);
        let left = if goes_on { 0 } else { core::mem::take(&mut self.granted) };
        if !journal.committed(added, left) {
            self.fs.counts.logspace_overruns.one();
        }
    }

    /// Writes the changes as a log transaction of their own, with immediate logging.
    fn log_single(&self, journal: &Journal, cil: &mut Cil) {
        let Some(mut writer) = ImmediateWriter::begin(journal, cil) else { return };
        let changed = |entry: &&TxBuf| !entry.stale && entry.chunks.iter().any(|word| *word != 0);
        for entry in self.bufs.iter().filter(changed) {
            if buf_item::is_logged(entry.buf.kind()) {
                writer.object(|records| {
                    buf_item::write(&entry.buf, records);
                    Ok(())
                });
            }
        }
        let lives = |entry: &&TxInode| {
            !entry.changed.is_empty() && !self.fs.freed_inodes.contains(&entry.cell)
        };
        for entry in self.inodes.iter().filter(lives) {
            writer.object(|records| inode_item::write(self.fs, &entry.guard, records));
        }
        for (dquot, _) in &self.dquots {
            writer.object(|records| {
                dquot_item::write(self.fs, dquot, records);
                Ok(())
            });
        }
        superblock_item::end(writer, self.fs);
    }

    /// Notes that blocks of a locked group were freed.
    pub(crate) fn note_freed(&mut self, ag: AgNo, start: uxfs_format::AgBlock, len: u32) {
        if let Some(journal) = &self.fs.journal {
            self.freed.push((ag, start, len));
            // This transaction must not write data there either ([`Self::expire_busy`]).
            let seq = journal.open_seq();
            self.ag_mut(ag).busy.add(seq, journal.batches_begun(), start, len);
        }
    }

    /// Drops the busy blocks of a locked group whose checkpoint is durable.
    pub(crate) fn expire_busy(&mut self, ag: AgNo) {
        if let Some(journal) = &self.fs.journal {
            // Blocks that this transaction freed are in no checkpoint yet.
            if let Some((_, state)) = self.ags.iter_mut().find(|(held, _)| *held == ag) {
                for (_, start, len) in self.freed.iter().filter(|(freed, ..)| *freed == ag) {
                    let (seq, batch) = (journal.open_seq(), journal.batches_begun());
                    state.busy.add(seq, batch, *start, *len);
                }
            }
            let busy = &mut self.ag_mut(ag).busy;
            busy.expire(journal.durable(), journal.batches_ended());
            let left = !busy.is_empty();
            self.saw_busy |= left;
        }
    }

    /// Notes a new inode chunk.
    pub(crate) fn note_chunk(&mut self, chunk: uxfs_format::log::Icreate) {
        if self.fs.journal.is_some() {
            self.chunks_made.push(chunk);
        }
    }
}

impl Tx<'_> {
    fn give_back_scratch(&mut self) {
        let mut scratch = Scratch {
            bufs: core::mem::take(&mut self.bufs),
            undo_chunks: core::mem::take(&mut self.undo_chunks),
            undo_bytes: core::mem::take(&mut self.undo_bytes),
            dquots: core::mem::take(&mut self.dquots),
        };
        if scratch.undo_bytes.capacity() > SCRATCH_MAX {
            return;
        }
        scratch.bufs.clear();
        scratch.undo_chunks.clear();
        scratch.undo_bytes.clear();
        scratch.dquots.clear();
        self.fs.scratch.lock().push(scratch);
    }
}

impl Drop for Tx<'_> {
    /// Cancels a transaction that was not committed. If a panic ended it, or a part of it is committed
    /// already, the volume is shut down before the first lock is released, so that nothing builds on a
    /// half-made change. The journal is stopped when all are released, because that calls its waiters.
    fn drop(&mut self) {
        let half_made = match (self.done, std::thread::panicking(), self.rolled) {
            (false, true, _) => Some("a thread panicked in the midst of a change"),
            (false, false, true) => Some("a change could not be finished"),
            _ => None,
        };
        if let Some(why) = half_made {
            self.fs.shut_down(why);
        }
        if let Some(journal) = &self.fs.journal {
            journal.release(core::mem::take(&mut self.granted));
        }
        self.release_holds();
        for (ag, blocks) in self.kept.drain(..) {
            self.fs.keep(ag, blocks, true);
        }
        if self.done {
            self.give_back_scratch();
            self.fs.apply(self.reserved, Counters::default(), 0);
            return;
        }
        self.fs.enospc_causes.note(self.saw_busy, self.saw_taken);
        for (at, undo) in self.undo_chunks.iter().enumerate().rev() {
            let entry = &self.bufs[undo.slot as usize];
            let mut content = entry.buf.content.write();
            let start = undo.chunk as usize * CHUNK;
            let end = (start + CHUNK).min(content.bytes.len());
            let old = &self.undo_bytes[at * CHUNK..at * CHUNK + (end - start)];
            content.bytes[start..end].copy_from_slice(old);
        }
        for entry in self.bufs.drain(..) {
            entry.buf.content.write().kind = entry.kind_before;
            entry.buf.holder.store(0, Ordering::Release);
            if entry.fresh {
                self.fs.bufs.forget(&entry.buf);
            }
            if let Some(old) = entry.replaced {
                self.fs.bufs.put_back(old);
            }
        }
        for mut entry in self.inodes.drain(..) {
            if let Some(before) = entry.before.take() {
                *entry.guard = *before;
            }
            if entry.fresh {
                // A thread that waits for its lock finds a free inode.
                entry.guard.core.mode = 0;
                self.fs.inodes.forget(entry.guard.ino);
            }
        }
        self.fs.apply(self.reserved, Counters::default(), 0);
        if let Some(why) = half_made {
            self.ags.clear();
            (self.gate, self.freeze) = (None, None);
            self.fs.stop(why);
        }
    }
}
