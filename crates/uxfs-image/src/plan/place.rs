//! The places of the partitions on the disk.

use uxfs::mkfs::Layout;

use super::{ALIGN, Content, Length, Partition, Plan};
use crate::error::{ImageError, Result};
use crate::fat;
use crate::gpt::Gpt;
use crate::verity;

/// A disk with all lengths known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Length of the disk in bytes.
    pub(crate) len: u64,
    /// Start and length of each partition in bytes.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Plan {
    /// Checks the lengths that are given, and that what they hold fits.
    pub(super) fn check_lengths(&self) -> Result<()> {
        let last = self.partitions.len() - 1;
        for (at, partition) in self.partitions.iter().enumerate() {
            if partition.length == Length::Rest && (at != last || self.size.is_none()) {
                let problem = "\"rest\" is for the last partition of a disk whose size is given";
                return Err(partition.wrong(problem));
            }
            if let Length::Bytes(len) = partition.length {
                partition.check_fits(len)?;
            }
            if let Some(start) = partition.start
                && (!start.is_multiple_of(ALIGN) || start < ALIGN)
            {
                let problem = format!("starts at {start}, which is no multiple of 1 MiB");
                return Err(partition.wrong(problem));
            }
        }
        // With the least lengths, what cannot fit later does not fit now.
        let placed = self.place(&vec![super::UNIT; self.partitions.len()])?;
        let mut all = self.partitions.iter().zip(&placed.ranges);
        let rest = all.find(|(partition, _)| partition.length == Length::Rest);
        rest.map_or(Ok(()), |(partition, (_, most))| partition.check_fits(*most))
    }

    /// Places the partitions, with the lengths of those that depend on their content.
    pub(crate) fn place(&self, contents: &[u64]) -> Result<Placed> {
        let table = Gpt::new(self.uuid, &[]);
        let usable = self.size.map(|len| len.saturating_sub(table.tail()));
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut end = ALIGN;
        for (at, partition) in self.partitions.iter().enumerate() {
            let start = partition.start.unwrap_or(end.next_multiple_of(ALIGN));
            let len = match partition.length {
                Length::Bytes(len) => len,
                Length::Content => contents[at],
                Length::HashOf(data) => {
                    verity::hash_len(self.data_len(data, contents, &ranges)).next_multiple_of(ALIGN)
                }
                Length::Rest => {
                    let rest = usable.unwrap_or(0).saturating_sub(start);
                    rest - rest % ALIGN
                }
            };
            let stop = start.checked_add(len).filter(|stop| *stop <= 1 << 62 && len > 0);
            end = stop.ok_or_else(|| partition.wrong("there is no room for it on the disk"))?;
            ranges.push((start, len));
        }
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|at| ranges[*at]);
        for pair in order.windows(2) {
            let (one, two) = (pair[0], pair[1]);
            if ranges[one].0 + ranges[one].1 > ranges[two].0 {
                let other = self.partitions[one].number;
                return Err(self.partitions[two].wrong(format!("overlaps partition {other}")));
            }
        }
        let end = ranges.iter().map(|(start, len)| start + len).max().unwrap_or(ALIGN);
        let len = self.size.unwrap_or((end + table.tail()).next_multiple_of(ALIGN));
        if !len.is_multiple_of(512) || end > usable.unwrap_or(u64::MAX) {
            let problem = format!(
                "disk.size: the partitions end at byte {end}, and the table takes {} bytes more, but the \
                 disk has {len} bytes",
                table.tail()
            );
            return Err(ImageError::Spec { line: 1, problem });
        }
        Ok(Placed { len, ranges })
    }

    /// Length of a partition that may stand behind the one whose length depends on it.
    fn data_len(&self, data: usize, contents: &[u64], ranges: &[(u64, u64)]) -> u64 {
        match (self.partitions[data].length, ranges.get(data)) {
            (_, Some((_, len))) => *len,
            (Length::Bytes(len), None) => len,
            (Length::Content, None) => contents[data],
            // A hash tree cannot be data; the rest of the disk follows from what stands before it.
            _ => self.size.unwrap_or(0),
        }
    }
}

impl Partition {
    /// Checks that the content can have this length, as far as it is known.
    pub(crate) fn check_fits(&self, len: u64) -> Result<()> {
        match &self.content {
            Content::Empty => Ok(()),
            Content::File(path) => {
                let there = std::fs::metadata(path).map_err(ImageError::host(path))?.len();
                if there > len {
                    let problem =
                        format!("{} has {there} bytes, but the partition {len}", path.display());
                    return Err(self.wrong(problem));
                }
                Ok(())
            }
            Content::Xfs(xfs) => {
                Layout::new(&xfs.mkfs, len).map(|_| ()).map_err(|error| self.wrong(error))
            }
            Content::Fat(fat) => {
                let layout = fat::Layout::new(len, &fat.tree, &fat.options);
                layout.map(|_| ()).map_err(|error| self.wrong(error))
            }
            // Checked when the length of the data is known.
            Content::Verity(_) => Ok(()),
        }
    }
}
