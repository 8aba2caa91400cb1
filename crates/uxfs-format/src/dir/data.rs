//! Data blocks: directory entries and the free areas between them.
//!
//! 1. Entries and free areas tile the block from byte 64 to the end of the data: the end of the
//!    block, or the start of the leaf entries in a one-block directory.
//! 2. Each ends with its own offset ("tag"), so that code can step backwards.
//! 3. No two free areas are adjacent.
//! 4. The header lists the three longest free areas ("bestfree"), longest first.
//!
//! Functions here plan a change of a block: a [`Plan`] lists the few bytes that change. The caller
//! applies the plan.

use crate::error::{Check, Problem};
use smallvec::SmallVec;

use super::entry::{DATA_START, Shape, entry_len, entry_problem};
use crate::bytes::{Field, be16, be64};
use crate::geometry::Geometry;
use crate::types::Ino;

/// "XDD3".
pub const MAGIC: u32 = 0x5844_4433;
/// Byte offset of the bestfree list.
pub const BESTFREE: usize = 48;
/// Length of the bestfree list.
pub const BESTFREE_LEN: usize = 12;
/// First two bytes of a free area, at the offset where an entry has its inode number.
pub const FREE_TAG: u16 = 0xffff;
/// Length of the head of a free area: the tag and the length.
pub const FREE_HEADER_LEN: usize = 4;

/// A free area of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Free {
    /// Byte offset of the area in the block.
    pub at: u16,
    /// Its length; 0 if there is none.
    pub len: u16,
}

impl Free {
    /// The area from `at` to `end`, both inside a block.
    pub fn between(at: usize, end: usize) -> Self {
        // Blocks are of at most 64 KiB, the last 8 bytes of which start below 2^16.
        Self { at: at as u16, len: end.saturating_sub(at) as u16 }
    }

    /// Byte offset of the area's end.
    pub fn end(&self) -> usize {
        usize::from(self.at) + usize::from(self.len)
    }

    /// Place of the tag at the area's end, which holds the area's own offset.
    pub fn tag_at(&self) -> Field<u16> {
        Field::at(self.end() - 2)
    }

    /// Encodes the head of the area.
    pub fn header(&self) -> [u8; FREE_HEADER_LEN] {
        let len = self.len.to_be_bytes();
        [0xff, 0xff, len[0], len[1]]
    }
}

/// The three longest free areas.
pub type Best = [Free; 3];

/// Decodes the bestfree list of a version 5 block.
pub fn best(block: &[u8]) -> Best {
    Shape::V5.best(block)
}

/// Encodes a bestfree list.
pub fn encode_best(best: &Best) -> [u8; BESTFREE_LEN] {
    let mut raw = [0; BESTFREE_LEN];
    for (slot, free) in raw.chunks_exact_mut(4).zip(best) {
        slot[..2].copy_from_slice(&free.at.to_be_bytes());
        slot[2..].copy_from_slice(&free.len.to_be_bytes());
    }
    raw
}

/// A directory entry in a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEntry<'a> {
    /// Byte offset of the entry in the block.
    pub at: usize,
    /// The inode.
    pub ino: Ino,
    /// The name.
    pub name: &'a [u8],
    /// File type as stored; 0 if the volume does not store types.
    pub ftype: u8,
}

impl DataEntry<'_> {
    /// Bytes that the entry takes.
    pub fn space(&self) -> usize {
        entry_len(self.name.len())
    }

    /// Encodes the entry into `raw`, which must have exactly the entry's length.
    pub fn put(&self, raw: &mut [u8]) {
        let (name, len) = (self.name.len(), raw.len());
        raw[..8].copy_from_slice(&self.ino.0.to_be_bytes());
        raw[8] = name as u8;
        raw[9..9 + name].copy_from_slice(self.name);
        raw[9 + name] = self.ftype;
        raw[10 + name..len - 2].fill(0);
        raw[len - 2..].copy_from_slice(&(self.at as u16).to_be_bytes());
    }
}

/// Place of the inode number of the entry at byte `at` of a block.
pub const fn ino_at(at: usize) -> Field<Ino> {
    Field::at(at)
}

/// Byte offset of the file type in an entry with a name of `name` bytes.
pub const fn ftype_at(name: usize) -> usize {
    8 + 1 + name
}

/// One tile of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An entry.
    Entry(DataEntry<'a>),
    /// A free area.
    Free(Free),
}

impl Shape {
    /// The entry or free area at `at` of a block whose data ends at `end`; `None` if no valid item
    /// starts there.
    #[inline]
    pub fn item_at(self, block: &[u8], at: usize, end: usize) -> Option<Item<'_>> {
        self.measured(block, at, end).map(|(item, _)| item)
    }

    /// [`Shape::item_at`], with the item's length.
    #[inline]
    fn measured(self, block: &[u8], at: usize, end: usize) -> Option<(Item<'_>, usize)> {
        if !at.is_multiple_of(8) || at < self.start || at + 8 > end.min(block.len()) {
            return None;
        }
        let (item, len) = if be16(block, at) == FREE_TAG {
            let len = be16(block, at + 2);
            (Item::Free(Free { at: u16::try_from(at).ok()?, len }), usize::from(len))
        } else {
            let name = usize::from(*block.get(at + 8)?);
            let len = self.entry_len(name);
            let raw = block.get(at..at + len)?;
            let ftype = if self.has_types() { raw[ftype_at(name)] } else { 0 };
            let entry = DataEntry { at, ino: Ino(be64(raw, 0)), name: &raw[9..9 + name], ftype };
            (Item::Entry(entry), len)
        };
        let right = len >= 8
            && len.is_multiple_of(8)
            && at + len <= end
            && usize::from(be16(block, at + len - 2)) == at;
        right.then_some((item, len))
    }

    /// The entry at `at`, an offset that need not be valid; `None` if no entry is there.
    pub fn entry_at(self, block: &[u8], at: usize, end: usize) -> Option<DataEntry<'_>> {
        match self.item_at(block, at, end)? {
            Item::Entry(entry) if !entry.name.is_empty() => Some(entry),
            _ => None,
        }
    }

    /// The entries and free areas of a block up to `end`; stops at the first offset where neither
    /// starts.
    pub fn items(self, block: &[u8], end: usize) -> Items<'_> {
        Items { shape: self, block, at: self.start, end }
    }

    /// Decodes the bestfree list of a block.
    pub fn best(self, block: &[u8]) -> Best {
        core::array::from_fn(|i| Free {
            at: be16(block, self.bestfree + 4 * i),
            len: be16(block, self.bestfree + 4 * i + 2),
        })
    }
}

/// [`Shape::item_at`] for version 5.
pub fn item_at(block: &[u8], at: usize, end: usize) -> Option<Item<'_>> {
    Shape::V5.item_at(block, at, end)
}

/// [`Shape::entry_at`] for version 5.
pub fn entry_at(block: &[u8], at: usize, end: usize) -> Option<DataEntry<'_>> {
    Shape::V5.entry_at(block, at, end)
}

/// [`Shape::items`] for version 5.
pub fn items(block: &[u8], end: usize) -> Items<'_> {
    Shape::V5.items(block, end)
}

/// Iterator over the entries and free areas of a block, see [`items`].
#[derive(Clone, Debug)]
pub struct Items<'a> {
    shape: Shape,
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl Items<'_> {
    /// Byte offset of the next item, or of the first byte that is no valid item.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (item, len) = self.shape.measured(self.block, self.at, self.end)?;
        self.at += len;
        Some(item)
    }
}

/// A planned change of a block: new free areas and the bestfree list after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Byte offset of the entry that is inserted or removed.
    pub at: usize,
    /// The free areas that are new or have a new length.
    pub added: [Option<Free>; 2],
    /// The bestfree list after the change.
    pub best: Best,
}

impl Plan {
    /// Length of the longest free area after the change.
    pub fn room(&self) -> u16 {
        self.best[0].len
    }
}

/// The bestfree list after the areas in `removed` are gone and the areas in `added` exist.
pub fn best_after(block: &[u8], end: usize, removed: &[Free], added: &[Free]) -> Best {
    let old = best(block);
    let gone = |free: &Free| removed.iter().any(|r| r.at == free.at);
    let mut list: SmallVec<[Free; 5]> = old.iter().copied().filter(|f| f.len > 0).collect();
    let listed = list.len();
    list.retain(|f| !gone(f));
    let lost = list.len() < listed;
    list.extend(added.iter().copied().filter(|f| f.len > 0));
    let mut best = longest(&mut list);
    // Unlisted areas are no longer than the third listed one. If the list was full and an
    // unlisted area could now belong to it, scan all areas.
    if listed == 3 && lost && best[2].len < old[2].len {
        let free = items(block, end).filter_map(|item| match item {
            Item::Free(free) if !gone(&free) => Some(free),
            _ => None,
        });
        let mut all: SmallVec<[Free; 5]> = free.collect();
        all.extend(added.iter().copied().filter(|f| f.len > 0));
        best = longest(&mut all);
    }
    best
}

fn longest(list: &mut [Free]) -> Best {
    list.sort_by_key(|free| (core::cmp::Reverse(free.len), free.at));
    core::array::from_fn(|i| list.get(i).copied().unwrap_or_default())
}

/// Plans the insertion of an entry of `len` bytes into the longest free area of a block whose data
/// ends at `end`. `None` if the entry does not fit.
pub fn plan_insert(block: &[u8], end: usize, len: usize) -> Option<Plan> {
    let area = best(block)[0];
    if usize::from(area.len) < len {
        return None;
    }
    let at = usize::from(area.at);
    let rest = Free::between(at + len, area.end());
    let added = (rest.len > 0).then_some(rest);
    let best = best_after(block, end, &[area], added.as_slice());
    Some(Plan { at, added: [added, None], best })
}

/// The free area that ends at `end`, if there is one.
pub fn free_before(block: &[u8], end: usize) -> Option<Free> {
    let at = usize::from(be16(block, end.checked_sub(2)?));
    match item_at(block, at, end)? {
        Item::Free(free) if free.end() == end => Some(free),
        _ => None,
    }
}

/// The free area that starts at `at`, if there is one.
pub fn free_at(block: &[u8], at: usize, end: usize) -> Option<Free> {
    match item_at(block, at, end)? {
        Item::Free(free) => Some(free),
        Item::Entry(_) => None,
    }
}

/// Plans to free the `len` bytes from `at` on, merged with adjacent free areas.
pub fn plan_remove(block: &[u8], end: usize, at: usize, len: usize) -> Plan {
    let before = free_before(block, at);
    let after = free_at(block, at + len, end);
    let start = before.map_or(at, |free| free.at.into());
    let free = Free::between(start, after.map_or(at + len, |free| free.end()));
    let removed: SmallVec<[Free; 2]> = before.into_iter().chain(after).collect();
    let best = best_after(block, end, &removed, &[free]);
    Plan { at, added: [Some(free), None], best }
}

/// Checks the entries and free areas of a block up to `end`; calls `each` for every entry.
///
/// # Errors
/// A description of the first violated rule.
pub fn check_items(
    block: &[u8],
    end: usize,
    geo: &Geometry,
    mut each: impl FnMut(&DataEntry<'_>),
) -> Result<(), Problem> {
    let listed = geo.dir.best(block);
    let mut found = 0;
    let mut after_free = false;
    let mut items = geo.dir.items(block, end);
    for item in &mut items {
        let free = match item {
            Item::Free(free) => free,
            Item::Entry(entry) => {
                if let Some(problem) = entry_problem(entry.name, entry.ftype) {
                    return Err(Check::Name.failed(format!("offset {}: {problem}", entry.at)));
                }
                if !geo.ino_valid(entry.ino) {
                    return Err(Check::Pointer
                        .failed(format!("offset {}: leads to inode {}", entry.at, entry.ino)));
                }
                each(&entry);
                after_free = false;
                continue;
            }
        };
        if after_free {
            return Err(Check::FreeSpace
                .failed(format!("offset {}: free area behind a free area", free.at)));
        }
        after_free = true;
        if listed.contains(&free) {
            found += 1;
        } else if free.len > listed[2].len {
            return Err(Check::FreeSpace
                .failed(format!("free area of {} bytes at {} is not listed", free.len, free.at)));
        }
    }
    if items.position() != end {
        return Err(Check::Format
            .failed(format!("offset {}: neither an entry nor a free area", items.position())));
    }
    let used = listed.iter().filter(|free| free.len > 0).count();
    let ordered = listed.is_sorted_by_key(|free| core::cmp::Reverse(free.len));
    let blank = listed[used..].iter().all(|free| *free == Free::default());
    if found != used || !ordered || !blank {
        return Err(
            Check::FreeSpace.failed(format!("list of longest free areas {listed:?} is wrong"))
        );
    }
    Ok(())
}

/// Checks the rules that hold inside a data block of a directory with several blocks.
///
/// # Errors
/// A description of the first violated rule.
pub fn check(block: &[u8], geo: &Geometry) -> Result<(), Problem> {
    check_items(block, block.len(), geo, |_| {})
}

/// Initialises a block as one free area and lists that area in the header.
pub fn format(block: &mut [u8], magic: u32) {
    let end = block.len();
    let all = Free::between(DATA_START, end);
    super::MAGIC.set(block, magic);
    block[DATA_START..DATA_START + FREE_HEADER_LEN].copy_from_slice(&all.header());
    all.tag_at().set(block, all.at);
    let best = [all, Free::default(), Free::default()];
    block[BESTFREE..BESTFREE + BESTFREE_LEN].copy_from_slice(&encode_best(&best));
}
