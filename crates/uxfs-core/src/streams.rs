//! Runs of reads, and how far ahead of each the extents of its file are announced to the device.
//!
//! 1. A stream is a run of reads of one file, each near the end of the one before ([`SLACK`]). It is read ahead
//!    after [`LEAST`] bytes, by four times as many bytes as it has read, at most [`AHEAD`].
//! 2. No reader waits for another here.
//!
//! Called by [`crate::read_ahead`].

use uxfs_format::Ino;
use uxfs_sync::Mutex;

/// How far beyond the end of a read extents are announced, in bytes.
pub(crate) const AHEAD: u64 = 8 << 20;
/// Bytes after which a run of reads is a stream.
pub(crate) const LEAST: u64 = 512 << 10;
/// Fewest bytes looked at for extents at a time, except at the end of the file.
pub(crate) const STEP: u64 = 1 << 20;
/// How far a read may lie from the end of the one before: several threads answer the reads of one
/// stream, in any order.
const SLACK: u64 = 2 << 20;
/// Streams that are remembered, one for each value of the inode number's low bits.
const SLOTS: usize = 64;

/// One run of reads.
#[derive(Clone, Copy, Default)]
struct Stream {
    ino: u64,
    /// End of the read that reached furthest.
    end: u64,
    /// Bytes read.
    read: u64,
    /// End of the extents that were looked at.
    seen: u64,
}

impl Stream {
    /// Takes note of a read from `start` to `end` of a file of `size` bytes. Returns the range whose
    /// extents are to be announced, which may be empty.
    fn read(&mut self, ino: Ino, start: u64, end: u64, size: u64) -> (u64, u64) {
        if self.ino != ino.0 || start.abs_diff(self.end) > SLACK {
            *self = Self { ino: ino.0, end: start, read: 0, seen: 0 };
        }
        self.end = self.end.max(end);
        self.read = self.read.saturating_add(end - start);
        if self.read < LEAST {
            return (end, end);
        }
        let from = self.seen.max(self.end);
        let to = self.end.saturating_add(self.read.saturating_mul(4).min(AHEAD)).min(size);
        if to <= from || to - from < STEP && to < size {
            return (end, end);
        }
        self.seen = to;
        (from, to)
    }
}

/// The streams of a volume.
pub(crate) struct Streams([Mutex<Stream>; SLOTS]);

impl Default for Streams {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Mutex::new(Stream::default())))
    }
}

impl Streams {
    fn slot(&self, ino: Ino) -> &Mutex<Stream> {
        &self.0[(ino.0 % SLOTS as u64) as usize]
    }

    /// Takes note of a read from `start` to `end` of a file of `size` bytes. Returns the range whose
    /// extents are to be announced; `None` if there is nothing to announce yet.
    pub(crate) fn read(&self, ino: Ino, start: u64, end: u64, size: u64) -> Option<(u64, u64)> {
        let (from, to) = self.slot(ino).try_lock()?.read(ino, start, end, size);
        (from < to).then_some((from, to))
    }

    /// The extents of a file up to `end` were announced.
    pub(crate) fn announced(&self, ino: Ino, end: u64) {
        if let Some(mut stream) = self.slot(ino).try_lock()
            && stream.ino == ino.0
        {
            stream.seen = stream.seen.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const INO: Ino = Ino(77);

    fn all_announced(stream: &mut Stream, reads: &[(u64, u64)], size: u64) -> Vec<(u64, u64)> {
        let ranges = reads.iter().map(|&(start, len)| stream.read(INO, start, start + len, size));
        ranges.filter(|(from, to)| from < to).collect()
    }

    #[test]
    fn a_stream_is_announced_once_and_without_gaps() {
        let size = 40 * MIB;
        let reads: Vec<_> = (0..size / (128 << 10)).map(|n| (n * (128 << 10), 128 << 10)).collect();
        let ranges = all_announced(&mut Stream::default(), &reads, size);
        assert!(ranges[0].0 <= 2 * MIB, "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
        assert_eq!(ranges.last().unwrap().1, size);
        assert!(ranges.iter().all(|(from, to)| to - from <= AHEAD), "{ranges:?}");
    }

    #[test]
    fn reads_of_a_stream_may_be_answered_in_any_order() {
        let reads = [0, 2, 1, 3, 5, 4, 7, 6, 8].map(|n| (n * MIB, MIB));
        let ranges = all_announced(&mut Stream::default(), &reads, 100 * MIB);
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:?}");
        // Before the stream is long, a read may overtake what was announced.
        assert!(ranges[1..].windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
        assert!(ranges.last().unwrap().1 > 9 * MIB, "{ranges:?}");
    }

    #[test]
    fn random_reads_are_not_a_stream() {
        let reads: Vec<_> = (0..1000u64).map(|n| (n * 7919 % 1000 * 4 * MIB, MIB / 4)).collect();
        assert_eq!(all_announced(&mut Stream::default(), &reads, 4000 * MIB), []);
    }

    #[test]
    fn another_file_in_the_same_slot_begins_anew() {
        let mut stream = Stream::default();
        all_announced(&mut stream, &[(0, MIB), (MIB, MIB), (2 * MIB, MIB)], 100 * MIB);
        let (from, to) = stream.read(Ino(INO.0 + 64), 0, 4096, 100 * MIB);
        assert_eq!((from, to), (4096, 4096));
    }

    #[test]
    fn the_last_byte_of_an_offset_does_not_overflow() {
        let mut stream = Stream::default();
        let end = u64::MAX;
        let (from, to) = stream.read(INO, end - 2 * MIB, end - MIB, end);
        assert!((from, to) == (end - MIB, end), "{from} {to}");
    }
}
