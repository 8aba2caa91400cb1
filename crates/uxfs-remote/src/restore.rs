//! A checkpoint written to a device.
//!
//! 1. Every byte is verified before it is written.
//! 2. On an error the device holds a part of the image: callers write to a file without a name, or under
//!    another one.

use std::sync::atomic::{AtomicU64, Ordering};

use uxfs_disk::BlockDev;

use crate::checkpoint::Checkpoint;
use crate::map::Source;
use crate::{Error, Result, parallel};

/// Bytes that one request reads at most, unless one chunk is longer.
const READ: u64 = 8 << 20;
/// Threads, each of which waits for a request or verifies what came: more than the requests that a plain
/// download has at once. Together they hold 192 MiB.
const READERS: usize = 24;

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the image that are not zero.
    pub bytes: u64,
    /// Bytes read from the store.
    pub fetched_bytes: u64,
}

/// Blocks in one delta.
#[derive(Clone, Copy)]
struct Placed {
    /// Where they begin in its content.
    at: u64,
    first: u64,
    count: u64,
}

/// A request: consecutive chunks of a delta, and where their content goes.
struct Job {
    layer: usize,
    chunks: std::ops::Range<usize>,
    placed: Vec<Placed>,
}

/// Writes a checkpoint to `target`, which has the image's length. `blank` says that the target reads as
/// zeroes. Calls `progress` with the bytes written so far and those of the whole.
///
/// # Errors
/// Those of the store and of the target; what is wrong with an object.
pub fn restore(
    checkpoint: &Checkpoint,
    target: &dyn BlockDev,
    blank: bool,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Restored> {
    let block = checkpoint.block();
    let manifest = checkpoint.manifest();
    if target.len() < manifest.image_len {
        let problem = format!(
            "the target has {} bytes, and the image {}: give a larger one",
            target.len(),
            manifest.image_len
        );
        return Err(Error::Invalid(problem));
    }
    let mut layers = vec![Vec::new(); manifest.layers.len()];
    for run in checkpoint.map().find(0, manifest.image_len.div_ceil(block)) {
        match run.source {
            Source::Layer(layer, at) => {
                layers[layer].push(Placed { at, first: run.first, count: run.count });
            }
            Source::Zeroes if blank => {}
            Source::Zeroes => {
                let at = run.first * block;
                let len = (run.count * block).min(manifest.image_len - at);
                target.zero(at, len).map_err(Error::Image)?;
            }
        }
    }
    let total = layers.iter().flatten().map(|placed| placed.count * block).sum();
    let mut jobs = Vec::new();
    for (layer, mut placed) in layers.into_iter().enumerate() {
        placed.sort_by_key(|placed| placed.at);
        jobs_of(checkpoint, layer, &placed, &mut jobs)?;
    }
    let (written, fetched) = (AtomicU64::new(0), AtomicU64::new(0));
    parallel::for_each(READERS, &jobs, |_, job| {
        let stored = checkpoint.fetch(job.layer, &job.chunks)?;
        for (chunk, stored) in job.chunks.clone().zip(stored) {
            fetched.fetch_add(stored.len() as u64, Ordering::Relaxed);
            let content = checkpoint.open_chunk(job.layer, chunk, &stored)?;
            let from = checkpoint.index(job.layer).content_of(chunk).start;
            let bytes = write(checkpoint, target, &job.placed, from, &content)?;
            progress(written.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
        }
        Ok::<(), Error>(())
    })?;
    Ok(Restored { bytes: total, fetched_bytes: fetched.into_inner() })
}

/// Divides the chunks that hold these blocks, which ascend, into requests.
fn jobs_of(
    checkpoint: &Checkpoint,
    layer: usize,
    placed: &[Placed],
    jobs: &mut Vec<Job>,
) -> Result<()> {
    let block = checkpoint.block();
    let size = u64::from(checkpoint.index(layer).trailer().head().chunk_size);
    let mut open: Option<Job> = None;
    for one in placed {
        let last = ((one.at + one.count * block - 1) / size) as usize;
        for chunk in (one.at / size) as usize..=last {
            let fits = match &open {
                None => false,
                Some(job) if chunk < job.chunks.end => true,
                Some(job) if chunk > job.chunks.end => false,
                Some(job) => {
                    let range = checkpoint.stored(layer, &(job.chunks.start..chunk + 1))?;
                    range.end - range.start <= READ
                }
            };
            if !fits {
                let new = Job { layer, chunks: chunk..chunk + 1, placed: Vec::new() };
                jobs.extend(open.replace(new));
            }
            if let Some(job) = &mut open {
                job.chunks.end = job.chunks.end.max(chunk + 1);
                if job.placed.last().is_none_or(|known| known.at != one.at) {
                    job.placed.push(*one);
                }
            }
        }
    }
    jobs.extend(open);
    Ok(())
}

/// Writes the part of the blocks that lies in the content from byte `from` on.
fn write(
    checkpoint: &Checkpoint,
    target: &dyn BlockDev,
    placed: &[Placed],
    from: u64,
    content: &[u8],
) -> Result<u64> {
    let (block, end) = (checkpoint.block(), from + content.len() as u64);
    let mut written = 0;
    let begin = placed.partition_point(|one| one.at + one.count * block <= from);
    for one in placed[begin..].iter().take_while(|one| one.at < end) {
        let (start, stop) = (one.at.max(from), (one.at + one.count * block).min(end));
        let at = one.first * block + (start - one.at);
        let inside = (checkpoint.manifest().image_len - at).min(stop - start);
        let data = &content[(start - from) as usize..][..inside as usize];
        target.write_at(at, data).map_err(Error::Image)?;
        written += stop - start;
    }
    Ok(written)
}
