//! The deltas of the last checkpoint merged into one base, read from the store and put there again.
//!
//! 1. The compacted checkpoint has the next number, and the identity and time of the last one. A writer
//!    that ships meanwhile finds it, and goes on from it.
//! 2. If the writer was faster, nothing changed: the new base is garbage, which [`crate::prune`] removes.

use std::sync::Arc;

use uxfs_delta::{Head, Layer, Manifest, Place, Writer};

use crate::checkpoint::Checkpoint;
use crate::map::{Run, Source};
use crate::publisher::PART;
use crate::remote::{Put, delta_name};
use crate::shipper::new_writer;
use crate::{Bytes, Error, Remote, RemoteDev, Result};
use uxfs_disk::BlockDev;

/// Parts of an object, of which S3 takes 10,000. The others are for the table, which is much
/// shorter than the content.
const PARTS_MAX: u64 = 9_500;

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The number of the compacted checkpoint.
    pub number: u64,
    /// How many deltas were merged.
    pub deltas: u64,
    /// Bytes of the new base.
    pub stored_bytes: u64,
}

/// Merges the deltas of the last checkpoint. Returns `None` if there is only one.
///
/// # Errors
/// [`Error::NoVolume`]; [`Error::Overtaken`] if a writer shipped meanwhile; those of the store; what is
/// wrong with an object.
pub fn compact(remote: &Arc<Remote>) -> Result<Option<Compacted>> {
    let Some((last, hash)) = remote.newest()? else { return Err(Error::NoVolume) };
    if last.layers.len() < 2 {
        return Ok(None);
    }
    let number = last.number + 1;
    let head = Head {
        uuid: last.uuid,
        sequence: number,
        image_len: last.image_len,
        block_size: last.block_size,
        stands_for: last.layers.last().map(|layer| layer.id),
        ..Head::default()
    };
    let tag = new_writer()?.iter().take(8).fold(0, |tag, byte| tag << 8 | u64::from(*byte));
    let deltas = last.layers.len() as u64;
    let dev =
        RemoteDev::new(Checkpoint::open(Arc::clone(remote), last.clone())?, Default::default());
    let layer = put_base(remote, &dev, head, tag)?;
    let stored_bytes = layer.object_len;
    let manifest = Manifest {
        number,
        parent: Some(hash),
        changed_bytes: 0,
        stored_bytes,
        layers: vec![layer],
        ..last
    };
    match remote.publish(&manifest, &[])? {
        Put::Made(_) => Ok(Some(Compacted { number, deltas, stored_bytes })),
        Put::Lost(..) | Put::Removed => Err(Error::Overtaken),
    }
}

/// Bytes of the parts of an object that holds so much content: as many parts as stores take at most
/// are enough, also if nothing of it can be compressed.
fn part_of(content: u64) -> usize {
    let least = content.div_ceil(PARTS_MAX).next_multiple_of(1 << 20);
    usize::try_from(least).unwrap_or(usize::MAX).max(PART)
}

/// The runs of blocks that are not zero.
fn runs(dev: &RemoteDev) -> impl Iterator<Item = Run> + '_ {
    let runs = dev.checkpoint().map().runs().copied();
    runs.filter(|run| run.source != Source::Zeroes)
}

/// Puts a base of all blocks that are not zero.
fn put_base(remote: &Remote, dev: &RemoteDev, head: Head, tag: u64) -> Result<Layer> {
    let (size, len) = (head.block_size as usize, head.image_len);
    let name = delta_name(head.sequence, tag);
    let mut blocks = runs(dev).flat_map(|run| run.first..run.first + run.count);
    let mut open = Some(Writer::new(head, remote.key())?);
    let mut made = None;
    let blocks_in_it: u64 = runs(dev).map(|run| run.count).sum();
    let part = part_of(blocks_in_it * size as u64);
    let mut data = vec![0; size];
    remote.put_parts(&name, &mut || {
        let Some(mut writer) = open.take() else { return Ok(None) };
        while writer.ready() < part {
            let Some(block) = blocks.next() else {
                let (rest, delta) = writer.finish().map_err(std::io::Error::other)?;
                made = Some(delta);
                return Ok(Some(Bytes::from(rest)));
            };
            let at = block * size as u64;
            let inside = (len - at).min(size as u64) as usize;
            data[inside..].fill(0);
            dev.read_at(at, &mut data[..inside])?;
            writer.push(block, &data).map_err(std::io::Error::other)?;
        }
        let part = writer.take();
        open = Some(writer);
        Ok(Some(Bytes::from(part)))
    })?;
    made.map(|delta| Layer::new(&delta, Place::Object(tag))).ok_or(Error::Overtaken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest object of S3 has 5 TiB, and 10,000 parts.
    #[test]
    fn a_long_base_has_few_parts() {
        for content in [0, 1, 78 << 30, (78 << 30) + 4096, 1 << 40, 4 << 40, 5_u64 << 40] {
            let part = part_of(content) as u64;
            // A chunk has a row of 40 bytes, and each block may have an extent of 16.
            let table = content / 65536 * 40 + content / 4096 * 16;
            assert!((content + table).div_ceil(part) < 10_000, "{content} bytes");
            assert!(part >= PART as u64 && part <= 5 << 30);
        }
        assert_eq!(part_of(70 << 30), PART);
    }
}
