//! What a qcow2 header may say: checked before anything is believed of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// "QFI", and a byte that text does not have.
pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Bytes of a header of version 3 that are always there; version 2 has 72 of them.
const HEADER: usize = 104;
/// Largest tables that qemu makes or opens, in bytes.
const L1_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
/// Logarithms of the smallest and largest cluster.
const CLUSTER_BITS: core::ops::RangeInclusive<u32> = 9..=21;

/// Incompatible features by bit, as their names are to be told.
const INCOMPATIBLE: [(u64, &str); 5] = [
    (1, "the image was not closed properly (dirty); run qemu-img check -r all on it"),
    (1 << 1, "the image is marked as corrupt"),
    (1 << 2, "an external data file"),
    (1 << 3, "compression by zstd"),
    (1 << 4, "extended L2 entries (subclusters)"),
];

/// Checks the header of an image that is to be read, or written.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for what no image can have, [`io::ErrorKind::Unsupported`] for
/// what is not done.
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
    // An L2 table fills a cluster with entries of 8 bytes, each for a cluster.
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
    Ok(())
}

fn be32(raw: &[u8; HEADER], at: usize) -> u32 {
    raw[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be64(raw: &[u8; HEADER], at: usize) -> u64 {
    raw[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
