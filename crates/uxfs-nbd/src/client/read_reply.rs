//! The data of a read, as a server sends it: at once, or in chunks in any order.
//!
//! 1. Every byte comes exactly once. A chunk outside the request, one that repeats bytes, and an end with
//!    bytes missing break the protocol.
//! 2. Memory is that of the request, and chunks are bounded in number.

use std::collections::BTreeMap;

/// Chunks that a read may come in besides one for each of its sectors.
const CHUNKS: usize = 64;

pub(crate) struct ReadReply {
    offset: u64,
    data: Vec<u8>,
    /// What has come, by start and end; neighbours are joined.
    come: BTreeMap<u64, u64>,
    chunks_left: usize,
    /// The error that the server reported.
    pub(crate) error: Option<u32>,
}

impl ReadReply {
    /// The reply to a read of `len` bytes.
    pub(crate) fn new(offset: u64, len: usize) -> Self {
        let chunks_left = CHUNKS + len / 512;
        let data = vec![0; len];
        Self { offset, data, come: BTreeMap::new(), chunks_left, error: None }
    }

    /// Where the next chunk's bytes go.
    pub(crate) fn chunk(&mut self, offset: u64, len: u64) -> Result<&mut [u8], String> {
        let what = || format!("a chunk of {len} bytes at {offset}");
        let whole = self.offset + self.data.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= whole);
        let (Some(end), true, true) = (end, offset >= self.offset, len > 0) else {
            return Err(format!("{} is not of its read", what()));
        };
        self.chunks_left = self.chunks_left.checked_sub(1).ok_or("a read comes in crumbs")?;
        let before = self.come.range(..=offset).next_back().map(|(from, to)| (*from, *to));
        if before.is_some_and(|(_, to)| to > offset)
            || self.come.range(offset..end).next().is_some()
        {
            return Err(format!("{} repeats bytes", what()));
        }
        let from = before.filter(|(_, to)| *to == offset).map_or(offset, |(from, _)| from);
        let to = self.come.remove(&end).unwrap_or(end);
        self.come.insert(from, to);
        // The range lies in `data`.
        let at = (offset - self.offset) as usize;
        Ok(&mut self.data[at..at + len as usize])
    }

    /// The data of a read that has ended.
    pub(crate) fn end(self) -> Result<Vec<u8>, String> {
        let whole = self.offset + self.data.len() as u64;
        match self.come.get(&self.offset) {
            Some(to) if *to == whole => Ok(self.data),
            _ if self.data.is_empty() => Ok(self.data),
            _ => Err("a read ends with bytes missing".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_in_any_order_make_a_read() {
        let mut reply = ReadReply::new(1000, 100);
        reply.chunk(1050, 50).unwrap().fill(2);
        reply.chunk(1000, 20).unwrap().fill(1);
        reply.chunk(1020, 30).unwrap().fill(3);
        let data = reply.end().unwrap();
        assert_eq!((data[19], data[20], data[49], data[50]), (1, 3, 3, 2));
    }

    #[test]
    fn wrong_chunks_are_refused() {
        let mut reply = ReadReply::new(1000, 100);
        reply.chunk(1040, 10).unwrap();
        for (offset, len) in [
            (999, 2),
            (1099, 2),
            (1000, 0),
            (u64::MAX, 2),
            (1045, 1),
            (1030, 11),
            (1049, 9),
            (0, 1),
        ] {
            assert!(reply.chunk(offset, len).is_err(), "{offset}+{len}");
        }
        assert!(reply.end().is_err());
        let mut crumbs = ReadReply::new(0, 4096);
        assert!((0..4096).any(|at| crumbs.chunk(at, 1).is_err()));
    }
}
