//! Writes the GUID partition table (UEFI specification, chapter 5): protective MBR, header and entries,
//! and the backup at the disk's end.
//!
//! 1. The backup is written and flushed before the primary, so one copy is valid at every moment.
//! 2. What a table holds beyond what this module knows (attributes, bytes behind an entry's known
//!    fields, the boot code in the MBR) survives [`Gpt::read`] and [`Gpt::write`].
//!
//! Tables are read here only to be written again. `uxfs-disk` judges them first and says there why the
//! crates `gpt` and `gptman` are not used; the writing side is a hundred lines.

use std::io;

use uxfs::disk::BlockDev;
use uxfs::format::Uuid;

/// Bytes in a sector.
pub const SECTOR: u64 = 512;
/// Bytes of an entry, and number of entries in a new table.
const ENTRY: usize = 128;
const ENTRIES: usize = 128;
const HEADER: usize = 92;
/// Most bytes of entries in a table that is read, as in `uxfs-disk`.
const ENTRIES_MAX: u64 = 512 << 10;
/// First sector for partitions in a new table, right behind its entries.
const FIRST_USABLE: u64 = 2 + (ENTRY * ENTRIES) as u64 / SECTOR;
/// Longest name of a partition in UTF-16 units.
pub const NAME_UNITS: usize = 36;

/// Attribute bits of the UEFI and Discoverable Partitions Specifications.
pub mod attribute {
    /// The file system grows to the partition when it is mounted.
    pub const GROW_FS: u64 = 1 << 59;
    /// Mount read-only.
    pub const READ_ONLY: u64 = 1 << 60;
    /// Do not mount automatically.
    pub const NO_AUTO: u64 = 1 << 63;
}

/// One partition of a new table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type.
    pub kind: Uuid,
    /// PARTUUID.
    pub uuid: Uuid,
    /// First byte; a multiple of [`SECTOR`].
    pub start: u64,
    /// Length in bytes; a multiple of [`SECTOR`], not 0.
    pub len: u64,
    /// Attribute bits.
    pub attributes: u64,
    /// Name, at most [`NAME_UNITS`] long.
    pub name: String,
}

/// A table in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpt {
    disk: [u8; 16],
    first_usable: u64,
    entry_len: usize,
    entries: Vec<u8>,
    /// The first sector, with boot code.
    mbr: Vec<u8>,
    /// End in bytes of the backup that a table which was read names.
    backup_end: Option<u64>,
}

impl Gpt {
    /// A table with these partitions, numbered from 1 in their order; at most 128.
    pub fn new(disk: Uuid, partitions: &[Entry]) -> Self {
        let mut entries = vec![0; ENTRY * ENTRIES];
        for (entry, raw) in partitions.iter().zip(entries.chunks_exact_mut(ENTRY)) {
            raw[..16].copy_from_slice(&mixed(entry.kind));
            raw[16..32].copy_from_slice(&mixed(entry.uuid));
            put64(raw, 32, entry.start / SECTOR);
            put64(raw, 40, (entry.start + entry.len) / SECTOR - 1);
            put64(raw, 48, entry.attributes);
            let units = entry.name.encode_utf16().take(NAME_UNITS);
            for (unit, place) in units.zip(raw[56..].chunks_exact_mut(2)) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        let mbr = vec![0; SECTOR as usize];
        Self {
            disk: mixed(disk),
            first_usable: FIRST_USABLE,
            entry_len: ENTRY,
            entries,
            mbr,
            backup_end: None,
        }
    }

    /// Reads the primary table, or the backup at the end of `len` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the table is damaged or has sectors of another size.
    pub fn read(disk: &dyn BlockDev, backup_of: Option<u64>) -> io::Result<Self> {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let at = backup_of.map_or(1, |len| (len / SECTOR).saturating_sub(1));
        let mut header = vec![0; SECTOR as usize];
        disk.read_at(at * SECTOR, &mut header)?;
        let stored = u32_at(&header, 16);
        header[16..20].fill(0);
        let own = u32_at(&header, 12) as usize;
        if !header.starts_with(b"EFI PART") || !(HEADER..=header.len()).contains(&own) {
            return Err(damaged("no GPT with sectors of 512 bytes"));
        }
        let (count, entry_len) = (u32_at(&header, 80), u32_at(&header, 84));
        let len = u64::from(count) * u64::from(entry_len);
        let entries_at = u64_at(&header, 72).checked_mul(SECTOR);
        let inside = entries_at.and_then(|at| at.checked_add(len)).is_some_and(|e| e <= disk.len());
        if crc32fast::hash(&header[..own]) != stored
            || len > ENTRIES_MAX
            || (entry_len as usize) < ENTRY
            || u64_at(&header, 40) < 2 + len.div_ceil(SECTOR)
            || !inside
        {
            return Err(damaged("the GPT header is damaged"));
        }
        let mut entries = vec![0; len as usize];
        disk.read_at(entries_at.unwrap_or_default(), &mut entries)?;
        if crc32fast::hash(&entries) != u32_at(&header, 88) {
            return Err(damaged("the GPT entries are damaged"));
        }
        let mut mbr = vec![0; SECTOR as usize];
        disk.read_at(0, &mut mbr)?;
        let disk: [u8; 16] = core::array::from_fn(|i| header[56 + i]);
        let first_usable = u64_at(&header, 40);
        let backup = if backup_of.is_some() { at } else { u64_at(&header, 32) };
        let backup_end = backup.checked_add(1).and_then(|end| end.checked_mul(SECTOR));
        let entry_len = entry_len as usize;
        Ok(Self { disk, first_usable, entry_len, entries, mbr, backup_end })
    }

    /// Range in bytes of the backup that the table names, which was read.
    pub fn old_backup(&self) -> Option<(u64, u64)> {
        let end = self.backup_end?;
        Some((end.checked_sub(self.tail())?, end))
    }

    /// Number and range in bytes of each partition.
    pub fn ranges(&self) -> Vec<(u32, u64, u64)> {
        let entries = (1..).zip(self.entries.chunks_exact(self.entry_len));
        let used = entries.filter(|(_, raw)| raw[..16].iter().any(|byte| *byte != 0));
        let range = |(number, raw): (u32, &[u8])| {
            let (first, last) = (u64_at(raw, 32), u64_at(raw, 40));
            let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
            (number, bytes(first), bytes(last.saturating_add(1)))
        };
        used.map(range).collect()
    }

    /// Moves the end of a partition to the byte before `end`, a multiple of [`SECTOR`].
    pub fn set_end(&mut self, number: u32, end: u64) {
        let at = (number as usize).saturating_sub(1) * self.entry_len;
        if let Some(raw) = self.entries.get_mut(at..at + self.entry_len) {
            put64(raw, 40, (end / SECTOR).saturating_sub(1));
        }
    }

    /// Bytes that the backup takes at the end of the disk.
    pub fn tail(&self) -> u64 {
        SECTOR + (self.entries.len() as u64).next_multiple_of(SECTOR)
    }

    /// Writes the table on a disk of `len` bytes, which may be shorter than the device.
    ///
    /// # Errors
    /// The device's errors.
    pub fn write(&self, disk: &dyn BlockDev, len: u64) -> io::Result<()> {
        let last = len / SECTOR - 1;
        let entries_at = (len - self.tail()) / SECTOR;
        disk.write_at(entries_at * SECTOR, &self.entries)?;
        disk.write_at(last * SECTOR, &self.header(last, 1, entries_at, entries_at - 1))?;
        disk.flush()?;
        disk.write_at(2 * SECTOR, &self.entries)?;
        disk.write_at(SECTOR, &self.header(1, last, 2, entries_at - 1))?;
        disk.write_at(0, &self.protective_mbr(last))?;
        disk.flush()
    }

    fn header(&self, own: u64, other: u64, entries_at: u64, last_usable: u64) -> Vec<u8> {
        let mut raw = vec![0; SECTOR as usize];
        raw[..8].copy_from_slice(b"EFI PART");
        // Revision 1.0.
        put32(&mut raw, 8, 0x0001_0000);
        put32(&mut raw, 12, HEADER as u32);
        put64(&mut raw, 24, own);
        put64(&mut raw, 32, other);
        put64(&mut raw, 40, self.first_usable);
        put64(&mut raw, 48, last_usable);
        raw[56..72].copy_from_slice(&self.disk);
        put64(&mut raw, 72, entries_at);
        put32(&mut raw, 80, (self.entries.len() / self.entry_len) as u32);
        put32(&mut raw, 84, self.entry_len as u32);
        put32(&mut raw, 88, crc32fast::hash(&self.entries));
        let sum = crc32fast::hash(&raw[..HEADER]);
        put32(&mut raw, 16, sum);
        raw
    }

    /// The first sector: one partition of type 0xEE that covers the disk, as far as 32 bits reach.
    fn protective_mbr(&self, last: u64) -> Vec<u8> {
        let mut raw = self.mbr.clone();
        raw[446..510].fill(0);
        // From cylinder 0, head 0, sector 2 to the largest address.
        raw[446..454].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
        put32(&mut raw, 454, 1);
        put32(&mut raw, 458, u32::try_from(last).unwrap_or(u32::MAX));
        raw[510..].copy_from_slice(&[0x55, 0xaa]);
        raw
    }
}

/// A GUID on disk: the first three parts are little-endian.
fn mixed(uuid: Uuid) -> [u8; 16] {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    ORDER.map(|at| uuid.0[at])
}

fn put32(raw: &mut [u8], at: usize, value: u32) {
    raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(raw: &mut [u8], at: usize, value: u64) {
    raw[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    raw[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(raw: &[u8], at: usize) -> u64 {
    raw[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
