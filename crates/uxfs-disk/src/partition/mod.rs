//! Partition tables: finds the partitions of a disk. Supports GPT with sectors of 512 and 4096
//! bytes, and MBR with logical partitions.
//!
//! 1. Tables are read, never written.
//! 2. Reading any table takes bounded memory and time. A partition that extends beyond the disk is
//!    listed, but opening it fails.
//! 3. As in the kernel, a GPT counts only if the MBR announces it. A stale GPT behind a newer MBR
//!    is ignored.
//!
//! Existing crates were examined and rejected: `gpt` asserts on entry sizes that are legal and
//! allocates memory by an unchecked field, `mbrman` depends on the abandoned `bincode`, `gptman`
//! reserves memory by an unchecked field and does not read MBRs.

mod gpt;
mod mbr;

use std::io;
use std::sync::Arc;

use crate::{BlockDev, Slice};

/// Kind of partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// A master boot record.
    Mbr,
}

impl core::fmt::Display for TableKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Partition number, as in the kernel's device names; logical partitions start at 5.
    pub number: u32,
    /// First byte on the disk.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name in the GPT; empty for an MBR, which has no names.
    pub label: String,
    /// PARTUUID in the kernel's and udev's notation, in lower case.
    pub uuid: String,
    /// Type: a GUID in lower case, or for an MBR a byte as in `0x83`.
    pub kind: String,
}

impl Partition {
    /// Opens the partition as a device.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the partition extends beyond the disk.
    pub fn open(&self, disk: Arc<dyn BlockDev>) -> io::Result<Slice> {
        Slice::new(disk, self.start, self.len).map_err(|error| {
            io::Error::new(error.kind(), format!("partition {}: {error}", self.number))
        })
    }
}

/// A disk's partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Kind of the table.
    pub kind: TableKind,
    /// The partitions in ascending order of their numbers.
    pub partitions: Vec<Partition>,
}

/// Bytes at the start of a disk that identify the kind of its table.
const FIRST_SECTOR: usize = 512;

impl Table {
    /// Reads a disk's partition table; `None` if the disk has none.
    ///
    /// # Errors
    /// The device's errors; [`io::ErrorKind::InvalidData`] for a damaged table (for a GPT, if both
    /// copies are damaged).
    pub fn read(disk: &dyn BlockDev) -> io::Result<Option<Self>> {
        let mut first = [0; FIRST_SECTOR];
        if disk.len() < FIRST_SECTOR as u64 {
            return Ok(None);
        }
        disk.read_at(0, &mut first)?;
        let Some(mbr) = mbr::Mbr::parse(&first) else { return Ok(None) };
        let (kind, partitions) = if mbr.announces_gpt() {
            (TableKind::Gpt, gpt::read(disk)?)
        } else {
            (TableKind::Mbr, mbr.partitions(disk)?)
        };
        Ok(Some(Self { kind, partitions }))
    }

    /// Finds a partition by number, or else by label or PARTUUID.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or [`io::ErrorKind::InvalidInput`] if several partitions have
    /// this label. The text lists the disk's partitions.
    pub fn find(&self, wanted: &str) -> io::Result<&Partition> {
        let error = |kind, what: String| {
            io::Error::new(kind, format!("{what}; the disk ({}) has: {}", self.kind, self.list()))
        };
        if let Ok(number) = wanted.parse::<u32>()
            && let Some(partition) = self.partitions.iter().find(|p| p.number == number)
        {
            return Ok(partition);
        }
        let mut found = self.partitions.iter().filter(|p| {
            !wanted.is_empty() && (p.label == wanted || p.uuid.eq_ignore_ascii_case(wanted))
        });
        match (found.next(), found.next()) {
            (Some(partition), None) => Ok(partition),
            (None, _) => Err(error(io::ErrorKind::NotFound, format!("no partition '{wanted}'"))),
            (Some(_), Some(_)) => {
                let what = format!("several partitions have the label '{wanted}'");
                Err(error(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Describes the partitions for an error text.
    fn list(&self) -> String {
        let words: Vec<String> = self.partitions.iter().map(Partition::to_string).collect();
        if words.is_empty() { "no partitions".into() } else { words.join(", ") }
    }
}

impl core::fmt::Display for Partition {
    /// Writes number, label (if there is one) and size.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.number)?;
        if !self.label.is_empty() {
            write!(f, " '{}'", self.label.escape_debug())?;
        }
        match self.len {
            len if len >= 1 << 30 => write!(f, " ({:.1} GiB)", len as f64 / (1u64 << 30) as f64),
            len if len >= 1 << 20 => write!(f, " ({} MiB)", len >> 20),
            len => write!(f, " ({len} bytes)"),
        }
    }
}

fn damaged(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("partition table: {}", problem.into()))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

#[cfg(test)]
mod tests;
