//! Partition tables: where on a disk its partitions lie. GPT on sectors of 512 and 4096 bytes, and
//! MBR with logical partitions.
//!
//! 1. Tables are read, never written.
//! 2. Whatever a table says, reading it takes bounded memory and time; a partition that is not all
//!    on the disk is listed, and refused when it is asked for.
//! 3. As with the kernel, a GPT counts only if the MBR before it announces it: a stale one behind a
//!    newer MBR does not.
//!
//! Existing crates were looked at and not taken: `gpt` asserts on entry sizes that are legal and
//! allocates what an unchecked field says, `mbrman` is built on the abandoned `bincode`, `gptman`
//! reserves memory by an unchecked field and has no MBR.

mod gpt;
mod mbr;

use std::io;
use std::sync::Arc;

use crate::{BlockDev, Slice};

/// Which table a disk has.
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
    /// Its number, as in the kernel's device names; logical partitions from 5 on.
    pub number: u32,
    /// First byte on the disk.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Its name in a GPT; empty in an MBR, which has none.
    pub label: String,
    /// PARTUUID as the kernel and udev write it, in lower case.
    pub uuid: String,
}

impl Partition {
    /// The partition as a device of its own.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is not all on the disk.
    pub fn open(&self, disk: Arc<dyn BlockDev>) -> io::Result<Slice> {
        Slice::new(disk, self.start, self.len).map_err(|error| {
            io::Error::new(error.kind(), format!("partition {}: {error}", self.number))
        })
    }
}

/// A disk's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Of which kind the table is.
    pub kind: TableKind,
    /// The partitions that are there, in ascending order of their numbers.
    pub partitions: Vec<Partition>,
}

/// Bytes at the start of a disk that tell of which kind its table is.
const FIRST_SECTOR: usize = 512;

impl Table {
    /// Reads a disk's table; `None` if it has none.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidData`] for a table that is damaged, GPT's in both
    /// copies.
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

    /// The partition with this number, or else this label or PARTUUID.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], and [`io::ErrorKind::InvalidInput`] if several have this label,
    /// each with the partitions there are.
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
                let what = format!("several partitions are called '{wanted}'");
                Err(error(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// The partitions in words, one behind the other.
    fn list(&self) -> String {
        let words: Vec<String> = self.partitions.iter().map(Partition::to_string).collect();
        if words.is_empty() { "no partitions".into() } else { words.join(", ") }
    }
}

impl core::fmt::Display for Partition {
    /// Number, label if there is one, and size.
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
