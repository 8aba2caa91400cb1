//! Functions on a file's space, built on the operations of [`Fs`].

use uxfs_core::{Fallocate, Fs, Result};
use uxfs_format::Ino;

/// Bytes read at a time.
const WINDOW: u64 = 1 << 20;

/// Punches holes into all blocks of a file in `offset..offset + len` that hold only zeroes, as
/// `fallocate --dig-holes` does. Returns the number of bytes deallocated.
///
/// # Errors
/// The errors of [`Fs::read_at`] and [`Fs::fallocate`].
/// As [`Fs::read_at`] and [`Fs::fallocate`].
pub fn dig_holes(fs: &Fs, ino: Ino, offset: u64, len: u64) -> Result<u64> {
    let block = u64::from(fs.geo.block_size);
    let end = offset.saturating_add(len);
    let mut dug = 0;
    let mut buf = vec![0; usize::try_from(WINDOW).unwrap_or(usize::MAX)];
    for segment in fs.segments(ino)?.into_iter().filter(|s| s.device.is_some()) {
        let stop = segment.offset.saturating_add(segment.len).min(end);
        let mut at = segment.offset.max(offset);
        let mut zeroes = at..at;
        while at < stop {
            let step = (stop - at).min(WINDOW - at % block);
            let window = &mut buf[..usize::try_from(step).unwrap_or(usize::MAX)];
            let got = fs.read_at(ino, at, window)?;
            if got == 0 {
                break;
            }
            let mut rest = &window[..got];
            while !rest.is_empty() {
                let part = (block - at % block).min(rest.len() as u64);
                let (head, tail) = rest.split_at(usize::try_from(part).unwrap_or(rest.len()));
                if head.iter().all(|byte| *byte == 0) {
                    zeroes.end = at + part;
                } else {
                    dug += punch(fs, ino, &zeroes)?;
                    zeroes = at + part..at + part;
                }
                (at, rest) = (at + part, tail);
            }
        }
        dug += punch(fs, ino, &zeroes)?;
    }
    Ok(dug)
}

fn punch(fs: &Fs, ino: Ino, range: &core::ops::Range<u64>) -> Result<u64> {
    let block = u64::from(fs.geo.block_size);
    let size = fs.stat(ino)?.size;
    let first = range.start.next_multiple_of(block);
    // The last block of the file counts as a whole block.
    let last = if range.end >= size { range.end.next_multiple_of(block) } else { range.end };
    let last = last - last % block;
    if first >= last {
        return Ok(0);
    }
    fs.fallocate(ino, Fallocate::PunchHole, first, last - first)?;
    Ok(last - first)
}
