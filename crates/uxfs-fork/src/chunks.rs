//! Chunks of deltas, read from the file, verified and decompressed; the latest ones are kept.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uxfs_delta::Index;
use uxfs_host::FileExt;

use crate::of_delta;

/// Chunks that are kept: 16 MiB, as a chunk has 64 KiB.
const KEPT: usize = 256;

/// A chunk: where its delta's object is in the file, and its number in it.
type Name = (u64, usize);

#[derive(Default)]
struct Kept {
    chunks: FxHashMap<Name, Arc<Vec<u8>>>,
    order: VecDeque<Name>,
}

#[derive(Default)]
pub(crate) struct Chunks {
    kept: Mutex<Kept>,
}

/// A delta in the file.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) index: Index,
    pub(crate) object_at: u64,
}

impl Layer {
    /// Reads a chunk and verifies it.
    pub(crate) fn read(&self, file: &File, number: usize) -> io::Result<Vec<u8>> {
        let range = self.index.chunk_at(number).map_err(of_delta)?;
        let mut stored = vec![0; range.len()];
        file.read_exact_at(&mut stored, self.object_at + range.start as u64)?;
        let opened = self.index.open(number, &stored, None);
        opened.map(Cow::into_owned).map_err(of_delta)
    }

    fn chunk_size(&self) -> u64 {
        self.index.trailer().head().chunk_size.into()
    }
}

impl Chunks {
    fn chunk(&self, file: &File, layer: &Layer, number: usize) -> io::Result<Arc<Vec<u8>>> {
        let name = (layer.object_at, number);
        if let Some(chunk) = self.kept.lock().chunks.get(&name) {
            return Ok(Arc::clone(chunk));
        }
        let chunk = Arc::new(layer.read(file, number)?);
        let mut kept = self.kept.lock();
        if kept.chunks.insert(name, Arc::clone(&chunk)).is_none() {
            kept.order.push_back(name);
        }
        if kept.order.len() > KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.chunks.remove(&oldest);
        }
        Ok(chunk)
    }

    /// Reads the content of a delta from offset `at` on.
    pub(crate) fn read(
        &self,
        file: &File,
        layer: &Layer,
        at: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let (size, mut done) = (layer.chunk_size(), 0);
        while done < buf.len() {
            let at = at + done as u64;
            let number = usize::try_from(at / size).map_err(|_| crate::damaged("a far chunk"))?;
            let chunk = self.chunk(file, layer, number)?;
            // Less than a chunk, whose size is a `u32`.
            let from = chunk.get((at % size) as usize..).unwrap_or_default();
            let take = from.len().min(buf.len() - done);
            if take == 0 {
                return Err(crate::damaged("a block lies behind its delta's content"));
            }
            buf[done..done + take].copy_from_slice(&from[..take]);
            done += take;
        }
        Ok(())
    }
}
