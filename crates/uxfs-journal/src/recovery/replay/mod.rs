//! Replay: what the volume looks like once everything committed in the log is done.
//!
//! 1. The log is gone through twice: first for buffers that were freed later (what earlier
//!    transactions say of them must not be replayed, their blocks may be something else by now),
//!    then to replay.
//! 2. Transactions are replayed in the order of their commits. Inside one: buffers and new chunks
//!    of inodes; inodes, quota records and intents; buffers of unlinked lists; cancels.
//! 3. What is newer than the transaction stays. A buffer is newer if its LSN is not smaller, an
//!    inode if its LSN is greater; transactions that start in one record have one LSN, so what a
//!    transaction of this LSN has replayed itself is never newer.
//! 4. A structure whose checksum does not match was torn while it was written: its LSN tells
//!    nothing, and everything that the log has of it is replayed.
//! 5. All is changed in an [`Overlay`]; checksums are stamped and structures verified at the end.

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

/// What replay may use.
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

/// What replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records gone through.
    pub records: u64,
    /// Transactions replayed.
    pub transactions: u64,
    /// Transactions without a commit, which were dropped.
    pub dropped: u64,
    /// Items by kind.
    pub items: BTreeMap<ItemKind, u64>,
    /// Buffers and inodes that were replayed.
    pub replayed: u64,
    /// Those that were newer on the volume.
    pub newer: u64,
    /// Those that were freed later.
    pub cancelled: u64,
    /// Those found torn.
    pub torn: u64,
    /// The superblock's counters, if they were wrong: before, after.
    pub counters: Option<(Counters, Counters)>,
}

/// The outcome of a replay.
pub struct Replay {
    /// The volume, replayed.
    pub overlay: Arc<Overlay>,
    /// What was announced and not done, in the order of the log.
    pub intents: Vec<(Lsn, IntentItem)>,
    /// Lists of unlinked inodes that are not empty: group, bucket, first inode.
    pub unlinked: Vec<(AgNo, u32, AgIno)>,
    /// What was done.
    pub report: Report,
}

/// A buffer that the log talked of.
#[derive(Clone, Copy, Debug)]
struct Touched {
    bytes: u32,
    /// What it holds, by its latest item.
    kind: uxfs_format::log::BufType,
    /// The latest transaction replayed into it, if any was.
    replayed: Option<Lsn>,
    /// Its LSN, unless there is none or it cannot be believed.
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

/// Replays the log between the bounds found, over `dev`, which stays as it is. `sb` is the verified
/// superblock.
///
/// # Errors
/// If the device fails, the log holds what cannot be replayed, or a structure is damaged in the
/// end; nothing has happened then.
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
                Err(code) => return Err(bad(&format!("an item of unknown type {code:#06x}"))),
            }
        }
        Ok(())
    }

    fn replay_transaction(&mut self, transaction: &Transaction) -> Result<()> {
        let lsn = transaction.lsn;
        // By stages, each in the order of the log.
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

    /// From here on, what the log says of this buffer is about its next life.
    fn pass_cancel(&mut self, blkno: Daddr, len: u16) {
        let key = (blkno, len);
        if let Some(count) = self.cancels.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.cancels.remove(&key);
            }
        }
        // What was replayed of this life is not verified in the end: it is gone.
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

    /// After growth was replayed, the volume has another shape.
    fn refresh_geometry(&mut self) -> Result<()> {
        let mut sector = vec![0; self.geo.sector_size as usize];
        self.read(Daddr(0), &mut sector)?;
        self.geo = Geometry::new(Superblock::verify(&sector)?);
        Ok(())
    }
}
