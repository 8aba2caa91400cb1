//! Replays the committed transactions of the log into an overlay.
//!
//! 1. The log is read twice: first for cancelled buffers, which were freed later. What earlier
//!    transactions logged of them is not replayed, because their blocks may hold something else.
//!    Then to replay.
//! 2. Transactions are replayed in the order of their commits. Inside one, the order is: buffers
//!    and new inode chunks; inodes, quota records and intents; buffers of unlinked lists; cancels.
//! 3. An object newer than the transaction is left alone. A buffer is newer if its LSN is not
//!    smaller, an inode if its LSN is greater. Transactions that start in one record share one LSN,
//!    so an object that was replayed from this LSN is never newer.
//! 4. A structure whose checksum does not match was torn by the crash. Its LSN means nothing, and
//!    everything that the log has of it is replayed.
//! 5. All changes go to an [`Overlay`]. At the end checksums are stamped and structures verified.

mod bufs;
mod counters;
mod inodes;
mod intents;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uxfs_disk::fault::{Fault, planted};
use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::log::{BufFlags, IntentItem, Item, ItemKind, QuotaOff};
use uxfs_format::superblock::Superblock;
use uxfs_format::{AgIno, AgNo, Daddr, Geometry, Lsn};

use crate::recovery::area::Log;
use crate::recovery::assemble::{Assembler, Transaction};
use crate::recovery::error::{Error, Result};
use crate::recovery::find::Bounds;
use crate::recovery::walk::Walk;

pub use counters::Counters;
use intents::Intents;

/// Limits of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of changed blocks to hold in memory.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30 }
    }
}

/// Statistics of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records read.
    pub records: u64,
    /// Transactions replayed.
    pub transactions: u64,
    /// Transactions without a commit, which are not replayed.
    pub dropped: u64,
    /// Items by kind.
    pub items: BTreeMap<ItemKind, u64>,
    /// Buffers and inodes that were changed.
    pub replayed: u64,
    /// Buffers and inodes that were newer on the volume.
    pub newer: u64,
    /// Buffers and inodes that were freed later.
    pub cancelled: u64,
    /// Buffers, inodes and dquots that were torn.
    pub torn: u64,
    /// The superblock's counters before and after, if they were wrong.
    pub counters: Option<(Counters, Counters)>,
}

/// The outcome of a replay.
pub struct Replay {
    /// The volume after the replay.
    pub overlay: Arc<Overlay>,
    /// Pending intents in log order.
    pub intents: Vec<(Lsn, IntentItem)>,
    /// Unlinked lists that are not empty: group, bucket, first inode.
    pub unlinked: Vec<(AgNo, u32, AgIno)>,
    /// The statistics.
    pub report: Report,
}

/// A buffer that has log items.
#[derive(Clone, Copy, Debug)]
struct Touched {
    bytes: u32,
    /// Its type, by its latest item.
    kind: uxfs_format::log::BufType,
    /// The latest transaction that was replayed into it, if any.
    replayed: Option<Lsn>,
    /// Its LSN, unless it has none or it cannot be trusted.
    lsn: Option<Lsn>,
}

struct Replayer<'a> {
    log: &'a Log,
    geo: Geometry,
    overlay: Arc<Overlay>,
    cancels: FxHashMap<(Daddr, u16), u32>,
    quota_off: u32,
    touched: FxHashMap<(Daddr, u32), Touched>,
    intents: Intents,
    report: Report,
}

/// Replays the log between `bounds` over `dev`, which does not change. `sb` is the verified
/// superblock.
///
/// # Errors
/// If the device fails, the log holds something that cannot be replayed, or a structure is damaged
/// at the end. Nothing has changed then.
pub fn replay(
    dev: &Arc<dyn BlockDev>,
    log: &Log,
    bounds: &Bounds,
    sb: &Superblock,
    limits: Limits,
) -> Result<Replay> {
    let mut replayer = Replayer {
        log,
        geo: Geometry::new(sb),
        overlay: Arc::new(Overlay::new(Arc::clone(dev), limits.bytes)),
        cancels: FxHashMap::default(),
        quota_off: 0,
        touched: FxHashMap::default(),
        intents: Intents::new(sb),
        report: Report::default(),
    };
    let (from, to) = (bounds.tail.block().into(), bounds.head.block().into());
    replayer.pass(dev, from, to, Replayer::gather_cancels)?;
    replayer.report = Report::default();
    replayer.pass(dev, from, to, Replayer::replay_transaction)?;
    replayer.finish_buffers()?;
    replayer.refresh_geometry()?;
    let (counters, unlinked) = replayer.read_groups()?;
    replayer.report.counters = replayer.set_counters(counters)?;
    Ok(Replay {
        overlay: replayer.overlay,
        intents: replayer.intents.open(),
        unlinked,
        report: replayer.report,
    })
}

impl Replayer<'_> {
    fn pass(
        &mut self,
        dev: &Arc<dyn BlockDev>,
        from: u64,
        to: u64,
        mut each: impl FnMut(&mut Self, &Transaction) -> Result<()>,
    ) -> Result<()> {
        let mut walk = Walk::new(self.log, &**dev, from, to)?;
        let mut open = Assembler::default();
        while let Some(record) = walk.next_record()? {
            record.check(self.log)?;
            self.report.records += 1;
            open.feed(&record, |transaction| {
                self.report.transactions += 1;
                each(self, &transaction)
            })?;
        }
        self.report.dropped = open.open() as u64;
        Ok(())
    }

    fn gather_cancels(&mut self, transaction: &Transaction) -> Result<()> {
        for raw in transaction.items() {
            let bad = |problem: &dyn ToString| Error::item(transaction.lsn, problem.to_string());
            match raw.kind() {
                Ok(ItemKind::Buf) => {
                    if let Item::Buf(format, _) = raw.parse().map_err(|e| bad(&e))?
                        && format.flags.contains(BufFlags::CANCEL)
                    {
                        *self.cancels.entry((format.blkno, format.len)).or_default() += 1;
                    }
                }
                Ok(ItemKind::QuotaOff) => {
                    if let Item::QuotaOff(QuotaOff { flags }) = raw.parse().map_err(|e| bad(&e))? {
                        self.quota_off |= flags;
                    }
                }
                Ok(_) => {}
                Err(code) => return Err(bad(&format!("an item has the unknown type {code:#06x}"))),
            }
        }
        Ok(())
    }

    fn replay_transaction(&mut self, transaction: &Transaction) -> Result<()> {
        let lsn = transaction.lsn;
        // In stages, each in log order.
        let mut stages: [Vec<Item<'_>>; 4] = [const { Vec::new() }; 4];
        for raw in transaction.items() {
            let item = raw.parse().map_err(|e| Error::item(lsn, e))?;
            if let Ok(kind) = raw.kind() {
                *self.report.items.entry(kind).or_default() += 1;
            }
            let stage = match &item {
                Item::Buf(format, _) if format.flags.contains(BufFlags::CANCEL) => 3,
                Item::Buf(format, _) if format.flags.contains(BufFlags::INODE) => 2,
                Item::Buf(..) | Item::Icreate(_) => 0,
                _ => 1,
            };
            stages[stage].push(item);
        }
        for item in stages.iter().flatten() {
            self.replay_item(lsn, item)?;
        }
        Ok(())
    }

    fn replay_item(&mut self, lsn: Lsn, item: &Item<'_>) -> Result<()> {
        match item {
            Item::Buf(format, _) if format.flags.contains(BufFlags::CANCEL) => {
                self.pass_cancel(format.blkno, format.len);
                Ok(())
            }
            Item::Buf(format, pieces) if format.flags.contains(BufFlags::INODE) => {
                self.replay_unlinked_list(lsn, format, pieces)
            }
            Item::Buf(format, pieces) => self.replay_buffer(lsn, format, pieces),
            Item::Icreate(icreate) => self.replay_icreate(lsn, icreate),
            Item::Inode { format, core, data, attr } => {
                self.replay_inode(lsn, format, core, *data, *attr)
            }
            Item::Dquot(format, record) => self.replay_dquot(lsn, format, record),
            Item::QuotaOff(_) => Ok(()),
            Item::Intent(intent) => {
                let problem = self.intents.add(lsn, intent.clone(), &self.geo);
                problem.map_err(|problem| Error::item(lsn, problem))
            }
            Item::Done(done) => {
                self.intents.done(done);
                Ok(())
            }
        }
    }

    fn is_cancelled(&self, blkno: Daddr, len: u16) -> bool {
        self.cancels.contains_key(&(blkno, len)) && !planted(Fault::CancelIgnored)
    }

    /// Passes a cancel: later items of this address belong to the next use of its blocks.
    fn pass_cancel(&mut self, blkno: Daddr, len: u16) {
        let key = (blkno, len);
        if let Some(count) = self.cancels.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.cancels.remove(&key);
            }
        }
        // The replayed buffer is not verified at the end, because it was freed.
        self.touched.remove(&(blkno, u32::from(len) * 512));
    }

    fn read(&self, daddr: Daddr, bytes: &mut [u8]) -> Result<()> {
        let io = |source| Error::Io { what: "reading", daddr, source };
        self.overlay.read_at(daddr.0.saturating_mul(512), bytes).map_err(io)
    }

    fn write(&self, daddr: Daddr, bytes: &[u8]) -> Result<()> {
        let io = |source| Error::Io { what: "keeping in memory", daddr, source };
        self.overlay.write_at(daddr.0.saturating_mul(512), bytes).map_err(io)
    }

    /// Recomputes the geometry after growth was replayed.
    fn refresh_geometry(&mut self) -> Result<()> {
        let mut sector = vec![0; self.geo.sector_size as usize];
        self.read(Daddr(0), &mut sector)?;
        self.geo = Geometry::new(Superblock::verify(&sector)?);
        Ok(())
    }
}
