//! The buffers that a transaction changes.
//!
//! 1. A buffer belongs to one transaction from its first change until the end ([`Tx::edit`]).
//! 2. A chunk's old content is kept before its first change, for a cancel.
//! 3. The buffer of a block that is freed is not written again, and its items in the log are cancelled.
//!
//! Called by everything that changes a block.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use uxfs_format::AgNo;
use uxfs_format::bytes::{Field, Number};
use uxfs_format::verify::BufKind;
use uxfs_sync::MappedRwLockWriteGuard;

use super::scratch::{TxBuf, UndoChunk};
use super::{CHUNK, Tx};
use crate::buf::{BufRef, Pieces};

impl Tx<'_> {
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
}
