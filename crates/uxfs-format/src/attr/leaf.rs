//! The attribute leaf block: entries, sorted by hash, grow up from the header; names (with local
//! values) grow down from the end of the block.
//!
//! 1. Every name starts at a multiple of four bytes and takes a multiple of four bytes.
//! 2. `usedbytes` is the sum of the names' lengths; no name starts below `firstused`. After
//!    removals, kernels may leave `firstused` lower than necessary.
//! 3. This code writes a free map with one area, the gap between entries and names, and sets
//!    `holes` if there is free space between names, too. Reads do not rely on the free map.

use crate::error::{Check, Problem};
use core::ops::Range;

use super::entry::{AttrFlags, MAX_NAME};
use crate::bytes::{be16, be32};
use crate::v4;

/// Magic number in the block's header.
pub const MAGIC: u16 = 0x3bee;
/// Byte range of the magic number.
pub const MAGIC_RANGE: Range<usize> = 8..10;
/// Length of the header.
pub const HEADER_LEN: usize = 80;
/// Byte range of the header's content fields.
pub const HEADER_RANGE: Range<usize> = 56..HEADER_LEN;
/// Length of an entry.
pub const ENTRY_LEN: usize = 8;

/// Byte offset of the free map in the content fields of the header.
const FREE_MAP: usize = 8;
const LOCAL_OVERHEAD: usize = 3;
/// Length of what precedes the name of an attribute with a remote value.
pub const REMOTE_NAME: usize = 9;

const _: () = assert!(v4::ATTR_HEADER_LEN + v4::GROWTH == HEADER_LEN);

/// Byte offset of the content fields; the magic number determines the version.
#[inline]
fn content_at(block: &[u8]) -> usize {
    if is_v4(block) { v4::ATTR_CONTENT } else { HEADER_RANGE.start }
}

/// Length of a block's header.
#[inline]
fn head_len(block: &[u8]) -> usize {
    if is_v4(block) { v4::ATTR_HEADER_LEN } else { HEADER_LEN }
}

fn is_v4(block: &[u8]) -> bool {
    be16(block, MAGIC_RANGE.start) == v4::ATTR_LEAF_MAGIC
}

/// The content fields of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of entries.
    pub count: usize,
    /// Bytes of names.
    pub used: usize,
    /// Lowest offset of a name; the block's length if there is none.
    pub first: usize,
}

impl Header {
    /// The header of an empty block.
    pub const fn empty(block_len: usize) -> Self {
        Self { count: 0, used: 0, first: block_len }
    }

    /// Reads the header of `block`.
    pub fn decode(block: &[u8]) -> Self {
        let at = content_at(block);
        let first = usize::from(be16(block, at + 4));
        Self {
            count: be16(block, at).into(),
            used: be16(block, at + 2).into(),
            first: if first == 0 { 65536.min(block.len()) } else { first },
        }
    }

    /// Encodes the header into `raw`, the [`HEADER_RANGE`] of a block of `block_len` bytes.
    ///
    /// # Panics
    /// If `raw` is shorter than [`HEADER_RANGE`].
    pub fn encode(&self, raw: &mut [u8], block_len: usize) {
        let end = entries_end(self.count);
        debug_assert!(end <= self.first && self.first + self.used <= block_len);
        let mut put = |at: usize, number: usize| {
            // Only `first` of an empty 64 KiB block exceeds 65535; it is stored as 0.
            raw[at..at + 2].copy_from_slice(&(number as u16).to_be_bytes());
        };
        put(0, self.count);
        put(2, self.used);
        put(4, self.first);
        put(8, end);
        put(10, self.first - end);
        raw[6] = u8::from(self.first + self.used != block_len);
        raw[7] = 0;
        raw[12..24].fill(0);
    }

    /// Free bytes of a block in total, contiguous or not.
    pub const fn free(&self, block_len: usize) -> usize {
        block_len.saturating_sub(entries_end(self.count)).saturating_sub(self.used)
    }

    /// Free bytes between entries and names.
    pub const fn gap(&self) -> usize {
        self.first.saturating_sub(entries_end(self.count))
    }
}

/// Byte offset of the end of `count` entries.
pub const fn entries_end(count: usize) -> usize {
    HEADER_LEN + count * ENTRY_LEN
}

/// Byte range of entry `index`.
pub const fn entry_range(index: usize) -> Range<usize> {
    entries_end(index)..entries_end(index + 1)
}

/// Bytes that a name with a local value takes.
pub const fn local_len(name: usize, value: usize) -> usize {
    (LOCAL_OVERHEAD + name + value).next_multiple_of(4)
}

/// Bytes that a name with a remote value takes. XFS adds two bytes of structure padding, although
/// the name itself occupies the padding.
pub const fn remote_len(name: usize) -> usize {
    (REMOTE_NAME + 2 + name).next_multiple_of(4)
}

/// Is the value of an attribute stored beside its name, in blocks of `block_len` bytes?
pub const fn is_local(name: usize, value: usize, block_len: usize) -> bool {
    local_len(name, value) < block_len / 4 * 3
}

/// One entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the name.
    pub hash: u32,
    /// Byte offset of the name.
    pub at: usize,
    /// Namespace and state.
    pub flags: AttrFlags,
}

impl Entry {
    /// Reads entry `index`; all fields are zero if the entry lies beyond the block's end.
    pub fn decode(block: &[u8], index: usize) -> Self {
        let at = head_len(block) + index * ENTRY_LEN;
        Self {
            hash: be32(block, at),
            at: be16(block, at + 4).into(),
            flags: AttrFlags::from_bits_retain(block.get(at + 6).copied().unwrap_or(0)),
        }
    }

    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut raw = [0; ENTRY_LEN];
        raw[..4].copy_from_slice(&self.hash.to_be_bytes());
        raw[4..6].copy_from_slice(&(self.at as u16).to_be_bytes());
        raw[6] = self.flags.bits();
        raw
    }
}

/// Location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value, stored beside its name.
    Local(&'a [u8]),
    /// The value is stored in remote blocks.
    Remote {
        /// Offset of the first remote block in the fork; 0 if none is allocated yet.
        block: u32,
        /// Length of the value in bytes.
        len: u32,
    },
}

impl Value<'_> {
    /// Length of the value in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Local(value) => value.len(),
            Self::Remote { len, .. } => *len as usize,
        }
    }

    /// Is the value empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One attribute of a leaf block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The attribute's entry.
    pub entry: Entry,
    /// The attribute's name, without a prefix.
    pub name: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// All bytes of the name and its local value in the block.
    pub raw: &'a [u8],
}

impl Record<'_> {
    /// Byte range of the name in the block.
    pub fn range(&self) -> Range<usize> {
        self.entry.at..self.entry.at + self.raw.len()
    }

    /// Byte range of a local value in the block.
    pub fn value_range(&self) -> Range<usize> {
        let start = self.entry.at + LOCAL_OVERHEAD + self.name.len();
        start..start + self.value.len()
    }
}

/// Attribute `index` of a block; `None` if it is not inside the block, which [`verify`] reports.
pub fn record(block: &[u8], index: usize) -> Option<Record<'_>> {
    let entry = Entry::decode(block, index);
    let at = entry.at;
    let (name_at, name_len, value, len) = if entry.flags.contains(AttrFlags::LOCAL) {
        let value_len = usize::from(be16(block, at));
        let name_len = usize::from(*block.get(at + 2)?);
        let value_at = at + LOCAL_OVERHEAD + name_len;
        let value = Value::Local(block.get(value_at..value_at + value_len)?);
        (at + LOCAL_OVERHEAD, name_len, value, local_len(name_len, value_len))
    } else {
        let name_len = usize::from(*block.get(at + 8)?);
        let value = Value::Remote { block: be32(block, at), len: be32(block, at + 4) };
        (at + REMOTE_NAME, name_len, value, remote_len(name_len))
    };
    let name = block.get(name_at..name_at + name_len)?;
    Some(Record { entry, name, value, raw: block.get(at..at + len)? })
}

/// The attributes of a block, in hash order.
pub fn records(block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    (0..Header::decode(block).count).map_while(|index| record(block, index))
}

/// First entry whose hash is not below `hash`; the count if there is none.
pub fn lower_bound(block: &[u8], hash: u32) -> usize {
    let (mut low, mut high) = (0, Header::decode(block).count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if Entry::decode(block, middle).hash < hash {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Hash of the last entry; `None` if the block is empty.
pub fn last_hash(block: &[u8]) -> Option<u32> {
    let count = Header::decode(block).count;
    count.checked_sub(1).map(|last| Entry::decode(block, last).hash)
}

/// An attribute to be put into a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Hash of the name.
    pub hash: u32,
    /// Namespace and state.
    pub flags: AttrFlags,
    /// The bytes of name and local value, as the block stores them.
    pub raw: Vec<u8>,
}

impl Item {
    /// An attribute with a local value.
    pub fn local(hash: u32, namespace: AttrFlags, name: &[u8], value: &[u8]) -> Self {
        debug_assert!(name.len() <= MAX_NAME && value.len() <= usize::from(u16::MAX));
        let mut raw = Vec::with_capacity(local_len(name.len(), value.len()));
        raw.extend_from_slice(&(value.len() as u16).to_be_bytes());
        raw.push(name.len() as u8);
        raw.extend_from_slice(name);
        raw.extend_from_slice(value);
        raw.resize(local_len(name.len(), value.len()), 0);
        Self { hash, flags: namespace | AttrFlags::LOCAL, raw }
    }

    /// An attribute with a remote value of `len` bytes, stored from fork offset `block` on.
    pub fn remote(hash: u32, namespace: AttrFlags, name: &[u8], block: u32, len: u32) -> Self {
        debug_assert!(name.len() <= MAX_NAME);
        let mut raw = Vec::with_capacity(remote_len(name.len()));
        raw.extend_from_slice(&block.to_be_bytes());
        raw.extend_from_slice(&len.to_be_bytes());
        raw.push(name.len() as u8);
        raw.extend_from_slice(name);
        raw.resize(remote_len(name.len()), 0);
        Self { hash, flags: namespace - AttrFlags::LOCAL, raw }
    }

    /// Bytes that the attribute takes in a block, including its entry.
    pub fn room(&self) -> usize {
        ENTRY_LEN + self.raw.len()
    }
}

/// Copies all attributes of a block, to move them to another block.
pub fn items(block: &[u8]) -> Vec<Item> {
    records(block)
        .map(|r| Item { hash: r.entry.hash, flags: r.entry.flags, raw: r.raw.to_vec() })
        .collect()
}

/// Bytes available for items in a block.
pub const fn capacity(block_len: usize) -> usize {
    block_len - HEADER_LEN
}

/// Replaces the content of a whole block. The common header (links, address, owner and so on)
/// is kept.
///
/// # Panics
/// If the items, sorted by hash, do not fit; the caller must check the size first.
pub fn fill<'a>(block: &mut [u8], items: impl IntoIterator<Item = &'a Item>) {
    block[MAGIC_RANGE].copy_from_slice(&MAGIC.to_be_bytes());
    block[HEADER_RANGE.start..].fill(0);
    let len = block.len();
    let mut header = Header::empty(len);
    for item in items {
        header.first -= item.raw.len();
        header.used += item.raw.len();
        block[header.first..header.first + item.raw.len()].copy_from_slice(&item.raw);
        let entry = Entry { hash: item.hash, at: header.first, flags: item.flags };
        block[entry_range(header.count)].copy_from_slice(&entry.encode());
        header.count += 1;
    }
    assert!(entries_end(header.count) <= header.first, "the items fit into the block");
    header.encode(&mut block[HEADER_RANGE], len);
}

/// Checks the rules that hold inside a leaf block.
///
/// # Errors
/// A description of the first violated rule.
pub fn verify(block: &[u8]) -> Result<(), Problem> {
    let header = Header::decode(block);
    let end = head_len(block) + header.count * ENTRY_LEN;
    if header.first > block.len() || end > header.first {
        return Err(Check::Count.failed(format!(
            "{} entries, names from {} on, in {} bytes",
            header.count,
            header.first,
            block.len()
        )));
    }
    verify_free_map(block)?;
    let mut seen = NameMap::new(block.len());
    let (mut used, mut hash) = (0, 0);
    for index in 0..header.count {
        let Some(record) = record(block, index) else {
            return Err(Check::Range.failed(format!("the name of entry {index} is not inside")));
        };
        let entry = record.entry;
        if entry.at < header.first || !entry.at.is_multiple_of(4) || record.name.is_empty() {
            return Err(Check::Range.failed(format!("entry {index} has its name at {}", entry.at)));
        }
        if entry.hash < hash {
            return Err(Check::Order
                .failed(format!("hash {:#x} of entry {index} is below the last", entry.hash)));
        }
        entry.flags.check()?;
        if record.value.len() > super::MAX_VALUE {
            return Err(Check::Size
                .failed(format!("entry {index} has a value of {} bytes", record.value.len())));
        }
        if !seen.take(record.range()) {
            return Err(
                Check::Overlap.failed(format!("the name of entry {index} overlaps another"))
            );
        }
        used += record.raw.len();
        hash = entry.hash;
    }
    if used != header.used {
        return Err(
            Check::FreeSpace.failed(format!("{used} bytes of names, header says {}", header.used))
        );
    }
    Ok(())
}

fn verify_free_map(block: &[u8]) -> Result<(), Problem> {
    for slot in 0..3 {
        let at = content_at(block) + FREE_MAP + 4 * slot;
        let (base, size) = (usize::from(be16(block, at)), usize::from(be16(block, at + 2)));
        if size == 0 {
            continue;
        }
        let inside = base >= head_len(block) && base + size <= block.len();
        if !inside || !base.is_multiple_of(4) || !size.is_multiple_of(4) {
            return Err(Check::FreeSpace.failed(format!("free map: {size} bytes at {base}")));
        }
    }
    Ok(())
}

/// Bitmap of the four-byte units that names occupy.
struct NameMap(Vec<u64>);

impl NameMap {
    fn new(block_len: usize) -> Self {
        Self(vec![0; block_len.div_ceil(256)])
    }

    /// Marks a range as occupied; returns false if any of it already is.
    fn take(&mut self, range: Range<usize>) -> bool {
        (range.start / 4..range.end.div_ceil(4)).all(|unit| {
            let bit = 1 << (unit % 64);
            let word = &mut self.0[unit / 64];
            let free = *word & bit == 0;
            *word |= bit;
            free
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Naming;
    use crate::attr::hash;

    fn sample(len: usize) -> Vec<u8> {
        let mut items: Vec<Item> = (0..12)
            .map(|i| {
                let name = format!("name-{i}");
                let flags = if i % 3 == 0 { AttrFlags::ROOT } else { AttrFlags::empty() };
                let hash = hash(Naming::Exact, flags, name.as_bytes(), b"");
                if i % 4 == 3 {
                    Item::remote(hash, flags, name.as_bytes(), 7, 5000)
                } else {
                    Item::local(hash, flags, name.as_bytes(), &vec![i; usize::from(i) * 3])
                }
            })
            .collect();
        items.sort_by_key(|i| i.hash);
        let mut block = vec![0; len];
        fill(&mut block, &items);
        block
    }

    #[test]
    fn lengths_match_the_format() {
        assert_eq!((local_len(1, 0), local_len(1, 1), local_len(255, 500)), (4, 8, 760));
        assert_eq!((remote_len(1), remote_len(2), remote_len(255)), (12, 16, 268));
        assert!(is_local(4, 3061, 4096) && !is_local(4, 3062, 4096));
    }

    #[test]
    fn fill_then_read() {
        for len in [1024, 4096, 65536] {
            let block = sample(len);
            verify(&block).unwrap();
            let names: Vec<_> = records(&block).map(|r| r.name.to_vec()).collect();
            assert_eq!(names.len(), 12);
            for record in records(&block) {
                let index = lower_bound(&block, record.entry.hash);
                assert_eq!(super::record(&block, index), Some(record));
            }
            let mut again = vec![0; len];
            fill(&mut again, &items(&block));
            assert_eq!(again, block);
        }
    }

    #[test]
    fn an_empty_block_is_valid() {
        for len in [1024, 65536] {
            let mut block = vec![0; len];
            fill(&mut block, &[]);
            verify(&block).unwrap();
            assert_eq!(Header::decode(&block), Header::empty(len));
            assert_eq!(last_hash(&block), None);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read() {
        let mut rng = uxfs_testkit::Rng::new(0xa77);
        let mut next = move || (rng.bits() >> 33) as usize;
        for round in 0..30_000 {
            let mut block = sample(1024);
            for _ in 0..1 + next() % 3 {
                let area = [HEADER_RANGE, 80..180, 600..1024, 0..1024][next() % 4].clone();
                block[area.start + next() % area.len()] = [next() as u8, 0, 0xff][next() % 3];
            }
            let good = verify(&block).is_ok();
            let seen = records(&block).count();
            let _ = (items(&block).len(), lower_bound(&block, next() as u32), last_hash(&block));
            assert!(!good || seen == Header::decode(&block).count, "round {round}");
        }
    }
}
