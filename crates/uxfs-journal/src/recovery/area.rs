//! The log's area: a ring of basic blocks on a device.

use uxfs_disk::BlockDev;
use uxfs_format::geometry::EXTERNAL_LOG;
use uxfs_format::log::{RecordHeader, bump, cycle_of, is_header};
use uxfs_format::superblock::Superblock;
use uxfs_format::{BASIC_BLOCK, Daddr, Geometry, Lsn};

use crate::recovery::error::{Error, Result};

/// One block of the log.
pub(crate) type Block = [u8; BASIC_BLOCK];

/// A log. All block numbers are in basic blocks from its start.
#[derive(Clone, Debug)]
pub struct Log {
    start: Daddr,
    external: bool,
    blocks: u64,
    /// The log's stripe unit in bytes, to which records are padded.
    unit: usize,
    /// The volume's user-visible UUID, which records carry.
    uuid: [u8; 16],
    /// The LSN in the volume's superblock, near which the log may end.
    hint: Lsn,
}

impl Log {
    /// The log inside the volume with this verified superblock.
    ///
    /// # Errors
    /// If the log is external, lies outside the volume, or is too small.
    pub fn new(sb: &Superblock) -> Result<Self> {
        let geo = Geometry::new(sb);
        if geo.log_start.0 == 0 {
            return Err(Error::damaged(0, "it is external, which is not supported"));
        }
        let inside = geo.fsb_valid(geo.log_start, geo.log_blocks.into());
        Self::at(sb, &geo, geo.fsb_daddr(geo.log_start), inside)
    }

    /// The log of the volume with this verified superblock: inside of the volume, or on a device that is
    /// joined to that of the data at [`EXTERNAL_LOG`].
    ///
    /// # Errors
    /// If the log lies outside the volume, or is too small.
    pub fn of_volume(sb: &Superblock) -> Result<Self> {
        let geo = Geometry::new(sb);
        match geo.has_external_log() {
            true => Self::at(sb, &geo, EXTERNAL_LOG, true),
            false => Self::new(sb),
        }
    }

    /// The log of the volume with this verified superblock, on a device of its own.
    ///
    /// # Errors
    /// If the log is too small.
    pub fn external(sb: &Superblock) -> Result<Self> {
        Self::at(sb, &Geometry::new(sb), Daddr(0), true)
    }

    fn at(sb: &Superblock, geo: &Geometry, start: Daddr, inside: bool) -> Result<Self> {
        let blocks = u64::from(geo.log_blocks) << (geo.block_log - 9);
        if !inside || blocks < 64 {
            let problem = format!("its {blocks} blocks are too few, or outside the volume");
            return Err(Error::damaged(0, problem));
        }
        let unit = (geo.log_sunit as usize).max(BASIC_BLOCK);
        let external = geo.has_external_log();
        Ok(Self { start, external, blocks, unit, uuid: sb.uuid, hint: Lsn(sb.lsn.get()) })
    }

    /// Length of the log in basic blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The log's stripe unit in bytes, to which records are padded.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Is the log on a device of its own?
    pub(crate) fn is_external(&self) -> bool {
        self.external
    }

    /// The LSN in the volume's superblock; any number if the volume is damaged.
    pub(crate) fn hint(&self) -> Lsn {
        self.hint
    }

    /// The log of a volume whose superblock has this LSN.
    #[cfg(test)]
    pub(crate) fn with_hint(&self, hint: Lsn) -> Self {
        Self { hint, ..self.clone() }
    }

    /// The UUID in the log's record headers.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Maps a block number up to one length past the end into the ring.
    pub(crate) fn wrap(&self, block: u64) -> u64 {
        block % self.blocks
    }

    /// Number of blocks from `from` forward to `to`, both inside the ring.
    pub(crate) fn distance(&self, from: u64, to: u64) -> u64 {
        debug_assert!(from < self.blocks && to < self.blocks, "a block outside the log");
        (to + self.blocks - from) % self.blocks
    }

    /// The LSN `blocks` blocks after `lsn`.
    pub(crate) fn advance(&self, lsn: Lsn, blocks: u64) -> Lsn {
        let at = u64::from(lsn.block()) + blocks;
        let cycle = if at >= self.blocks { bump(lsn.cycle()) } else { lsn.cycle() };
        // A log has less than 2^32 blocks.
        Lsn::new(cycle, self.wrap(at) as u32)
    }

    /// Calls `f(device address, range in the transfer)` for the one or two parts of a transfer.
    fn parts(
        &self,
        block: u64,
        bytes: usize,
        mut f: impl FnMut(Daddr, core::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let before_end = (self.blocks - block).saturating_mul(BASIC_BLOCK as u64);
        let first = bytes.min(usize::try_from(before_end).unwrap_or(usize::MAX));
        f(Daddr(self.start.0 + block), 0..first)?;
        if first < bytes { f(self.start, first..bytes) } else { Ok(()) }
    }

    /// Reads from `block` on, across the end of the ring.
    pub(crate) fn read(&self, dev: &dyn BlockDev, block: u64, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len();
        self.parts(block, len, |daddr, range| {
            dev.read_at(daddr.bytes(), &mut bytes[range]).map_err(|source| Error::Io {
                what: "reading the log",
                daddr,
                source,
            })
        })
    }

    /// Writes from `block` on, across the end of the ring.
    pub(crate) fn write(&self, dev: &dyn BlockDev, block: u64, bytes: &[u8]) -> Result<()> {
        self.parts(block, bytes.len(), |daddr, range| {
            dev.write_at(daddr.bytes(), &bytes[range]).map_err(|source| Error::Io {
                what: "writing the log",
                daddr,
                source,
            })
        })
    }

    pub(crate) fn flush(&self, dev: &dyn BlockDev) -> Result<()> {
        let daddr = self.start;
        dev.flush().map_err(|source| Error::Io { what: "flushing", daddr, source })
    }

    pub(crate) fn block(&self, dev: &dyn BlockDev, block: u64) -> Result<Block> {
        let mut bytes = [0; BASIC_BLOCK];
        self.read(dev, block, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn cycle(&self, dev: &dyn BlockDev, block: u64) -> Result<u32> {
        Ok(cycle_of(&self.block(dev, block)?))
    }

    /// The first of `count` blocks from `block` on for which `wanted` is true. The blocks must not
    /// cross the end of the ring.
    pub(crate) fn first(
        &self,
        dev: &dyn BlockDev,
        block: u64,
        count: u64,
        wanted: impl Fn(&Block) -> bool,
    ) -> Result<Option<u64>> {
        let mut buffer = vec![0; count.min(SCAN as u64) as usize * BASIC_BLOCK];
        let mut at = block;
        while at < block + count {
            let step = (block + count - at).min(SCAN as u64);
            let bytes = &mut buffer[..step as usize * BASIC_BLOCK];
            self.read(dev, at, bytes)?;
            for (index, block) in blocks(bytes).enumerate() {
                if wanted(block) {
                    return Ok(Some(at + index as u64));
                }
            }
            at += step;
        }
        Ok(None)
    }

    /// The last record header among the `within` blocks before `head`, searching backwards across
    /// the end of the ring, and its block. Empty records, which mark stale blocks, count too.
    pub(crate) fn header_before(
        &self,
        dev: &dyn BlockDev,
        head: u64,
        within: u64,
    ) -> Result<Option<(u64, RecordHeader)>> {
        let within = within.min(self.blocks);
        let mut bytes = Vec::new();
        let (mut back, mut most) = (0, SCAN_FIRST as u64);
        while back < within {
            let step = (within - back).min(most);
            most = (4 * most).min(SCAN as u64);
            let start = self.wrap(head + self.blocks - back - step);
            bytes.resize(step as usize * BASIC_BLOCK, 0);
            self.read(dev, start, &mut bytes)?;
            for index in (0..step as usize).rev() {
                let at = index * BASIC_BLOCK;
                let Some(block) = bytes[at..].first_chunk::<BASIC_BLOCK>() else { continue };
                if !is_header(block) {
                    continue;
                }
                let found = self.wrap(start + index as u64);
                return match RecordHeader::parse(block) {
                    Some(header) => Ok(Some((found, header))),
                    None => Err(Error::damaged(found, "a record has an unknown version")),
                };
            }
            back += step;
        }
        Ok(None)
    }
}

/// Blocks per read of a search.
const SCAN: usize = 512;
/// Blocks of the first read of a search for the record before a block, which mostly is a short one.
const SCAN_FIRST: usize = 32;

fn blocks(bytes: &[u8]) -> impl Iterator<Item = &Block> {
    bytes.chunks_exact(BASIC_BLOCK).filter_map(|block| block.first_chunk())
}
