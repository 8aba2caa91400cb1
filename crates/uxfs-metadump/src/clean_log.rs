//! An empty log in the place of a clean one, whose old records hold names.
//!
//! 1. It is one cycle further than the log it replaces, so no LSN in the metadata is ahead of it.
//! 2. Its first record is an unmount record. All other blocks are empty records of the cycle before, as
//!    recovery puts them ahead of its own: the head is found behind the first record.

use uxfs_format::log::{
    self, CLIENT_LOG, HEADER_SPAN, OP_HEADER_LEN, OpFlags, OpHeader, RecordHeader, UNMOUNT_PAYLOAD,
};
use uxfs_format::{BASIC_BLOCK, Lsn};
use uxfs_journal::recovery::{Bounds, Log};

/// Transaction id of the unmount record, as mkfs.xfs has it.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// Blocks of a piece.
const PIECE: u64 = 2048;

/// The pieces of the log: block number and bytes.
pub(crate) fn pieces(log: &Log, bounds: &Bounds) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let (blocks, uuid) = (log.blocks(), log.uuid());
    let before = bounds.head.cycle();
    let cycle = log::bump(before);
    let first = unmount_record(cycle, uuid, log.unit());
    let own = (first.len() / BASIC_BLOCK) as u64;
    let starts = (0..blocks.saturating_sub(own).div_ceil(PIECE)).map(move |n| own + n * PIECE);
    let rest = starts.map(move |start| {
        let mut bytes = vec![0; (blocks - start).min(PIECE) as usize * BASIC_BLOCK];
        for (block, at) in bytes.chunks_exact_mut(BASIC_BLOCK).zip(start..) {
            // A log has less than 2^32 blocks.
            let lsn = Lsn::new(before, at as u32);
            let mut header = RecordHeader::new(lsn, lsn, uuid, 0);
            header.prev_block = 0;
            if let Some(block) = block.first_chunk_mut() {
                header.put(block);
            }
        }
        (start, bytes)
    });
    std::iter::once((0, first)).chain(rest)
}

fn unmount_record(cycle: u32, uuid: [u8; 16], unit: usize) -> Vec<u8> {
    let lsn = Lsn::new(cycle, 0);
    // The unit is at most 256 KiB.
    let size = HEADER_SPAN.max(unit as u32);
    let mut header = RecordHeader::new(lsn, lsn, uuid, size);
    header.num_ops = 1;
    let head = header.header_blocks() as usize * BASIC_BLOCK;
    let mut raw = vec![0; (head + BASIC_BLOCK).next_multiple_of(unit)];
    let op = OpHeader {
        tid: TRANSACTION,
        len: UNMOUNT_PAYLOAD.len() as u32,
        client: CLIENT_LOG,
        flags: OpFlags::UNMOUNT,
    };
    let data = &mut raw[head..];
    data[..OP_HEADER_LEN].copy_from_slice(&op.encode());
    data[OP_HEADER_LEN..][..UNMOUNT_PAYLOAD.len()].copy_from_slice(&UNMOUNT_PAYLOAD);
    let sealed = log::seal(&mut raw, &header, u64::MAX);
    if let Some(first) = raw.first_chunk_mut() {
        sealed.put(first);
    }
    raw
}
