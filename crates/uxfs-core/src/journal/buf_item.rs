//! Buffers in the log: chunks of 128 bytes that changed, logged at their addresses (XFS' buffer log item).

use smallvec::SmallVec;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::dir;
use uxfs_format::log::{BufItem, BufType, CHUNK};
use uxfs_format::verify::BufKind;
use uxfs_journal::Records;

use super::item::{Cil, Handle};
use crate::buf::{BufRef, Piece};

/// The offset in a new block from which on a chunk of zeroes has no meaning: it lies after the last
/// record, or in unused space, and no record is all zero. Such chunks need not be logged, because
/// their content after a recovery does not matter.
fn zeroes_mean_nothing_from(kind: BufKind, bytes: &[u8]) -> usize {
    match kind {
        BufKind::Btree(_) | BufKind::DirLeafN | BufKind::DaNode | BufKind::DirData => 0,
        // A slot of zeroes stands for a full data block, but only among the slots in use.
        BufKind::DirFree => dir::free::slots(0..dir::free::nvalid(bytes)).end,
        _ => usize::MAX,
    }
}

/// The number of runs of chunks in a bitmap, each of which is a region, and the number of chunks.
fn runs(bitmap: &[u64]) -> (u64, u64) {
    let (mut runs, mut chunks, mut before) = (0, 0, 0);
    for word in bitmap {
        runs += u64::from((word & !(word << 1 | before)).count_ones());
        chunks += u64::from(word.count_ones());
        before = word >> 63;
    }
    (runs, chunks)
}

/// The chunks that begin before `from` or hold a byte that is not zero.
fn without_zeroes(chunks: &[u64], bytes: &[u8], from: usize) -> SmallVec<[u64; 1]> {
    let mut left = SmallVec::from_slice(chunks);
    for (at, chunk) in bytes.chunks(CHUNK).enumerate().skip(from.div_ceil(CHUNK)) {
        if chunk.iter().all(|byte| *byte == 0) {
            left[at / 64] &= !(1 << (at % 64));
        }
    }
    left
}

/// Are changes of such a buffer logged as a buffer item? Remote attribute values are written before
/// the checkpoint, and inodes are logged as inode items.
pub(crate) fn is_logged(kind: BufKind) -> bool {
    kind != BufKind::AttrRemote && kind != BufKind::InodeCluster
}

/// Adds a buffer that changed in these chunks.
pub(crate) fn add(cil: &mut Cil, buf: &BufRef, chunks: &[u64], fresh: bool) {
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
            cil.cancelled.remove(&(piece.daddr, piece.len as usize));
        }
    }
    let new = log.changed != cil.seq.0;
    log.changed = cil.seq.0;
    if kind == BufKind::InodeCluster {
        // Its chunk's item creates it, and its inodes are logged as inodes.
        debug_assert!(fresh, "inode clusters change through their inodes");
        log.slot = Some(cil.add(Handle::Buf(buf.clone())));
        return;
    }
    if kind == BufKind::AttrRemote {
        debug_assert!(fresh, "a remote value is never changed");
        log.slot = None;
        cil.values.push(Handle::Buf(buf.clone()));
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
    if known_chunks > 0 && (new || cil.is_immediate()) {
        cil.relog(known_chunks * CHUNK as u64);
    }
    if new {
        let pieces = buf.pieces().len() as u64;
        let map = (buf.len() / CHUNK / 8 + 4) as u64;
        // A run that continues in the next piece counts twice, and each piece has its format.
        let bytes = all_chunks * CHUNK as u64 + pieces * (20 + 4) + map;
        cil.account(all_runs + 2 * pieces - 1, bytes);
        log.slot = Some(cil.add(Handle::Buf(buf.clone())));
    } else {
        // Two runs may have joined.
        cil.account_change(known_runs, all_runs, (all_chunks - known_chunks) * CHUNK as u64);
    }
    if let Some(slot) = content.log.slot {
        let logged = &content.log.chunks;
        let changed = if new { logged } else { chunks };
        cil.copy_chunks(slot, BufType::of(kind), &content.bytes, logged, changed);
    }
}

/// Cancels a buffer whose block was freed.
pub(crate) fn cancel(cil: &mut Cil, buf: &BufRef) {
    let mut content = buf.content.write();
    content.log.died = cil.seq.0;
    if let Some(slot) = content.log.slot.filter(|_| content.log.changed == cil.seq.0) {
        cil.drop_copy(slot);
    }
    if content.kind != BufKind::AttrRemote && !planted(Fault::CancelMissing) {
        for piece in buf.pieces() {
            cil.cancel_place(piece.daddr, piece.len as usize);
        }
    }
    cil.gone.push(Handle::Buf(buf.clone()));
}

/// Writes the items of a buffer in its present state.
pub(crate) fn write(buf: &BufRef, records: &mut Records) {
    let content = buf.read();
    if content.log.died == 0 && content.kind != BufKind::InodeCluster {
        let kind = BufType::of(content.kind);
        write_chunks(buf.pieces(), kind, &content.log.chunks, &content.bytes, records);
    }
}

/// Writes an item for each of these pieces of a buffer that has logged chunks.
pub(super) fn write_chunks(
    pieces: &[Piece],
    kind: BufType,
    logged: &[u64],
    bytes: &[u8],
    records: &mut Records,
) {
    let logged = |chunk: usize| {
        logged.get(chunk / 64).is_some_and(|word| word >> (chunk % 64) & 1 != 0)
            && !(planted(Fault::ChunkLost) && chunk % 4 == 3)
    };
    let mut first = 0;
    for piece in pieces {
        let len = piece.len as usize;
        let mut item = BufItem::new(kind, piece.daddr, len);
        (0..len / CHUNK).filter(|chunk| logged(first + chunk)).for_each(|c| item.set_chunk(c));
        if item.runs().next().is_some() {
            records.region(&item.encode());
            for (chunk, count) in item.runs() {
                let from = (first + chunk) * CHUNK;
                records.region(&bytes[from..from + count * CHUNK]);
            }
        }
        first += len / CHUNK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_continue_across_words() {
        assert_eq!(runs(&[]), (0, 0));
        assert_eq!(runs(&[0b1011_0001]), (3, 4));
        assert_eq!(runs(&[u64::MAX, 1]), (1, 65));
        assert_eq!(runs(&[1 << 63, 0b101]), (2, 3));
        assert_eq!(runs(&[1, 2]), (2, 2));
    }

    #[test]
    fn unused_zeroes_are_not_logged() {
        let mut index = vec![0; 4096];
        dir::MAGIC.set(&mut index, dir::free::MAGIC);
        dir::free::NVALID.set(&mut index, 130);
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
}
