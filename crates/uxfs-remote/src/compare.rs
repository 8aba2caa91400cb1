//! What an image and a checkpoint differ in, found by hashes: a writer that begins does not know what
//! changed since the last checkpoint.
//!
//! 1. A block's mark is taken away while no write is under way, before the block is read. So a write
//!    during the comparison marks it again.
//! 2. A chunk is fetched only if a part of it differs, or a part of it was replaced by a later delta.

use uxfs_delta::{Hash, is_zero};
use uxfs_disk::BlockDev;

use crate::checkpoint::Checkpoint;
use crate::map::Source;
use crate::tracker::Tracker;
use crate::{Error, Result};

/// Blocks of zeroes that are compared at once.
const ZEROES: u64 = 256;

/// Blocks of an image whose content is in one chunk.
#[derive(Clone, Copy)]
struct Piece {
    layer: usize,
    chunk: usize,
    /// Where the blocks begin in the content of the delta.
    at: u64,
    first: u64,
    count: u64,
}

/// Takes the marks of blocks in `runs`, which are all marked, away if the checkpoint holds them as the device
/// does.
///
/// # Errors
/// Those of the device and the store. All these blocks are then marked.
pub(crate) fn narrow(
    tracker: &Tracker,
    dev: &dyn BlockDev,
    checkpoint: &Checkpoint,
    runs: &[(u64, u64)],
) -> Result<()> {
    let compared = compare(tracker, dev, checkpoint, runs);
    if compared.is_err() {
        runs.iter().for_each(|(first, count)| tracker.mark(*first, *count));
    }
    compared
}

fn compare(
    tracker: &Tracker,
    dev: &dyn BlockDev,
    checkpoint: &Checkpoint,
    runs: &[(u64, u64)],
) -> Result<()> {
    let block = tracker.block();
    let mut pieces = Vec::new();
    for run in runs.iter().flat_map(|(first, count)| checkpoint.map().find(*first, *count)) {
        match run.source {
            Source::Zeroes => compare_zeroes(tracker, dev, run.first, run.count)?,
            Source::Layer(layer, mut at) => {
                let size = u64::from(checkpoint.index(layer).trailer().head().chunk_size);
                let (mut first, end) = (run.first, run.first + run.count);
                while first < end {
                    let count = ((size - at % size) / block).min(end - first);
                    let chunk = (at / size) as usize;
                    pieces.push(Piece { layer, chunk, at, first, count });
                    (first, at) = (first + count, at + count * block);
                }
            }
        }
    }
    pieces.sort_by_key(|piece| (piece.layer, piece.at));
    let same = |a: &Piece, b: &Piece| (a.layer, a.chunk) == (b.layer, b.chunk);
    pieces.chunk_by(same).try_for_each(|of_chunk| compare_chunk(tracker, dev, checkpoint, of_chunk))
}

fn compare_zeroes(tracker: &Tracker, dev: &dyn BlockDev, first: u64, count: u64) -> Result<()> {
    let mut data = vec![0; (ZEROES * tracker.block()) as usize];
    let (mut at, end) = (first, first + count);
    while at < end {
        let count = ZEROES.min(end - at);
        let data = &mut data[..(count * tracker.block()) as usize];
        tracker.unmark(&[(at, count)]);
        tracker.present(dev, at, data).map_err(Error::Image)?;
        for (block, number) in data.chunks(tracker.block() as usize).zip(at..) {
            if !is_zero(block) {
                tracker.mark(number, 1);
            }
        }
        at += count;
    }
    Ok(())
}

/// Compares blocks whose content is in one chunk.
fn compare_chunk(
    tracker: &Tracker,
    dev: &dyn BlockDev,
    checkpoint: &Checkpoint,
    pieces: &[Piece],
) -> Result<()> {
    let Some(Piece { layer, chunk, .. }) = pieces.first().copied() else { return Ok(()) };
    let runs: Vec<_> = pieces.iter().map(|piece| (piece.first, piece.count)).collect();
    tracker.unmark(&runs);
    let blocks: u64 = pieces.iter().map(|piece| piece.count).sum();
    let mut present = vec![0; (blocks * tracker.block()) as usize];
    let mut rest = &mut present[..];
    for piece in pieces {
        let (data, after) = rest.split_at_mut((piece.count * tracker.block()) as usize);
        tracker.present(dev, piece.first, data).map_err(Error::Image)?;
        rest = after;
    }
    let index = checkpoint.index(layer);
    let content = index.content_of(chunk);
    let whole = present.len() as u64 == content.end - content.start;
    let hash = index.chunk_hash(chunk).map_err(Error::object(&checkpoint.name(layer)))?;
    if whole && Hash::of(&present) == hash {
        return Ok(());
    }
    let stored = checkpoint.fetch(layer, &(chunk..chunk + 1))?;
    let known = checkpoint.open_chunk(layer, chunk, &stored[0])?;
    let size = tracker.block() as usize;
    let numbers = pieces.iter().flat_map(|piece| {
        let from = piece.at - content.start;
        (0..piece.count).map(move |n| (piece.first + n, (from as usize) + n as usize * size))
    });
    for (block, (number, at)) in present.chunks(size).zip(numbers) {
        if block != &known[at..at + size] {
            tracker.mark(number, 1);
        }
    }
    Ok(())
}
