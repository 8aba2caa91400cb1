//! VHD images of fixed length: a raw disk and a footer of 512 bytes (Microsoft's Virtual Hard Disk Image
//! Format Specification).
//!
//! 1. A file counts as such an image only if its footer is whole and names exactly the length in front of
//!    it. Others, with tables (dynamic, differencing), begin with a copy of the footer; `vhd_dynamic` reads
//!    them.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

/// Bytes of the footer.
pub(crate) const FOOTER: u64 = 512;
/// Offset of the footer's checksum.
pub(crate) const SUM: usize = 64;
/// The type of a disk of fixed length.
const FIXED: u32 = 2;

/// The length in bytes of the disk in a VHD image of fixed length; `None` if the file is none.
///
/// # Errors
/// The errors of reading the file.
pub fn vhd_len(file: &File) -> io::Result<Option<u64>> {
    let Some(len) = file.metadata()?.len().checked_sub(FOOTER) else { return Ok(None) };
    let mut raw = [0; FOOTER as usize];
    match file.read_exact_at(&mut raw, len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let right = raw.starts_with(b"conectix")
        && number(&raw, 60) == FIXED
        && number(&raw, SUM) == vhd_checksum(&raw, SUM);
    Ok((right && wide_number(&raw, 48) == len && len > 0).then_some(len))
}

/// A big-endian number of 32 bits; 0 outside of `raw`.
pub(crate) fn number(raw: &[u8], at: usize) -> u32 {
    raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A big-endian number of 64 bits; 0 outside of `raw`.
pub(crate) fn wide_number(raw: &[u8], at: usize) -> u64 {
    raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The checksum of a VHD footer or header: the ones' complement of the sum of all bytes but the four of the
/// checksum itself, which lies at `at` (in a footer 64, in the header of a dynamic image 36). It is stored as a
/// big-endian number.
///
/// ```
/// let mut raw = [0; 512];
/// raw[3] = 5;
/// raw[64..68].fill(0xaa);
/// assert_eq!(uxfs_disk::vhd_checksum(&raw, 64), !5);
/// ```
#[must_use]
pub fn vhd_checksum(raw: &[u8], at: usize) -> u32 {
    let others = raw.iter().enumerate().filter(|(i, _)| !(at..at + 4).contains(i));
    !others.fold(0, |sum: u32, (_, byte)| sum.wrapping_add(u32::from(*byte)))
}

/// Gives the disk in a VHD image of fixed length another length, durably. What was behind the new end is
/// lost; what is new reads as zeroes.
///
/// The file is such an image at every moment, because its last bytes are a footer.
///
/// # Errors
/// The errors of the host.
pub fn set_vhd_len(file: &File, len: u64) -> io::Result<()> {
    let before = file.metadata()?.len() - FOOTER;
    let mut raw = [0; FOOTER as usize];
    file.read_exact_at(&mut raw, before)?;
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    // The name of the maker: with others, readers take the length from the geometry, which is rounded.
    put(28, b"win ");
    put(48, &len.to_be_bytes());
    put(56, &vhd_geometry(len / 512));
    let sum = vhd_checksum(&raw, SUM);
    raw[SUM..SUM + 4].copy_from_slice(&sum.to_be_bytes());
    file.write_all_at(&raw, len)?;
    file.sync_all()?;
    if len > before {
        let end = len.min(before + FOOTER);
        file.write_all_at(&[0; FOOTER as usize][..(end - before) as usize], before)?;
    }
    file.set_len(len + FOOTER)?;
    file.sync_all()
}

/// Cylinders, heads and sectors of a track, by the specification's appendix.
pub fn vhd_geometry(sectors: u64) -> [u8; 4] {
    let sectors = sectors.min(65_535 * 16 * 255);
    let (mut per_track, mut heads, mut tracks);
    if sectors >= 65_535 * 16 * 63 {
        (per_track, heads) = (255, 16);
        tracks = sectors / per_track;
    } else {
        per_track = 17;
        tracks = sectors / per_track;
        heads = tracks.div_ceil(1024).max(4);
        if tracks >= heads * 1024 || heads > 16 {
            (per_track, heads) = (31, 16);
            tracks = sectors / per_track;
        }
        if tracks >= heads * 1024 {
            (per_track, heads) = (63, 16);
            tracks = sectors / per_track;
        }
    }
    let cylinders = ((tracks / heads) as u16).to_be_bytes();
    [cylinders[0], cylinders[1], heads as u8, per_track as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_footer_counts() {
        let mut raw = vec![0; 8192];
        let mut footer = [0; 512];
        footer[..8].copy_from_slice(b"conectix");
        footer[48..56].copy_from_slice(&8192u64.to_be_bytes());
        footer[60..64].copy_from_slice(&FIXED.to_be_bytes());
        let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
        footer[64..68].copy_from_slice(&(!sum).to_be_bytes());
        let len = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            vhd_len(&file).unwrap()
        };
        assert_eq!(len(&raw), None);
        assert_eq!(len(&footer), None);
        assert_eq!(len(&[]), None);
        raw.extend(footer);
        assert_eq!(len(&raw), Some(8192));
        for at in [8192, 8192 + 50, 8192 + 63, 8192 + 64, 8192 + 511] {
            let mut damaged = raw.clone();
            damaged[at] ^= 1;
            assert_eq!(len(&damaged), None, "{at}");
        }
        // Another length than the footer's.
        raw.splice(..0, [0; 512]);
        assert_eq!(len(&raw), None);
    }
}
