//! Writes a qcow2 image (version 3) in one pass: data clusters in the order of the disk, each table of
//! the second level behind the data that it maps, then the other tables, the header last.
//!
//! 1. A cluster of zeroes is not stored.
//! 2. A compressed cluster is stored only if that saves space. Compressed clusters are packed to the
//!    byte, as qemu-img packs them.
//! 3. Batches of clusters are compressed by several threads; their order does not depend on them.
//!
//! `imago`, which reads and changes qcow2 images for uxfs-disk, does not write compressed clusters, and
//! where it puts a cluster depends on the order of writes. Format: docs/interop/qcow2 of qemu.

use std::fs::File;
use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};
use uxfs_host::FileExt;

use crate::sparse;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Entries in a table of the second level.
const L2: u64 = CLUSTER / 8;
/// Counts, of 16 bits, in a block of reference counts.
const COUNTS: u64 = CLUSTER / 2;
const HEADER: usize = 104;
/// The entry's cluster has a reference count of 1.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// Position of the number of sectors in the entry of a compressed cluster.
const SECTORS_AT: u32 = 62 - (CLUSTER_BITS - 8);
/// Base-2 logarithm of the window that qemu unpacks with.
const WINDOW_BITS: u8 = 12;
const LEVEL: u32 = 6;
/// Clusters compressed at a time by each thread.
const BATCH: usize = 16;

struct Writer {
    to: File,
    /// End of what is written.
    end: u64,
    /// Reference count of each cluster up to the end.
    counts: Vec<u16>,
}

/// Writes the image of the disk in `raw` to the empty file `to`.
pub(super) fn write(raw: &File, to: File, compress: bool) -> io::Result<()> {
    let len = raw.metadata()?.len();
    let mut writer = Writer { to, end: CLUSTER, counts: vec![1] };
    let tables = len.div_ceil(L2 * CLUSTER);
    let mut l1 = Vec::with_capacity(tables as usize);
    for table in 0..tables {
        let start = table * L2 * CLUSTER;
        let end = (start + L2 * CLUSTER).min(len);
        l1.push(writer.table(raw, (start, end), compress)?);
    }
    writer.finish(len, &l1)
}

impl Writer {
    /// Writes a range of the disk and its table. Returns the table's entry in the first level.
    fn table(&mut self, raw: &File, range: (u64, u64), compress: bool) -> io::Result<u64> {
        let threads = if compress { threads() } else { 1 };
        let mut entries = vec![0u8; CLUSTER as usize];
        let mut batch: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut used = false;
        let mut at = range.0;
        while at < range.1 || !batch.is_empty() {
            if at < range.1 && batch.len() < threads * BATCH {
                at += sparse::hole_at(raw, at, range.1)? / CLUSTER * CLUSTER;
                if at < range.1 {
                    let mut cluster = vec![0; CLUSTER as usize];
                    let len = (range.1 - at).min(CLUSTER) as usize;
                    raw.read_exact_at(&mut cluster[..len], at)?;
                    if !sparse::is_zero(&cluster) {
                        batch.push(((at - range.0) / CLUSTER, cluster));
                    }
                    at += CLUSTER;
                }
                continue;
            }
            let packed = if compress { pack(&batch, threads)? } else { vec![None; batch.len()] };
            for ((index, cluster), packed) in batch.drain(..).zip(packed) {
                let entry = match packed {
                    Some(packed) => self.compressed(&packed)?,
                    None => self.clusters(&cluster)? | COPIED,
                };
                entries[index as usize * 8..][..8].copy_from_slice(&entry.to_be_bytes());
                used = true;
            }
        }
        if used { Ok(self.clusters(&entries)? | COPIED) } else { Ok(0) }
    }

    /// Appends whole clusters and returns where.
    fn clusters(&mut self, data: &[u8]) -> io::Result<u64> {
        let at = self.end.next_multiple_of(CLUSTER);
        self.to.write_all_at(data, at)?;
        self.end = at + data.len() as u64;
        self.count(at, self.end);
        Ok(at)
    }

    /// Appends a compressed cluster and returns its entry.
    fn compressed(&mut self, packed: &[u8]) -> io::Result<u64> {
        let at = self.end;
        self.to.write_all_at(packed, at)?;
        self.end += packed.len() as u64;
        // Sectors that the data touches beyond the first; a reader reads them whole.
        let sectors = (self.end - 1) / 512 - at / 512;
        self.count(at, (at / 512 + sectors + 1) * 512);
        Ok(at | sectors << SECTORS_AT | COMPRESSED)
    }

    fn count(&mut self, from: u64, to: u64) {
        let (first, last) = ((from / CLUSTER) as usize, to.div_ceil(CLUSTER) as usize);
        if self.counts.len() < last {
            self.counts.resize(last, 0);
        }
        self.counts[first..last].iter_mut().for_each(|count| *count += 1);
    }

    /// Writes the first level, the reference counts and the header.
    fn finish(mut self, len: u64, l1: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = l1.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        let l1_at = if bytes.is_empty() { 0 } else { self.clusters(&bytes)? };
        // Blocks and table count themselves.
        let used = self.counts.len() as u64;
        let (mut blocks, mut table) = (0, 0);
        loop {
            let needed = (used + blocks + table).div_ceil(COUNTS);
            let room = (needed * 8).div_ceil(CLUSTER);
            if (needed, room) == (blocks, table) {
                break;
            }
            (blocks, table) = (needed, room);
        }
        self.counts.resize((used + blocks + table) as usize, 1);
        let first = used * CLUSTER;
        let table_at = first + blocks * CLUSTER;
        for (block, counts) in (0..).zip(self.counts.chunks(COUNTS as usize)) {
            let raw: Vec<u8> = counts.iter().flat_map(|count| count.to_be_bytes()).collect();
            self.to.write_all_at(&raw, first + block * CLUSTER)?;
            let place = table_at + block * 8;
            self.to.write_all_at(&(first + block * CLUSTER).to_be_bytes(), place)?;
        }
        self.to.set_len(table_at + table * CLUSTER)?;
        let mut header = [0; HEADER];
        let mut put32 = |at: usize, value: u32| {
            header[at..at + 4].copy_from_slice(&value.to_be_bytes());
        };
        put32(0, u32::from_be_bytes(*b"QFI\xfb"));
        put32(4, 3);
        put32(20, CLUSTER_BITS);
        put32(36, l1.len() as u32);
        put32(56, table as u32);
        // Counts of 2^4 bits; length of the header.
        put32(96, 4);
        put32(100, HEADER as u32);
        for (at, value) in [(24, len), (40, l1_at), (48, table_at)] {
            header[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        self.to.write_all_at(&header, 0)
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

/// Compresses clusters; `None` for those that do not get shorter.
fn pack(batch: &[(u64, Vec<u8>)], threads: usize) -> io::Result<Vec<Option<Vec<u8>>>> {
    let share = batch.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = batch
            .chunks(share)
            .map(|part| {
                scope.spawn(|| part.iter().map(|(_, data)| deflate(data)).collect::<Vec<_>>())
            })
            .collect();
        let failed = |_| io::Error::other("a thread that compresses ended early");
        let mut all = Vec::with_capacity(batch.len());
        for worker in workers {
            all.extend(worker.join().map_err(failed)?);
        }
        Ok(all)
    })
}

fn deflate(cluster: &[u8]) -> Option<Vec<u8>> {
    let mut stream = Compress::new_with_window_bits(Compression::new(LEVEL), false, WINDOW_BITS);
    // Twice the sector is what the entry could not count.
    let mut packed = Vec::with_capacity(cluster.len() - 1024);
    match stream.compress_vec(cluster, &mut packed, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => Some(packed),
        _ => None,
    }
}
