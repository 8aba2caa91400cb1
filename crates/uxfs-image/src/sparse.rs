//! Holes of sparse files: where they are, and copies that keep them.

use std::fs::File;
use std::io;

use uxfs_host::{FileExt, Next, next_data};

const PIECE: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Bytes from `at` up to the next data, but not beyond `end`; 0 if there is data at `at`.
pub(crate) fn hole_at(file: &File, at: u64, end: u64) -> io::Result<u64> {
    Ok(match next_data(file, at)? {
        Next::At(data) => data.min(end).saturating_sub(at),
        Next::Nowhere => end - at,
        Next::Unknown => 0,
    })
}

/// Copies `len` bytes between places of two files; the target must be empty there. Holes and blocks of
/// zeroes stay holes.
pub(crate) fn copy(from: (&File, u64), to: (&File, u64), len: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE as usize];
    let mut done = 0;
    while done < len {
        let hole = hole_at(from.0, from.1 + done, from.1 + len)?;
        done += hole;
        if hole > 0 {
            continue;
        }
        let piece = &mut buffer[..(len - done).min(PIECE) as usize];
        from.0.read_exact_at(piece, from.1 + done)?;
        let mut at = to.1 + done;
        // Runs of blocks that are all empty or all not.
        let blocks: Vec<&[u8]> = piece.chunks(BLOCK).collect();
        for run in blocks.chunk_by(|one, two| is_zero(one) == is_zero(two)) {
            let len: usize = run.iter().map(|block| block.len()).sum();
            if !is_zero(run[0]) {
                let from = (at - to.1 - done) as usize;
                to.0.write_all_at(&piece[from..from + len], at)?;
            }
            at += len as u64;
        }
        done += piece.len() as u64;
    }
    Ok(())
}

/// True if all bytes are 0.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}
