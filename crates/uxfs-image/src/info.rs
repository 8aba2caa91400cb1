//! What is on a disk: its partitions and what they hold.

use std::io;
use std::sync::Arc;

use uxfs::disk::partition::{Partition, Table, TableKind};
use uxfs::disk::{BlockDev, Slice};
use uxfs::mkfs::signature;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Length in bytes.
    pub len: u64,
    /// Kind of its partition table; `None` if it has none.
    pub table: Option<TableKind>,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<PartitionInfo>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its entry in the table.
    pub entry: Partition,
    /// What it holds: a name as blkid has it, such as `xfs`, `vfat` or `DM_verity_hash`.
    pub content: Option<&'static str>,
}

/// Reads what is on a disk.
///
/// # Errors
/// The device's errors; [`io::ErrorKind::InvalidData`] for a damaged partition table.
pub fn info(disk: &Arc<dyn BlockDev>) -> io::Result<DiskInfo> {
    let table = Table::read(&**disk)?;
    let kind = table.as_ref().map(|table| table.kind);
    let mut partitions = Vec::new();
    for entry in table.map(|table| table.partitions).unwrap_or_default() {
        let content = match entry.open(Arc::clone(disk)) {
            Ok(part) => content(&part)?,
            // It extends beyond the disk; the table's numbers say so.
            Err(_) => None,
        };
        partitions.push(PartitionInfo { entry, content });
    }
    Ok(DiskInfo { len: disk.len(), table: kind, partitions })
}

fn content(part: &Slice) -> io::Result<Option<&'static str>> {
    let mut magic = [0; 8];
    if part.len() >= 8 {
        part.read_at(0, &mut magic)?;
    }
    if &magic == b"verity\0\0" {
        return Ok(Some("DM_verity_hash"));
    }
    signature::existing(part)
}
