//! Writing back: choosing blocks, writing the data, and marking the blocks as written.
//!
//! 1. While data is written, no lock of an inode, a group or the gate is held, only the
//!    [`WritebackBlock`] of the files, which keeps their blocks from being freed. Copies of shared blocks are
//!    the exception: they are written inside their transaction, because they replace existing blocks, and a
//!    power cut must leave one or the other.
//! 2. Write-back locks are waited for in ascending order of inode numbers.
//! 3. The length on disk moves no further than the written data, as it was when it was picked.
//! 4. Data that could not be written stays dirty.
//! 5. In ordered mode ([`crate::epoch`]) no checkpoint is cut between the first transaction and the last. So
//!    blocks are mapped as written before they are, and written blocks are replaced, not overwritten. A block
//!    that was placed since the last epoch ([`Backing::Own`]) is written in place: no epoch shows it.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{Flags2, Fork};
use uxfs_format::{Daddr, Extent, FileBlock, Ino};

use super::file::{File, Snapshot, WritebackBlock, tidy};
use super::page::{Backing, Content};
use super::register::Delalloc;
use crate::alloc::Goal;
use crate::bmap;
use crate::cow::AllocUnit;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::full::Stuck;
use crate::limits::EXTENTS_A_STEP;
use crate::tx::{InodeSlot, Tx};

/// Bytes of a batch, which are in flight at one time.
pub(super) const BATCH: u64 = 16 << 20;
/// Files of a batch.
const FILES: usize = 512;
/// Most bytes, and pieces, in one write.
const WRITE_BYTES: usize = 1 << 20;
const WRITE_PIECES: usize = 512;

/// The mode of a write-back.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// Wait for files that other threads write back.
    wait: bool,
    /// Also log times that changed in memory only.
    times: bool,
    /// An epoch is cut at the end: no file may be left out.
    epoch: bool,
    /// Only blocks of a file below this one.
    below: u64,
}

impl How {
    /// All data, and times.
    pub(super) const FULL: Self = Self { times: true, ..Self::PLAIN };
    /// All data, and the metadata needed to read it.
    pub(super) const PLAIN: Self = Self { wait: true, times: false, epoch: false, below: u64::MAX };
    /// Data of files that no other thread writes back.
    pub(super) const PLAIN_OTHERS: Self = Self { wait: false, ..Self::PLAIN };
    /// Data of files that no other thread writes back, and times.
    pub(super) const OTHERS: Self = Self { times: true, ..Self::PLAIN_OTHERS };
    /// All data, and times, while everything else is kept out.
    const EPOCH: Self = Self { epoch: true, ..Self::OTHERS };
}

/// A dirty block, and its destination.
struct Piece {
    block: u64,
    /// Byte offset on the device; `None` if it was written already.
    device: Option<u64>,
    content: Content,
    backing: Backing,
}

/// A file that is being written back. Its data is dropped before the hold, whose end wakes the writers that
/// wait for memory.
pub(super) struct WritebackBatch {
    file: Arc<File>,
    pieces: Vec<Piece>,
    /// `None` in an epoch, for a file without dirty data whose blocks another thread changes.
    _hold: Option<WritebackBlock>,
    size: u64,
    pub(super) failed: Option<Error>,
    /// The journal knows that a commit depends on the data, if one does.
    pub(super) noted: bool,
}

impl WritebackBatch {
    /// The file.
    pub(super) fn ino(&self) -> Ino {
        self.file.ino
    }

    /// The first block behind those that have a place.
    pub(super) fn placed_to(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.block + 1)
    }

    /// Notes that the blocks of `part` that lie in `extent`, whose content is written now, go there.
    pub(super) fn add_scattered(&mut self, fs: &Fs, part: &[DirtyBlock], extent: &Extent) {
        let start = fs.geo.fsb_daddr(extent.start).bytes();
        let from = part.partition_point(|(block, ..)| *block < extent.offset.0);
        let to = part.partition_point(|(block, ..)| *block < extent.end().0);
        for (block, content, _) in &part[from..to] {
            let device = Some(start + ((block - extent.offset.0) << fs.geo.block_log));
            let (block, content) = (*block, content.clone());
            self.pieces.push(Piece { block, device, content, backing: Backing::Own });
        }
    }
}

/// Reserved blocks of a file that a transaction uses.
#[derive(Clone, Copy, Default)]
struct LentBlocks {
    data: u64,
    tree: u64,
    pool: u64,
}

impl LentBlocks {
    fn total(&self) -> u64 {
        self.data + self.tree + self.pool
    }
}

pub(super) type DirtyBlock = (u64, Content, Backing);

impl Fs {
    /// Writes a file's data to the device, if some of it is in memory only. That makes nothing
    /// durable yet: it is what sync_file_range(2) does for a whole file.
    ///
    /// # Errors
    /// Of writing the data, and those of choosing its place.
    pub fn write_back_file(&self, ino: Ino) -> Result<()> {
        self.write_back_one(ino, How::PLAIN)
    }

    /// As [`Fs::write_back_file`], but only the blocks below `end`.
    pub(super) fn write_back_below(&self, ino: Ino, end: u64) -> Result<()> {
        self.write_back_one(ino, How { below: end, ..How::PLAIN })
    }

    pub(super) fn write_back_one(&self, ino: Ino, how: How) -> Result<()> {
        let (Some(dirty), Some(file)) = (&self.delalloc, self.delayed(ino)) else { return Ok(()) };
        if !self.ordered {
            return self.write_back(dirty, &[file], how, u64::MAX).map(|_| ());
        }
        let files = [file];
        while files[0].is_dirty() && self.write_back(dirty, &files, how, u64::MAX)? == 0 {
            // Another thread changes its blocks, and may be about to cut an epoch.
            drop(files[0].hold());
        }
        Ok(())
    }

    /// Writes back most of what is dirty, before an epoch, while other threads go on.
    pub(crate) fn write_back_ahead(&self, dirty: &Delalloc) -> Result<()> {
        self.write_back_now(dirty, &dirty.all(), How::PLAIN_OTHERS, u64::MAX).map(|_| ())
    }

    /// Writes back everything, and times, for an epoch.
    pub(crate) fn write_back_epoch(&self, dirty: &Delalloc) -> Result<()> {
        let mut files = dirty.all();
        if planted(Fault::EpochMissesFile) {
            files.pop();
        }
        self.write_back_now(dirty, &files, How::EPOCH, u64::MAX).map(|_| ())
    }

    /// Writes back everything.
    pub(super) fn write_back_all_of(&self, dirty: &Delalloc, how: How) -> Result<()> {
        let files = dirty.all();
        self.write_back(dirty, &files, how, u64::MAX).map(|_| ())
    }

    /// Writes back files, given in ascending order, until about `most` bytes are written. How many
    /// files were looked at. What fails is remembered with its file; the others are written all
    /// the same.
    pub(super) fn write_back(
        &self,
        dirty: &Delalloc,
        files: &[Arc<File>],
        how: How,
        most: u64,
    ) -> Result<usize> {
        match &self.journal {
            // Write-back that waits for log space must not keep an epoch from being cut.
            Some(journal) if self.ordered => {
                let _no_epoch = self.epochs.lock();
                let how = How { wait: false, ..how };
                let written = self.write_back_now(dirty, files, how, most);
                written.map_err(|error| self.stop_after(journal, error))
            }
            _ => self.write_back_now(dirty, files, how, most),
        }
    }

    /// As [`Fs::write_back`], by the thread that cuts epochs in ordered mode.
    fn write_back_now(
        &self,
        dirty: &Delalloc,
        files: &[Arc<File>],
        how: How,
        most: u64,
    ) -> Result<usize> {
        let (mut done, mut total) = (0, 0);
        let mut first_error = None;
        let mut full = false;
        let mut rest = files.iter().peekable();
        let mut from = 0;
        while rest.peek().is_some() && total < most {
            let mut batches = Vec::new();
            let mut bytes = 0;
            while bytes < BATCH
                && batches.len() < FILES
                && total + bytes < most
                && let Some(file) = rest.peek()
            {
                let hold = match how {
                    How { epoch: true, .. } => file.hold_in_epoch(),
                    How { wait: true, .. } => Some(file.hold()),
                    How { .. } => file.try_hold(),
                };
                if hold.is_none() && how.epoch && file.is_dirty() {
                    return Err(Error::Invalid("a file with dirty data is kept from an epoch"));
                }
                if hold.is_none() && !how.epoch {
                    rest.next();
                    continue;
                }
                let (batch, more) = self.prepare(dirty, file, hold, from..how.below, BATCH - bytes);
                bytes += (batch.pieces.len() as u64) << self.geo.block_log;
                batches.push(batch);
                done += 1;
                if let Some(block) = more {
                    from = block;
                    break;
                }
                from = 0;
                rest.next();
            }
            if self.submit(&mut batches) {
                self.note_written(&mut batches);
            }
            if let Some(journal) = self.journal.as_ref().filter(|_| planted(Fault::CutInMidst)) {
                journal.await_room_for_cut(self)?;
                journal.cut_epoch();
                journal.await_room_for_cut(self)?;
            }
            for batch in batches {
                let file = Arc::clone(&batch.file);
                if let Err(error) = self.complete(dirty, batch, how) {
                    if self.ordered && uxfs_sync::read(&file.cell).core.mode == 0 {
                        // It was deleted meanwhile.
                        continue;
                    }
                    full |= self.note_stuck(Stuck::Data, &error);
                    first_error.get_or_insert(error);
                }
            }
            total += bytes;
        }
        if !full {
            self.unstick(Stuck::Data);
        }
        first_error.map_or(Ok(done), Err)
    }

    /// Picks what is dirty of a file among these blocks, and finds a place for it. Gives the first
    /// block that was left, too.
    pub(super) fn prepare(
        &self,
        dirty: &Delalloc,
        file: &Arc<File>,
        hold: Option<WritebackBlock>,
        blocks: Range<u64>,
        room: u64,
    ) -> (WritebackBatch, Option<u64>) {
        let most = (room >> self.geo.block_log).max(1) as usize;
        let Snapshot { pages, size, more } = {
            let mut pages = file.pages();
            dirty.leave_turn(&mut pages);
            let mut snapshot = pages.snapshot(blocks, most);
            if self.ordered && planted(Fault::EpochMissesBlock) {
                snapshot.pages.pop();
            }
            snapshot
        };
        let file = Arc::clone(file);
        let mut batch = WritebackBatch {
            file,
            _hold: hold,
            pieces: Vec::new(),
            size,
            failed: None,
            noted: true,
        };
        if let Err(error) = self.find_places(dirty, &mut batch, &pages) {
            batch.failed = Some(error);
            return (batch, None);
        }
        (batch, more)
    }

    fn find_places(
        &self,
        dirty: &Delalloc,
        batch: &mut WritebackBatch,
        pages: &[DirtyBlock],
    ) -> Result<()> {
        let mut at = 0;
        while let Some(rest) = pages.get(at..).filter(|rest| !rest.is_empty()) {
            at += match self.ordered {
                // The thread that waited for busy blocks would have to cut an epoch.
                true => self.retry_groups(|| self.place_some(dirty, batch, rest))?,
                // What there is may be busy until its freeing is durable.
                false => self.retry_enospc(|| self.place_some(dirty, batch, rest))?,
            };
        }
        Ok(())
    }

    /// Finds places for the first blocks of `part`, in one transaction; how many.
    fn place_some(
        &self,
        dirty: &Delalloc,
        batch: &mut WritebackBatch,
        part: &[DirtyBlock],
    ) -> Result<usize> {
        self.fill_pool(dirty);
        let mut tx = self.begin_write_back_tx()?;
        let slot = tx.lock_inode(batch.file.ino)?;
        let reserved = |part: &[DirtyBlock]| {
            part.iter().filter(|(_, _, backing)| *backing == Backing::Reserved).count() as u64
        };
        let data = reserved(part);
        let lent = match data {
            0 => LentBlocks::default(),
            data => dirty.lend(&batch.file, data),
        };
        tx.adopt(lent.total());
        let before = batch.pieces.len();
        let placed = self.place_in(&mut tx, slot, batch, part);
        let kept = match placed {
            Ok(false) => {
                drop(tx);
                self.take_back(lent.total());
                Ok(lent.total())
            }
            Ok(true) => tx.commit_keeping(lent.total()),
            Err(error) => {
                drop(tx);
                Err(error)
            }
        };
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                batch.pieces.truncate(before);
                self.take_back(lent.total());
                dirty.give_back(self, &batch.file, lent.total(), lent);
                return Err(error);
            }
        };
        let done = batch.pieces.len() - before;
        {
            let mut pages = batch.file.pages();
            for piece in &batch.pieces[before..] {
                pages.set_backing(piece.block, piece.backing);
            }
        }
        let left = LentBlocks { data: reserved(&part[done..]), ..lent };
        dirty.give_back(self, &batch.file, kept, left);
        Ok(done)
    }

    /// Begins a transaction of write-back. In ordered mode the thread that writes back is the one that may
    /// cut epochs, so the transaction does not hold them off.
    fn begin_write_back_tx(&self) -> Result<Tx<'_>> {
        let tx = if self.ordered { Tx::begin_in_epoch(self) } else { self.begin_tx(0) };
        // The quotas admitted the data when it was written.
        tx.map(Tx::without_limits)
    }

    /// The same inside its transaction; says whether that has changed anything.
    fn place_in(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        batch: &mut WritebackBatch,
        part: &[DirtyBlock],
    ) -> Result<bool> {
        let goal = Goal::Stream(self.geo.ino_ag(batch.file.ino));
        let shares = tx.inode(slot).core.flags2.contains(Flags2::REFLINK);
        let (mut done, mut made) = (0, 0);
        while done < part.len() {
            let block = FileBlock(part[done].0);
            let moves = self.ordered && part[done].2 != Backing::Own;
            let run = run_len(&part[done..], self.ordered);
            let next = bmap::at_or_after(self, tx.inode(slot), Fork::Data, block)?;
            let extent = match next {
                Some(extent) if extent.offset <= block => {
                    let extent = bmap::slice(&extent, block, block.plus(run));
                    if moves && !extent.unwritten {
                        if made >= EXTENTS_A_STEP || made > 0 && !tx.has_room() {
                            break;
                        }
                        // No checkpoint is cut before the new blocks hold the data.
                        let most = (EXTENTS_A_STEP - made, goal);
                        let moved = self.place_moved(tx, slot, batch, &part[done..], most)?;
                        if moved.done == 0 {
                            break;
                        }
                        made += moved.extents;
                        done += moved.done;
                        continue;
                    }
                    if shares && !extent.unwritten && !self.ordered {
                        // Whether it is shared its group tells, which can be waited for while no
                        // other is held.
                        if done > 0 {
                            break;
                        }
                        return self.place_shared(tx, slot, batch, part, extent);
                    }
                    extent
                }
                _ if made >= EXTENTS_A_STEP || made > 0 && !tx.has_room() => break,
                next => {
                    made += 1;
                    let hole = next.map_or(u64::MAX, |extent| extent.offset.0 - block.0);
                    self.place_in_free(tx, slot, (block, run.min(hole)), goal)?
                }
            };
            done += extent.len as usize;
            self.add_pieces(batch, part, &extent, true);
        }
        Ok(made > 0)
    }

    /// Allocates unwritten blocks in a hole. In ordered mode they count as written: no checkpoint is cut
    /// before they are.
    fn place_in_free(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        (block, want): (FileBlock, u64),
        goal: Goal,
    ) -> Result<Extent> {
        let unit = AllocUnit::of(&self.geo, &tx.inode(slot).core);
        if unit.fresh > 1 && tx.reserve_more(unit.more()).is_ok() {
            let place = self.place_in_hole(tx, slot, (block, want), unit, goal)?;
            return Ok(bmap::slice(&place.extent, block, block.plus(want)));
        }
        bmap::alloc_some(tx, slot, Fork::Data, block, want, !self.ordered, goal)
    }

    /// Finds a place for blocks that may be shared with other files. If they are, they are copied:
    /// written at once, so that what they take the place of is there until they are.
    fn place_shared(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        batch: &mut WritebackBatch,
        part: &[DirtyBlock],
        extent: Extent,
    ) -> Result<bool> {
        let goal = Goal::Stream(self.geo.ino_ag(batch.file.ino));
        let mut unit = AllocUnit::of(&self.geo, &tx.inode(slot).core);
        if unit.cow > 1 && tx.reserve_more(unit.more()).is_err() {
            unit = AllocUnit::ANY;
        }
        let place = self.own(tx, slot, extent, unit, goal)?;
        let Some(old) = place.old else {
            self.add_pieces(batch, part, &place.extent, true);
            return Ok(false);
        };
        let before = batch.pieces.len();
        let mine = bmap::slice(&place.extent, extent.offset, extent.end());
        let (first, last) = (mine.offset.0 - place.extent.offset.0, mine.end());
        self.copy_blocks(old.start, place.extent.start, first)?;
        let behind = place.extent.end().0 - last.0;
        let skip = last.0 - place.extent.offset.0;
        self.copy_blocks(old.start.plus(skip), place.extent.start.plus(skip), behind)?;
        self.add_pieces(batch, part, &mine, true);
        let pieces: Vec<&Piece> = batch.pieces[before..].iter().collect();
        for run in runs(&pieces, self.geo.block_size.into()) {
            self.write_run(run)?;
        }
        self.note_data();
        batch.pieces[before..].iter_mut().for_each(|piece| piece.device = None);
        Ok(true)
    }

    /// Notes that the first blocks of `part` that are not placed yet go to `extent`.
    fn add_pieces(
        &self,
        batch: &mut WritebackBatch,
        part: &[DirtyBlock],
        extent: &Extent,
        on_device: bool,
    ) {
        let start = self.geo.fsb_daddr(extent.start).bytes();
        let backing = if extent.unwritten { Backing::Unwritten } else { Backing::Own };
        let from = part.partition_point(|(block, ..)| *block < extent.offset.0);
        for (block, content, _) in &part[from..from + extent.len as usize] {
            let device = start + ((block - extent.offset.0) << self.geo.block_log);
            let (device, content) = (on_device.then_some(device), content.clone());
            batch.pieces.push(Piece { block: *block, device, content, backing });
        }
    }

    /// Writes the data of all batches, what is adjacent in one go. Returns whether there was any.
    pub(super) fn submit(&self, batches: &mut [WritebackBatch]) -> bool {
        let mut failed: Vec<Option<Error>> = batches.iter().map(|_| None).collect();
        let mut all: Vec<(usize, &Piece)> = Vec::new();
        for (index, batch) in batches.iter().enumerate() {
            let pieces = batch.pieces.iter().filter(|piece| piece.device.is_some());
            all.extend(pieces.map(|piece| (index, piece)));
        }
        if all.is_empty() {
            return false;
        }
        all.sort_unstable_by_key(|(_, piece)| piece.device);
        let (owners, pieces): (Vec<usize>, Vec<&Piece>) = all.into_iter().unzip();
        let mut at = 0;
        for run in runs(&pieces, self.geo.block_size.into()) {
            let owners = &owners[at..at + run.len()];
            at += run.len();
            let write = || self.write_run(run);
            let written = match self.journal.as_ref().filter(|_| self.ordered) {
                Some(journal) => self.retry_while_host_full(journal.host_full_timeout(), write),
                None => write(),
            };
            if written.is_ok() {
                continue;
            }
            // Whose data is it that cannot be written?
            for (owner, piece) in owners.iter().zip(run) {
                if let Err(error) = self.write_run(&[*piece]) {
                    failed[*owner].get_or_insert(error);
                }
            }
        }
        for (batch, error) in batches.iter_mut().zip(failed) {
            batch.failed = batch.failed.take().or(error);
        }
        true
    }

    /// Reports what was written of some files to the journal.
    fn note_written(&self, batches: &mut [WritebackBatch]) {
        let Some(journal) = &self.journal else { return };
        // In ordered mode the blocks are mapped already.
        let depends = self.ordered || batches.iter().any(|batch| self.must_be_shown(batch));
        match depends {
            true => journal.data_written(),
            false => journal.data_overwritten(),
        };
        batches.iter_mut().for_each(|batch| batch.noted = depends);
    }

    /// Must a commit show what was written of a file, because its blocks were unwritten or behind its end?
    pub(super) fn must_be_shown(&self, batch: &WritebackBatch) -> bool {
        let size = uxfs_sync::read(&batch.file.cell).core.size;
        let unwritten = |piece: &Piece| piece.backing == Backing::Unwritten;
        batch.pieces.iter().any(unwritten) || self.written_end(batch) > size
    }

    /// The end of what was written of a file, in bytes.
    fn written_end(&self, batch: &WritebackBatch) -> u64 {
        let block_size = u64::from(self.geo.block_size);
        let down = batch.pieces.last().map_or(0, |last| (last.block + 1) * block_size);
        down.min(batch.size)
    }

    fn note_data(&self) {
        if let Some(journal) = &self.journal {
            journal.data_written();
        }
    }

    /// Writes pieces that are adjacent on the device.
    fn write_run(&self, run: &[&Piece]) -> Result<()> {
        let Some(at) = run.first().and_then(|piece| piece.device) else { return Ok(()) };
        self.check_running()?;
        let daddr = Daddr(at >> 9);
        // What one write brought is one slice.
        let mut parts: Vec<Content> = Vec::new();
        for piece in run {
            let last = parts.last_mut();
            if !last.is_some_and(|last| last.join(&piece.content)) {
                parts.push(piece.content.clone());
            }
        }
        let slices: Vec<IoSlice<'_>> =
            parts.iter().map(|part| IoSlice::new(part.bytes())).collect();
        let written = self.dev.write_vectored_at(at, &slices);
        written.map_err(|source| Error::Io { what: "writing data", daddr, source })
    }

    /// Shows what was written of a file, or remembers that it was not.
    pub(super) fn complete(
        &self,
        dirty: &Delalloc,
        mut batch: WritebackBatch,
        how: How,
    ) -> Result<()> {
        let shown = match batch.failed.take() {
            Some(error) => Err(error),
            None => self.show(dirty, &batch, how),
        };
        let file = &batch.file;
        let freed = {
            let mut pages = file.pages();
            for piece in batch.pieces.iter().filter(|_| shown.is_ok()) {
                let Some(page) = pages.map.get(&piece.block) else { continue };
                if page.content.is(&piece.content) {
                    pages.remove(piece.block);
                } else {
                    pages.set_backing(piece.block, Backing::Own);
                }
            }
            tidy(&mut pages)
        };
        self.unreserve(freed);
        if let Err(error) = &shown {
            dirty.errors.lock().record(file.ino, error);
        }
        dirty.update_entry(file);
        shown
    }

    /// Marks what was written as such, and moves the length on disk.
    fn show(&self, dirty: &Delalloc, batch: &WritebackBatch, how: How) -> Result<()> {
        let file = &batch.file;
        let (size, gone, times) = {
            let inode = uxfs_sync::read(&file.cell);
            (inode.core.size, inode.core.mode == 0, inode.log.unlogged.is_some())
        };
        let end = self.written_end(batch);
        let unwritten = unwritten_runs(&batch.pieces);
        if gone || unwritten.is_empty() && end <= size && !(how.times && times) {
            return Ok(());
        }
        if !batch.noted && (!unwritten.is_empty() || end > size) {
            // The file became shorter meanwhile.
            self.note_data();
        }
        let mut rest = &unwritten[..];
        loop {
            let step = || self.show_some(dirty, file, rest, end);
            let done = match self.ordered {
                // As for `find_places`.
                true => self.retry_groups(step)?,
                false => self.retry_enospc(step)?,
            };
            rest = &rest[done..];
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Marks the first of `runs` as written, in one transaction, and with the last one moves the length on
    /// disk to `end`. Returns how many are done.
    fn show_some(
        &self,
        dirty: &Delalloc,
        file: &File,
        runs: &[(u64, u64)],
        end: u64,
    ) -> Result<usize> {
        self.fill_pool(dirty);
        let mut tx = self.begin_write_back_tx()?;
        let slot = tx.lock_inode(file.ino)?;
        let lent = dirty.lend(file, 0);
        tx.adopt(lent.total());
        let (mut done, mut marked) = (0, Ok(()));
        while let Some((block, len)) = runs.get(done)
            && marked.is_ok()
        {
            marked = bmap::mark_written(&mut tx, slot, FileBlock(*block), *len);
            done += 1;
            // On a volume that is all but full a transaction stays within one link: what fails
            // then is undone.
            if !tx.has_room() || dirty.floor.blocks() > 0 {
                break;
            }
        }
        let core = tx.core_mut(slot);
        if done == runs.len() && !(self.ordered && planted(Fault::EpochMissesLength)) {
            core.size = core.size.max(end);
        }
        let kept = match marked {
            Ok(()) => tx.commit_keeping(lent.total()),
            Err(error) => {
                drop(tx);
                Err(error)
            }
        };
        match kept {
            Ok(kept) => {
                dirty.give_back(self, file, kept, lent);
                Ok(done)
            }
            Err(error) => {
                self.take_back(lent.total());
                dirty.give_back(self, file, lent.total(), lent);
                Err(error)
            }
        }
    }
}

impl Delalloc {
    /// Lends a transaction what a file has reserved for its tree, and what there is for all.
    fn lend(&self, file: &File, data: u64) -> LentBlocks {
        let tree = core::mem::take(&mut file.pages().tree);
        let pool = core::mem::take(&mut *self.pool.lock());
        LentBlocks { data, tree, pool }
    }

    /// Takes `kept` reserved blocks back, of which `lent` tells what is still wanted: data first,
    /// then the tree, then the pool. What is left over is free.
    fn give_back(&self, fs: &Fs, file: &File, kept: u64, lent: LentBlocks) {
        let rest = kept.saturating_sub(lent.data);
        let tree = rest.min(lent.tree);
        file.pages().tree += tree;
        let free = self.refill(rest - tree);
        fs.unreserve(free);
    }
}

/// How many blocks from the first on follow each other. With `alike`, all or none of them are on blocks of
/// their own already.
pub(super) fn run_len(part: &[DirtyBlock], alike: bool) -> u64 {
    let own = |block: &DirtyBlock| block.2 == Backing::Own;
    let follows = |pair: &&[DirtyBlock]| {
        pair[0].0 + 1 == pair[1].0 && !(alike && own(&pair[0]) != own(&pair[1]))
    };
    part.windows(2).take_while(follows).count() as u64 + 1
}

/// Runs of blocks that were unwritten.
fn unwritten_runs(pieces: &[Piece]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.backing == Backing::Unwritten) {
        match runs.last_mut() {
            Some((block, len)) if *block + *len == piece.block => *len += 1,
            _ => runs.push((piece.block, 1)),
        }
    }
    runs
}

/// Pieces, in the order of their places, cut into what one write takes.
fn runs<'a, 'b>(pieces: &'a [&'b Piece], block_size: u64) -> Vec<&'a [&'b Piece]> {
    let most = (WRITE_BYTES / block_size as usize).clamp(1, WRITE_PIECES);
    let adjacent = |a: &&Piece, b: &&Piece| a.device.map(|at| at + block_size) == b.device;
    pieces.chunk_by(adjacent).flat_map(|run| run.chunks(most)).collect()
}
