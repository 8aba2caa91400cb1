//! The committed item list: what the open checkpoint holds.
//!
//! 1. An object is in it once, however often it changes. What is logged of the object is all that changed
//!    since it was last written in place, so the log's tail can pass its earlier copies.
//! 2. A commit adds objects while its transaction still holds them, with a copy of what is logged of them
//!    ([`super::copies`]). So the checkpoint can be cut between any two commits.
//! 3. The log space granted to it is never less than it will take.
//! 4. An intent whose done item is in the same checkpoint is not logged, nor is the done item.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::CORE_LEN;
use uxfs_format::log::{BufType, CHUNK, DoneItem, Icreate, IntentItem};
use uxfs_format::verify::BufKind;
use uxfs_format::{Daddr, Ino, dir};
use uxfs_journal::{LogGeometry, Records, Seq};

use super::copies::Copies;
use super::iclog::Iclog;
use super::item::{DONE_BYTES, Handle, INTENT_BYTES, SUPERBLOCK_BYTES};
use super::items;
use crate::buf::BufRef;
use crate::error::Error;
use crate::inode::Changed;
use crate::inode::{InodeRef, InodeState};
use crate::mount::Mount;

/// Bytes of a cancel item.
const CANCEL_BYTES: u64 = 84;
/// Bytes of an inode create item.
const ICREATE_BYTES: u64 = 28;

/// The offset in a new block from which on a chunk of zeroes has no meaning: it lies after the last
/// record, or in unused space, and no record is all zero. Such chunks need not be logged, because
/// their content after a recovery does not matter.
fn zeroes_mean_nothing_from(kind: BufKind, bytes: &[u8]) -> usize {
    match kind {
        BufKind::Btree(_) | BufKind::DirLeafN | BufKind::DaNode | BufKind::DirData => 0,
        // A slot of zeroes stands for a full data block, but only among the slots in use.
        BufKind::DirFree => dir::free::best_at(dir::free::nvalid(bytes)),
        _ => usize::MAX,
    }
}

/// The number of runs of chunks in a bitmap, each of which is a region, and the number of chunks.
fn runs(bitmap: &[u64]) -> (u64, u64) {
    let (mut runs, mut chunks, mut before) = (0, 0, 0);
    for word in bitmap {
        runs += u64::from((word & !(word << 1 | before)).count_ones());
        chunks += u64::from(word.count_ones());
        before = word >> 63;
    }
    (runs, chunks)
}

/// The chunks that begin before `from` or hold a byte that is not zero.
fn without_zeroes(chunks: &[u64], bytes: &[u8], from: usize) -> SmallVec<[u64; 1]> {
    let mut left = SmallVec::from_slice(chunks);
    for (at, chunk) in bytes.chunks(CHUNK).enumerate().skip(from.div_ceil(CHUNK)) {
        if chunk.iter().all(|byte| *byte == 0) {
            left[at / 64] &= !(1 << (at % 64));
        }
    }
    left
}

/// The open checkpoint's items.
pub(crate) struct Cil {
    /// Its number.
    pub(crate) seq: Seq,
    /// Changed objects.
    pub(crate) objects: Vec<Handle>,
    /// With delayed logging, the copies of what is logged of each object.
    pub(super) copies: Copies,
    /// An error in formatting an object. Nothing of this checkpoint may be written then.
    pub(super) failed: Option<Error>,
    /// New inode chunks, and the buffers that hold them.
    pub(crate) chunks: Vec<Icreate>,
    /// Buffers whose blocks were freed: address and bytes.
    pub(crate) cancelled: BTreeMap<(Daddr, usize), ()>,
    /// Remote attribute values, which are not logged but written before the checkpoint.
    pub(crate) values: Vec<BufRef>,
    /// Freed objects, which are tracked until the checkpoint is durable.
    pub(crate) gone: Vec<Handle>,
    /// Intents by their ids.
    pub(crate) intents: BTreeMap<u64, IntentItem>,
    /// Done items of intents in earlier checkpoints.
    pub(crate) dones: Vec<DoneItem>,
    /// Ids of intents and done items that formatted transactions of this checkpoint hold.
    pub(super) told: (Vec<u64>, Vec<u64>),
    /// Log space granted to it.
    pub(crate) granted: u64,
    /// With immediate logging, the log buffer that is being filled.
    pub(crate) iclog: Option<Iclog>,
    /// The superblock changed in the transaction that is being added.
    pub(super) superblock_now: bool,
    /// Number of objects that were logged before and not written in place since, and their bytes in
    /// the log.
    pub(super) relogged: (u64, u64),
    /// Index of the superblock in the list.
    superblock: Option<u32>,
    regions: u64,
    bytes: u64,
}

impl Cil {
    /// An empty checkpoint. Its copies use the memory of `slabs` first.
    pub(crate) fn new(seq: Seq, iclog: Option<Iclog>, slabs: Vec<Vec<u8>>) -> Self {
        Self {
            seq,
            objects: Vec::new(),
            copies: Copies::new(slabs),
            failed: None,
            chunks: Vec::new(),
            cancelled: BTreeMap::new(),
            values: Vec::new(),
            gone: Vec::new(),
            intents: BTreeMap::new(),
            dones: Vec::new(),
            told: (Vec::new(), Vec::new()),
            granted: 0,
            iclog,
            superblock_now: false,
            relogged: (0, 0),
            superblock: None,
            regions: 0,
            bytes: 0,
        }
    }

    /// Is it empty?
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.iclog.as_ref().is_none_or(|iclog| iclog.count == 0)
            && self.chunks.is_empty()
            && self.cancelled.is_empty()
            && self.values.is_empty()
            && self.gone.is_empty()
            && self.intents.is_empty()
            && self.dones.is_empty()
    }

    /// Adds an object to the list. Returns its index.
    fn add(&mut self, object: Handle) -> u32 {
        self.objects.push(object);
        (self.objects.len() - 1) as u32
    }

    /// Adds a buffer that changed in these chunks.
    pub(crate) fn buffer(&mut self, buf: &BufRef, chunks: &[u64], fresh: bool) {
        let mut content = buf.content.write();
        let kind = content.kind;
        let written: SmallVec<[u64; 1]>;
        let chunks = match fresh {
            true => {
                let from = zeroes_mean_nothing_from(kind, &content.bytes);
                written = without_zeroes(chunks, &content.bytes, from);
                &written
            }
            false => chunks,
        };
        let log = &mut content.log;
        if fresh {
            for piece in buf.pieces() {
                self.cancelled.remove(&(piece.daddr, piece.len as usize));
            }
        }
        let new = log.changed != self.seq.0;
        log.changed = self.seq.0;
        if kind == BufKind::InodeCluster {
            // Its chunk's item creates it, and its inodes are logged as inodes.
            debug_assert!(fresh, "inode clusters change through their inodes");
            log.slot = Some(self.add(Handle::Buf(buf.clone())));
            return;
        }
        if kind == BufKind::AttrRemote {
            debug_assert!(fresh, "a remote value is never changed");
            log.slot = None;
            self.values.push(buf.clone());
            return;
        }
        if new && planted(Fault::NotRelogged) {
            log.chunks.clear();
        }
        if log.chunks.len() < chunks.len() {
            log.chunks.resize(chunks.len(), 0);
        }
        let (known_runs, known_chunks) = runs(&log.chunks);
        for (known, more) in log.chunks.iter_mut().zip(chunks) {
            *known |= more;
        }
        let (all_runs, all_chunks) = runs(&log.chunks);
        if known_chunks > 0 && (new || self.iclog.is_some()) {
            self.relogged.0 += 1;
            self.relogged.1 += known_chunks * CHUNK as u64;
        }
        if new {
            let pieces = buf.pieces().len() as u64;
            let map = (buf.len() / CHUNK / 8 + 4) as u64;
            // A run that continues in the next piece counts twice, and each piece has its format.
            self.regions += all_runs + 2 * pieces - 1;
            self.bytes += all_chunks * CHUNK as u64 + pieces * (20 + 4) + map;
            log.slot = Some(self.add(Handle::Buf(buf.clone())));
        } else {
            // Two runs may have joined.
            self.regions = (self.regions + all_runs).saturating_sub(known_runs);
            self.bytes += (all_chunks - known_chunks) * CHUNK as u64;
        }
        if let (None, Some(slot)) = (&self.iclog, content.log.slot) {
            let logged = &content.log.chunks;
            let changed = if new { logged } else { chunks };
            self.copies.buffer(slot, BufType::of(kind), &content.bytes, logged, changed);
        }
    }

    /// Cancels a buffer whose block was freed.
    pub(crate) fn cancel(&mut self, buf: &BufRef) {
        let mut content = buf.content.write();
        content.log.died = self.seq.0;
        if let Some(slot) = content.log.slot.filter(|_| content.log.changed == self.seq.0) {
            self.copies.forget(slot);
        }
        if content.kind != BufKind::AttrRemote && !planted(Fault::CancelMissing) {
            for piece in buf.pieces() {
                self.cancelled.insert((piece.daddr, piece.len as usize), ());
                self.regions += 1;
                self.bytes += CANCEL_BYTES;
            }
        }
        self.gone.push(Handle::Buf(buf.clone()));
    }

    /// Cancels a buffer that is not in memory and whose block was freed. Its earlier items, though
    /// written in place, must not be replayed over the new content.
    pub(crate) fn cancel_place(&mut self, daddr: Daddr, len: usize) {
        if self.cancelled.insert((daddr, len), ()).is_none() {
            self.regions += 1;
            self.bytes += CANCEL_BYTES;
        }
    }

    /// Adds an inode that changed in these parts.
    pub(crate) fn inode(
        &mut self,
        fs: &Mount,
        cell: &InodeRef,
        state: &mut InodeState,
        parts: Changed,
        unlinked: bool,
    ) {
        let log = &mut state.log;
        if !log.parts.is_empty() && (self.iclog.is_some() || log.changed != self.seq.0) {
            self.relogged.0 += 1;
            self.relogged.1 += CORE_LEN as u64;
        }
        log.parts |= parts;
        log.unlinked |= unlinked;
        if log.changed != self.seq.0 {
            log.changed = self.seq.0;
            log.counted = (0, 0);
            log.slot = self.add(Handle::Inode(state.ino, cell.clone()));
        }
        // Its present size: the size of a checkpoint is the sum of these, and most inodes have
        // empty forks.
        let (regions, bytes) = items::inode_size(state);
        let counted = &mut state.log.counted;
        self.regions += u64::from(regions.saturating_sub(counted.0));
        self.bytes += u64::from(bytes.saturating_sub(counted.1));
        *counted = (counted.0.max(regions), counted.1.max(bytes));
        if self.iclog.is_none() {
            let copied =
                self.copies.regions(state.log.slot, |regions| items::inode(fs, state, regions));
            self.failed = self.failed.take().or(copied.err());
        }
    }

    /// Drops an inode whose chunk was freed.
    pub(crate) fn inode_gone(&mut self, ino: Ino, cell: InodeRef) {
        self.gone.push(Handle::Inode(ino, cell));
    }

    /// Adds a new inode chunk.
    pub(crate) fn chunk(&mut self, chunk: Icreate) {
        if !planted(Fault::IcreateMissing) {
            self.chunks.push(chunk);
        }
        self.regions += 1;
        self.bytes += ICREATE_BYTES;
    }

    /// Adds an intent.
    pub(crate) fn announce(&mut self, item: IntentItem) {
        self.regions += 1;
        self.bytes += INTENT_BYTES;
        self.intents.insert(item.id, item);
    }

    /// Adds the done item of an intent.
    pub(crate) fn done(&mut self, item: DoneItem) {
        if self.intents.remove(&item.id).is_some() {
            self.regions -= 1;
            self.bytes -= INTENT_BYTES;
        } else {
            self.regions += 1;
            self.bytes += DONE_BYTES;
            self.dones.push(item);
        }
    }

    /// Adds the superblock, which changed in more than its counters.
    pub(crate) fn superblock(&mut self, fs: &Mount) {
        self.superblock_now = true;
        let slot = match self.superblock {
            Some(slot) => slot,
            None => {
                self.regions += 2;
                self.bytes += SUPERBLOCK_BYTES;
                let slot = self.add(Handle::Superblock);
                *self.superblock.insert(slot)
            }
        };
        if self.iclog.is_none() {
            let copied = self.copies.regions(slot, |regions| {
                items::superblock(fs, regions);
                Ok(())
            });
            self.failed = self.failed.take().or(copied.err());
        }
    }

    /// Writes a checkpoint's transaction into `records`.
    pub(super) fn write(&self, records: &mut Records, tid: u32) {
        records.begin(tid);
        for chunk in &self.chunks {
            records.region(&chunk.encode());
        }
        let gone = |handle: &Handle| match handle {
            Handle::Inode(_, cell) => Some(Arc::as_ptr(cell)),
            _ => None,
        };
        let gone: FxHashSet<_> = self.gone.iter().filter_map(gone).collect();
        for (slot, object) in self.objects.iter().enumerate() {
            match object {
                Handle::Buf(buf) => self.copies.write_buffer(slot, buf, records),
                Handle::Inode(_, cell) if gone.contains(&Arc::as_ptr(cell)) => {}
                Handle::Inode(..) | Handle::Superblock => self.copies.write_regions(slot, records),
                Handle::Intent(_) => {}
            }
        }
        for intent in self.intents.values() {
            intent.encode().iter().for_each(|region| records.region(region));
        }
        for done in &self.dones {
            records.region(&done.encode());
        }
        for (daddr, len) in self.cancelled.keys() {
            items::cancel(*daddr, *len, records);
        }
        records.commit();
    }

    /// Notes that everything added so far was formatted.
    pub(super) fn formatted(&mut self) {
        (self.regions, self.bytes) = (0, 0);
    }

    /// Upper bound of its bytes in the log.
    pub(crate) fn most_bytes(&self, geometry: &LogGeometry) -> u64 {
        match &self.iclog {
            Some(iclog) => iclog.records.sealed_len(),
            None => geometry.most_bytes(1, self.regions, self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use uxfs_format::log::{Intent, IntentKind};

    use super::*;

    fn intent(id: u64) -> IntentItem {
        IntentItem { kind: IntentKind::Free, id, intent: Intent::Free(Vec::new()) }
    }

    fn done(id: u64) -> DoneItem {
        DoneItem { kind: IntentKind::Free, id, extents: Vec::new() }
    }

    #[test]
    fn runs_continue_across_words() {
        assert_eq!(runs(&[]), (0, 0));
        assert_eq!(runs(&[0b1011_0001]), (3, 4));
        assert_eq!(runs(&[u64::MAX, 1]), (1, 65));
        assert_eq!(runs(&[1 << 63, 0b101]), (2, 3));
        assert_eq!(runs(&[1, 2]), (2, 2));
    }

    #[test]
    fn unused_zeroes_are_not_logged() {
        let mut index = vec![0; 4096];
        index[..4].copy_from_slice(&dir::free::MAGIC.to_be_bytes());
        index[dir::free::NVALID..][..4].copy_from_slice(&130u32.to_be_bytes());
        let from = zeroes_mean_nothing_from(BufKind::DirFree, &index);
        // 64 bytes of header, and 130 slots of full data blocks.
        assert_eq!(without_zeroes(&[u64::MAX >> 32], &index, from)[..], [0b111]);
        index[4095] = 1;
        assert_eq!(without_zeroes(&[u64::MAX >> 32], &index, from)[..], [0b111 | 1 << 31]);
        let from = zeroes_mean_nothing_from(BufKind::DirLeafN, &index);
        assert_eq!(without_zeroes(&[u64::MAX >> 32], &index, from)[..], [1 | 1 << 31]);
        let from = zeroes_mean_nothing_from(BufKind::DirLeaf1, &index);
        assert_eq!(without_zeroes(&[u64::MAX >> 32], &index, from)[..], [u64::MAX >> 32]);
    }

    #[test]
    fn an_intent_that_is_done_at_once_is_not_logged() {
        let mut first = Cil::new(Seq(1), None, Vec::new());
        first.announce(intent(1));
        first.announce(intent(2));
        first.done(done(1));
        assert_eq!(first.intents.keys().collect::<Vec<_>>(), [&2]);
        assert!(first.dones.is_empty() && !first.is_empty());
        assert_eq!((first.regions, first.bytes), (1, INTENT_BYTES));
        let mut second = Cil::new(Seq(2), None, Vec::new());
        second.done(done(2));
        assert!(second.intents.is_empty() && !second.is_empty());
        assert_eq!((second.regions, second.bytes), (1, DONE_BYTES));
        let mut third = Cil::new(Seq(3), None, Vec::new());
        third.announce(intent(3));
        third.done(done(3));
        assert!(third.is_empty());
        assert_eq!((third.regions, third.bytes), (0, 0));
    }
}
