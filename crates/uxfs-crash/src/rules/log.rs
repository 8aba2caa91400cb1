//! The log as it is written: a stream of records, and the transactions in them.
//!
//! A position counts bytes since the log was made: cycle times length, plus the offset in the log.

use std::collections::VecDeque;

use uxfs_format::Lsn;
use uxfs_format::log::{RecordHeader, bump, checksum, cycle_of, is_header, restore_words};
use uxfs_journal::recovery::{Assembler, Record, Transaction};

use super::Rule;

/// Bytes before the head in which recovery looks for holes.
const WINDOW: u64 = 2 << 20;
const BLOCK: usize = 512;

struct WrittenRecord {
    tail: u64,
    /// Event at which its last byte was written; `None` before that.
    ended: Option<u64>,
    /// Forced with its last write.
    forced: bool,
    /// Bytes up to its end.
    end: u64,
    /// Numbers of the checkpoints that it commits.
    commits: Vec<u64>,
}

pub(super) struct Stream {
    start: u64,
    length: u64,
    uuid: [u8; 16],
    /// Position of the next byte.
    next: u64,
    partial: Vec<u8>,
    /// Records that are not durable.
    records: VecDeque<WrittenRecord>,
    /// Tail of the last record, and of the last durable one.
    tail: u64,
    safe_tail: u64,
    /// Writes of the log that are not safe: events of their ends, bytes.
    unsafe_writes: VecDeque<(u64, u64)>,
    assembler: Assembler,
}

/// The effects of a record.
pub(super) struct RecordEffects {
    /// Its tail, if it moved.
    pub(super) tail: Option<u64>,
    /// Transactions that it completes.
    pub(super) transactions: Vec<Transaction>,
    /// Position of its start.
    pub(super) at: u64,
}

impl Stream {
    /// A stream that begins at `head` of a clean log.
    pub(super) fn new(start: u64, length: u64, uuid: [u8; 16], head: Lsn) -> Self {
        let next = u64::from(head.cycle()) * length + u64::from(head.block()) * BLOCK as u64;
        Self {
            start,
            length,
            uuid,
            next,
            partial: Vec::new(),
            records: VecDeque::new(),
            tail: next,
            safe_tail: next,
            unsafe_writes: VecDeque::new(),
            assembler: Assembler::default(),
        }
    }

    /// Does a byte of the device belong to the log?
    pub(super) fn holds(&self, offset: u64) -> bool {
        (self.start..self.start + self.length).contains(&offset)
    }

    pub(super) fn position(&self, lsn: Lsn) -> u64 {
        u64::from(lsn.cycle()) * self.length + u64::from(lsn.block()) * BLOCK as u64
    }

    /// Adds bytes written to the log. Returns the effects of the records among them. `number` is
    /// that of the next checkpoint.
    pub(super) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        mut number: u64,
    ) -> Result<Vec<RecordEffects>, (Rule, String)> {
        let place = self.start + self.next % self.length;
        if offset != place {
            let problem = format!("the log goes on at daddr {}", place / 512);
            return Err((Rule::Order, problem));
        }
        let in_flight: u64 = self.unsafe_writes.iter().map(|(_, bytes)| bytes).sum();
        if in_flight + data.len() as u64 > WINDOW {
            let problem = format!("{} bytes of the log unflushed", in_flight + data.len() as u64);
            return Err((Rule::Window, problem));
        }
        self.next += data.len() as u64;
        if self.next > self.safe_tail + self.length {
            let problem = format!("the head runs over the durable tail at {}", self.safe_tail);
            return Err((Rule::Order, problem));
        }
        self.partial.extend_from_slice(data);
        let mut effects = Vec::new();
        let mut used = 0;
        while let Some(len) = self.complete_record(used).map_err(|p| (Rule::Order, p))? {
            let at = self.next - (self.partial.len() - used) as u64;
            let one = self.record(at, used, len).map_err(|p| (Rule::Order, p))?;
            let commits = one.transactions.iter().map(|_| {
                number += 1;
                number - 1
            });
            let commits = commits.collect();
            let end = at + len as u64;
            let tail = self.tail;
            self.records.push_back(WrittenRecord {
                tail,
                ended: None,
                forced: false,
                end,
                commits,
            });
            used += len;
            effects.push(one);
        }
        self.partial.drain(..used);
        Ok(effects)
    }

    /// The bytes of the record that starts at `from`, if it is complete.
    fn complete_record(&self, from: usize) -> Result<Option<usize>, String> {
        let Some(block) = self.partial[from..].first_chunk::<BLOCK>() else { return Ok(None) };
        let Some(header) = RecordHeader::parse(block) else {
            return Err("no record starts here".into());
        };
        if header.len == 0 || header.len > header.size {
            return Err(format!("a record of {} bytes, {} at most", header.len, header.size));
        }
        let len = header.blocks() as usize * BLOCK;
        Ok((self.partial.len() - from >= len).then_some(len))
    }

    fn record(&mut self, at: u64, from: usize, len: usize) -> Result<RecordEffects, String> {
        let mut bytes = self.partial[from..from + len].to_vec();
        let Some(header) = bytes.first_chunk().and_then(RecordHeader::parse) else {
            return Err("no record starts here".into());
        };
        if header.fs_uuid != self.uuid {
            return Err("a record of another volume".into());
        }
        if self.position(header.lsn) != at {
            return Err(format!("a record of LSN {} at position {at}", header.lsn));
        }
        let cycle = (at / self.length) as u32;
        for (index, block) in bytes.chunks_exact(BLOCK).enumerate() {
            let wrapped = (at + (index * BLOCK) as u64) / self.length != at / self.length;
            let want = if wrapped { bump(cycle) } else { cycle };
            let magic = index > 0 && is_header(block);
            if magic || block.first_chunk().map(cycle_of) != Some(want) {
                return Err(format!("block {index} of a record is not of cycle {want}"));
            }
        }
        let head = header.header_blocks() as usize * BLOCK;
        let (headers, data) = bytes.split_at_mut(head);
        let data = &mut data[..header.len as usize];
        let intact = checksum(headers, data) == header.crc;
        if !intact {
            return Err("the checksum of a record does not match".into());
        }
        restore_words(headers, data);
        let block = u64::from(header.lsn.block());
        let mut transactions = Vec::new();
        let record = Record { block, header, data, intact, in_place: true };
        let fed = self.assembler.feed(&record, |transaction| {
            transactions.push(transaction);
            Ok(())
        });
        fed.map_err(|e| e.to_string())?;
        if self.assembler.open() > 1 {
            return Err("a checkpoint begins inside another one".into());
        }
        let tail = self.position(header.tail_lsn);
        if tail < self.tail || tail > at {
            return Err(format!("tail {tail} of a record at {at}, after tail {}", self.tail));
        }
        let moved = (tail != self.tail).then_some(tail);
        self.tail = tail;
        Ok(RecordEffects { tail: moved, transactions, at })
    }

    /// Notes that bytes of the log were written by this event.
    pub(super) fn written(&mut self, len: u64, event: u64, forced: bool) {
        // Log writes are not reordered: complete records are written.
        let complete = self.next - self.partial.len() as u64;
        for record in self.records.iter_mut().filter(|r| r.ended.is_none() && r.end <= complete) {
            record.ended = Some(event);
            record.forced = forced;
        }
        if !forced {
            self.unsafe_writes.push_back((event, len));
        }
    }

    /// Notes that writes up to this event are safe. Returns the checkpoints that became durable.
    pub(super) fn flushed(&mut self, flushed: u64) -> Vec<u64> {
        self.unsafe_writes.retain(|(event, _)| *event > flushed);
        let mut durable = Vec::new();
        while let Some(first) = self.records.front() {
            let safe = first.forced || first.ended.is_some_and(|event| event <= flushed);
            if !safe {
                break;
            }
            self.safe_tail = first.tail;
            durable.append(&mut self.records.pop_front().map_or(Vec::new(), |r| r.commits));
        }
        durable
    }
}
