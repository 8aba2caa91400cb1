//! Checks a qcow2 header before any of its fields is used.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

/// Minimum length in bytes of a version 3 header; a version 2 header has 72 bytes.
const HEADER: usize = 104;
/// Largest tables in bytes that qemu creates or opens.
const L1_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
/// Base-2 logarithms of the smallest and largest cluster size in bytes.
const CLUSTER_BITS: core::ops::RangeInclusive<u32> = 9..=21;
/// Bytes of the largest cluster.
pub(super) const CLUSTER_MAX: u64 = 1 << 21;

/// Type of the header extension with the names of features, and the bytes of a name in it.
const FEATURE_NAMES: u32 = 0x6803_f857;
const FEATURE_NAME: usize = 48;

/// Unsupported incompatible features: bit, text for the error.
const INCOMPATIBLE: [(u64, &str); 5] = [
    (1, "the image was not closed properly (dirty); run qemu-img check -r all on it"),
    (1 << 1, "the image is marked as corrupt"),
    (1 << 2, "an external data file"),
    (1 << 3, "compression by zstd"),
    (1 << 4, "extended L2 entries (subclusters)"),
];

/// Checks the header of an image that is to be read, or with `write` to be written.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for an invalid header, [`io::ErrorKind::Unsupported`] for an
/// unsupported feature.
pub(super) fn check(file: &File, write: bool) -> io::Result<()> {
    let damaged = |problem: &str| {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("qcow2 header: {problem}")))
    };
    let unsupported = |what: &str| {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("qcow2 image not supported: {what}"),
        ))
    };
    let len = file.metadata()?.len();
    let mut raw = [0; HEADER];
    let have = usize::try_from(len).unwrap_or(HEADER).min(HEADER);
    if have < 72 {
        return damaged("shorter than a header");
    }
    file.read_exact_at(&mut raw[..have], 0)?;
    let version = be32(&raw, 4);
    if !(2..=3).contains(&version) {
        return unsupported(&format!("version {version}"));
    }
    let cluster_bits = be32(&raw, 20);
    if !CLUSTER_BITS.contains(&cluster_bits) {
        return damaged(&format!("clusters of 2^{cluster_bits} bytes"));
    }
    if be32(&raw, 32) != 0 {
        return unsupported("encryption");
    }
    let inside = |at: u64, bytes: u64| at.checked_add(bytes).is_some_and(|end| end <= len);
    // An L2 table fills one cluster with 8-byte entries, one for each data cluster.
    let per_entry = 1u128 << (2 * cluster_bits - 3);
    let (size, entries) = (be64(&raw, 24), u64::from(be32(&raw, 36)));
    let needed = u128::from(size).div_ceil(per_entry);
    if u128::from(entries) < needed || entries * 8 > L1_MAX || !inside(be64(&raw, 40), entries * 8)
    {
        return damaged(&format!("an L1 table of {entries} entries for {size} bytes"));
    }
    let clusters = u64::from(be32(&raw, 56));
    let table = clusters << cluster_bits;
    if table > REFCOUNT_TABLE_MAX || clusters == 0 || !inside(be64(&raw, 48), table) {
        return damaged(&format!("a refcount table of {clusters} clusters"));
    }
    if version == 3 {
        if have < HEADER {
            return damaged("shorter than a header of version 3");
        }
        let features = be64(&raw, 72);
        for (bit, what) in INCOMPATIBLE {
            if features & bit != 0 {
                return unsupported(what);
            }
        }
        if features != 0 {
            return unsupported(&format!("unknown features {features:#x}"));
        }
    }
    if write && be32(&raw, 60) != 0 {
        return unsupported("writing an image with internal snapshots; it can be read");
    }
    if write {
        let order = if version == 3 { be32(&raw, 96) } else { 4 };
        if order > 6 {
            return damaged(&format!("reference counts of 2^{order} bits"));
        }
        let counts = Refcounts::read(file, &raw, cluster_bits, order)?;
        if !counts.are_sound(&raw)? {
            return damaged(
                "the reference counts do not cover the image's own tables: run qemu-img check",
            );
        }
    }
    Ok(())
}

/// Does the image of a checked header have a backing file?
pub(super) fn has_backing(file: &File) -> io::Result<bool> {
    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, 8)?;
    Ok(offset != [0; 8])
}

/// Bytes of a cluster of the image of a checked header.
pub(super) fn cluster_size(file: &File) -> io::Result<u64> {
    let mut bits = [0; 4];
    file.read_exact_at(&mut bits, 20)?;
    Ok(1 << u32::from_be_bytes(bits).min(*CLUSTER_BITS.end()))
}

/// Sorts the names of features in the header of a new image, which `imago` writes in a random order.
pub(super) fn sort_feature_names(file: &File) -> io::Result<()> {
    let mut raw = [0; HEADER];
    file.read_exact_at(&mut raw, 0)?;
    let mut at = u64::from(be32(&raw, 100));
    // The header and its extensions lie in the first cluster.
    while at < CLUSTER_MAX {
        let mut head = [0; 8];
        file.read_exact_at(&mut head, at)?;
        let [kind, len] =
            [0, 4].map(|at| head[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b)));
        if kind == FEATURE_NAMES && u64::from(len) < CLUSTER_MAX {
            let mut names = vec![0; len as usize];
            file.read_exact_at(&mut names, at + 8)?;
            names.as_chunks_mut::<FEATURE_NAME>().0.sort_unstable();
            return file.write_all_at(&names, at + 8);
        }
        if kind == 0 {
            break;
        }
        at += 8 + u64::from(len).next_multiple_of(8);
    }
    Ok(())
}

/// The reference counts of an image. A writer relies on them to find free clusters. Wrong counts
/// could make it overwrite the image's own tables or search for space endlessly.
struct Refcounts<'f> {
    file: &'f File,
    len: u64,
    cluster_bits: u32,
    /// Base-2 logarithm of the bits in a count.
    order: u32,
    /// Byte offsets of the refcount blocks; 0 for an absent block.
    table: Vec<u64>,
}

impl<'f> Refcounts<'f> {
    /// Reads the table; its size and offset must be checked already.
    fn read(file: &'f File, raw: &[u8; HEADER], cluster_bits: u32, order: u32) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let bytes = u64::from(be32(raw, 56)) << cluster_bits;
        // At most REFCOUNT_TABLE_MAX bytes.
        let mut table = vec![0; bytes as usize];
        file.read_exact_at(&mut table, be64(raw, 48))?;
        let entries = table.as_chunks().0.iter().map(|entry| u64::from_be_bytes(*entry));
        Ok(Self { file, len, cluster_bits, order, table: entries.collect() })
    }

    /// Are all refcount blocks inside the image, and do they count header, tables and refcount
    /// blocks as used?
    fn are_sound(&self, raw: &[u8; HEADER]) -> io::Result<bool> {
        let cluster = 1 << self.cluster_bits;
        let blocks = self.table.iter().copied().filter(|at| *at != 0);
        if blocks.clone().any(|at| at % cluster != 0 || at >= self.len) {
            return Ok(false);
        }
        let tables = [
            (0, cluster),
            (be64(raw, 40), u64::from(be32(raw, 36)) * 8),
            (be64(raw, 48), u64::from(be32(raw, 56)) << self.cluster_bits),
        ];
        for (at, bytes) in tables.into_iter().chain(blocks.map(|at| (at, cluster))) {
            let (first, end) = (at >> self.cluster_bits, (at + bytes).div_ceil(cluster));
            for number in first..end {
                if !self.is_used(number)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Is a cluster counted as used?
    fn is_used(&self, number: u64) -> io::Result<bool> {
        let each_log = self.cluster_bits + 3 - self.order;
        let block = usize::try_from(number >> each_log).ok().and_then(|at| self.table.get(at));
        let Some(&block) = block.filter(|at| **at != 0) else { return Ok(false) };
        let bit = (number & ((1 << each_log) - 1)) << self.order;
        let mut count = [0; 8];
        let count = &mut count[..(1usize << self.order).div_ceil(8)];
        match self.file.read_exact_at(count, block + bit / 8) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        let mask = if self.order < 3 { ((1 << (1 << self.order)) - 1) << (bit % 8) } else { 0xff };
        Ok(count.iter().any(|byte| byte & mask != 0))
    }
}

fn be32(raw: &[u8; HEADER], at: usize) -> u32 {
    raw[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be64(raw: &[u8; HEADER], at: usize) -> u64 {
    raw[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
