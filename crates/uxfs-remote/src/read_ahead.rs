//! Chunks that were fetched with another one and not opened yet, as they are stored.
//!
//! 1. What is kept is bounded. The oldest windows are dropped, and fetched again if they are needed.
//! 2. Nothing here is verified: a reader opens a chunk as if it came from the store.
//!
//! Used by [`crate::RemoteDev`].

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;

/// Most bytes of windows.
const BYTES_MAX: usize = 32 << 20;

/// Consecutive chunks of a layer that came in one request.
struct Window {
    layer: usize,
    chunks: Range<usize>,
    stored: Vec<Bytes>,
    len: usize,
}

#[derive(Default)]
struct Windows {
    /// The oldest comes first.
    windows: VecDeque<Window>,
    bytes: usize,
}

/// The windows.
#[derive(Default)]
pub(crate) struct ReadAhead(Mutex<Windows>);

impl ReadAhead {
    /// Keeps a window that was fetched.
    pub(crate) fn put(&self, layer: usize, chunks: Range<usize>, stored: Vec<Bytes>) {
        let len = stored.iter().map(Bytes::len).sum();
        let mut all = self.0.lock();
        all.bytes += len;
        all.windows.push_back(Window { layer, chunks, stored, len });
        while all.bytes > BYTES_MAX
            && let Some(oldest) = all.windows.pop_front()
        {
            all.bytes -= oldest.len;
        }
    }

    /// The stored bytes of a chunk, if a window has them.
    pub(crate) fn get(&self, layer: usize, chunk: usize) -> Option<Bytes> {
        let all = self.0.lock();
        let has = |window: &&Window| window.layer == layer && window.chunks.contains(&chunk);
        let window = all.windows.iter().rfind(has)?;
        window.stored.get(chunk - window.chunks.start).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_found_by_their_chunks_and_bounded() {
        let ahead = ReadAhead::default();
        let chunk = |byte: u8| Bytes::from(vec![byte; 1 << 20]);
        for layer in 0..20 {
            ahead.put(layer, 5..7, vec![chunk(layer as u8), chunk(100)]);
        }
        assert_eq!(ahead.get(19, 5), Some(chunk(19)));
        assert_eq!(ahead.get(19, 6), Some(chunk(100)));
        assert!(ahead.get(19, 7).is_none() && ahead.get(19, 4).is_none());
        assert!(ahead.get(4, 5).is_some() && ahead.get(3, 5).is_none(), "32 MiB are 16 windows");
    }
}
