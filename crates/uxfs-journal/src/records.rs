//! Log records: the regions of transactions, cut into records of at most the size of a log buffer.
//!
//! 1. A region is split over records only where it must be. Each part but the last is a multiple of
//!    4 bytes, and the first part holds at least the first word of its item.
//! 2. Every record is padded with zeroes to the log's stripe unit.
//! 3. The bytes of the records are bounded by [`LogGeometry::most_bytes`] of what they hold.
//!
//! Called by the engine for checkpoints, and by [`crate::recovery::mark_clean`].

use std::ops::Range;

use uxfs_format::log::{
    CLIENT_LOG, HEADER_SPAN, MAGIC, OP_HEADER_LEN, OpFlags, OpHeader, RecordHeader,
    TRANS_HEADER_LEN, TransHeader, UNMOUNT_PAYLOAD, seal,
};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::log_pos::LogPos;

/// Records before the head in which recovery looks for incomplete ones.
const SEEN_RECORDS: u32 = 8;
/// Bytes before the head in which recovery looks for incomplete records.
const SEEN_BYTES: usize = 2 << 20;

/// What all records of a mount share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    /// Bytes of the log.
    pub length: u64,
    /// The log's stripe unit in bytes, to which records are padded.
    pub unit: u32,
    /// Size of a log buffer in bytes, the longest record.
    pub buffer: u32,
    /// The volume's user-visible UUID.
    pub uuid: [u8; 16],
}

impl LogGeometry {
    /// Bytes of the header blocks of a record.
    pub(crate) fn header_len(&self) -> usize {
        (self.buffer.div_ceil(HEADER_SPAN).max(1) as usize) * BASIC_BLOCK
    }

    fn data_max(&self) -> usize {
        let unit = self.unit.max(BASIC_BLOCK as u32);
        (self.buffer / unit * unit) as usize - self.header_len()
    }

    /// Upper bound of the log bytes that `transactions` transactions of `regions` regions with
    /// `bytes` bytes in all take.
    pub fn most_bytes(&self, transactions: u64, regions: u64, bytes: u64) -> u64 {
        let own = (2 * OP_HEADER_LEN + OP_HEADER_LEN + 16) as u64;
        let ops = transactions * own + regions * OP_HEADER_LEN as u64 + bytes;
        // A record may end with space in which no operation fits, and a split costs one more
        // header.
        let usable = self.data_max() as u64 - 4 * OP_HEADER_LEN as u64;
        let records = ops.div_ceil(usable) + 1;
        let unit = u64::from(self.unit.max(BASIC_BLOCK as u32));
        ops + records * (self.header_len() as u64 + 4 * OP_HEADER_LEN as u64) + 2 * unit
    }

    /// LSN of a position. No cycle has the number [`MAGIC`], because a
    /// block that starts with it would look like a record header.
    pub fn lsn(&self, position: LogPos) -> Lsn {
        let block = position.0 % self.length / BASIC_BLOCK as u64;
        let cycle = (position.0 / self.length) as u32;
        Lsn::new(if cycle >= MAGIC { cycle.wrapping_add(1) } else { cycle }, block as u32)
    }

    /// The position of an LSN.
    pub fn position(&self, lsn: Lsn) -> LogPos {
        let cycle = if lsn.cycle() > MAGIC { lsn.cycle() - 1 } else { lsn.cycle() };
        LogPos(u64::from(cycle) * self.length + u64::from(lsn.block()) * BASIC_BLOCK as u64)
    }
}

#[derive(Debug)]
struct Record {
    /// The record's bytes in the buffer, headers included.
    bytes: Range<usize>,
    ops: u32,
}

/// A builder of records.
#[derive(Debug)]
pub struct Records {
    geometry: LogGeometry,
    bytes: Vec<u8>,
    done: Vec<Record>,
    /// Start of the current record.
    start: usize,
    ops: u32,
    tid: u32,
    /// Offset of the transaction header, and the number of regions after it.
    header: usize,
    regions: u32,
}

impl Records {
    /// An empty builder that reuses the memory of `buffer`.
    pub fn new(geometry: LogGeometry, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        let done = Vec::new();
        let mut records =
            Self { geometry, bytes: buffer, done, start: 0, ops: 0, tid: 0, header: 0, regions: 0 };
        records.open();
        records
    }

    fn open(&mut self) {
        self.start = self.bytes.len();
        self.bytes.resize(self.start + self.geometry.header_len(), 0);
        self.ops = 0;
    }

    fn room(&self) -> usize {
        self.geometry.header_len() + self.geometry.data_max() - (self.bytes.len() - self.start)
    }

    fn close(&mut self) {
        let unit = self.geometry.unit.max(BASIC_BLOCK as u32) as usize;
        let len = (self.bytes.len() - self.start).next_multiple_of(unit);
        self.bytes.resize(self.start + len, 0);
        self.done.push(Record { bytes: self.start..self.start + len, ops: self.ops });
    }

    fn op(&mut self, header: OpHeader, body: &[u8]) {
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(body);
        self.ops += 1;
    }

    fn make_room(&mut self, bytes: usize) {
        if self.room() < bytes {
            self.close();
            self.open();
        }
    }

    /// Begins a transaction.
    pub fn begin(&mut self, tid: u32) {
        self.tid = tid;
        // The header is not split, so that the number of regions can be filled in later.
        self.make_room(OP_HEADER_LEN + OP_HEADER_LEN + TRANS_HEADER_LEN);
        self.op(OpHeader::new(tid, 0, OpFlags::START), &[]);
        self.region(&TransHeader::new(tid, 0).encode());
        self.header = self.bytes.len() - TRANS_HEADER_LEN;
        self.regions = 0;
    }

    /// Adds a region to the transaction.
    pub fn region(&mut self, region: &[u8]) {
        debug_assert!(region.len().is_multiple_of(4), "region of {} bytes", region.len());
        let mut rest = region;
        self.regions += 1;
        // The first part must hold at least the item's first word.
        self.make_room(OP_HEADER_LEN + rest.len().min(4));
        let mut flags = OpFlags::empty();
        loop {
            let room = (self.room() - OP_HEADER_LEN) & !3;
            if rest.len() <= room {
                let end = if flags.is_empty() { flags } else { OpFlags::WAS_CONT | OpFlags::END };
                return self.op(OpHeader::new(self.tid, rest.len() as u32, end), rest);
            }
            let (part, more) = rest.split_at(room);
            self.op(OpHeader::new(self.tid, part.len() as u32, flags | OpFlags::CONTINUE), part);
            self.close();
            self.open();
            rest = more;
            flags = OpFlags::WAS_CONT;
        }
    }

    /// Ends a transaction.
    pub fn commit(&mut self) {
        self.make_room(OP_HEADER_LEN);
        self.op(OpHeader::new(self.tid, 0, OpFlags::COMMIT), &[]);
        let header = TransHeader::new(self.tid, self.regions).encode();
        self.bytes[self.header..self.header + TRANS_HEADER_LEN].copy_from_slice(&header);
    }

    /// Bytes of the log that the records take so far.
    pub fn sealed_len(&self) -> u64 {
        if self.ops == 0 {
            return self.start as u64;
        }
        let unit = self.geometry.unit.max(BASIC_BLOCK as u32) as usize;
        (self.start + (self.bytes.len() - self.start).next_multiple_of(unit)) as u64
    }

    /// Adds the one operation of an unmount record.
    pub fn unmount(&mut self, tid: u32) {
        let len = UNMOUNT_PAYLOAD.len() as u32;
        let header = OpHeader { tid, len, client: CLIENT_LOG, flags: OpFlags::UNMOUNT };
        self.op(header, &UNMOUNT_PAYLOAD);
    }

    /// Completes the records with headers, cycle numbers and checksums. The first goes to position
    /// `head`; `before` is the position of the record before it.
    pub fn seal(self, head: LogPos, tail: LogPos, before: Option<LogPos>) -> Sealed {
        self.seal_with_last_tail(head, tail, tail, before)
    }

    /// As [`Records::seal`]. Only the last record names `last_tail` as the tail.
    pub(crate) fn seal_with_last_tail(
        mut self,
        head: LogPos,
        tail: LogPos,
        last_tail: LogPos,
        before: Option<LogPos>,
    ) -> Sealed {
        if self.ops > 0 {
            self.close();
        } else {
            self.bytes.truncate(self.start);
        }
        let geometry = self.geometry;
        let mut before = before.map_or(u32::MAX, |position| geometry.lsn(position).block());
        let mut last = head;
        for (number, Record { bytes, ops }) in self.done.iter().enumerate() {
            last = head + bytes.start as u64;
            let lsn = geometry.lsn(last);
            let tail = if number + 1 == self.done.len() { last_tail } else { tail };
            let mut header =
                RecordHeader::new(lsn, geometry.lsn(tail), geometry.uuid, geometry.buffer);
            header.num_ops = *ops;
            header.prev_block = before;
            let to_end = (geometry.length - last.0 % geometry.length) / BASIC_BLOCK as u64;
            seal(&mut self.bytes[bytes.clone()], &header, to_end);
            before = lsn.block();
        }
        Sealed { bytes: self.bytes, head, last, records: self.done }
    }
}

/// Complete records.
pub struct Sealed {
    /// The bytes of the records, one after the other.
    pub bytes: Vec<u8>,
    /// Position of the first record.
    pub head: LogPos,
    /// Position of the last record.
    pub last: LogPos,
    records: Vec<Record>,
}

impl Sealed {
    /// Divides the records into parts of whole records, of at most `count` records, and of at most
    /// `most` bytes unless a single record is longer. No part exceeds what recovery's search for
    /// the head looks back over: 8 records, and 2 MiB.
    pub fn parts(&self, count: u32, most: usize) -> Vec<Range<usize>> {
        let mut parts: Vec<(u32, Range<usize>)> = Vec::new();
        for Record { bytes, .. } in &self.records {
            match parts.last_mut() {
                Some((records, part)) if *records < count && bytes.end - part.start <= most => {
                    part.end = bytes.end;
                    *records += 1;
                }
                _ => parts.push((1, bytes.clone())),
            }
        }
        for (records, part) in &parts {
            assert!(*records <= SEEN_RECORDS && part.len() <= SEEN_BYTES, "{records} records");
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use uxfs_format::log::{Ops, restore_words};

    use super::*;

    fn geometry(buffer: u32, unit: u32) -> LogGeometry {
        LogGeometry { length: 8 << 20, unit, buffer, uuid: [7; 16] }
    }

    /// A log that wraps skips the cycle whose number is the magic number, as every reader does.
    #[test]
    fn no_cycle_has_the_magic_number() {
        let geometry = geometry(32 << 10, 1);
        let last = Lsn::new(MAGIC - 1, (geometry.length / 512 - 1) as u32);
        let next = geometry.lsn(geometry.position(last) + 512);
        assert_eq!(next, Lsn::new(uxfs_format::log::bump(MAGIC - 1), 0));
        assert_eq!(next.cycle(), MAGIC + 1);
        for lsn in [last, next, Lsn::new(MAGIC + 7, 3), Lsn::new(1, 0)] {
            assert_eq!(geometry.lsn(geometry.position(lsn)), lsn);
        }
    }

    /// Regions read from the records equal the regions written, across the ends of records and of the
    /// log. Their size is within the bound.
    #[test]
    fn regions_round_trip() {
        for (buffer, unit, head) in [
            (32 << 10, 1, 100 * 512u64),
            (32 << 10, 32 << 10, 0),
            (256 << 10, 4096, (8 << 20) - 8192),
            (64 << 10, 512, (16 << 20) - 1024),
        ] {
            let (geometry, head) = (geometry(buffer, unit), LogPos(head));
            let mut records = Records::new(geometry, Vec::new());
            let mut regions = Vec::new();
            let mut bytes = 0;
            records.begin(77);
            for n in 0..300usize {
                let len = (n * n * 52 % 9000 + 4) & !3;
                let region: Vec<u8> = (0..len).map(|at| (at * 31 + n) as u8).collect();
                bytes += len as u64;
                records.region(&region);
                regions.push(region);
            }
            records.commit();
            let expected = records.sealed_len();
            let sealed = records.seal(head, head, None);
            assert_eq!(sealed.bytes.len() as u64, expected);
            assert!(sealed.bytes.len() as u64 <= geometry.most_bytes(1, 300, bytes));
            let mut found: Vec<Vec<u8>> = Vec::new();
            let mut flags = Vec::new();
            for Record { bytes, .. } in &sealed.records {
                let mut record = sealed.bytes[bytes.clone()].to_vec();
                assert!(record.len() <= buffer as usize);
                assert!(record.len().is_multiple_of(unit.max(512) as usize));
                let header = RecordHeader::parse(record.first_chunk().unwrap()).unwrap();
                assert_eq!(geometry.position(header.lsn), head + bytes.start as u64);
                let (headers, data) = record.split_at_mut(geometry.header_len());
                restore_words(headers, data);
                for op in Ops::new(data, header.num_ops) {
                    let (op, body) = op.unwrap();
                    assert_eq!(op.tid, 77);
                    flags.push(op.flags);
                    match found.last_mut() {
                        Some(last) if op.flags.contains(OpFlags::WAS_CONT) => last.extend(body),
                        _ => found.push(body.to_vec()),
                    }
                }
            }
            assert_eq!(flags.first(), Some(&OpFlags::START));
            assert_eq!(flags.last(), Some(&OpFlags::COMMIT));
            assert_eq!(found[2..302], regions[..]);
            let parts = sealed.parts(8, 1 << 20);
            assert_eq!(parts.first().map(|p| p.start), Some(0));
            assert_eq!(parts.last().map(|p| p.end), Some(sealed.bytes.len()));
            assert!(parts.windows(2).all(|p| p[0].end == p[1].start));
        }
    }
}
