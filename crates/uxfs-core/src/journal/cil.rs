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

/// Bytes of the item that cancels a buffer.
const CANCEL_BYTES: u64 = 84;
/// Bytes of the item that makes a chunk.
const ICREATE_BYTES: u64 = 28;

/// Where the part of a new block begins in which nobody looks at a chunk of zeroes: it lies behind the
/// last record, or within unused space, while no record is all zero. Such chunks need not be logged:
/// whatever lies there after a recovery does not matter.
fn zeroes_mean_nothing_from(kind: BufKind, bytes: &[u8]) -> usize {
    match kind {
        BufKind::Btree(_) | BufKind::DirLeafN | BufKind::DaNode | BufKind::DirData => 0,
        // A slot of zeroes tells of a full data block, but only among those in use.
        BufKind::DirFree => dir::free::best_at(dir::free::nvalid(bytes)),
        _ => usize::MAX,
    }
}

/// How many runs of chunks there are in a bitmap of them, each a region of the log, and how many
/// chunks.
fn runs(bitmap: &[u64]) -> (u64, u64) {
    let (mut runs, mut chunks, mut before) = (0, 0, 0);
    for word in bitmap {
        runs += u64::from((word & !(word << 1 | before)).count_ones());
        chunks += u64::from(word.count_ones());
        before = word >> 63;
    }
    (runs, chunks)
}

/// Those of the chunks that begin before `from`, or in which not every byte is zero.
fn without_zeroes(chunks: &[u64], bytes: &[u8], from: usize) -> SmallVec<[u64; 1]> {
    let mut left = SmallVec::from_slice(chunks);
    for (at, chunk) in bytes.chunks(CHUNK).enumerate().skip(from.div_ceil(CHUNK)) {
        if chunk.iter().all(|byte| *byte == 0) {
            left[at / 64] &= !(1 << (at % 64));
        }
    }
    left
}

/// The gathering checkpoint.
pub(crate) struct Cil {
    /// Its number.
    pub(crate) seq: Seq,
    /// Objects that changed.
    pub(crate) objects: Vec<Handle>,
    /// With delayed logging, what is logged of each.
    pub(super) copies: Copies,
    /// What went wrong when an object was formatted: nothing of this may be written.
    pub(super) failed: Option<Error>,
    /// Chunks of inodes that were made, and the buffers they lie in.
    pub(crate) chunks: Vec<Icreate>,
    /// Buffers whose blocks were freed: address and bytes.
    pub(crate) cancelled: BTreeMap<(Daddr, usize), ()>,
    /// Remote attribute values: not logged, but written before the checkpoint is.
    pub(crate) values: Vec<BufRef>,
    /// Objects that are no more: followed until this is durable.
    pub(crate) gone: Vec<Handle>,
    /// Steps that are announced, by their numbers.
    pub(crate) intents: BTreeMap<u64, IntentItem>,
    /// Steps that an earlier checkpoint announced, and that are done.
    pub(crate) dones: Vec<DoneItem>,
    /// Steps that formatted transactions of it announced, and that they say are done.
    pub(super) told: (Vec<u64>, Vec<u64>),
    /// Promised of the log for what is in it.
    pub(crate) granted: u64,
    /// With immediate logging, the log buffers that fill with transactions.
    pub(crate) iclog: Option<Iclog>,
    /// The superblock changed in the transaction that is being taken in.
    pub(super) superblock_now: bool,
    /// Objects that were in the log already and not home, and bytes of them that were.
    pub(super) relogged: (u64, u64),
    /// Place of the superblock in the list.
    superblock: Option<u32>,
    regions: u64,
    bytes: u64,
}

impl Cil {
    /// An empty one, whose copies take their memory from `slabs` first.
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

    /// Is there nothing in it?
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

    /// Adds an object to the list; its place.
    fn add(&mut self, object: Handle) -> u32 {
        self.objects.push(object);
        (self.objects.len() - 1) as u32
    }

    /// A buffer changed in these chunks.
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
            // Made by its chunk's item; its inodes are logged as such.
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
            // A run that goes on in the next piece is two, and each piece has its format.
            self.regions += all_runs + 2 * pieces - 1;
            self.bytes += all_chunks * CHUNK as u64 + pieces * (20 + 4) + map;
            log.slot = Some(self.add(Handle::Buf(buf.clone())));
        } else {
            // Two runs may have become one.
            self.regions = (self.regions + all_runs).saturating_sub(known_runs);
            self.bytes += (all_chunks - known_chunks) * CHUNK as u64;
        }
        if let (None, Some(slot)) = (&self.iclog, content.log.slot) {
            let logged = &content.log.chunks;
            let changed = if new { logged } else { chunks };
            self.copies.buffer(slot, BufType::of(kind), &content.bytes, logged, changed);
        }
    }

    /// A buffer's block was freed.
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

    /// The block of a buffer that is not in memory was freed: what the log says of it, though it is
    /// home, must not be replayed over what comes there.
    pub(crate) fn cancel_place(&mut self, daddr: Daddr, len: usize) {
        if self.cancelled.insert((daddr, len), ()).is_none() {
            self.regions += 1;
            self.bytes += CANCEL_BYTES;
        }
    }

    /// An inode changed in these parts.
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
        // As it is now: a checkpoint's size is counted by this, and most inodes have empty forks.
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

    /// Inodes whose chunk was given back are no more.
    pub(crate) fn inode_gone(&mut self, ino: Ino, cell: InodeRef) {
        self.gone.push(Handle::Inode(ino, cell));
    }

    /// A chunk of inodes was made.
    pub(crate) fn chunk(&mut self, chunk: Icreate) {
        if !planted(Fault::IcreateMissing) {
            self.chunks.push(chunk);
        }
        self.regions += 1;
        self.bytes += ICREATE_BYTES;
    }

    /// A step is owed.
    pub(crate) fn announce(&mut self, item: IntentItem) {
        self.regions += 1;
        self.bytes += INTENT_BYTES;
        self.intents.insert(item.id, item);
    }

    /// An announced step is done.
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

    /// The superblock changed in more than its counters.
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

    /// What was taken in has been formatted.
    pub(super) fn formatted(&mut self) {
        (self.regions, self.bytes) = (0, 0);
    }

    /// Most bytes of the log that it takes.
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
    fn runs_go_across_words() {
        assert_eq!(runs(&[]), (0, 0));
        assert_eq!(runs(&[0b1011_0001]), (3, 4));
        assert_eq!(runs(&[u64::MAX, 1]), (1, 65));
        assert_eq!(runs(&[1 << 63, 0b101]), (2, 3));
        assert_eq!(runs(&[1, 2]), (2, 2));
    }

    #[test]
    fn zeroes_that_nobody_looks_at() {
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
