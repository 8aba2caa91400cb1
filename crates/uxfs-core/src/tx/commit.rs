//! The commit of a transaction: its changes go into the open checkpoint, or with immediate logging into a log
//! transaction of their own; without a journal, into the dirty sets.
//!
//! 1. Whatever can fail comes before [`Tx::commit_items`].
//!
//! Called by the operations, and by a roll ([`super::roll`]) for what was done so far.

use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::Flags2;

use super::scratch::TxBuf;
use super::{Tx, TxInode};
use crate::error::Result;
use crate::inode::Changed;
use crate::journal::{
    Cil, Handle, ImmediateWriter, Journal, buf_item, dquot_item, inode_item, superblock_item,
};
use crate::mount::Counters;

impl Tx<'_> {
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
    pub(super) fn commit_items(&mut self, goes_on: bool) {
        for entry in self.inodes.iter_mut().filter(|entry| !entry.changed.is_empty()) {
            let core = &mut entry.guard.core;
            core.changecount = core.changecount.wrapping_add(1);
            // An inode from before an upgrade takes part in it when it is logged.
            if self.fs.geo.has_bigtime() {
                core.flags2 |= Flags2::BIGTIME;
            }
            core.limit_times();
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
        let batch = journal.batches_begun();
        if self.fs.ordered && !self.freed.is_empty() {
            let blocks = self.freed.iter().map(|(_, _, len)| u64::from(*len)).sum();
            self.fs.unsettled.add(seq, batch, blocks);
        }
        for (ag, start, len) in self.freed.drain(..) {
            if let Some((_, state)) = self.ags.iter_mut().find(|(held, _)| *held == ag) {
                state.busy.add(seq, batch, start, len);
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
}
