//! The short form: a directory inside its inode.
//!
//! A header (count, count of wide numbers, parent), then the entries: length of the name, offset,
//! name, type, inode number. "." and ".." are not stored: "." is the inode itself, ".." is the
//! header's parent.
//!
//! 1. If any inode number, the parent's included, does not fit 32 bits, all numbers take 8 bytes.
//! 2. An entry's offset is its offset in the data space of the block form. Offsets ascend; a
//!    removed entry leaves a gap.

use crate::error::{Check, Problem};
use smallvec::SmallVec;

use super::entry::{Shape, entry_len, entry_problem};
use crate::bytes::{be16, be32, be64};
use crate::naming::Naming;
use crate::types::Ino;

/// The bytes of a short form.
pub type Bytes = SmallVec<[u8; 512]>;

/// A short form that passed its checks.
#[derive(Clone, Copy, Debug)]
pub struct Shortform<'a> {
    shape: Shape,
    bytes: &'a [u8],
    count: usize,
    wide_count: usize,
    end: usize,
}

/// An entry of a short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfEntry<'a> {
    /// Byte offset of the entry in the short form.
    pub at: usize,
    /// Offset of the entry in the data space.
    pub offset: u16,
    /// The name.
    pub name: &'a [u8],
    /// File type as stored.
    pub ftype: u8,
    /// The inode.
    pub ino: Ino,
}

impl SfEntry<'_> {
    /// Offset in the data space just behind the entry.
    pub fn end(&self) -> usize {
        usize::from(self.offset) + entry_len(self.name.len())
    }
}

/// Does the inode number need 8 bytes?
pub const fn is_wide(ino: Ino) -> bool {
    ino.0 > u32::MAX as u64
}

const fn ino_len(wide: bool) -> usize {
    if wide { 8 } else { 4 }
}

/// Length of the header.
pub const fn header_len(wide: bool) -> usize {
    2 + ino_len(wide)
}

/// Length of an entry with a name of `name` bytes.
pub const fn sf_entry_len(name: usize, wide: bool) -> usize {
    1 + 2 + name + 1 + ino_len(wide)
}

fn read_ino(bytes: &[u8], at: usize, wide: bool) -> Ino {
    Ino(if wide { be64(bytes, at) } else { be32(bytes, at).into() })
}

fn push_ino(out: &mut Bytes, ino: Ino, wide: bool) {
    if wide {
        out.extend_from_slice(&ino.0.to_be_bytes());
    } else {
        out.extend_from_slice(&(ino.0 as u32).to_be_bytes());
    }
}

impl<'a> Shortform<'a> {
    /// Parses and checks a short form; `bytes` has the length that the inode's size gives.
    ///
    /// # Errors
    /// A description of the first violated rule.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Problem> {
        Self::parse_in(bytes, Shape::V5)
    }

    /// [`Shortform::parse`] for entries of this layout.
    ///
    /// # Errors
    /// A description of the first violated rule.
    pub fn parse_in(bytes: &'a [u8], shape: Shape) -> Result<Self, Problem> {
        if bytes.len() < header_len(false) {
            return Err(Check::Size.failed(format!("short form of {} bytes", bytes.len())));
        }
        let (count, wide_count) = (usize::from(bytes[0]), usize::from(bytes[1]));
        let mut sf = Self { shape, bytes, count, wide_count, end: shape.first() };
        if bytes.len() < header_len(sf.wide()) {
            return Err(Check::Size.failed(format!("short form of {} bytes", bytes.len())));
        }
        let mut at = header_len(sf.wide());
        let mut wide = usize::from(is_wide(sf.parent()));
        for index in 0..count {
            let Some(entry) = sf.entry_at(at) else {
                return Err(Check::Size
                    .failed(format!("entry {index} of {count} runs out of the short form")));
            };
            if let Some(problem) = entry_problem(entry.name, entry.ftype) {
                return Err(Check::Name.failed(format!("entry {index}: {problem}")));
            }
            if usize::from(entry.offset) < sf.end || !entry.offset.is_multiple_of(8) {
                return Err(
                    Check::Range.failed(format!("entry {index} at offset {}", entry.offset))
                );
            }
            sf.end = usize::from(entry.offset) + shape.entry_len(entry.name.len());
            wide += usize::from(is_wide(entry.ino));
            at += sf.entry_len(entry.name.len());
        }
        if at != bytes.len() {
            return Err(Check::Size
                .failed(format!("{at} bytes of entries in a short form of {}", bytes.len())));
        }
        if wide != wide_count {
            return Err(
                Check::Count.failed(format!("{wide} wide inode numbers, says {wide_count}"))
            );
        }
        Ok(sf)
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Do inode numbers take 8 bytes?
    pub fn wide(&self) -> bool {
        self.wide_count > 0
    }

    /// Number of inode numbers that need 8 bytes.
    pub fn wide_count(&self) -> usize {
        self.wide_count
    }

    /// Offset in the data space just behind the last entry.
    pub fn end(&self) -> usize {
        self.end
    }

    /// The parent directory.
    pub fn parent(&self) -> Ino {
        read_ino(self.bytes, 2, self.wide())
    }

    fn entry_len(&self, name: usize) -> usize {
        1 + 2 + name + self.shape.type_len + ino_len(self.wide())
    }

    fn entry_at(&self, at: usize) -> Option<SfEntry<'a>> {
        let len = usize::from(*self.bytes.get(at)?);
        let raw = self.bytes.get(at..at + self.entry_len(len))?;
        let typed = self.shape.has_types();
        Some(SfEntry {
            at,
            offset: be16(raw, 1),
            name: &raw[3..3 + len],
            ftype: if typed { raw[3 + len] } else { 0 },
            ino: read_ino(raw, 3 + len + self.shape.type_len, self.wide()),
        })
    }

    /// The entries, in order of their offsets.
    pub fn entries(&self) -> impl Iterator<Item = SfEntry<'a>> + Clone + use<'a> {
        let sf = *self;
        let mut at = header_len(sf.wide());
        (0..sf.count).map_while(move |_| {
            let entry = sf.entry_at(at)?;
            at += sf.entry_len(entry.name.len());
            Some(entry)
        })
    }

    /// Finds the entry with this name: in just this spelling if there is one, otherwise the first
    /// in another.
    pub fn find(&self, naming: Naming, name: &[u8]) -> Option<SfEntry<'a>> {
        let exact = self.entries().find(|entry| entry.name == name);
        if !naming.folds() {
            return exact;
        }
        exact.or_else(|| self.entries().find(|entry| naming.same(entry.name, name)))
    }

    /// Finds a free offset in the data space for an entry of `len` bytes, and the index at which to
    /// insert the entry: behind the last entry if it fits there, otherwise in the first gap. Its
    /// block form, with one leaf entry more than now, must fit into `block` bytes.
    pub fn room(&self, len: usize, block: usize) -> Option<(u16, usize)> {
        let limit = super::block::data_limit(block, self.count + 1 + 2);
        let end = self.end;
        if end + len <= limit {
            return Some((u16::try_from(end).ok()?, self.count));
        }
        let mut free = self.shape.first();
        for (index, entry) in self.entries().enumerate() {
            if usize::from(entry.offset) >= free + len && end <= limit {
                return Some((u16::try_from(free).ok()?, index));
            }
            free = entry.end();
        }
        None
    }
}

/// Builds a short form.
pub fn build<'a>(parent: Ino, entries: impl Iterator<Item = SfEntry<'a>> + Clone) -> Bytes {
    let (mut count, mut wide_count) = (0u8, u8::from(is_wide(parent)));
    for entry in entries.clone() {
        count += 1;
        wide_count += u8::from(is_wide(entry.ino));
    }
    let wide = wide_count > 0;
    let mut out = Bytes::from_slice(&[count, wide_count]);
    push_ino(&mut out, parent, wide);
    for entry in entries {
        push_entry(&mut out, &entry, wide);
    }
    out
}

/// Appends the bytes of an entry.
pub fn push_entry(out: &mut Bytes, entry: &SfEntry<'_>, wide: bool) {
    // Names have at most 255 bytes: parsing and the callers guarantee it.
    out.push(entry.name.len() as u8);
    out.extend_from_slice(&entry.offset.to_be_bytes());
    out.extend_from_slice(entry.name);
    out.push(entry.ftype);
    push_ino(out, entry.ino, wide);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{FIRST, entry_len};

    fn sample(wide: bool) -> Bytes {
        let ino = |n: u64| Ino(if wide && n == 2 { n << 33 } else { n });
        let mut offset = FIRST as u16;
        let mut list = Vec::new();
        for (i, name) in [&b"a"[..], b"hello world", b"\xff\xfe"].into_iter().enumerate() {
            list.push(SfEntry { at: 0, offset, name, ftype: 1, ino: ino(i as u64 + 1) });
            offset += entry_len(name.len()) as u16;
        }
        build(Ino(128), list.into_iter())
    }

    #[test]
    fn builds_and_parses_both_widths() {
        for wide in [false, true] {
            let bytes = sample(wide);
            let sf = Shortform::parse(&bytes).unwrap();
            assert_eq!((sf.count(), sf.wide(), sf.parent()), (3, wide, Ino(128)));
            let entry = sf.find(Naming::Exact, b"hello world").unwrap();
            assert_eq!((entry.offset, entry.ino.0 != 2), (112, wide));
            assert_eq!(sf.room(16, 4096), Some((152, 3)));
            let again = build(sf.parent(), sf.entries());
            assert_eq!(again, bytes);
        }
    }

    #[test]
    fn finds_a_gap_when_the_end_is_full() {
        let far = SfEntry { at: 0, offset: 4032, name: b"x", ftype: 1, ino: Ino(9) };
        let bytes = build(Ino(128), [far].into_iter());
        let sf = Shortform::parse(&bytes).unwrap();
        assert_eq!(sf.room(16, 4096), Some((96, 0)));
        assert_eq!(sf.room(4000, 4096), None);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut seed = 0x1234_5678_9abc_def0u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..20_000 {
            let mut bytes = sample(round % 2 == 0);
            for _ in 0..=next() % 3 {
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
            }
            bytes.truncate(next() as usize % (bytes.len() + 1));
            if let Ok(sf) = Shortform::parse(&bytes) {
                assert_eq!(sf.entries().count(), sf.count());
                assert_eq!(build(sf.parent(), sf.entries()), bytes);
            }
        }
    }
}
