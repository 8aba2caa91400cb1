//! The map of a write cache, as bytes: in the first 8 KiB twice the place for a head, which says whose blocks the
//! cache holds, then a bit for each block, in words of 64.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | magic number `uxfswrit` |
//! | 8 | version, 1 |
//! | 12 | number of writers |
//! | 16 | number of this head; the higher one of the two counts |
//! | 24 | UUID of the volume |
//! | 40 | bytes of the image |
//! | 48 | identities of the writers that used this cache, 16 bytes each, the oldest first |
//! | 4064 | SHA-256 of all bytes above |
//!
//! All numbers are little-endian.
//!
//! 1. A head is written where the older one of the two is, so a power cut leaves one of them.

use std::io;

use uxfs_delta::Hash;
use uxfs_disk::BlockDev;

const MAGIC: [u8; 8] = *b"uxfswrit";
const VERSION: u32 = 1;
const LEN: usize = 4096;
const WRITERS_AT: usize = 48;
const HASH_AT: usize = LEN - 32;

/// Where the bits of the map begin.
pub(crate) const HEADS_LEN: u64 = 2 * LEN as u64;

/// Writers that are kept. A start that fails before it has put its claim leaves one more.
const WRITERS_MAX: usize = (HASH_AT - WRITERS_AT) / 16;

/// Words of bits as bytes of the map.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes of the map as words of bits.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheHead {
    number: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) image_len: u64,
    writers: Vec<[u8; 16]>,
}

impl CacheHead {
    pub(crate) fn new(uuid: [u8; 16], image_len: u64) -> Self {
        Self { uuid, image_len, ..Self::default() }
    }

    /// Did this writer use the cache?
    pub(crate) fn has(&self, writer: [u8; 16]) -> bool {
        self.writers.contains(&writer)
    }

    /// Enters a writer.
    pub(crate) fn enter(&mut self, writer: [u8; 16]) {
        if self.writers.len() == WRITERS_MAX {
            self.writers.remove(0);
        }
        self.writers.push(writer);
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &(self.writers.len() as u32).to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.uuid,
            &self.image_len.to_le_bytes(),
            self.writers.as_flattened(),
        ]
        .concat();
        bytes.resize(HASH_AT, 0);
        let hash = Hash::of(&bytes);
        bytes.extend_from_slice(&hash.0);
        bytes
    }

    fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        if Hash::of(&bytes[..HASH_AT]).0 != bytes[HASH_AT..] || bytes[..8] != MAGIC {
            return None;
        }
        let long = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        let short = |at: usize| Some(u32::from_le_bytes(*bytes[at..].first_chunk()?));
        let count = short(12)? as usize;
        if short(8)? != VERSION || count > WRITERS_MAX {
            return None;
        }
        let (writers, _) = bytes[WRITERS_AT..WRITERS_AT + 16 * count].as_chunks();
        Some(Self {
            number: long(16)?,
            uuid: *bytes[24..].first_chunk()?,
            image_len: long(40)?,
            writers: writers.to_vec(),
        })
    }

    /// Reads the head of a map; `None` if the map is new.
    ///
    /// # Errors
    /// Those of the device; [`io::ErrorKind::InvalidData`] if both heads are damaged.
    pub(crate) fn read(map: &dyn BlockDev) -> io::Result<Option<Self>> {
        let mut places = [[0; LEN]; 2];
        map.read_at(0, places.as_flattened_mut())?;
        let newest = places.iter().filter_map(Self::parse).max_by_key(|head| head.number);
        if newest.is_none() && places.as_flattened().iter().any(|byte| *byte != 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its map has no whole head"));
        }
        Ok(newest)
    }

    /// Writes the next head, durably.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn write(&mut self, map: &dyn BlockDev) -> io::Result<()> {
        let next = Self { number: self.number + 1, ..self.clone() };
        map.write_at(next.number % 2 * LEN as u64, &next.to_bytes())?;
        map.flush()?;
        *self = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;

    use super::*;

    #[test]
    fn of_two_heads_the_newer_whole_one_counts() {
        let map = MemDev::new(HEADS_LEN);
        assert_eq!(CacheHead::read(&map).unwrap(), None);
        let mut head = CacheHead::new([1; 16], 77);
        for writer in 0..300_u16 {
            let mut identity = [0; 16];
            identity[..2].copy_from_slice(&writer.to_be_bytes());
            head.enter(identity);
            head.write(&map).unwrap();
        }
        let read = CacheHead::read(&map).unwrap().unwrap();
        assert_eq!(read, head);
        assert!(read.writers.len() == WRITERS_MAX && read.writers[WRITERS_MAX - 1][..2] == [1, 43]);
        // Number 300 lies in the first place.
        map.write_at(50, &[9]).unwrap();
        assert_eq!(CacheHead::read(&map).unwrap().unwrap().number, 299);
        map.write_at(LEN as u64 + 50, &[9]).unwrap();
        assert!(CacheHead::read(&map).is_err());
    }
}
