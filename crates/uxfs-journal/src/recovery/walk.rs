//! Reads the records between two blocks of the log.
//!
//! 1. Replay stamps a record's LSN into metadata, so a record counts only where its LSN says that it stands.

use uxfs_disk::BlockDev;
use uxfs_format::log::{
    FORMAT_LINUX_LE, HEADER_SPAN, RECORD_SIZE_MAX, RecordHeader, checksum, restore_words,
};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::recovery::area::Log;
use crate::recovery::error::{Error, Result};

/// A record.
pub struct Record<'a> {
    /// Block at which it starts.
    pub block: u64,
    /// Its header.
    pub header: RecordHeader,
    /// Its data, with the first word of each block restored.
    pub data: &'a [u8],
    /// Does its checksum match?
    pub intact: bool,
    /// Is its LSN that of the place where it stands: of its block and cycle, and of the end of the record
    /// before it?
    pub in_place: bool,
}

/// An iterator over the records between two blocks. All have the header blocks and the maximum size
/// of the first one, because a log is written with one buffer size at a time.
pub struct Walk<'a> {
    log: &'a Log,
    dev: &'a dyn BlockDev,
    at: u64,
    /// Blocks left to the end.
    left: u64,
    size: u32,
    /// LSN of the next record, once one was read.
    next: Option<Lsn>,
    bytes: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// Starts at the record at block `from` and ends at block `to`. Empty if both are the same.
    ///
    /// # Errors
    /// If the device fails, or no record starts at `from`.
    pub fn new(log: &'a Log, dev: &'a dyn BlockDev, from: u64, to: u64) -> Result<Self> {
        let left = log.distance(from, to);
        let mut walk = Self { log, dev, at: from, left, size: 0, next: None, bytes: Vec::new() };
        if left > 0 {
            let header = walk.header()?;
            walk.size = header.size;
            // A record of old versions of mkfs has a length of its own.
            if header.len > header.size && header.num_ops == 1 {
                walk.size = u32::try_from(log.unit()).unwrap_or(u32::MAX).max(header.len);
            }
            if walk.size > RECORD_SIZE_MAX {
                let problem = format!("a record has too large a buffer, {} bytes", walk.size);
                return Err(Error::damaged(from, problem));
            }
        }
        Ok(walk)
    }

    fn header(&self) -> Result<RecordHeader> {
        RecordHeader::parse(&self.log.block(self.dev, self.at)?)
            .filter(|header| header.version != 0)
            .ok_or_else(|| Error::damaged(self.at, "no record starts here"))
    }

    /// Block at which the next record starts.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next record, also if its checksum does not match.
    ///
    /// # Errors
    /// If the device fails, or the next blocks are not a record that fits; [`Walk::at`] is its
    /// block.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let block = self.at;
        let header = self.header()?;
        let head = self.size.div_ceil(HEADER_SPAN).max(1);
        let bad = |problem: String| Err(Error::damaged(block, problem));
        if header.len == 0 || header.len > self.size {
            let (len, most) = (header.len, self.size);
            return bad(format!("a record has {len} bytes of data, not between 1 and {most}"));
        }
        let blocks = u64::from(head) + u64::from(header.len).div_ceil(BASIC_BLOCK as u64);
        if blocks > self.left {
            return bad(format!("a record of {blocks} blocks extends past the head"));
        }
        let data = (blocks - u64::from(head)) as usize * BASIC_BLOCK;
        let head = head as usize * BASIC_BLOCK;
        self.bytes.resize(head + data, 0);
        self.log.read(self.dev, block, &mut self.bytes)?;
        let (headers, data) = self.bytes.split_at_mut(head);
        let data = &mut data[..header.len as usize];
        let intact = checksum(headers, data) == header.crc;
        restore_words(headers, data);
        // A log has less than 2^32 blocks.
        let here = Lsn::new(header.cycle, block as u32);
        let in_place = header.lsn == here && self.next.is_none_or(|next| next == here);
        self.next = Some(self.log.advance(here, blocks));
        self.at = self.log.wrap(block + blocks);
        self.left -= blocks;
        Ok(Some(Record { block, header, data, intact, in_place }))
    }

    /// Checks the checksums of all remaining records. Returns the block of the first bad one. A
    /// record without a checksum, as mkfs writes it, passes.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn first_bad(mut self) -> Result<Option<u64>> {
        loop {
            let at = self.at;
            match self.next_record() {
                Ok(Some(record)) if record.intact || record.header.crc == 0 => {}
                Ok(Some(_)) | Err(Error::Damaged { .. }) => return Ok(Some(at)),
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Record<'_> {
    /// Its LSN.
    pub fn lsn(&self) -> Lsn {
        self.header.lsn
    }

    /// Fails unless checksum, UUID, byte order and LSN of the record are valid.
    pub(crate) fn check(&self, log: &Log) -> Result<()> {
        let bad = |problem: &str| Err(Error::damaged(self.block, problem));
        if !self.intact {
            return bad("the checksum of a record does not match");
        }
        if self.header.fs_uuid != log.uuid() {
            return bad("a record is another volume's");
        }
        if self.header.format != FORMAT_LINUX_LE {
            return bad("a record is of another byte order");
        }
        if !self.in_place {
            return bad("a record has the LSN of another place");
        }
        Ok(())
    }
}
