//! A checkpoint of a volume in a store, opened for reading.
//!
//! 1. Each of its deltas has the hash by which the manifest names it, and follows the one below.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use uxfs_delta::{Index, Manifest};

use crate::fault::{Fault, planted};
use crate::map::{Map, Run, Source};
use crate::remote::name_of;
use crate::tables::{self, Table};
use crate::{Error, Remote, Result};

/// A checkpoint.
pub struct Checkpoint {
    remote: Arc<Remote>,
    manifest: Manifest,
    tables: Vec<Table>,
    map: Map,
}

impl Checkpoint {
    /// Opens a checkpoint: reads the tables of its deltas.
    ///
    /// # Errors
    /// Those of the store; what is wrong with a delta.
    pub fn open(remote: Arc<Remote>, manifest: Manifest) -> Result<Self> {
        if !manifest.block_size.is_power_of_two() || !(512..=65536).contains(&manifest.block_size) {
            let name = format!("manifest {}", manifest.number);
            return Err(Error::object(&name)(uxfs_delta::Error::Damaged("its size of a block")));
        }
        let tables = tables::read(&remote, &manifest)?;
        let mut below: Option<&Index> = None;
        for (Table { index, .. }, layer) in tables.iter().zip(&manifest.layers) {
            let follows = index.trailer().follows(below.map(Index::trailer));
            if !follows && !planted(Fault::ParentIgnored) {
                let what = uxfs_delta::Error::Damaged("it does not follow the delta below it");
                return Err(Error::object(&name_of(layer))(what));
            }
            below = Some(index);
        }
        let mut map = Map::new(u64::from(manifest.block_size));
        for (layer, table) in tables.iter().enumerate() {
            map.lay(layer, table.index.extents());
        }
        Ok(Self { remote, manifest, tables, map })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn map(&self) -> &Map {
        &self.map
    }

    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    pub(crate) fn index(&self, layer: usize) -> &Index {
        &self.tables[layer].index
    }

    pub(crate) fn block(&self) -> u64 {
        u64::from(self.manifest.block_size)
    }

    /// Where consecutive chunks are in the object of a layer.
    pub(crate) fn stored(&self, layer: usize, chunks: &Range<usize>) -> Result<Range<u64>> {
        let index = self.index(layer);
        let at = |chunk| index.chunk_at(chunk).map_err(Error::object(&self.name(layer)));
        Ok(at(chunks.start)?.start as u64..at(chunks.end - 1)?.end as u64)
    }

    /// The bytes of consecutive chunks of a layer as they are stored.
    pub(crate) fn fetch(&self, layer: usize, chunks: &Range<usize>) -> Result<Vec<bytes::Bytes>> {
        let range = self.stored(layer, chunks)?;
        let from = range.start;
        let bytes = self.remote.read(&self.manifest.layers[layer], range.clone())?;
        if bytes.len() as u64 != range.end - range.start {
            let what = uxfs_delta::Error::Damaged("it is cut short");
            return Err(Error::object(&self.name(layer))(what));
        }
        let part = |chunk| {
            let at = self.stored(layer, &(chunk..chunk + 1))?;
            Ok(bytes.slice((at.start - from) as usize..(at.end - from) as usize))
        };
        chunks.clone().map(part).collect()
    }

    /// The runs of blocks in which another checkpoint of the same length may differ: those that the two have from
    /// different places. First block and number of blocks, ascending.
    pub fn differing(&self, other: &Self) -> Vec<(u64, u64)> {
        let blocks = self.manifest.image_len.div_ceil(self.block());
        let place = |of: &Self, run: &Run, block: u64| match run.source {
            Source::Zeroes => None,
            Source::Layer(layer, at) => {
                Some((of.manifest.layers[layer].id, at + (block - run.first) * self.block()))
            }
        };
        let (ours, theirs) = (self.map.find(0, blocks), other.map.find(0, blocks));
        let (mut one, mut two) = (ours.iter().peekable(), theirs.iter().peekable());
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut block = 0;
        while let (Some(a), Some(b)) = (one.peek(), two.peek()) {
            let (a_end, b_end) = (a.first + a.count, b.first + b.count);
            let end = a_end.min(b_end);
            if place(self, a, block) != place(other, b, block) {
                match found.last_mut() {
                    Some((first, count)) if *first + *count == block => *count += end - block,
                    _ => found.push((block, end - block)),
                }
            }
            block = end;
            one.next_if(|_| a_end == end);
            two.next_if(|_| b_end == end);
        }
        found
    }

    /// The content of a chunk, verified.
    pub(crate) fn open_chunk<'s>(
        &self,
        layer: usize,
        chunk: usize,
        stored: &'s [u8],
    ) -> Result<Cow<'s, [u8]>> {
        let opened = self.index(layer).open(chunk, stored, self.remote.key());
        opened.map_err(Error::object(&self.name(layer)))
    }

    pub(crate) fn name(&self, layer: usize) -> String {
        name_of(&self.manifest.layers[layer])
    }
}
