//! Assembles transactions from the operations of records. Operations of several transactions may
//! alternate and continue over records.
//!
//! 1. Its memory is at most a few times the bytes of the log that it read, because a region is kept once, and
//!    at most [`OPEN_MAX`] transactions are open.

use rustc_hash::FxHashMap;
use uxfs_format::Lsn;
use uxfs_format::log::{
    BadItem, CLIENT_LOG, CLIENT_TRANSACTION, Item, ItemKind, MAX_REGIONS, OpFlags, OpHeader, Ops,
    TRANS_HEADER_LEN, TransHeader,
};

use crate::recovery::error::{Error, Result};
use crate::recovery::walk::Record;

/// Most transactions that are open at once. A start takes 12 bytes of the log and ten times as much memory. A
/// writer reserves log space before it starts a transaction, more than the 32 KiB for each that the longest
/// log has for so many.
const OPEN_MAX: usize = 1 << 16;

/// A transaction, or the part of it that was read so far.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// Its transaction id.
    pub tid: u32,
    /// The record that holds its start. Replay stamps this LSN into metadata.
    pub lsn: Lsn,
    /// The record that holds its commit.
    pub commit_lsn: Lsn,
    bytes: Vec<u8>,
    /// The end of each region in `bytes`. A region starts where the one before ends.
    ends: Vec<usize>,
    items: Vec<Span>,
    head: Vec<u8>,
}

/// The regions of an item: the first, how many it must have, how many were read.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: usize,
    want: usize,
    have: usize,
}

/// An item of a transaction, as undecoded regions.
#[derive(Clone, Debug)]
pub struct RawItem<'a> {
    regions: Vec<&'a [u8]>,
}

impl<'a> RawItem<'a> {
    /// Its kind, or the unknown type code.
    pub fn kind(&self) -> core::result::Result<ItemKind, u16> {
        let first = self.regions.first().and_then(|region| Item::first(region));
        first.map_or(Err(0), |(kind, _)| kind)
    }

    /// Decodes the item.
    ///
    /// # Errors
    /// If it is not a valid item of its kind.
    pub fn parse(&self) -> core::result::Result<Item<'a>, BadItem> {
        Item::parse(&self.regions)
    }
}

impl Transaction {
    /// Its items in log order.
    pub fn items(&self) -> impl Iterator<Item = RawItem<'_>> {
        self.items.iter().map(|span| RawItem {
            regions: (span.first..span.first + span.have).map(|at| self.region(at)).collect(),
        })
    }

    /// Number of bytes in all regions.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn region(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    /// Starts a region.
    fn add(&mut self, body: &[u8]) -> core::result::Result<(), String> {
        if body.is_empty() {
            return Ok(());
        }
        if self.items.is_empty() && self.head.len() < TRANS_HEADER_LEN {
            return self.add_head(body);
        }
        let full = self.items.last().is_none_or(|span| span.have == span.want);
        if full {
            let Some((_, want)) = Item::first(body) else {
                return Err(format!("the first region of an item has only {} bytes", body.len()));
            };
            if want == 0 || want > MAX_REGIONS {
                return Err(format!("an item claims {want} regions"));
            }
            self.items.push(Span { first: self.ends.len(), want, have: 0 });
        }
        if let Some(span) = self.items.last_mut() {
            span.have += 1;
        }
        self.bytes.extend_from_slice(body);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Adds to the transaction header, which may come in pieces.
    fn add_head(&mut self, body: &[u8]) -> core::result::Result<(), String> {
        self.head.extend_from_slice(body);
        match self.head.len() {
            TRANS_HEADER_LEN if TransHeader::parse(&self.head).is_none() => {
                Err("the header of a transaction has a wrong magic number".into())
            }
            ..=TRANS_HEADER_LEN => Ok(()),
            len => Err(format!("a transaction header has {len} bytes")),
        }
    }

    /// Continues the last region.
    fn extend(&mut self, body: &[u8]) -> core::result::Result<(), String> {
        if self.items.is_empty() {
            return self.add_head(body);
        }
        self.bytes.extend_from_slice(body);
        if let Some(end) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
        Ok(())
    }
}

/// Assembles transactions; holds those without a commit.
#[derive(Debug, Default)]
pub struct Assembler {
    open: FxHashMap<u32, Transaction>,
}

impl Assembler {
    /// Number of transactions without a commit so far.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Adds a record's operations, and calls `done` for each transaction that a commit completes.
    ///
    /// # Errors
    /// If an operation is invalid, or those of `done`.
    pub fn feed(
        &mut self,
        record: &Record<'_>,
        mut done: impl FnMut(Transaction) -> Result<()>,
    ) -> Result<()> {
        let bad = |problem: String| Error::damaged(record.block, problem);
        for op in Ops::new(record.data, record.header.num_ops) {
            let (header, body) = op.map_err(bad)?;
            if header.client != CLIENT_TRANSACTION && header.client != CLIENT_LOG {
                return Err(bad(format!("unknown operation client {:#04x}", header.client)));
            }
            let finished = self.take(record, &header, body).map_err(bad)?;
            if let Some(transaction) = finished {
                done(transaction)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        record: &Record<'_>,
        header: &OpHeader,
        body: &[u8],
    ) -> core::result::Result<Option<Transaction>, String> {
        let lsn = record.lsn();
        let Some(transaction) = self.open.get_mut(&header.tid) else {
            // A transaction that began before the tail is written in place already.
            if header.flags.contains(OpFlags::START) {
                if self.open.len() >= OPEN_MAX {
                    return Err(format!("more than {OPEN_MAX} transactions are open"));
                }
                let new = Transaction { tid: header.tid, lsn, ..Transaction::default() };
                self.open.insert(header.tid, new);
            }
            return Ok(None);
        };
        let mut flags = header.flags - OpFlags::END;
        if flags.contains(OpFlags::WAS_CONT) {
            flags -= OpFlags::CONTINUE;
        }
        match flags {
            f if f.is_empty() || f == OpFlags::CONTINUE => transaction.add(body)?,
            OpFlags::WAS_CONT => transaction.extend(body)?,
            OpFlags::UNMOUNT => {
                self.open.remove(&header.tid);
            }
            OpFlags::COMMIT => {
                let whole = self.open.remove(&header.tid);
                return Ok(whole.map(|whole| Transaction { commit_lsn: lsn, ..whole }));
            }
            other => return Err(format!("an operation has invalid flags {:#04x}", other.bits())),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use uxfs_format::log::RecordHeader;

    use super::*;

    #[test]
    fn open_transactions_are_limited() {
        let mut open = Assembler::default();
        let mut feed = |tids: core::ops::Range<u32>| {
            let op = |tid| OpHeader::new(tid, 0, OpFlags::START).encode();
            let data: Vec<u8> = tids.clone().flat_map(op).collect();
            let mut header = RecordHeader::new(Lsn::new(1, 0), Lsn::new(1, 0), [0; 16], 32 << 10);
            header.num_ops = tids.len() as u32;
            let record = Record { block: 0, header, data: &data, intact: true, in_place: true };
            open.feed(&record, |_| Ok(()))
        };
        let most = OPEN_MAX as u32;
        feed(0..most).unwrap();
        let error = feed(most..most + 1).unwrap_err();
        assert!(error.to_string().contains("transactions are open"), "{error}");
    }
}
