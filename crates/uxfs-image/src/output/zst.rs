//! Compresses a raw image by zstd, as `zstd IMAGE` does.

use std::fs::File;
use std::io::{self, Write};

use crate::sparse;
use uxfs_host::FileExt;

/// zstd's own default.
const LEVEL: i32 = 3;
const PIECE: u64 = 1 << 20;

pub(super) fn write(raw: &File, to: File) -> io::Result<()> {
    let len = raw.metadata()?.len();
    let mut encoder = zstd::Encoder::new(to, LEVEL)?;
    encoder.set_pledged_src_size(Some(len))?;
    encoder.include_contentsize(true)?;
    encoder.include_checksum(true)?;
    let zeroes = vec![0; PIECE as usize];
    let mut buffer = vec![0; PIECE as usize];
    let mut done = 0;
    while done < len {
        let most = (len - done).min(PIECE);
        let hole = sparse::hole_at(raw, done, done + most)?;
        let piece = if hole > 0 {
            &zeroes[..hole as usize]
        } else {
            raw.read_exact_at(&mut buffer[..most as usize], done)?;
            &buffer[..most as usize]
        };
        encoder.write_all(piece)?;
        done += piece.len() as u64;
    }
    encoder.finish()?;
    Ok(())
}
