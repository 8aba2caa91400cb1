//! The deltas in a fork's file: found when it is opened, appended, and rewritten as one.
//!
//! 1. A delta is appended and made durable before the next one is begun. So only the last can be torn by a
//!    power cut, and then no flush confirmed it: it is dropped. What is not whole before the last, or before
//!    what was durable at the last clean close, is damage.
//! 2. When most of the file is outdated, what counts is appended as one delta that stands alone,
//!    then the head says that the file begins there, then the room before it is given back. A
//!    rewrite that fails before the head was written leaves everything as it is, and fails no
//!    flush.

use std::fs::File;
use std::io;
use std::sync::Arc;

use uxfs_delta::{Hash, Head as DeltaHead, Index, TRAILER_LEN, Trailer, Writer};
use uxfs_host::FileExt;

use crate::chunks::{Chunks, Layer};
use crate::frame::{FRAME_LEN, Frame};
use crate::head::{HEADS_LEN, Head};
use crate::map::{Map, Source};
use crate::{BLOCK, damaged, of_delta, sys};

/// Outdated bytes from which on a rewrite is worth it.
const OUTDATED: u64 = 64 << 20;
/// Bytes that are written at once by a rewrite, and searched at once for a frame.
const PIECE: usize = 4 << 20;
/// Bytes of room that are set aside at once.
const RESERVED: u64 = 16 << 20;

/// Where everything in the file is.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) layers: Vec<Arc<Layer>>,
    pub(crate) map: Map,
}

/// The end of the file, where deltas are appended.
pub(crate) struct Tail {
    pub(crate) head: Head,
    /// Where the last whole frame ends.
    end: u64,
    number: u64,
    last: Option<Hash>,
    /// Up to where the host has room for it.
    reserved: u64,
    /// A flush failed: what the file holds is not known any more.
    failed: bool,
    /// Up to here the file grows before a rewrite is tried again that failed.
    not_before: u64,
}

impl Content {
    /// Enters the next delta of the file.
    pub(crate) fn push(&mut self, layer: Layer) {
        let number = self.layers.len();
        for extent in layer.index.extents() {
            let source = extent.at.map_or(Source::Zeroes, |at| Source::Delta(number, at));
            self.map.enter(extent.first, extent.count, source);
        }
        self.layers.push(Arc::new(layer));
    }

    /// Reads a part of one block, or of several that follow each other in the same delta.
    pub(crate) fn read(
        &self,
        file: &File,
        chunks: &Chunks,
        source: Source,
        skip: usize,
        buf: &mut [u8],
    ) -> io::Result<()> {
        match source {
            Source::Zeroes => buf.fill(0),
            Source::Delta(number, at) => {
                let layer = self.layers.get(number).ok_or_else(|| damaged("a delta is missing"))?;
                chunks.read(file, layer, at + skip as u64, buf)?;
            }
        }
        Ok(())
    }
}

/// Finds the deltas of a fork.
pub(crate) fn find(file: &File, head: Head) -> io::Result<(Content, Tail)> {
    let len = file.metadata()?.len();
    let mut content = Content::default();
    let mut tail = Tail {
        end: head.start,
        number: 0,
        last: None,
        reserved: 0,
        failed: false,
        not_before: 0,
        head,
    };
    while let Some((frame, layer)) = frame_at(file, &tail, len)? {
        let end = frame.end().ok_or_else(|| damaged("a frame has no end"))?;
        // A frame behind which nothing lies may be torn within its chunks.
        let is_last = end >= len || end > tail.head.durable && !frame_begins(file, end, len)?;
        if is_last && end > tail.head.durable && !is_whole(file, &layer) {
            break;
        }
        tail.last = Some(layer.index.trailer().id());
        tail.number = frame.number;
        tail.end = end;
        content.push(layer);
    }
    if tail.end < tail.head.durable {
        return Err(damaged(format_args!("it is whole only up to byte {}", tail.end)));
    }
    if later_frame(file, &tail, len)? {
        return Err(damaged(format_args!("the delta at byte {} is not whole", tail.end)));
    }
    tail.reserved = tail.end;
    Ok((content, tail))
}

fn is_whole(file: &File, layer: &Layer) -> bool {
    (0..layer.index.chunks()).all(|number| layer.read(file, number).is_ok())
}

fn frame_begins(file: &File, at: u64, len: u64) -> io::Result<bool> {
    if at + FRAME_LEN as u64 > len {
        return Ok(false);
    }
    let mut bytes = [0; FRAME_LEN];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Frame::parse(&bytes, at).is_some())
}

/// The next frame, if one with a sound index follows.
fn frame_at(file: &File, tail: &Tail, len: u64) -> io::Result<Option<(Frame, Layer)>> {
    let at = tail.end;
    if at + FRAME_LEN as u64 > len {
        return Ok(None);
    }
    let mut bytes = [0; FRAME_LEN];
    file.read_exact_at(&mut bytes, at)?;
    let Some(frame) = Frame::parse(&bytes, at) else { return Ok(None) };
    let is_next = tail.last.is_none() || frame.number == tail.number + 1;
    let Some(end) = frame.end().filter(|end| *end <= len && is_next) else { return Ok(None) };
    let Some(trailer_at) = end.checked_sub(TRAILER_LEN as u64).filter(|t| *t >= frame.object_at())
    else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER_LEN];
    file.read_exact_at(&mut trailer, trailer_at)?;
    let Ok(trailer) = Trailer::parse(&trailer, frame.object_len) else { return Ok(None) };
    let table_at = frame.object_at() + trailer.table().start as u64;
    let Some(table) = read_table(file, table_at, trailer.table().len())? else { return Ok(None) };
    let Ok(index) = Index::parse(&trailer, &table, None) else { return Ok(None) };
    let delta = trailer.head();
    let (name, base) = (tail.head.name, &tail.head.base);
    if delta.uuid != name || delta.image_len != base.len || delta.block_size != BLOCK as u32 {
        return Err(damaged("a delta belongs to another fork"));
    }
    if delta.parent.is_none() && tail.last.is_some() {
        // A rewrite that the head does not know yet. It says the same as what is before it.
        return Ok(None);
    }
    if delta.parent != tail.last {
        return Err(damaged("a delta does not follow the one before it"));
    }
    Ok(Some((frame, Layer { index, object_at: frame.object_at() })))
}

/// Reads a table; `None` if a part of it is zero, which no table is. A file can be long and hold
/// nothing, and then its table takes no memory either.
fn read_table(file: &File, at: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    let mut table = Vec::new();
    while table.len() < len {
        let from = table.len();
        table.resize(len.min(from + PIECE), 0);
        file.read_exact_at(&mut table[from..], at + from as u64)?;
        // Each entry is shorter than this, and none is zero. The last part may hold only a piece of one.
        let (parts, _) = table[from..].as_chunks::<BLOCK>();
        if parts.contains(&ZERO) {
            return Ok(None);
        }
    }
    Ok(Some(table))
}

/// Is there a whole frame's beginning behind the end? Then something before it is damaged.
fn later_frame(file: &File, tail: &Tail, len: u64) -> io::Result<bool> {
    let mut at = tail.end + 1;
    while let Some(data) = sys::data_from(file, at).filter(|data| *data < len) {
        at = data;
        // The longest piece is `PIECE`.
        let mut piece = vec![0; (len - at).min(PIECE as u64) as usize];
        file.read_exact_at(&mut piece, at)?;
        for found in Frame::find(&piece) {
            if frame_begins(file, at + found as u64, len)? {
                return Ok(true);
            }
        }
        // A magic number may lie across the end of a piece.
        at += (piece.len().max(8) - 7) as u64;
    }
    Ok(false)
}

/// A block that a flush appends; `None` for zeroes.
pub(crate) type Page = Option<Box<[u8; BLOCK]>>;

const ZERO: [u8; BLOCK] = [0; BLOCK];

impl Tail {
    /// Where the last whole delta ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    fn delta_head(&self, parent: Option<Hash>) -> DeltaHead {
        DeltaHead {
            uuid: self.head.name,
            sequence: self.number + 1,
            image_len: self.head.base.len,
            block_size: BLOCK as u32,
            parent,
            ..DeltaHead::default()
        }
    }

    /// Sets room aside for so many blocks that are not appended yet.
    pub(crate) fn reserve(&mut self, file: &File, blocks: usize) -> io::Result<()> {
        // Each block may need an extent of its own; the rest is for the trailer.
        let wanted = self.end + (blocks * (BLOCK + 64)) as u64 + 65_536;
        if wanted > self.reserved {
            let len = (wanted - self.reserved).max(RESERVED);
            sys::reserve(file, self.reserved, len)?;
            self.reserved += len;
        }
        Ok(())
    }

    /// Appends a delta, durably. The content is that of before if it fails.
    pub(crate) fn append<'p>(
        &mut self,
        file: &File,
        pages: impl Iterator<Item = (u64, &'p Page)>,
    ) -> io::Result<Layer> {
        if self.failed {
            return Err(io::Error::other("an earlier flush of this fork failed"));
        }
        let mut writer = Writer::new(self.delta_head(self.last), None).map_err(of_delta)?;
        for (block, page) in pages {
            writer
                .push(block, page.as_ref().map_or(&ZERO[..], |data| &data[..]))
                .map_err(of_delta)?;
        }
        let (object, delta) = writer.finish().map_err(of_delta)?;
        let frame =
            Frame { number: self.number + 1, at: self.end, object_len: object.len() as u64 };
        let layer = layer_of(&object, frame.object_at())?;
        let bytes = [frame.to_bytes(), object].concat();
        if let Err(error) = file.write_all_at(&bytes, self.end) {
            // What was written of it is no whole frame, and is written over by the next one.
            let _ = file.set_len(self.end);
            self.reserved = self.end;
            return Err(error);
        }
        file.sync_data().inspect_err(|_| self.failed = true)?;
        self.end += bytes.len() as u64;
        (self.number, self.last) = (frame.number, Some(delta.id));
        Ok(layer)
    }

    /// Is most of the file outdated, and has it grown since a rewrite failed?
    fn is_outdated(&self, content: &Content) -> bool {
        let live = content.map.blocks() * BLOCK as u64;
        self.end - self.head.start > OUTDATED + 2 * live && self.end >= self.not_before
    }

    /// Rewrites the file if most of it is outdated. Returns what is in it then.
    ///
    /// # Errors
    /// If what the file holds is not known any more. Otherwise everything stays as it was, and a rewrite that
    /// fails, as for want of room, is put off.
    pub(crate) fn rewrite_if_due(
        &mut self,
        file: &File,
        content: &Content,
        chunks: &Chunks,
    ) -> io::Result<Option<Content>> {
        if !self.is_outdated(content) {
            return Ok(None);
        }
        match self.rewrite(file, content, chunks) {
            Ok(new) => Ok(Some(new)),
            Err(error) if self.failed => Err(error),
            Err(_) => {
                self.not_before = self.end + OUTDATED;
                // The room that was set aside for changes in memory is given back by this, and taken again.
                let reserved = std::mem::replace(&mut self.reserved, self.end);
                let _ = file.set_len(self.end);
                if sys::reserve(file, self.end, reserved.saturating_sub(self.end)).is_ok() {
                    self.reserved = self.reserved.max(reserved);
                }
                Ok(None)
            }
        }
    }

    /// Rewrites what counts as one delta, and gives the room of the rest back.
    fn rewrite(&mut self, file: &File, content: &Content, chunks: &Chunks) -> io::Result<Content> {
        let mut writer = Writer::new(self.delta_head(None), None).map_err(of_delta)?;
        let object_at = self.end + FRAME_LEN as u64;
        let mut written = 0;
        let mut put = |bytes: &[u8]| {
            file.write_all_at(bytes, object_at + written)?;
            written += bytes.len() as u64;
            io::Result::Ok(())
        };
        let mut block = vec![0; BLOCK];
        for (first, count, _) in content.map.runs() {
            for number in first..first + count {
                let Some(source) = content.map.get(number) else { continue };
                content.read(file, chunks, source, 0, &mut block)?;
                writer.push(number, &block).map_err(of_delta)?;
                if writer.ready() >= PIECE {
                    put(&writer.take())?;
                }
            }
        }
        let (rest, delta) = writer.finish().map_err(of_delta)?;
        put(&rest)?;
        let frame = Frame { number: self.number + 1, at: self.end, object_len: delta.object_len };
        file.write_all_at(&frame.to_bytes(), self.end)?;
        file.sync_data().inspect_err(|_| self.failed = true)?;
        let end = object_at + delta.object_len;
        let mut trailer = [0; TRAILER_LEN];
        file.read_exact_at(&mut trailer, end - TRAILER_LEN as u64)?;
        let trailer = Trailer::parse(&trailer, delta.object_len).map_err(of_delta)?;
        let mut table = vec![0; trailer.table().len()];
        file.read_exact_at(&mut table, object_at + trailer.table().start as u64)?;
        let index = Index::parse(&trailer, &table, None).map_err(of_delta)?;
        let mut new = Content::default();
        new.push(Layer { index, object_at });
        let from = self.head.start;
        self.head.start = self.end;
        self.head.durable = end;
        self.head.write(file).inspect_err(|_| self.failed = true)?;
        sys::punch(file, from, self.end - from);
        (self.end, self.number, self.last) = (end, frame.number, Some(delta.id));
        self.reserved = self.reserved.max(end);
        Ok(new)
    }

    /// Forgets all deltas: the child is as its base.
    pub(crate) fn empty(&mut self, file: &File) -> io::Result<()> {
        let from = self.head.start;
        self.head.start = self.end;
        self.head.durable = self.end;
        self.head.write(file)?;
        sys::punch(file, from, self.end - from);
        self.last = None;
        Ok(())
    }

    /// Notes in the head that everything is durable, and gives the room that was set aside back.
    pub(crate) fn close(&mut self, file: &File) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        file.set_len(self.end)?;
        if self.head.durable != self.end {
            self.head.durable = self.end;
            self.head.write(file)?;
        }
        Ok(())
    }
}

fn layer_of(object: &[u8], object_at: u64) -> io::Result<Layer> {
    let (_, trailer) = object.split_at(object.len() - TRAILER_LEN);
    let trailer = Trailer::parse(trailer, object.len() as u64).map_err(of_delta)?;
    let index = Index::parse(&trailer, &object[trailer.table()], None).map_err(of_delta)?;
    Ok(Layer { index, object_at })
}

/// Makes the file of a fork without deltas.
pub(crate) fn make(file: &File, mut head: Head) -> io::Result<()> {
    file.set_len(HEADS_LEN)?;
    head.start = HEADS_LEN;
    head.durable = HEADS_LEN;
    head.write(file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Base;
    use crate::head::State;

    /// A frame whose table would be 8 TiB, all of it a hole.
    #[test]
    fn a_long_table_in_a_short_file_takes_no_memory() {
        let file = tempfile::tempfile().unwrap();
        let base = Base { path: "b".into(), len: 1 << 50, changed: 0, head: Hash([3; 32]) };
        let (name, start) = ([7; 16], HEADS_LEN);
        let head = Head { state: State::InUse, number: 0, start, durable: start, name, base };
        make(&file, head).unwrap();
        let chunks: u64 = 200 << 30;
        let table_len = 40 * chunks;
        let mut trailer = b"uxfstrlr".to_vec();
        trailer.extend([1_u32.to_le_bytes(), [0; 4]].concat());
        trailer.extend(name);
        trailer.extend([1_u64.to_le_bytes(), (1_u64 << 50).to_le_bytes()].concat());
        trailer.extend([4096_u32.to_le_bytes(), 4096_u32.to_le_bytes()].concat());
        trailer.extend([0; 80]);
        for number in [0, chunks, 16, 4096 * chunks] {
            trailer.extend(number.to_le_bytes());
        }
        trailer.extend([0; 32]);
        let hash = Hash::of(&trailer);
        trailer.extend(hash.0);
        let frame = Frame { number: 1, at: start, object_len: 16 + table_len + TRAILER_LEN as u64 };
        Trailer::parse(&trailer, frame.object_len).unwrap();
        file.write_all_at(&frame.to_bytes(), start).unwrap();
        let end = frame.end().unwrap();
        file.write_all_at(&trailer, end - TRAILER_LEN as u64).unwrap();

        let (content, tail) = find(&file, Head::read(&file).unwrap()).unwrap();
        assert!(content.layers.is_empty() && tail.end() == start);
    }
}
