//! The GUID partition table (UEFI specification, chapter 5).

use std::io;

use super::{Partition, damaged, le32, le64};
use crate::BlockDev;

const SIGNATURE: &[u8] = b"EFI PART";
/// Minimum length of a header in bytes.
const HEADER_MIN: usize = 92;
/// Sector sizes at which the header is searched.
const SECTORS: [u64; 2] = [512, 4096];
/// Maximum total size of the entries in bytes: 32 times the usual size.
const ENTRIES_MAX: u64 = 512 << 10;
/// Minimum size of an entry in bytes; bytes behind it have no meaning.
const ENTRY: usize = 128;

/// A header that passed its checks.
struct Header {
    sector: u64,
    entries: u64,
    count: u32,
    entry_len: u32,
    entries_crc: u32,
}

/// Reads the partitions of a disk whose MBR announces a GPT, from the first undamaged copy.
pub(super) fn read(disk: &dyn BlockDev) -> io::Result<Vec<Partition>> {
    let mut first_problem = None;
    for backup in [false, true] {
        for sector in SECTORS {
            let lba = if backup { (disk.len() / sector).saturating_sub(1) } else { 1 };
            if lba == 0 || lba.checked_add(1).is_none_or(|end| end > disk.len() / sector) {
                continue;
            }
            let read = Header::read(disk, sector, lba)
                .and_then(|header| header.map(|header| header.partitions(disk)).transpose());
            match read {
                Ok(Some(partitions)) => return Ok(partitions),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    first_problem.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(first_problem
        .unwrap_or_else(|| damaged("the MBR announces a GPT, but there is no GPT header")))
}

impl Header {
    /// The header at `lba`; `None` if there is none.
    fn read(disk: &dyn BlockDev, sector: u64, lba: u64) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; sector as usize];
        disk.read_at(lba * sector, &mut bytes)?;
        if !bytes.starts_with(SIGNATURE) {
            return Ok(None);
        }
        let len = le32(&bytes, 12) as usize;
        if !(HEADER_MIN..=bytes.len()).contains(&len) {
            return Err(damaged(format!("GPT header of {len} bytes")));
        }
        let stored = le32(&bytes, 16);
        bytes[16..20].fill(0);
        if crc32fast::hash(&bytes[..len]) != stored {
            return Err(damaged("the checksum of the GPT header does not match"));
        }
        if le64(&bytes, 24) != lba {
            return Err(damaged("the GPT header names another sector as its own address"));
        }
        let header = Self {
            sector,
            entries: le64(&bytes, 72),
            count: le32(&bytes, 80),
            entry_len: le32(&bytes, 84),
            entries_crc: le32(&bytes, 88),
        };
        if (header.entry_len as usize) < ENTRY || !header.entry_len.is_power_of_two() {
            return Err(damaged(format!("GPT entries of {} bytes", header.entry_len)));
        }
        Ok(Some(header))
    }

    fn partitions(&self, disk: &dyn BlockDev) -> io::Result<Vec<Partition>> {
        let len = u64::from(self.count) * u64::from(self.entry_len);
        if len > ENTRIES_MAX {
            return Err(damaged(format!("{} GPT entries of {}", self.count, self.entry_len)));
        }
        let at = self.entries.checked_mul(self.sector);
        let Some(at) = at.filter(|at| at.checked_add(len).is_some_and(|end| end <= disk.len()))
        else {
            return Err(damaged("the GPT entries lie beyond the end of the disk"));
        };
        let mut bytes = vec![0; len as usize];
        disk.read_at(at, &mut bytes)?;
        if crc32fast::hash(&bytes) != self.entries_crc {
            return Err(damaged("the checksum of the GPT entries does not match"));
        }
        let entries = (1..).zip(bytes.chunks_exact(self.entry_len as usize));
        let used = entries.filter(|(_, entry)| entry[..16].iter().any(|b| *b != 0));
        Ok(used.filter_map(|(number, entry)| self.partition(number, entry)).collect())
    }

    /// Decodes one entry; `None` if its end lies before its start.
    fn partition(&self, number: u32, entry: &[u8]) -> Option<Partition> {
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        let units: Vec<u16> = entry[56..ENTRY]
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .take_while(|unit| *unit != 0)
            .collect();
        Some(Partition {
            number,
            start: first.checked_mul(self.sector)?,
            len: sectors.checked_mul(self.sector)?,
            label: String::from_utf16_lossy(&units),
            uuid: guid(&entry[16..32]),
            kind: guid(&entry[..16]),
        })
    }
}

/// Formats a GUID; its first three parts are little-endian.
fn guid(b: &[u8]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::with_capacity(36);
    for (index, at) in order.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", b[at]));
    }
    text
}
