//! VHD images with a table of blocks (dynamic), for reading, as Microsoft's Virtual Hard Disk Image Format
//! Specification describes them:
//!
//! | where | what |
//! |---|---|
//! | the first 512 bytes | a copy of the footer |
//! | where the footer says | the header, 1024 bytes: size of a block, place and length of the table |
//! | where the header says | the table: for each block of the disk the sector where it lies, or none |
//! | where the table says | a block: the bitmap of its sectors, in whole sectors, and its data |
//! | the last 512 bytes | the footer: length and type of the disk |
//!
//! 1. Footer, header and all of the table are verified when an image is opened, and an entry of the table
//!    again when it is used: the file may have changed.
//! 2. A block without a place and a sector whose bit is clear read as zeroes.
//! 3. Memory does not depend on the image: the table stays in the file.
//! 4. A differencing image, which continues another one, is refused: an image from elsewhere must not make
//!    uxfs read arbitrary files of the host.
//!
//! Used by [`ForeignDev`](crate::ForeignDev). The crates that read this format copy the image into memory.

use std::fs::File;
use std::io;

use uxfs_host::FileExt;

use crate::vhd::{FOOTER, SUM, number, vhd_checksum, wide_number};

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Bytes of the header.
const HEADER: usize = 1024;
/// Offset of the header's checksum.
const HEADER_SUM: usize = 36;
/// The type of a disk with a table.
const DYNAMIC: u32 = 3;
/// The type of a disk that continues another one.
const DIFFERENCING: u32 = 4;
/// Versions of footer and header: the upper half must be equal.
const VERSION: u32 = 1;
/// Longest disk in bytes.
const LEN_MAX: u64 = 2040 << 30;
/// Bytes of a block, a power of two. Hyper-V makes 512 KiB and 2 MiB.
const BLOCK_MIN: u64 = 4096;
const BLOCK_MAX: u64 = 256 << 20;
/// The entry of a block that has no place in the file.
const NOWHERE: u32 = u32::MAX;
/// Bytes of the table that are verified at once.
const PIECE: u64 = 64 << 10;

/// The disk in a dynamic VHD image.
pub(crate) struct DynamicVhd {
    file: File,
    len: u64,
    /// Bytes of a block.
    block: u64,
    /// Offset of the table.
    table: u64,
    /// Offset of the footer at the end.
    end: u64,
}

fn damaged(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("dynamic VHD image: {text}"))
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut raw = [0; N];
    file.read_exact_at(&mut raw, at)?;
    Ok(raw)
}

impl DynamicVhd {
    /// Opens the image in `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a damaged image, [`io::ErrorKind::Unsupported`] for one that
    /// continues another image; the errors of reading the file.
    pub(crate) fn open(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len().saturating_sub(FOOTER);
        if end < FOOTER + HEADER as u64 {
            return Err(damaged("the file is too short to be one"));
        }
        let footer: [u8; FOOTER as usize] = read(&file, 0)?;
        if number(&footer, SUM) != vhd_checksum(&footer, SUM)
            || number(&footer, 12) >> 16 != VERSION
        {
            return Err(damaged(
                "the copy of the footer at its beginning has a wrong checksum or version",
            ));
        }
        match number(&footer, 60) {
            DYNAMIC => {}
            DIFFERENCING => {
                let text = "a differencing VHD image, which continues another image and which uxfs does not \
                            read: merge it into that image first (Merge-VHD)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            other => return Err(damaged(&format!("its disk type {other} is not that of one"))),
        }
        if read(&file, end)? != footer {
            let text = "the file does not end with the footer whose copy it begins with: it is damaged or cut short";
            return Err(damaged(text));
        }
        let header = wide_number(&footer, 16);
        if header.checked_add(HEADER as u64).is_none_or(|stop| stop > end) {
            return Err(damaged(&format!("the header at {header} lies outside of the file")));
        }
        let header: [u8; HEADER] = read(&file, header)?;
        let sound = header.starts_with(b"cxsparse")
            && number(&header, HEADER_SUM) == vhd_checksum(&header, HEADER_SUM)
            && number(&header, 24) >> 16 == VERSION;
        if !sound {
            return Err(damaged("the header has a wrong magic number, checksum or version"));
        }
        let (len, table) = (wide_number(&footer, 48), wide_number(&header, 16));
        let (entries, block) = (u64::from(number(&header, 28)), u64::from(number(&header, 32)));
        if !block.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
            let bounds = format!("a power of two from {BLOCK_MIN} to {BLOCK_MAX}");
            return Err(damaged(&format!("the block size {block} is not {bounds}")));
        }
        if len == 0 || !len.is_multiple_of(SECTOR) || len > LEN_MAX {
            return Err(damaged(&format!("{len} bytes are not the length of a disk")));
        }
        if entries < len.div_ceil(block) {
            return Err(damaged(&format!(
                "{entries} blocks of {block} bytes hold no disk of {len}"
            )));
        }
        if table.checked_add(entries * 4).is_none_or(|stop| stop > end) {
            let text = format!("the table of {entries} blocks at {table} lies outside of the file");
            return Err(damaged(&text));
        }
        let image = Self { file, len, block, table, end };
        image.verify_table()?;
        Ok(image)
    }

    /// Length of the disk in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn verify_table(&self) -> io::Result<()> {
        let bytes = self.len.div_ceil(self.block) * 4;
        let mut buf = vec![0; PIECE.min(bytes) as usize];
        for at in (0..bytes).step_by(PIECE as usize) {
            let piece = &mut buf[..PIECE.min(bytes - at) as usize];
            self.file.read_exact_at(piece, self.table + at)?;
            for (entry, block) in piece.chunks_exact(4).zip(at / 4..) {
                self.place(block, number(entry, 0))?;
            }
        }
        Ok(())
    }

    /// Bytes of a block's bitmap.
    fn bitmap(&self) -> u64 {
        (self.block / SECTOR / 8).next_multiple_of(SECTOR)
    }

    /// The offset of a block with this entry in the table.
    fn place(&self, block: u64, entry: u32) -> io::Result<Option<u64>> {
        let at = u64::from(entry) * SECTOR;
        match entry {
            NOWHERE => Ok(None),
            _ if at + self.bitmap() + self.block <= self.end => Ok(Some(at)),
            _ => Err(damaged(&format!("block {block} at {at} lies outside of the file"))),
        }
    }

    /// Reads from the disk, inside its length.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the table is damaged; the errors of reading the file.
    pub(crate) fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let (block, inside) = (offset / self.block, offset % self.block);
            let len = (self.block - inside).min(buf.len() as u64);
            let (piece, rest) = buf.split_at_mut(len as usize);
            let entry: [u8; 4] = read(&self.file, self.table + block * 4)?;
            match self.place(block, number(&entry, 0))? {
                Some(at) => self.read_block(at, inside, piece)?,
                None => piece.fill(0),
            }
            (offset, buf) = (offset + len, rest);
        }
        Ok(())
    }

    /// Reads from the block at `at`.
    fn read_block(&self, at: u64, inside: u64, piece: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(piece, at + self.bitmap() + inside)?;
        let stop = inside + piece.len() as u64;
        let first = inside / SECTOR / 8;
        let mut bits = vec![0; (stop.div_ceil(SECTOR * 8) - first) as usize];
        self.file.read_exact_at(&mut bits, at + first)?;
        for sector in inside / SECTOR..stop.div_ceil(SECTOR) {
            // The highest bit is that of the first sector.
            if bits[(sector / 8 - first) as usize] & 0x80 >> (sector % 8) == 0 {
                let from = (sector * SECTOR).max(inside) - inside;
                let to = ((sector + 1) * SECTOR).min(stop) - inside;
                piece[from as usize..to as usize].fill(0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LEN: u64 = 2 * BLOCK_MIN + 1536;

    /// A disk of three blocks of 4 KiB: of the first, sectors 1 and 6 are clear; the second has no place; of the
    /// third, sector 0 is clear. Data bytes name their sector.
    fn image() -> Vec<u8> {
        let mut raw = vec![0; 2048];
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"conectix");
        put(12, &0x0001_0000_u32.to_be_bytes());
        put(16, &512_u64.to_be_bytes());
        put(48, &LEN.to_be_bytes());
        put(60, &DYNAMIC.to_be_bytes());
        put(512, b"cxsparse");
        put(512 + 16, &1536_u64.to_be_bytes());
        put(512 + 24, &0x0001_0000_u32.to_be_bytes());
        put(512 + 28, &3_u32.to_be_bytes());
        put(512 + 32, &(BLOCK_MIN as u32).to_be_bytes());
        // The third block lies in front of the first one.
        for (slot, entry) in [13, NOWHERE, 4].into_iter().enumerate() {
            put(1536 + 4 * slot, &entry.to_be_bytes());
        }
        for (bits, first) in [(0b0111_1111, 17), (0b1011_1101, 1)] {
            raw.push(bits);
            raw.resize(raw.len() + 511, 0);
            for sector in first..first + 8 {
                raw.resize(raw.len() + 512, sector);
            }
        }
        raw.extend_from_within(..512);
        raw
    }

    fn stamp(raw: &mut [u8]) {
        let sum = vhd_checksum(&raw[..512], SUM);
        raw[SUM..SUM + 4].copy_from_slice(&sum.to_be_bytes());
        let sum = vhd_checksum(&raw[512..1536], HEADER_SUM);
        raw[512 + HEADER_SUM..516 + HEADER_SUM].copy_from_slice(&sum.to_be_bytes());
        let end = raw.len() - 512;
        raw.copy_within(..512, end);
    }

    fn open(raw: &[u8]) -> io::Result<DynamicVhd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(raw).unwrap();
        DynamicVhd::open(file)
    }

    #[test]
    fn blocks_and_sectors_without_data_read_as_zeroes() {
        let mut raw = image();
        stamp(&mut raw);
        let disk = open(&raw).unwrap();
        assert_eq!(disk.len(), LEN);
        let sectors = [1, 0, 3, 4, 5, 6, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 19];
        let expected: Vec<u8> = sectors.into_iter().flat_map(|sector| [sector; 512]).collect();
        assert_eq!(expected.len() as u64, LEN);
        for start in (0..expected.len()).step_by(97) {
            for len in [1, 511, 512, 513, 1100, 4096, 5000, expected.len()] {
                let stop = (start + len).min(expected.len());
                let mut buf = vec![0xaa; stop - start];
                disk.read_at(start as u64, &mut buf).unwrap();
                assert_eq!(buf, expected[start..stop], "{start}, {len}");
            }
        }
    }

    /// Each field of footer, header and table that is used, with right checksums.
    #[test]
    fn what_is_wrong_is_named() {
        let wide = |at: usize, value: u64| (at, value.to_be_bytes().to_vec());
        let short = |at: usize, value: u32| (at, value.to_be_bytes().to_vec());
        let len = image().len() as u64;
        for ((at, bytes), says) in [
            (short(12, 0x0002_0000), "wrong checksum or version"),
            (short(60, 2), "disk type 2"),
            (short(60, 4), "a differencing VHD image"),
            (wide(16, len - 512 - 1023), "the header at"),
            (wide(16, u64::MAX), "the header at 18446744073709551615 lies outside"),
            (wide(16, 1024), "wrong magic number"),
            (short(512 + 24, 0x0002_0000), "wrong magic number, checksum or version"),
            (wide(48, 0), "0 bytes are not the length"),
            (wide(48, 4097), "4097 bytes are not the length"),
            (wide(48, LEN_MAX + 512), "are not the length"),
            (wide(48, 3 * BLOCK_MIN + 512), "3 blocks of 4096 bytes hold no disk of 12800"),
            (short(512 + 28, 2), "2 blocks of 4096 bytes hold no disk"),
            (short(512 + 28, u32::MAX), "the table of 4294967295 blocks"),
            (wide(512 + 16, len - 512 - 11), "the table of 3 blocks"),
            (wide(512 + 16, u64::MAX - 3), "the table of 3 blocks"),
            (short(512 + 32, 0), "the block size 0"),
            (short(512 + 32, 2048), "the block size 2048"),
            (short(512 + 32, 6144), "the block size 6144"),
            (short(512 + 32, 1 << 29), "the block size 536870912"),
            (short(1536, 14), "block 0 at 7168 lies outside of the file"),
            (short(1536 + 8, u32::MAX - 1), "block 2 at 2199023254528 lies outside"),
        ] {
            let mut raw = image();
            raw[at..at + bytes.len()].copy_from_slice(&bytes);
            stamp(&mut raw);
            let said = open(&raw).map(|_| ()).unwrap_err();
            assert!(said.to_string().contains(says), "{at}: {said}, not: {says}");
            let differencing = said.kind() == io::ErrorKind::Unsupported;
            assert_eq!(differencing, says.contains("differencing"), "{at}: {said}");
        }
        // Every byte under a checksum, and the footer at the end.
        let mut good = image();
        stamp(&mut good);
        for at in (0..1536).chain(good.len() - 512..good.len()) {
            let mut raw = good.clone();
            raw[at] ^= 0x10;
            assert!(open(&raw).is_err(), "{at}");
        }
        for len in [0, 511, 512, 1535, 2047, good.len() - 512, good.len() - 1] {
            assert!(open(&good[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_table_that_changes_while_it_is_open_is_an_error() {
        let mut raw = image();
        stamp(&mut raw);
        let disk = open(&raw).unwrap();
        disk.file.write_all_at(&0x7fff_ffff_u32.to_be_bytes(), 1536).unwrap();
        assert_eq!(disk.read_at(0, &mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        disk.read_at(BLOCK_MIN, &mut [0]).unwrap();
    }
}
