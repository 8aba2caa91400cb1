//! The master boot record (MBR) and its chain of extended boot records.

use std::io;

use super::{FIRST_SECTOR, Partition, damaged, le32};
use crate::BlockDev;

/// Byte offset of the four entries; each entry has [`ENTRY`] bytes.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// Partition type that announces a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of an extended partition: CHS, LBA, Linux' own.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Maximum number of logical partitions that are read; the kernel's limit is lower.
const LOGICAL_MAX: u32 = 256;

/// One of a boot record's four entries.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    /// First sector.
    start: u32,
    sectors: u32,
}

impl Entry {
    fn extended(&self) -> bool {
        EXTENDED.contains(&self.kind) && self.sectors > 0
    }

    fn used(&self) -> bool {
        self.kind != 0 && self.sectors > 0
    }
}

/// A boot record with a partition table.
pub(super) struct Mbr {
    signature: u32,
    entries: [Entry; 4],
}

impl Mbr {
    /// Parses a disk's first sector. `None` if it holds no partition table: the boot sector of a
    /// file system ends with the same two bytes.
    pub(super) fn parse(sector: &[u8; FIRST_SECTOR]) -> Option<Self> {
        let raw = |at: usize| &sector[ENTRIES + at * ENTRY..][..ENTRY];
        let sane = (0..4).all(|at| raw(at)[0] & 0x7f == 0);
        let entries = parse(sector)?;
        let any = entries.iter().any(Entry::used);
        (sane && any).then(|| Self { signature: le32(sector, 440), entries })
    }

    pub(super) fn announces_gpt(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// The primary and logical partitions.
    pub(super) fn partitions(&self, disk: &dyn BlockDev) -> io::Result<Vec<Partition>> {
        let sector = u64::from(disk.sector_size());
        let partition = |number: u32, start: u64, entry: &Entry| Partition {
            number,
            start: start * sector,
            len: u64::from(entry.sectors) * sector,
            label: String::new(),
            uuid: format!("{:08x}-{number:02x}", self.signature),
            kind: format!("0x{:02x}", entry.kind),
        };
        let mut found = Vec::new();
        for (number, entry) in (1..).zip(&self.entries) {
            if entry.used() && !entry.extended() {
                found.push(partition(number, entry.start.into(), entry));
            }
        }
        if let Some(outer) = self.entries.iter().find(|entry| entry.extended()) {
            let mut number = 4;
            logical(disk, sector, outer, &mut |start, entry| {
                number += 1;
                found.push(partition(number, start, entry));
            })?;
        }
        Ok(found)
    }
}

/// Follows the chain of boot records in an extended partition. Each record describes one logical
/// partition, relative to this record, and the next record, relative to the first.
fn logical(
    disk: &dyn BlockDev,
    sector: u64,
    outer: &Entry,
    each: &mut dyn FnMut(u64, &Entry),
) -> io::Result<()> {
    let base = u64::from(outer.start);
    let mut at = base;
    for _ in 0..LOGICAL_MAX {
        // Cannot overflow: the sum of two 32-bit numbers times the sector size.
        if (at + 1) * sector > disk.len() {
            return Err(damaged(format!("extended boot record at sector {at}, beyond the disk")));
        }
        let mut record = [0; FIRST_SECTOR];
        disk.read_at(at * sector, &mut record)?;
        let Some(entries) = parse(&record) else {
            return Err(damaged(format!("no boot record at sector {at}")));
        };
        if let Some(entry) = entries.iter().find(|e| e.used() && !e.extended()) {
            each(at + u64::from(entry.start), entry);
        }
        match entries.iter().find(|entry| entry.extended()) {
            Some(link) => at = base + u64::from(link.start),
            None => return Ok(()),
        }
    }
    Err(damaged(format!("more than {LOGICAL_MAX} logical partitions, or a chain that loops")))
}

fn parse(sector: &[u8; FIRST_SECTOR]) -> Option<[Entry; 4]> {
    if sector[510..] != [0x55, 0xaa] {
        return None;
    }
    Some(core::array::from_fn(|at| {
        let raw = &sector[ENTRIES + at * ENTRY..][..ENTRY];
        Entry { kind: raw[4], start: le32(raw, 8), sectors: le32(raw, 12) }
    }))
}
