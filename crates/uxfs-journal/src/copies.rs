//! Copies of what the open checkpoint logs of its objects, as they were at their last commit.
//!
//! 1. A commit makes or changes a copy while its transaction still holds the object. A cut takes all copies
//!    with it. So a checkpoint can be cut while transactions are open, and holds nothing of those.
//! 2. The copy of a buffer holds the chunks that are logged, at their places. The copy of any other object
//!    holds the regions of its log items.
//! 3. A copy is replaced in place if there is room for it. Memory comes in slabs, which later checkpoints
//!    use again.
//!
//! Called by [`crate::Cil`].

use smallvec::SmallVec;
use uxfs_format::bytes::Field;
use uxfs_format::log::{BufType, CHUNK};

use crate::log_item::Regions;
use crate::records::Records;

/// Bytes of a slab, unless a copy needs more.
const SLAB: usize = 256 << 10;

/// The location of a copy.
#[derive(Clone, Copy, Debug)]
struct Span {
    slab: u32,
    at: u32,
    room: u32,
}

/// The copy of one object.
#[derive(Debug)]
enum Copy {
    Nothing,
    /// The logged chunks of a buffer, in a space as long as the buffer.
    Chunks {
        kind: BufType,
        chunks: SmallVec<[u64; 1]>,
        span: Span,
    },
    /// Regions of log items: the length of each, then its bytes.
    Regions {
        span: Span,
        len: u32,
    },
}

/// The copies of a checkpoint's objects, by the objects' indexes in its list.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    copies: Vec<Copy>,
    slabs: Vec<Vec<u8>>,
    /// The slab in use, and the bytes used of it.
    filling: usize,
    filled: usize,
    /// Regions under construction.
    scratch: Scratch,
}

/// Place of a region's length, which comes before its bytes.
const LEN: Field<u32> = Field::at(0);

/// Regions, one after the other.
#[derive(Debug, Default)]
struct Scratch(Vec<u8>);

impl Regions for Scratch {
    fn region(&mut self, bytes: &[u8]) {
        let mut len = [0; LEN.range().end];
        LEN.set(&mut len, bytes.len() as u32);
        self.0.extend_from_slice(&len);
        self.0.extend_from_slice(bytes);
    }
}

impl Copies {
    /// No copies. The memory of `slabs` is used first.
    pub(crate) fn new(slabs: Vec<Vec<u8>>) -> Self {
        Self { slabs, ..Self::default() }
    }

    /// Returns the slabs for a later checkpoint, and drops the copies.
    pub(crate) fn into_slabs(self) -> Vec<Vec<u8>> {
        self.slabs
    }

    fn room(&mut self, len: usize) -> Span {
        while self.slabs.get(self.filling).is_some_and(|slab| slab.len() - self.filled < len) {
            self.filling += 1;
            self.filled = 0;
        }
        if self.filling == self.slabs.len() {
            self.slabs.push(vec![0; len.max(SLAB)]);
        }
        let span = Span { slab: self.filling as u32, at: self.filled as u32, room: len as u32 };
        self.filled += len;
        span
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.slabs[span.slab as usize][span.at as usize..][..span.room as usize]
    }

    fn at_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.slabs[span.slab as usize][span.at as usize..][..span.room as usize]
    }

    fn reach(&mut self, slot: u32) {
        if self.copies.len() <= slot as usize {
            self.copies.resize_with(slot as usize + 1, || Copy::Nothing);
        }
    }

    /// Copies the buffer with this index: `logged` of its chunks are logged, of which `changed` are
    /// not in the copy or changed since.
    pub(crate) fn buffer(
        &mut self,
        slot: u32,
        kind: BufType,
        bytes: &[u8],
        logged: &[u64],
        changed: &[u64],
    ) {
        self.reach(slot);
        let known = match &mut self.copies[slot as usize] {
            Copy::Chunks { kind: known, chunks, span } => {
                debug_assert_eq!(span.room as usize, bytes.len(), "a buffer's length stays");
                *known = kind;
                chunks.copy_from_slice(logged);
                Some(*span)
            }
            _ => None,
        };
        let span = known.unwrap_or_else(|| self.room(bytes.len()));
        let copy = self.at_mut(span);
        for (first, count) in runs(changed) {
            let range = first * CHUNK..((first + count) * CHUNK).min(bytes.len());
            copy[range.clone()].copy_from_slice(&bytes[range]);
        }
        if known.is_none() {
            let chunks = SmallVec::from_slice(logged);
            self.copies[slot as usize] = Copy::Chunks { kind, chunks, span };
        }
    }

    /// Stores the regions that `put` writes as the copy of the object with this index.
    ///
    /// # Errors
    /// Those of `put`; the object then has no copy.
    pub(crate) fn regions<E>(
        &mut self,
        slot: u32,
        put: impl FnOnce(&mut dyn Regions) -> Result<(), E>,
    ) -> Result<(), E> {
        self.reach(slot);
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.0.clear();
        let done = put(&mut scratch);
        let regions = &scratch.0[..];
        self.copies[slot as usize] = match (&self.copies[slot as usize], &done) {
            (_, Err(_)) => Copy::Nothing,
            (Copy::Regions { span, .. }, Ok(())) if span.room as usize >= regions.len() => {
                let span = *span;
                self.at_mut(span)[..regions.len()].copy_from_slice(regions);
                Copy::Regions { span, len: regions.len() as u32 }
            }
            _ => {
                let span = self.room(regions.len());
                self.at_mut(span).copy_from_slice(regions);
                Copy::Regions { span, len: regions.len() as u32 }
            }
        };
        self.scratch = scratch;
        done
    }

    /// Drops the copy of the object with this index.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(copy) = self.copies.get_mut(slot as usize) {
            *copy = Copy::Nothing;
        }
    }

    /// The copy of the object with this index.
    pub(crate) fn get(&self, slot: usize) -> Logged<'_> {
        match self.copies.get(slot) {
            None | Some(Copy::Nothing) => Logged::Nothing,
            Some(Copy::Chunks { kind, chunks, span }) => {
                Logged::Chunks { kind: *kind, chunks, bytes: self.at(*span) }
            }
            Some(Copy::Regions { span, len }) => {
                Logged::Regions(RegionsOf(&self.at(*span)[..*len as usize]))
            }
        }
    }
}

/// What is logged of an object.
#[derive(Clone, Copy, Debug)]
pub enum Logged<'a> {
    /// Nothing: the object was freed, or is not logged as itself.
    Nothing,
    /// Chunks of a buffer.
    Chunks {
        /// The type of its content.
        kind: BufType,
        /// The bitmap of the logged chunks.
        chunks: &'a [u64],
        /// As many bytes as the buffer has; only the logged chunks mean something.
        bytes: &'a [u8],
    },
    /// The regions of log items.
    Regions(RegionsOf<'a>),
}

impl Logged<'_> {
    /// Writes the regions, if there are any.
    pub fn write_regions(self, records: &mut Records) {
        if let Self::Regions(regions) = self {
            regions.for_each(|region| records.region(region));
        }
    }
}

/// The regions of a copy, in order.
#[derive(Clone, Copy, Debug)]
pub struct RegionsOf<'a>(&'a [u8]);

impl<'a> Iterator for RegionsOf<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first_chunk::<{ LEN.range().end }>()?;
        let (region, rest) = rest.split_at(LEN.get(len) as usize);
        self.0 = rest;
        Some(region)
    }
}

/// The runs of chunks in a bitmap: the first chunk and the length of each.
fn runs(bitmap: &[u64]) -> impl Iterator<Item = (usize, usize)> + '_ {
    bitmap.iter().enumerate().flat_map(|(word, bits)| {
        let mut rest = *bits;
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros();
            let count = (rest >> first).trailing_ones();
            rest &= !(u64::MAX >> (64 - count) << first);
            Some((word * 64 + first as usize, count as usize))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_become_runs_of_chunks() {
        assert_eq!(runs(&[0b1011_0001]).collect::<Vec<_>>(), [(0, 1), (4, 2), (7, 1)]);
        assert_eq!(runs(&[u64::MAX, 1]).collect::<Vec<_>>(), [(0, 64), (64, 1)]);
        assert_eq!(runs(&[0, 1 << 63]).collect::<Vec<_>>(), [(127, 1)]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn a_copy_holds_the_last_commit_of_each_chunk() {
        let mut copies = Copies::new(vec![vec![0xee; 1000]]);
        let mut bytes = vec![1; 4096];
        copies.buffer(0, BufType::Agf, &bytes, &[0b0101], &[0b0101]);
        bytes.fill(2);
        copies.buffer(0, BufType::Agf, &bytes, &[0b1101], &[0b1100]);
        let Copy::Chunks { chunks, span, .. } = &copies.copies[0] else { panic!("no copy") };
        let chunk = |at: usize| copies.at(*span)[at * CHUNK];
        assert_eq!((chunks[0], chunk(0), chunk(2), chunk(3)), (0b1101, 1, 2, 2));
        copies.forget(0);
        assert!(matches!(copies.copies[0], Copy::Nothing));
    }

    #[test]
    fn newer_regions_replace_older_ones() {
        let mut copies = Copies::new(vec![vec![0xee; 40]]);
        let put = |copies: &mut Copies, slot, all: &[&[u8]]| {
            let put = |to: &mut dyn Regions| {
                all.iter().for_each(|region| to.region(region));
                Ok::<(), ()>(())
            };
            copies.regions(slot, put).unwrap();
        };
        put(&mut copies, 0, &[b"12345678", b"1234"]);
        put(&mut copies, 2, &[b"abcd"]);
        put(&mut copies, 0, &[b"8765", b"4321"]);
        put(&mut copies, 2, &[&[7; 100], &[]]);
        let regions = |slot| match copies.get(slot) {
            Logged::Regions(regions) => regions.collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(regions(0), [b"8765", b"4321"]);
        assert!(matches!(copies.copies[1], Copy::Nothing));
        assert_eq!(regions(2), [&[7; 100][..], &[]]);
        assert_eq!(copies.regions(0, |_| Err("damaged")), Err("damaged"));
        assert!(matches!(copies.copies[0], Copy::Nothing));
        assert_eq!(copies.into_slabs().len(), 2);
    }
}
