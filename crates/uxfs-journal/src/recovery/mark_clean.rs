//! Writes the log of a recovered volume: one checkpoint of what recovery changed, then a clean log.
//!
//! 1. Before anything is written at the head, [`clear_stale`] overwrites the blocks ahead of it with empty
//!    records of the cycle before. Otherwise a later recovery could take the remains of torn records there
//!    for its own.
//! 2. A redo checkpoint is one transaction. Only its last record names the new tail, the checkpoint's own
//!    start: until that record is on disk recovery starts at the old tail, and afterwards it needs nothing
//!    older. All records before the last are flushed before it is written, and never more are in flight than
//!    the search for the head looks back over ([`Sealed::parts`]).
//! 3. All records from tail to head have the same buffer size.
//! 4. A redo checkpoint that was interrupted leaves a transaction without its end in the log. The next
//!    one begins behind it, and has another transaction id ([`tid`]): a reader refuses a second start
//!    of a transaction that it has not seen the end of.
//!
//! Called by the engine's recovery, in this order: [`clear_stale`], [`write_redo`] for each round of work,
//! [`write_unmount`] when all of it is written in place.

use uxfs_disk::BlockDev;
use uxfs_format::log::{
    HEADER_SPAN, OP_HEADER_LEN, RECORD_SIZE_MAX, RecordHeader, UNMOUNT_PAYLOAD,
};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::records::{LogGeometry, Records, Sealed};
use crate::recovery::area::Log;
use crate::recovery::error::{Error, Result};
use crate::recovery::find::{Bounds, IN_FLIGHT, State, WINDOW};

/// Smallest buffer size that a log is written with.
const RECORD_SIZE_MIN: u32 = 16 << 10;

/// The id of a transaction that starts at `head`. Differs from that of a transaction that starts
/// elsewhere in the log.
fn tid(head: Lsn) -> u32 {
    0x7578_6673 ^ head.block() ^ head.cycle().rotate_right(8)
}

/// Overwrites the blocks ahead of the head that records in flight may have reached, at most up to
/// the tail, and flushes.
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

/// The buffer size to write with: that of the existing records if it is valid, or the usual one.
fn buffer_size(log: &Log, bounds: &Bounds) -> u32 {
    let found = bounds.record_size;
    let unit = u32::try_from(log.unit()).unwrap_or(RECORD_SIZE_MAX);
    match (RECORD_SIZE_MIN..=RECORD_SIZE_MAX).contains(&found) && found >= unit {
        true => found,
        false => HEADER_SPAN.max(unit).min(RECORD_SIZE_MAX),
    }
}

fn geometry(log: &Log, bounds: &Bounds) -> LogGeometry {
    LogGeometry {
        length: log.blocks() * BASIC_BLOCK as u64,
        // A stripe unit is at most 256 KiB.
        unit: log.unit() as u32,
        buffer: buffer_size(log, bounds),
        uuid: log.uuid(),
    }
}

/// The records of `bounds` that come after the last one there. All name `tail` as the tail, but the
/// last, which names `last_tail`.
fn seal(
    geometry: LogGeometry,
    records: Records,
    bounds: &Bounds,
    tail: Lsn,
    last_tail: Lsn,
) -> Sealed {
    let cycle = bounds.head.cycle();
    // Only its block goes into a header. A log has less than 2^32 blocks.
    let before = geometry.position(Lsn::new(cycle, bounds.last as u32));
    let at = |lsn| geometry.position(lsn);
    records.seal_with_last_tail(at(bounds.head), at(tail), at(last_tail), Some(before))
}

/// Writes one transaction of `items`, each a list of regions, at the head, and flushes. From its
/// last record on, recovery needs nothing else. Returns the new ends of the log.
///
/// # Errors
/// [`Error::TooBig`] if it does not fit between head and tail, or if the device fails.
pub fn write_redo(
    log: &Log,
    dev: &dyn BlockDev,
    bounds: &Bounds,
    items: &[Vec<Vec<u8>>],
) -> Result<Bounds> {
    let geometry = geometry(log, bounds);
    let mut records = Records::new(geometry, Vec::new());
    records.begin(tid(bounds.head));
    for region in items.iter().flatten() {
        records.region(region);
    }
    records.commit();
    let blocks = records.sealed_len() / BASIC_BLOCK as u64;
    let free = log.blocks() - bounds.live_blocks(log);
    // The head never meets the tail. The unmount record that follows needs nothing before these
    // records.
    let unmount = geometry.header_len() + OP_HEADER_LEN + UNMOUNT_PAYLOAD.len();
    let with_unmount = blocks + (unmount.next_multiple_of(log.unit()) / BASIC_BLOCK) as u64;
    if blocks + 1 > free || with_unmount + 1 > log.blocks() {
        let problem = format!(
            "completing recovery takes {blocks} blocks of the log, of which {free} are free"
        );
        return Err(Error::TooBig(problem));
    }
    let start = bounds.head;
    let sealed = seal(geometry, records, bounds, bounds.tail, start);
    let last = (sealed.last - sealed.head) as usize;
    let block_at =
        |offset: usize| log.wrap(u64::from(start.block()) + (offset / BASIC_BLOCK) as u64);
    for part in sealed.parts(IN_FLIGHT as u32, WINDOW as usize * BASIC_BLOCK) {
        let before_last = part.start..part.end.min(last);
        if !before_last.is_empty() {
            log.write(dev, block_at(before_last.start), &sealed.bytes[before_last])?;
            log.flush(dev)?;
        }
    }
    log.write(dev, block_at(last), &sealed.bytes[last..])?;
    log.flush(dev)?;
    let head = log.advance(start, blocks);
    Ok(Bounds { head, tail: start, last: block_at(last), record_size: geometry.buffer, ..*bounds })
}

/// Writes an unmount record, which leaves the log clean, and flushes before and after. Everything
/// in the log must be written in place.
///
/// # Errors
/// If the device fails.
pub fn write_unmount(log: &Log, dev: &dyn BlockDev, bounds: &Bounds) -> Result<Bounds> {
    let geometry = geometry(log, bounds);
    let mut records = Records::new(geometry, Vec::new());
    records.unmount(tid(bounds.head));
    let blocks = records.sealed_len() / BASIC_BLOCK as u64;
    let sealed = seal(geometry, records, bounds, bounds.head, bounds.head);
    log.flush(dev)?;
    let last = u64::from(bounds.head.block());
    log.write(dev, last, &sealed.bytes)?;
    log.flush(dev)?;
    let head = log.advance(bounds.head, blocks);
    Ok(Bounds { state: State::Clean, head, tail: head, last, ..*bounds })
}
