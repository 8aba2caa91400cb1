//! Makes a volume of a dump.
//!
//! 1. Until all is written the superblock carries `inprogress`, which nothing mounts; that is on stable
//!    storage before anything else changes. It is written last, after a flush, as the dump has it.
//! 2. What the dump does not hold is left as it is on the target; a new file reads as zeroes there.

use std::io::Read;

use uxfs_disk::BlockDev;
use uxfs_format::metadump::Device;
use uxfs_format::superblock::{self, Superblock, has_magic};
use uxfs_format::{BASIC_BLOCK, Daddr, crc};

use crate::error::RestoreError;
use crate::reader::{Info, Piece, Reader};

/// A dump whose header and superblock have been read.
pub struct Restore<R> {
    reader: Reader<R>,
    /// The first piece: the superblock, perhaps with what follows it.
    first: Vec<u8>,
    len: u64,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreSummary {
    /// Length of the volume in bytes.
    pub len: u64,
    /// Bytes of metadata.
    pub bytes: u64,
}

/// What the header of a dump says, without reading on.
///
/// # Errors
/// As [`Restore::begin`].
pub fn info(input: impl Read) -> Result<Info, RestoreError> {
    Ok(Reader::new(input)?.info())
}

impl<R: Read> Restore<R> {
    /// Reads the header and the superblock.
    ///
    /// # Errors
    /// If this is no dump, or it does not start as one has to.
    pub fn begin(input: R) -> Result<Self, RestoreError> {
        let mut reader = Reader::new(input)?;
        let at = reader.at;
        let damaged = |problem: &str| RestoreError::Damaged { at, problem: problem.into() };
        let first = match reader.next_piece()? {
            Some(Piece { device: Device::Data, daddr: Daddr(0), bytes }) => bytes.to_vec(),
            _ => return Err(damaged("it does not begin with the superblock")),
        };
        let len = volume_len(&first).map_err(|problem| damaged(&problem))?;
        Ok(Self { reader, first, len })
    }

    /// What the header says.
    pub fn info(&self) -> Info {
        self.reader.info()
    }

    /// Length of the volume in bytes.
    pub fn volume_len(&self) -> u64 {
        self.len
    }

    /// Writes the volume to `dev`. With `blank` everything on `dev` reads as zeroes already. `progress`
    /// is called with the number of bytes of the dump that are read.
    ///
    /// # Errors
    /// If the dump is damaged, or those of the device. The superblock then carries `inprogress`, or was
    /// not written at all.
    pub fn run(
        mut self,
        dev: &dyn BlockDev,
        blank: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<RestoreSummary, RestoreError> {
        if dev.len() < self.len {
            return Err(RestoreError::TooSmall { wanted: self.len, len: dev.len() });
        }
        let superblock = finished(&self.first);
        if let Some(sb) = Superblock::view_mut(&mut self.first) {
            sb.inprogress = 1;
        }
        let flush = || dev.flush().map_err(|source| RestoreError::Write { at: 0, source });
        put(dev, 0, &self.first, false)?;
        flush()?;
        let mut bytes = self.first.len() as u64;
        loop {
            let at = self.reader.at;
            let Some(piece) = self.reader.next_piece()? else { break };
            check_place(&piece, self.len)
                .map_err(|problem| RestoreError::Damaged { at, problem })?;
            put(dev, piece.daddr.bytes(), piece.bytes, blank)?;
            bytes += piece.bytes.len() as u64;
            progress(self.reader.at);
        }
        flush()?;
        put(dev, 0, &superblock, false)?;
        flush()?;
        Ok(RestoreSummary { len: self.len, bytes })
    }
}

/// The superblock as xfs_mdrestore leaves it: the inode numbers of quotas that do not exist are null, where
/// mkfs.xfs writes 0. A superblock with a wrong checksum stays as it is.
fn finished(sector: &[u8]) -> Vec<u8> {
    let mut sector = sector.to_vec();
    let len = Superblock::view(&sector).map_or(0, |sb| usize::from(sb.sectsize.get()));
    let right = sector.get(..len).is_some_and(|whole| {
        len >= size_of::<Superblock>() && crc::matches(whole, superblock::CRC_OFFSET)
    });
    let Some(sb) = Superblock::view_mut(&mut sector) else { return sector };
    let (v4, v5) = (sb.is_v4(), sb.version() == 5 && right);
    // Version 4 has no number for a third quota.
    let own = if v4 { 2 } else { 3 };
    for number in [&mut sb.uquotino, &mut sb.gquotino, &mut sb.pquotino].into_iter().take(own) {
        if number.get() == 0 && (v4 || v5) {
            number.set(u64::MAX);
        }
    }
    if v5 {
        crc::stamp(&mut sector[..len], superblock::CRC_OFFSET);
    }
    sector
}

/// Length in bytes of the volume that a superblock describes. Version and checksum do not matter: a dump
/// may be of a damaged volume.
fn volume_len(sector: &[u8]) -> Result<u64, String> {
    let sb = Superblock::view(sector).filter(|_| has_magic(sector));
    let sb = sb.ok_or("it does not begin with a superblock")?;
    let (block, blocks) = (sb.blocksize.get(), sb.dblocks.get());
    if !block.is_power_of_two() || !(512..=65536).contains(&block) {
        return Err(format!("its superblock has blocks of {block} bytes"));
    }
    let len =
        blocks.checked_mul(block.into()).filter(|len| *len > 0 && i64::try_from(*len).is_ok());
    len.ok_or_else(|| format!("its superblock has {blocks} blocks of {block} bytes"))
}

fn check_place(piece: &Piece<'_>, len: u64) -> Result<(), String> {
    match piece.device {
        Device::Data => {}
        Device::Log => return Err("it holds an external log, which uxfs does not restore".into()),
        _ => return Err("it holds a realtime device, which uxfs does not restore".into()),
    }
    let sectors = (piece.bytes.len() / BASIC_BLOCK) as u64;
    let inside = piece.daddr.0.checked_add(sectors).is_some_and(|end| end <= len >> 9);
    if !inside {
        let daddr = piece.daddr;
        return Err(format!("{sectors} sectors from {daddr} on, behind the end of the volume"));
    }
    if piece.daddr.0 == 0 {
        return Err("a second superblock".into());
    }
    Ok(())
}

fn put(dev: &dyn BlockDev, at: u64, bytes: &[u8], blank: bool) -> Result<(), RestoreError> {
    if blank && bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    dev.write_at(at, bytes).map_err(|source| RestoreError::Write { at, source })
}
