//! Finds a secondary superblock when the primary is damaged. Every allocation group but the first
//! has a copy of the superblock at its head.
//!
//! The size of a group is stored only in a superblock. The search therefore tries the group sizes
//! that mkfs uses first, then every sector near the start of the device.
//!
//! 1. A copy is accepted only if it passes [`Superblock::verify`], lies where its own geometry puts
//!    a copy, fits the device, and agrees with at least half of the other copies. This rejects a
//!    copy that an earlier volume left behind and a copy inside a file that holds an image.
//! 2. The caller bounds the number of bytes read; a constant bounds the number of candidates.

use crate::superblock::{Superblock, has_magic};
use crate::types::AgNo;

/// Maximum number of candidates that are verified against the other copies.
const CANDIDATES: usize = 1000;
/// Maximum number of other copies that are compared with a candidate.
const VOTERS: u32 = 16;
/// Maximum number of groups that mkfs makes on a small volume.
const GROUPS_GUESSED: u64 = 64;
/// Upper limit of a group's size in bytes; a group is at least one block smaller.
const AG_MAX: u64 = 1 << 40;
const SECTOR: usize = 512;
const SCAN_STEP: usize = 1 << 20;

/// Reads bytes at an offset of the device; returns `false` if the read fails.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// A copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The group at whose head it lies.
    pub ag: AgNo,
    /// Its sector, which passed [`Superblock::verify`].
    pub sector: Vec<u8>,
}

/// Finds a good copy on a device of `len` bytes. The first `scan` bytes are searched; 0 tries only
/// the offsets at which mkfs puts copies.
pub fn find(len: u64, scan: u64, read: &mut ReadAt<'_>) -> Option<Copy> {
    let mut search = Search { len, read, left: CANDIDATES };
    let mut guesses: Vec<u64> = (9..=16).flat_map(|log| guesses(len, log)).collect();
    guesses.sort_unstable();
    guesses.dedup();
    let mut first = [0; SECTOR];
    for at in guesses {
        if (search.read)(at, &mut first)
            && has_magic(&first)
            && let Some(copy) = search.candidate(at)
        {
            return Some(copy);
        }
    }
    search.scan(scan.min(len))
}

/// Possible byte offsets of the second group on a device of `len` bytes; a block has
/// 2 to the power of `log` bytes.
fn guesses(len: u64, log: u32) -> impl Iterator<Item = u64> {
    let blocks = len >> log;
    let equal = (2..=GROUPS_GUESSED).map(move |groups| blocks.div_ceil(groups) << log);
    equal.chain([AG_MAX - (1 << log)]).filter(move |at| *at > 0 && *at < len)
}

struct Search<'r, 'a> {
    len: u64,
    read: &'r mut ReadAt<'a>,
    left: usize,
}

impl Search<'_, '_> {
    fn scan(&mut self, end: u64) -> Option<Copy> {
        let mut buf = vec![0; SCAN_STEP];
        let mut at = 0;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(SCAN_STEP).min(SCAN_STEP);
            let whole = &mut buf[..len];
            let fine = (self.read)(at, whole);
            for (sector, offset) in buf[..len].chunks(SECTOR).zip((at..).step_by(SECTOR)) {
                if !fine || offset == 0 || !has_magic(sector) {
                    continue;
                }
                if self.left == 0 {
                    return None;
                }
                if let Some(copy) = self.candidate(offset) {
                    return Some(copy);
                }
            }
            at += len as u64;
        }
        None
    }

    /// The copy at `at`, if it is a good one.
    fn candidate(&mut self, at: u64) -> Option<Copy> {
        self.left = self.left.checked_sub(1)?;
        let sector = self.sector(at)?;
        let sb = Superblock::view(&sector)?;
        let (block, ag_len) = (u64::from(sb.blocksize.get()), ag_len(sb));
        let ag = u32::try_from(at / ag_len).ok()?;
        let in_place = at.is_multiple_of(ag_len) && ag > 0 && ag < sb.agcount.get();
        if !in_place || sb.dblocks.get() > self.len / block {
            return None;
        }
        let last = sb.agcount.get().min(VOTERS + 1);
        let mut agree = 0;
        for other in 1..last {
            let sector = self.sector(u64::from(other) * ag_len);
            agree += u32::from(sector.is_some_and(|other| same(sb, &other)));
        }
        (2 * agree >= last - 1).then_some(Copy { ag: AgNo(ag), sector: sector.clone() })
    }

    /// The sector of a superblock that passes verification.
    fn sector(&mut self, at: u64) -> Option<Vec<u8>> {
        let mut sector = vec![0; SECTOR];
        if !(self.read)(at, &mut sector) || !has_magic(&sector) {
            return None;
        }
        let len = usize::from(Superblock::view(&sector)?.sectsize.get());
        if len > SECTOR {
            // `verify` refuses a larger sector size.
            sector.resize(len.min(32768), 0);
            if !(self.read)(at, &mut sector) {
                return None;
            }
        }
        Superblock::verify(&sector).ok()?;
        Some(sector)
    }
}

/// Bytes in a group of the volume that a verified superblock describes.
fn ag_len(sb: &Superblock) -> u64 {
    u64::from(sb.agblocks.get()) * u64::from(sb.blocksize.get())
}

/// Does the sector hold another superblock of the same volume?
fn same(sb: &Superblock, other: &[u8]) -> bool {
    Superblock::view(other).is_some_and(|other| {
        other.uuid == sb.uuid && other.dblocks == sb.dblocks && ag_len(other) == ag_len(sb)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::MAGIC;
    use zerocopy::{FromZeros, IntoBytes};

    const AG: u64 = 16 << 20;

    fn superblock(groups: u32) -> Vec<u8> {
        let mut sb = Superblock::new_zeroed();
        sb.magicnum.set(MAGIC);
        sb.versionnum.set(0xb4a5);
        (sb.sectlog, sb.blocklog, sb.inodelog, sb.inopblog, sb.agblklog) = (9, 12, 9, 3, 12);
        sb.sectsize.set(512);
        sb.blocksize.set(4096);
        sb.inodesize.set(512);
        sb.inopblock.set(8);
        sb.agblocks.set(4096);
        sb.agcount.set(groups);
        sb.dblocks.set(u64::from(groups) * 4096);
        sb.inoalignmt.set(8);
        sb.logsunit.set(1);
        let mut sector = sb.as_bytes().to_vec();
        sector.resize(512, 0);
        crate::crc::stamp(&mut sector, crate::superblock::CRC_OFFSET);
        Superblock::verify(&sector).unwrap();
        sector
    }

    fn look(device: &[u8], scan: u64) -> Option<AgNo> {
        let mut read = |at: u64, buf: &mut [u8]| {
            let at = usize::try_from(at).unwrap();
            device.get(at..at + buf.len()).map(|bytes| buf.copy_from_slice(bytes)).is_some()
        };
        find(device.len() as u64, scan, &mut read).map(|copy| copy.ag)
    }

    #[test]
    fn a_copy_is_found_by_guess_or_by_search() {
        for (groups, tail) in [(4, 0), (3, 5 << 20)] {
            let sector = superblock(groups);
            let mut device = vec![0; (u64::from(groups) * AG) as usize + tail];
            assert_eq!(look(&device, 1 << 30), None);
            for ag in 1..groups as usize {
                device[ag * AG as usize..][..512].copy_from_slice(&sector);
            }
            assert_eq!(look(&device, 0), (tail == 0).then_some(AgNo(1)));
            assert_eq!(look(&device, 1 << 30), Some(AgNo(1)));
            device[AG as usize] = 0;
            assert_eq!(look(&device, 1 << 30), Some(AgNo(2)), "half of them agree");
        }
    }

    #[test]
    fn a_copy_of_another_volume_is_rejected() {
        let sector = superblock(4);
        let mut device = vec![0; 4 * AG as usize];
        device[AG as usize..][..512].copy_from_slice(&sector);
        assert_eq!(look(&device, 1 << 30), None, "one of three agrees");
        device[2 * AG as usize + 4096..][..512].copy_from_slice(&sector);
        assert_eq!(look(&device, 1 << 30), None, "out of place");
    }
}
