//! The end of a transaction: it returns what it reserved, and a cancel undoes all changes.
//!
//! 1. A cancel puts buffers back before it releases the first inode, each inode before its own lock, and
//!    releases the groups last.
//! 2. The memory for undoing is kept for later transactions, unless there is much of it.
//!
//! Called where a transaction is dropped, committed or not.

use std::sync::atomic::Ordering;

use super::scratch::Scratch;
use super::{CHUNK, Tx};
use crate::mount::Counters;

/// Undo memory above this size is not kept for later transactions.
const SCRATCH_MAX: usize = 1 << 20;

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
