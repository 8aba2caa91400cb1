//! Makes a VHD image of fixed length: the raw image and a footer of 512 bytes (Microsoft's Virtual Hard
//! Disk Image Format Specification).

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use super::Label;
use uxfs::disk::{vhd_checksum, vhd_geometry};
use uxfs_host::FileExt;

/// 2000-01-01, seconds since 1970: the footer counts from there.
const EPOCH: i64 = 946_684_800;

pub(super) fn append_footer(raw: &Path, label: &Label) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(raw)?;
    // A disk has whole sectors.
    let len = file.metadata()?.len().next_multiple_of(512);
    file.write_all_at(&footer(len, label), len)
}

fn footer(len: u64, label: &Label) -> [u8; 512] {
    let mut raw = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"conectix");
    // Features: the bit that is always set. Then the version of the format.
    put(8, &2u32.to_be_bytes());
    put(12, &0x0001_0000u32.to_be_bytes());
    // No further header.
    put(16, &u64::MAX.to_be_bytes());
    let time = u32::try_from(label.time.saturating_sub(EPOCH).max(0)).unwrap_or(u32::MAX);
    put(24, &time.to_be_bytes());
    // Readers take the length from the field of length, not from the geometry, which is rounded, only
    // of images made by Hyper-V and by some other names; so this is its name.
    put(28, b"win \x00\x06\x00\x01Wi2k");
    put(40, &len.to_be_bytes());
    put(48, &len.to_be_bytes());
    put(56, &vhd_geometry(len / 512));
    // A disk of fixed length.
    put(60, &2u32.to_be_bytes());
    put(68, &label.uuid.0);
    let sum = vhd_checksum(&raw, 64);
    raw[64..68].copy_from_slice(&sum.to_be_bytes());
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_footer_is_right() {
        let label = Label { uuid: uxfs::format::Uuid([7; 16]), time: 1_700_000_000 };
        let mut raw = footer(64 << 20, &label);
        let stored = u32::from_be_bytes([raw[64], raw[65], raw[66], raw[67]]);
        raw[64..68].fill(0);
        assert_eq!(!stored, raw.iter().map(|byte| u32::from(*byte)).sum::<u32>());
    }
}
