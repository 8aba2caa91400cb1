//! The committed item list: what the open checkpoint holds.
//!
//! 1. An object is in it once, however often it changes. What is logged of the object is all that changed
//!    since it was last written in place, so the log's tail can pass its earlier copies.
//! 2. A commit adds objects while its transaction still holds them, with a copy of what is logged of them
//!    ([`crate::copies`]). So the checkpoint can be cut between any two commits.
//! 3. The log space granted to it is never less than it will take.
//! 4. An intent whose done item is in the same checkpoint is not logged, nor is the done item.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use uxfs_format::Daddr;
use uxfs_format::log::{BufItem, BufType, DoneItem, Icreate, IntentItem};

use crate::copies::Copies;
use crate::iclog::Iclog;
use crate::log_item::{LogItem, Regions};
use crate::pipeline::Seq;
use crate::records::{LogGeometry, Records};

/// Bytes of a cancel item.
const CANCEL_BYTES: u64 = 84;
/// Bytes of an inode create item.
const ICREATE_BYTES: u64 = 28;
/// Most bytes of an intent of one element.
pub const INTENT_BYTES: u64 = 16 + 32;
/// Most bytes of a done item.
pub const DONE_BYTES: u64 = 16 + 16;

/// The open checkpoint's items. `E` is an error in formatting one.
#[derive(Debug)]
pub struct Cil<I, E> {
    /// Its number.
    pub seq: Seq,
    /// Changed objects.
    pub objects: Vec<I>,
    /// With delayed logging, the copies of what is logged of each object.
    copies: Copies,
    /// An error in formatting an object. Nothing of this checkpoint may be written then.
    pub failed: Option<E>,
    /// New inode chunks, and the buffers that hold them.
    pub chunks: Vec<Icreate>,
    /// Buffers whose blocks were freed: address and bytes.
    pub cancelled: BTreeMap<(Daddr, usize), ()>,
    /// Remote attribute values, which are not logged but written before the checkpoint.
    pub values: Vec<I>,
    /// Freed objects, which are tracked until the checkpoint is durable.
    pub gone: Vec<I>,
    /// Intents by their ids.
    pub intents: BTreeMap<u64, IntentItem>,
    /// Done items of intents in earlier checkpoints.
    pub dones: Vec<DoneItem>,
    /// With immediate logging, the ids of intents that its transactions hold.
    pub logged_intents: Vec<u64>,
    /// With immediate logging, the ids of the intents whose done items its transactions hold.
    pub logged_dones: Vec<u64>,
    /// Log space granted to it.
    pub granted: u64,
    /// With immediate logging, the log buffer that is being filled.
    pub iclog: Option<Iclog>,
    /// The superblock changed in the transaction that is being added.
    pub superblock_now: bool,
    /// Number of objects that were logged before and not written in place since, and their bytes in
    /// the log.
    pub relogged: (u64, u64),
    /// Index of the superblock in the list.
    pub superblock: Option<u32>,
    regions: u64,
    bytes: u64,
}

impl<I: LogItem, E> Cil<I, E> {
    /// An empty checkpoint. Its copies use the memory of `slabs` first.
    pub fn new(seq: Seq, iclog: Option<Iclog>, slabs: Vec<Vec<u8>>) -> Self {
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
            logged_intents: Vec::new(),
            logged_dones: Vec::new(),
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
    pub fn is_empty(&self) -> bool {
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
    pub fn add(&mut self, object: I) -> u32 {
        self.objects.push(object);
        (self.objects.len() - 1) as u32
    }

    /// Accounts for regions of items, and bytes in them, that were added to the checkpoint.
    pub fn account(&mut self, regions: u64, bytes: u64) {
        self.regions += regions;
        self.bytes += bytes;
    }

    /// Accounts for an object whose regions are now `all` instead of `known`, with `bytes` more.
    pub fn account_change(&mut self, known: u64, all: u64, bytes: u64) {
        self.regions = (self.regions + all).saturating_sub(known);
        self.bytes += bytes;
    }

    /// Notes that an object is logged again that was not written in place since it was logged last.
    pub fn relog(&mut self, bytes: u64) {
        self.relogged.0 += 1;
        self.relogged.1 += bytes;
    }

    /// With immediate logging, objects are not copied, but formatted as their transaction commits.
    pub fn is_immediate(&self) -> bool {
        self.iclog.is_some()
    }

    /// Copies the regions that `put` writes, as what is logged of the object with this index.
    pub fn copy_regions(&mut self, slot: u32, put: impl FnOnce(&mut dyn Regions) -> Result<(), E>) {
        if !self.is_immediate() {
            let copied = self.copies.regions(slot, put);
            self.failed = self.failed.take().or(copied.err());
        }
    }

    /// Copies chunks of a buffer: `logged` of them are logged, of which `changed` are not in the copy or
    /// changed since.
    pub fn copy_chunks(
        &mut self,
        slot: u32,
        kind: BufType,
        bytes: &[u8],
        logged: &[u64],
        changed: &[u64],
    ) {
        if !self.is_immediate() {
            self.copies.buffer(slot, kind, bytes, logged, changed);
        }
    }

    /// Drops the copy of the object with this index.
    pub fn drop_copy(&mut self, slot: u32) {
        self.copies.forget(slot);
    }

    /// Returns the memory of the copies for a later checkpoint, and drops them.
    pub fn take_slabs(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.copies).into_slabs()
    }

    /// Cancels blocks that were freed: their earlier items, though written in place, must not be replayed
    /// over the new content.
    pub fn cancel_place(&mut self, daddr: Daddr, len: usize) {
        if self.cancelled.insert((daddr, len), ()).is_none() {
            self.regions += 1;
            self.bytes += CANCEL_BYTES;
        }
    }

    /// Adds a new inode chunk.
    pub fn chunk(&mut self, chunk: Icreate) {
        self.chunks.push(chunk);
        self.regions += 1;
        self.bytes += ICREATE_BYTES;
    }

    /// Adds an intent.
    pub fn announce(&mut self, item: IntentItem) {
        self.regions += 1;
        self.bytes += INTENT_BYTES;
        self.intents.insert(item.id, item);
    }

    /// Adds the done item of an intent.
    pub fn done(&mut self, item: DoneItem) {
        if self.intents.remove(&item.id).is_some() {
            self.regions -= 1;
            self.bytes -= INTENT_BYTES;
        } else {
            self.regions += 1;
            self.bytes += DONE_BYTES;
            self.dones.push(item);
        }
    }

    /// Writes a checkpoint's transaction into `records`.
    pub fn write(&self, records: &mut Records, tid: u32) {
        records.begin(tid);
        for chunk in &self.chunks {
            records.region(&chunk.encode());
        }
        let freed: FxHashSet<_> = self.gone.iter().filter_map(I::freed_address).collect();
        for (slot, object) in self.objects.iter().enumerate() {
            if object.freed_address().is_none_or(|address| !freed.contains(&address)) {
                object.format(self.copies.get(slot), records);
            }
        }
        for intent in self.intents.values() {
            intent.encode().iter().for_each(|region| records.region(region));
        }
        for done in &self.dones {
            records.region(&done.encode());
        }
        for (daddr, len) in self.cancelled.keys() {
            records.region(&BufItem::cancel(*daddr, *len).encode());
        }
        records.commit();
    }

    /// Notes that everything added so far was formatted.
    pub fn formatted(&mut self) {
        (self.regions, self.bytes) = (0, 0);
    }

    /// Upper bound of its bytes in the log.
    pub fn most_bytes(&self, geometry: &LogGeometry) -> u64 {
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
    use crate::log_item::tests::Item;

    type Cil = super::Cil<Item, ()>;

    fn intent(id: u64) -> IntentItem {
        IntentItem { kind: IntentKind::Free, id, intent: Intent::Free(Vec::new()) }
    }

    fn done(id: u64) -> DoneItem {
        DoneItem { kind: IntentKind::Free, id, extents: Vec::new() }
    }

    #[test]
    fn an_intent_done_in_its_own_checkpoint_is_not_logged() {
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
