//! A writer of a volume in a store: puts one checkpoint after the other.
//!
//! 1. Deltas are put first, then the manifest; a single one that one put can carry is put with the manifest, in the
//!    same object. A checkpoint that fails leaves the last one as it was.
//! 2. A manifest of another writer under the next number ends this writer for good, unless it has this
//!    writer's identity: then it is a compaction of the last checkpoint, on which this writer goes on.
//! 3. The number after the last checkpoint may have been taken and removed since a writer began. So before
//!    and after its first checkpoint it looks whether there are later ones. The numbers that it needs
//!    afterwards are kept taken by [`crate::prune`].
//! 4. When there are many deltas, those that can be merged cheaply are: their blocks are put again, from
//!    the image, as one delta. Each is merged once in a while only, because a delta is merged with those
//!    that together are larger than it.
//! 5. A delta is followed by copies of the tables below it when that costs at most a sixth of the bytes of the
//!    deltas put since the last ones, so what is shipped grows by no more. It names the delta that has copies of
//!    the tables further down.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use uxfs_delta::{
    COPIES_MAX, Copies, Delta, Hash, Head, Holder, Layer, Manifest, Place, Writer, is_zero,
};
use uxfs_disk::BlockDev;

use crate::checkpoint::Checkpoint;
use crate::fault::{Fault, planted};
use crate::remote::{Put, delta_name};
use crate::tables::Table;
use crate::tracker::Tracker;
use crate::{Error, Remote, Result};

/// Bytes of a block of a delta.
pub(crate) const BLOCK: u32 = 4096;
/// Bytes that are put at once; a longer object is put in parts of about this size.
pub(crate) const PART: usize = 8 << 20;
/// Most bytes of content of one delta.
const DELTA_MAX: u64 = 32 << 30;
/// Number of deltas at which some are merged.
const LAYERS_MAX: usize = 64;
/// One byte of copies is paid for by so many bytes of deltas.
const BYTES_PER_COPIED: u64 = 6;

/// A checkpoint that was put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Its number.
    pub number: u64,
    /// Bytes of blocks that changed since the one before.
    pub changed_bytes: u64,
    /// Bytes of blocks that were put again to merge deltas.
    pub merged_bytes: u64,
    /// Bytes of the objects put, the manifest included.
    pub stored_bytes: u64,
}

/// A delta of the last checkpoint, with the blocks in it if they are known.
struct Held {
    layer: Layer,
    runs: Vec<(u64, u64)>,
    /// Its table and trailer; empty if they are not known.
    end: Bytes,
    /// Does its object have copies of the tables below it?
    covers: bool,
}

impl Held {
    /// One that was merged by another process.
    fn unknown(layer: &Layer) -> Self {
        Self { layer: *layer, runs: Vec::new(), end: Bytes::new(), covers: false }
    }

    /// Bytes that a copy of its table takes.
    fn copy_len(&self) -> u64 {
        (Copies::ENTRY_LEN + self.end.len()) as u64
    }
}

/// The new deltas of a checkpoint.
#[derive(Default)]
struct Added {
    held: Vec<Held>,
    /// Bytes of them.
    stored: u64,
    /// The bytes of the only one, if it is put with the manifest.
    inside: Vec<u8>,
}

pub(crate) struct Publisher {
    remote: Arc<Remote>,
    /// Most bytes of a delta that is put with the manifest.
    inside_max: usize,
    writer: [u8; 16],
    epoch: u64,
    /// Named by each checkpoint of a writer that holds the volume.
    holder: Option<Holder>,
    uuid: [u8; 16],
    image_len: u64,
    last: Option<(Manifest, Hash)>,
    held: Vec<Held>,
    /// Bytes of deltas that were put since the last copies of tables.
    since_copies: u64,
    /// Objects whose put was begun, so that each has a name of its own.
    objects: u64,
    fenced: Option<(u64, u64)>,
    /// It has put a checkpoint, and found it to be the last one.
    proven: bool,
}

/// A delta being filled from a frozen moment.
struct Filling<'a> {
    tracker: &'a Tracker,
    dev: &'a dyn BlockDev,
    /// The next block to look for.
    from: u64,
    /// Blocks that were read and not added.
    data: Vec<u8>,
    at: u64,
    runs: Vec<(u64, u64)>,
    without_zeroes: bool,
    done: bool,
}

impl Filling<'_> {
    /// Adds blocks until the writer has `most` bytes ready, is full, or there are no more.
    fn fill(&mut self, writer: &mut Writer<'_>, most: usize) -> Result<()> {
        let size = self.tracker.block() as usize;
        while writer.ready() < most && writer.pushed() < DELTA_MAX {
            if self.data.is_empty() {
                let found = self.tracker.next_frozen(self.dev, self.from, &mut self.data);
                let Some(first) = found.map_err(Error::Image)? else {
                    self.done = true;
                    return Ok(());
                };
                self.at = first;
                self.from = first + (self.data.len() / size) as u64;
            }
            for block in self.data.chunks(size) {
                let number = self.at;
                self.at += 1;
                if self.without_zeroes && is_zero(block) {
                    continue;
                }
                writer.push(number, block)?;
                match self.runs.last_mut() {
                    Some((first, count)) if *first + *count == number => *count += 1,
                    _ => self.runs.push((number, 1)),
                }
            }
            self.data.clear();
        }
        Ok(())
    }
}

/// The deltas of a checkpoint.
fn held_by(checkpoint: &Checkpoint) -> Vec<Held> {
    let layers = checkpoint.manifest().layers.iter().zip(checkpoint.tables());
    let held = |(layer, table): (&Layer, &Table)| Held {
        layer: *layer,
        runs: table.index.extents().iter().map(|extent| (extent.first, extent.count)).collect(),
        end: table.end.clone(),
        covers: table.covers,
    };
    layers.map(held).collect()
}

/// The copies of tables that `most` bytes allow behind a delta that lies above these: as far down as possible. Those
/// further down are copied by the delta that is named, or are only that of the base, whose table is the longest.
fn copies_of<'a>(below: &[&'a Held], most: u64) -> Copies<'a> {
    let most = most.min(COPIES_MAX);
    let covering = below.iter().enumerate().filter(|(_, held)| held.covers);
    let after = covering.map(|(at, held)| (at + 1, Some(held.layer.id)));
    let mut rest = None;
    for (from, others) in [(0, None), (1, None)].into_iter().chain(after) {
        let wanted = below.get(from..).unwrap_or_default();
        let len: u64 = wanted.iter().map(|held| held.copy_len()).sum();
        let known = wanted.iter().all(|held| !held.end.is_empty());
        rest = others;
        if known && !wanted.is_empty() && Copies::HEAD_LEN as u64 + len <= most {
            let ends = wanted.iter().map(|held| (held.layer.id, &held.end[..])).collect();
            return Copies { rest, ends };
        }
    }
    Copies { rest, ends: Vec::new() }
}

impl Publisher {
    /// A writer for the volume `uuid` of `image_len` bytes. Returns the last checkpoint too, opened.
    ///
    /// # Errors
    /// [`Error::OtherVolume`], [`Error::Held`]; those of the store; what is wrong with an object.
    pub(crate) fn begin(
        remote: Arc<Remote>,
        writer: [u8; 16],
        uuid: [u8; 16],
        image_len: u64,
        inside_max: usize,
    ) -> Result<(Self, Option<Checkpoint>)> {
        let last = remote.newest()?;
        if let Some((manifest, _)) = &last {
            Error::if_held(manifest)?;
            if manifest.uuid != uuid {
                return Err(Error::OtherVolume("another UUID"));
            }
            if manifest.image_len != image_len || manifest.block_size != BLOCK {
                return Err(Error::OtherVolume("the same UUID, but another length"));
            }
        }
        let opened = last.as_ref().map(|(manifest, _)| manifest.clone());
        let opened = opened.map(|manifest| Checkpoint::open(Arc::clone(&remote), manifest));
        let opened = opened.transpose()?;
        let held = opened.as_ref().map_or_else(Vec::new, held_by);
        let epoch = last.as_ref().map_or(1, |(manifest, _)| manifest.epoch + 1);
        let publisher = Self {
            remote,
            inside_max,
            writer,
            epoch,
            holder: None,
            uuid,
            image_len,
            last,
            held,
            since_copies: 0,
            objects: 0,
            fenced: None,
            proven: false,
        };
        Ok((publisher, opened))
    }

    /// The writer that made this claim, which is the last checkpoint.
    pub(crate) fn holding(
        remote: Arc<Remote>,
        (claim, hash): (Manifest, Hash),
        opened: &Checkpoint,
        inside_max: usize,
    ) -> Self {
        Self {
            remote,
            inside_max,
            writer: claim.writer,
            epoch: claim.epoch,
            holder: claim.holder.clone(),
            uuid: claim.uuid,
            image_len: claim.image_len,
            held: held_by(opened),
            since_copies: 0,
            last: Some((claim, hash)),
            objects: 0,
            fenced: None,
            proven: true,
        }
    }

    /// Ends a hold: the last checkpoint is put again without a holder.
    ///
    /// # Errors
    /// [`Error::Fenced`]; those of the store.
    pub(crate) fn release(&mut self, now: u64) -> Result<()> {
        self.holder = None;
        loop {
            match self.put_manifest(Added::default(), self.held.len(), 0, now) {
                Err(Error::Overtaken) => {}
                other => return other.map(drop),
            }
        }
    }

    /// The number of the last checkpoint; 0 if there is none.
    pub(crate) fn last_number(&self) -> u64 {
        self.last.as_ref().map_or(0, |(manifest, _)| manifest.number)
    }

    /// When it was made.
    pub(crate) fn last_made_at(&self) -> Option<u64> {
        self.last.as_ref().map(|(manifest, _)| manifest.made_at)
    }

    /// How many of the deltas from the bottom stay as they are.
    fn kept(&self) -> usize {
        let all = self.held.len();
        if all < LAYERS_MAX {
            return all;
        }
        let is_unknown = |held: &Held| held.runs.is_empty() && held.layer.blocks > 0;
        let first = self.held.iter().rposition(is_unknown).map_or(0, |at| at + 1);
        let mut above: u64 = self.held[first..].iter().map(|held| held.layer.blocks).sum();
        for (number, held) in self.held.iter().enumerate().skip(first) {
            above -= held.layer.blocks;
            if held.layer.blocks < above {
                return number;
            }
        }
        all
    }

    /// The blocks that the next checkpoint puts again, beside those that changed.
    pub(crate) fn merged(&self) -> Vec<(u64, u64)> {
        self.held[self.kept()..].iter().flat_map(|held| held.runs.iter().copied()).collect()
    }

    /// Puts the frozen moment of `tracker` as the next checkpoint. `changed` are the bytes of it that
    /// changed; `now` is the time in milliseconds since 1970.
    ///
    /// # Errors
    /// [`Error::Fenced`]; those of the store and of the image. Nothing is then shipped.
    pub(crate) fn publish(
        &mut self,
        tracker: &Tracker,
        dev: &dyn BlockDev,
        changed: u64,
        now: u64,
    ) -> Result<Published> {
        if let Some((number, epoch)) = self.fenced {
            return Err(Error::Fenced { number, epoch });
        }
        let kept = self.kept();
        let merging = kept < self.held.len();
        let mut filling = Filling {
            tracker,
            dev,
            from: 0,
            data: Vec::new(),
            at: 0,
            runs: Vec::new(),
            without_zeroes: kept == 0,
            done: false,
        };
        if planted(Fault::ManifestFirst) {
            return self.publish_manifest_first(filling, kept, changed, now);
        }
        let added = self.put_deltas(&mut filling, kept)?;
        let stored = added.stored;
        let blocks: u64 = added.held.iter().map(|held| held.layer.blocks).sum();
        let merged = if merging { (blocks * tracker.block()).saturating_sub(changed) } else { 0 };
        let changed = if merging { changed } else { blocks * tracker.block() };
        let (number, manifest) = self.put_manifest(added, kept, changed, now)?;
        let stored_bytes = stored + manifest;
        Ok(Published { number, changed_bytes: changed, merged_bytes: merged, stored_bytes })
    }

    /// What a writer does that does not know rule 1.
    fn publish_manifest_first(
        &mut self,
        mut filling: Filling<'_>,
        kept: usize,
        changed: u64,
        now: u64,
    ) -> Result<Published> {
        let head = self.head(kept, None);
        let mut writer = Writer::new(head, self.remote.key())?;
        filling.fill(&mut writer, usize::MAX)?;
        let (bytes, delta) = writer.finish()?;
        let tag = self.new_tag(delta.head.sequence);
        let layer = Layer::new(&delta, Place::Object(tag));
        let name = crate::remote::name_of(&layer);
        let runs = std::mem::take(&mut filling.runs);
        let held = vec![Held { layer, runs, end: Bytes::new(), covers: false }];
        let added = Added { held, stored: delta.object_len, inside: Vec::new() };
        let (number, _) = self.put_manifest(added, kept, changed, now)?;
        self.remote.put_delta(&name, bytes)?;
        Ok(Published { number, changed_bytes: changed, ..Published::default() })
    }

    fn next_number(&self) -> u64 {
        self.last_number() + 1
    }

    fn head(&self, kept: usize, below: Option<Hash>) -> Head {
        let parent = below.or_else(|| Some(self.held.get(kept.checked_sub(1)?)?.layer.id));
        Head {
            uuid: self.uuid,
            sequence: self.next_number(),
            image_len: self.image_len,
            block_size: BLOCK,
            parent,
            stands_for: self.held[kept..].last().map(|held| held.layer.id),
            ..Head::default()
        }
    }

    fn new_tag(&mut self, sequence: u64) -> u64 {
        self.objects += 1;
        let mut of = self.writer.to_vec();
        of.extend(format!("{sequence}/{}", self.objects).bytes());
        let hash = Hash::of(&of);
        hash.0.iter().take(8).fold(0, |tag, byte| tag << 8 | u64::from(*byte))
    }

    /// Puts the deltas of a checkpoint, but for one that is put with the manifest.
    fn put_deltas(&mut self, filling: &mut Filling<'_>, kept: usize) -> Result<Added> {
        let mut added = Added::default();
        while !filling.done {
            self.put_delta(filling, kept, &mut added)?;
        }
        Ok(added)
    }

    /// Puts one delta, unless it would be empty, or is put with the manifest.
    fn put_delta(
        &mut self,
        filling: &mut Filling<'_>,
        kept: usize,
        added: &mut Added,
    ) -> Result<()> {
        let head = self.head(kept, added.held.last().map(|held| held.layer.id));
        let tag = self.new_tag(head.sequence);
        let name = delta_name(head.sequence, tag);
        let remote = Arc::clone(&self.remote);
        let mut writer = Writer::new(head, remote.key())?;
        filling.fill(&mut writer, PART)?;
        if filling.done && writer.is_empty() {
            return Ok(());
        }
        if writer.ready() < PART {
            let (mut bytes, delta) = writer.finish()?;
            let mut held = self.finished(&mut bytes, &delta, tag, kept, &added.held);
            added.stored += bytes.len() as u64;
            if filling.done && added.held.is_empty() && bytes.len() <= self.inside_max {
                held.layer.place = Place::Manifest(0);
                added.inside = bytes;
            } else {
                remote.put_delta(&name, bytes)?;
            }
            let runs = std::mem::take(&mut filling.runs);
            added.held.push(Held { runs, ..held });
            return Ok(());
        }
        let (mut open, mut made, mut stored) = (Some(writer), None, 0);
        remote.put_parts(&name, &mut || {
            let Some(mut writer) = open.take() else { return Ok(None) };
            filling.fill(&mut writer, PART).map_err(io::Error::from)?;
            let part = if writer.ready() >= PART {
                let part = writer.take();
                open = Some(writer);
                part
            } else {
                let (mut rest, delta) = writer.finish().map_err(io::Error::other)?;
                made = Some(self.finished(&mut rest, &delta, tag, kept, &added.held));
                rest
            };
            stored += part.len() as u64;
            Ok(Some(Bytes::from(part)))
        })?;
        let runs = std::mem::take(&mut filling.runs);
        added.held.extend(made.map(|held| Held { runs, ..held }));
        added.stored += stored;
        Ok(())
    }

    /// The finished delta whose last bytes are those of `bytes`, to which copies are added.
    fn finished(
        &mut self,
        bytes: &mut Vec<u8>,
        delta: &Delta,
        tag: u64,
        kept: usize,
        added: &[Held],
    ) -> Held {
        let layer = Layer::new(delta, Place::Object(tag));
        let end_len = usize::try_from(layer.object_len - layer.table_at).unwrap_or(usize::MAX);
        let end = Bytes::copy_from_slice(&bytes[bytes.len().saturating_sub(end_len)..]);
        self.since_copies += layer.object_len;
        let below: Vec<&Held> = self.held[..kept].iter().chain(added).collect();
        let copies = copies_of(&below, self.since_copies / BYTES_PER_COPIED);
        let covers = !copies.ends.is_empty();
        if !below.is_empty() {
            bytes.extend(copies.build());
        }
        if covers {
            self.since_copies = 0;
        }
        Held { layer, runs: Vec::new(), end, covers }
    }

    /// Fails if another writer has a later checkpoint than `last`, unless this one has proved itself.
    fn prove(&mut self, last: u64) -> Result<()> {
        if self.proven || planted(Fault::FenceIgnored) {
            return Ok(());
        }
        let newest = self.remote.numbers()?.last().copied();
        let Some(number) = newest.filter(|number| *number > last) else { return Ok(()) };
        let (theirs, _) = self.remote.manifest(number)?;
        // Its own may be there already, if the answer was lost.
        if theirs.writer == self.writer {
            return Ok(());
        }
        self.fenced = Some((number, theirs.epoch));
        Err(Error::Fenced { number, epoch: theirs.epoch })
    }

    /// Puts the manifest, and with it the delta that was not put yet. Returns its number and length.
    fn put_manifest(
        &mut self,
        mut added: Added,
        kept: usize,
        changed_bytes: u64,
        now: u64,
    ) -> Result<(u64, u64)> {
        loop {
            let last = self.last.as_ref();
            let layers = self.held[..kept].iter().chain(&added.held);
            let mut manifest = Manifest {
                uuid: self.uuid,
                number: self.next_number(),
                parent: last.map(|(_, hash)| *hash),
                writer: self.writer,
                epoch: self.epoch,
                made_at: last.map_or(now, |(manifest, _)| now.max(manifest.made_at)),
                image_len: self.image_len,
                block_size: BLOCK,
                changed_bytes,
                stored_bytes: added.stored,
                layers: layers.map(|held| held.layer).collect(),
                holder: self.holder.clone(),
            };
            let manifest_len = manifest.stored_len(self.remote.key().is_some());
            if !added.inside.is_empty()
                && let (Some(held), Some(layer)) =
                    (added.held.last_mut(), manifest.layers.last_mut())
            {
                debug_assert!(layer.sequence == manifest.number || planted(Fault::FenceIgnored));
                layer.place = Place::Manifest(manifest_len);
                held.layer.place = layer.place;
            }
            self.prove(manifest.number - 1)?;
            let (theirs, hash) = match self.remote.publish(&manifest, &added.inside)? {
                Put::Made(hash) => {
                    if let Err(error) = self.prove(manifest.number) {
                        if matches!(error, Error::Fenced { .. }) {
                            self.remote.remove_manifest(manifest.number)?;
                        }
                        return Err(error);
                    }
                    self.proven = true;
                    let made = (manifest.number, manifest_len);
                    self.last = Some((manifest, hash));
                    self.held.truncate(kept);
                    self.held.extend(added.held);
                    return Ok(made);
                }
                Put::Lost(theirs, hash) => (*theirs, hash),
                Put::Removed => {
                    self.fenced = Some((manifest.number, self.epoch + 1));
                    return Err(Error::Fenced { number: manifest.number, epoch: self.epoch + 1 });
                }
            };
            let compacted = theirs.writer == self.writer
                && theirs.epoch == self.epoch
                && theirs.parent == manifest.parent;
            if compacted {
                self.held = theirs.layers.iter().map(Held::unknown).collect();
                self.last = Some((theirs, hash));
                // The deltas that were put have a number that is taken, and may be removed at any time.
                return Err(Error::Overtaken);
            }
            if !planted(Fault::FenceIgnored) {
                self.fenced = Some((theirs.number, theirs.epoch));
                return Err(Error::Fenced { number: theirs.number, epoch: theirs.epoch });
            }
            self.last = Some((theirs, hash));
        }
    }
}
