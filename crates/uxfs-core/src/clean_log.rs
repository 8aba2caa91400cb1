//! Checking whether the log is clean, which must be known before a volume is changed.
//!
//! A log is clean if the last record before its head is an unmount record. This module replays
//! nothing and refuses a dirty log.

use uxfs_disk::BlockDev;
use uxfs_format::log::{self, RecordHeader};
use uxfs_format::superblock::Superblock;
use uxfs_format::{BASIC_BLOCK, Check, Daddr, Geometry};

use crate::devices::Devices;
use crate::error::{Error, Result};

/// How many blocks before the head to search for the start of the last record: the length of the
/// longest record with its headers.
const RECORD_BLOCKS_MAX: u64 = (256 << 10) / BASIC_BLOCK as u64 + 16;

struct Log<'a> {
    dev: &'a dyn BlockDev,
    start: Daddr,
    blocks: u64,
}

impl Log<'_> {
    fn block(&self, at: u64) -> Result<[u8; BASIC_BLOCK]> {
        let daddr = Daddr(self.start.0 + at);
        let mut block = [0; BASIC_BLOCK];
        let read = self.dev.read_at(daddr.bytes(), &mut block);
        read.map_err(|source| Error::Io { what: "reading the log", daddr, source })?;
        Ok(block)
    }

    fn cycle(&self, at: u64) -> Result<u32> {
        Ok(log::cycle_of(&self.block(at)?))
    }

    /// The block at which the next record would be written.
    fn head(&self) -> Result<u64> {
        let last = self.cycle(self.blocks - 1)?;
        if self.cycle(0)? == last {
            return Ok(0);
        }
        // Blocks before the head have a later cycle number than blocks from the head on.
        let (mut before, mut from) = (0, self.blocks - 1);
        while before + 1 < from {
            let middle = before + (from - before) / 2;
            if self.cycle(middle)? == last {
                from = middle;
            } else {
                before = middle;
            }
        }
        Ok(from)
    }

    /// Returns the last record that starts before `head`, wrapping around the end, and its
    /// position.
    fn last_record(&self, head: u64) -> Result<Option<(u64, RecordHeader)>> {
        for back in 1..=RECORD_BLOCKS_MAX.min(self.blocks) {
            let at = (head + self.blocks - back) % self.blocks;
            if let Some(header) = RecordHeader::parse(&self.block(at)?) {
                return Ok(Some((at, header)));
            }
        }
        Ok(None)
    }
}

/// The last complete record: its position, and the head after it.
struct Last {
    at: u64,
    header: RecordHeader,
    head: u64,
}

impl Log<'_> {
    /// Returns the last complete record before the head. A record that does not reach the head was
    /// written only in part, and the head is then where that record starts. (xfs_db leaves such a
    /// record when it changes a volume's UUID.)
    fn last(&self) -> Result<Option<Last>> {
        let mut head = self.head()?;
        let Some((at, header)) = self.last_record(head)? else { return Ok(None) };
        if self.end(at, &header) == head {
            return Ok(Some(Last { at, header, head }));
        }
        head = at;
        Ok(self.last_record(head)?.map(|(at, header)| Last { at, header, head }))
    }

    /// The block after a record.
    fn end(&self, at: u64, header: &RecordHeader) -> u64 {
        // Version 1 logs do not fill the last block of a record.
        let blocks =
            u64::from(header.header_blocks()) + u64::from(header.len).div_ceil(BASIC_BLOCK as u64);
        (at + blocks) % self.blocks
    }
}

/// Locates the log on the data device or on its own device.
fn find<'a>(devices: &'a Devices, geo: &Geometry) -> Result<Log<'a>> {
    let blocks = u64::from(geo.log_blocks) << (geo.block_log - 9);
    let (dev, start, inside) = match (geo.log_start.0, &devices.log) {
        (0, None) => {
            return Err(Error::Unsupported(
                "the log is on another device: name it with logdev, or read the volume \
                 without the log (norecovery)"
                    .into(),
            ));
        }
        (0, Some(dev)) => (dev, Daddr(0), Daddr(blocks).bytes() <= dev.len()),
        _ => {
            let inside = geo.fsb_valid(geo.log_start, geo.log_blocks.into());
            (&devices.data, geo.fsb_daddr(geo.log_start), inside)
        }
    };
    if !inside || blocks < 2 {
        let problem = format!("{blocks} blocks of 512 bytes lie outside its device");
        return Err(Error::corrupt("log", uxfs_format::Place::Volume, Check::Range, problem));
    }
    Ok(Log { dev: &**dev, start, blocks })
}

/// Fails if the log holds changes that are not written in place.
pub(crate) fn require_clean(devices: &Devices, geo: &Geometry, sb: &Superblock) -> Result<()> {
    let log = find(devices, geo)?;
    let blocks = log.blocks;
    let dirty = |why: &str| {
        Err(Error::DirtyLog(format!(
            "{why}; mount the volume once with the kernel, or open it read-only with norecovery"
        )))
    };
    let Some(Last { at, header, head }) = log.last()? else {
        return dirty("no record was found at its head");
    };
    if header.fs_uuid != sb.uuid {
        return dirty("its last record belongs to another volume");
    }
    let data = (at + u64::from(header.header_blocks())) % blocks;
    let mut first = log.block(data)?;
    header.restore_first_word(&mut first);
    if header.num_ops == 1 && log.end(at, &header) == head && log::is_unmount(&first) {
        return Ok(());
    }
    dirty("it holds changes that are not on the volume yet")
}
