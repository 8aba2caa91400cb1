//! Bringing a log to rest.
//!
//! 1. Before anything is written at the head, what lies ahead of it is overwritten with empty
//!    records of the cycle before: else the remains of torn records there could come alive.
//! 2. A redo checkpoint is one transaction. Its last record alone tells the new tail, its own
//!    start; so until that record is down recovery begins at the old tail, and after that it needs
//!    nothing older. All records before it are flushed before it is written.
//! 3. All records from tail to head have the same buffer size.

use uxfs_disk::BlockDev;
use uxfs_format::log::{
    CLIENT_LOG, HEADER_SPAN, OP_HEADER_LEN, OpFlags, OpHeader, RECORD_SIZE_MAX, RecordHeader,
    TransHeader, UNMOUNT_PAYLOAD, seal,
};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::area::Log;
use crate::error::{Error, Result};
use crate::find::{Bounds, WINDOW};

/// Smallest buffer that a log is written with.
const RECORD_SIZE_MIN: u32 = 16 << 10;
/// Number of the transactions written here; each stands alone.
const TID: u32 = 0x7578_6673;

/// Overwrites what lies ahead of the head, as far as records on their way may have reached, up to
/// the tail.
///
/// # Errors
/// If the device fails.
pub fn clear_stale(log: &Log, dev: &dyn BlockDev, bounds: &Bounds) -> Result<()> {
    let (head, tail) = (bounds.head, bounds.tail);
    let free = match log.distance(head.block().into(), tail.block().into()) {
        0 => log.blocks(),
        free => free,
    };
    let count = free.min(WINDOW);
    let mut bytes = vec![0; count as usize * BASIC_BLOCK];
    let previous = Lsn::new(head.cycle().wrapping_sub(1), head.block());
    for (ahead, block) in (0..).zip(bytes.chunks_exact_mut(BASIC_BLOCK)) {
        let lsn = log.advance(previous, ahead);
        let mut header = RecordHeader::new(lsn, tail, log.uuid(), 0);
        header.prev_block = 0;
        if let Some(block) = block.first_chunk_mut() {
            header.put(block);
        }
    }
    log.write(dev, head.block().into(), &bytes)?;
    log.flush(dev)
}

/// The buffer size to write with: that of the records there are, or what is usual.
fn buffer_size(log: &Log, bounds: &Bounds) -> u32 {
    let told = bounds.record_size;
    let unit = u32::try_from(log.unit()).unwrap_or(RECORD_SIZE_MAX);
    match (RECORD_SIZE_MIN..=RECORD_SIZE_MAX).contains(&told) && told >= unit {
        true => told,
        false => HEADER_SPAN.max(unit).min(RECORD_SIZE_MAX),
    }
}

/// Bytes of the header blocks of a record of this buffer size.
fn header_bytes(size: u32) -> usize {
    size.div_ceil(HEADER_SPAN) as usize * BASIC_BLOCK
}

/// Data bytes that a record of this buffer size holds.
fn capacity(log: &Log, size: u32) -> usize {
    size as usize / log.unit() * log.unit() - header_bytes(size)
}

/// Writes one transaction of `items`, each the regions of one, at the head, such that from its
/// last record on it is all that recovery needs; returns the bounds after. Flushes.
///
/// # Errors
/// [`Error::TooBig`] if it does not fit between head and tail, or if the device fails.
pub fn write_redo(
    log: &Log,
    dev: &dyn BlockDev,
    bounds: &Bounds,
    items: &[Vec<Vec<u8>>],
) -> Result<Bounds> {
    let size = buffer_size(log, bounds);
    let records = cut(items, capacity(log, size));
    let head = header_bytes(size);
    let padded = |data: &Vec<u8>| (head + data.len()).next_multiple_of(log.unit());
    let blocks: usize = records.iter().map(|(data, _)| padded(data) / BASIC_BLOCK).sum();
    let free = log.blocks() - bounds.live_blocks(log);
    // Head never meets tail. What comes behind, with the record of a clean unmount, needs nothing
    // before these records.
    let unmount = (head + OP_HEADER_LEN + UNMOUNT_PAYLOAD.len()).next_multiple_of(log.unit());
    let with_unmount = (blocks + unmount / BASIC_BLOCK) as u64;
    if blocks as u64 + 1 > free || with_unmount + 1 > log.blocks() {
        let problem =
            format!("finishing takes {blocks} blocks of the log, of which {free} are free");
        return Err(Error::TooBig(problem));
    }
    let start = bounds.head;
    let mut writer = Writer { log, dev, at: start, prev: bounds.last, size };
    let last = records.len() - 1;
    for (number, (data, ops)) in records.iter().enumerate() {
        let tail = if number == last { start } else { bounds.tail };
        if number == last && last > 0 {
            log.flush(dev)?;
        }
        writer.record(data, *ops, tail)?;
    }
    log.flush(dev)?;
    let (head, last) = (writer.at, writer.prev);
    Ok(Bounds { head, tail: start, last, record_size: size, ..*bounds })
}

/// Ends the log with the record of a clean unmount, and flushes. Everything must be home.
///
/// # Errors
/// If the device fails.
pub fn write_unmount(log: &Log, dev: &dyn BlockDev, bounds: &Bounds) -> Result<Bounds> {
    let op = OpHeader {
        tid: TID,
        len: UNMOUNT_PAYLOAD.len() as u32,
        client: CLIENT_LOG,
        flags: OpFlags::UNMOUNT,
    };
    let mut data = op.encode().to_vec();
    data.extend_from_slice(&UNMOUNT_PAYLOAD);
    let size = buffer_size(log, bounds);
    let mut writer = Writer { log, dev, at: bounds.head, prev: bounds.last, size };
    log.flush(dev)?;
    writer.record(&data, 1, bounds.head)?;
    log.flush(dev)?;
    let (head, last) = (writer.at, writer.prev);
    Ok(Bounds { state: crate::find::State::Clean, head, tail: head, last, ..*bounds })
}

struct Writer<'a> {
    log: &'a Log,
    dev: &'a dyn BlockDev,
    at: Lsn,
    prev: u64,
    size: u32,
}

impl Writer<'_> {
    fn record(&mut self, data: &[u8], ops: u32, tail: Lsn) -> Result<()> {
        let mut header = RecordHeader::new(self.at, tail, self.log.uuid(), self.size);
        header.num_ops = ops;
        // A log has less than 2^32 blocks.
        header.prev_block = self.prev as u32;
        let head = header.header_blocks() as usize * BASIC_BLOCK;
        let mut record = vec![0; (head + data.len()).next_multiple_of(self.log.unit())];
        record[head..head + data.len()].copy_from_slice(data);
        let block = u64::from(self.at.block());
        seal(&mut record, &header, self.log.blocks() - block);
        self.log.write(self.dev, block, &record)?;
        self.prev = block;
        self.at = self.log.advance(self.at, (record.len() / BASIC_BLOCK) as u64);
        Ok(())
    }
}

/// Cuts one transaction into the data of records, with the number of operations in each.
fn cut(items: &[Vec<Vec<u8>>], capacity: usize) -> Vec<(Vec<u8>, u32)> {
    let regions: usize = items.iter().map(Vec::len).sum();
    let header = TransHeader::new(TID, regions as u32).encode();
    let mut records = vec![(Vec::new(), 0)];
    let mut put = |body: &[u8], flags: OpFlags| {
        let (mut rest, mut begun) = (body, false);
        loop {
            let Some((data, ops)) = records.last_mut() else { return };
            let room = (capacity - data.len()).saturating_sub(OP_HEADER_LEN) / 4 * 4;
            if rest.len() > room && room < 4 || capacity < data.len() + OP_HEADER_LEN {
                records.push((Vec::new(), 0));
                continue;
            }
            let (part, left) = rest.split_at(rest.len().min(room));
            let mut flags = flags;
            match (begun, left.is_empty()) {
                (false, true) => {}
                (false, false) => flags |= OpFlags::CONTINUE,
                (true, false) => flags |= OpFlags::CONTINUE | OpFlags::WAS_CONT,
                (true, true) => flags |= OpFlags::WAS_CONT | OpFlags::END,
            }
            // A region is a part of a buffer.
            let op = OpHeader::new(TID, part.len() as u32, flags);
            data.extend_from_slice(&op.encode());
            data.extend_from_slice(part);
            *ops += 1;
            (rest, begun) = (left, true);
            if left.is_empty() {
                return;
            }
        }
    };
    put(&[], OpFlags::START);
    put(&header, OpFlags::empty());
    for region in items.iter().flatten() {
        put(region, OpFlags::empty());
    }
    put(&[], OpFlags::COMMIT);
    records
}
