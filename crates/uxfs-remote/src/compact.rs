//! The deltas of the last checkpoint merged into one base, read from the store and put there again.
//!
//! 1. The compacted checkpoint has the next number, and the identity and time of the last one. A writer
//!    that ships meanwhile finds it, and goes on from it.
//! 2. If the writer was faster, nothing changed: the new base is garbage, which [`crate::prune`] removes.

use std::sync::Arc;

use uxfs_delta::{Head, Layer, Manifest, Writer};

use crate::checkpoint::Checkpoint;
use crate::map::Source;
use crate::publisher::PART;
use crate::remote::{Put, delta_name};
use crate::shipper::new_writer;
use crate::{Bytes, Error, Remote, RemoteDev, Result};
use uxfs_disk::BlockDev;

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
    match remote.publish(&manifest)? {
        Put::Made(_) => Ok(Some(Compacted { number, deltas, stored_bytes })),
        Put::Lost(..) | Put::Removed => Err(Error::Overtaken),
    }
}

/// Puts a base of all blocks that are not zero.
fn put_base(remote: &Remote, dev: &RemoteDev, head: Head, tag: u64) -> Result<Layer> {
    let (size, len) = (head.block_size as usize, head.image_len);
    let name = delta_name(head.sequence, tag);
    let mut blocks = dev
        .checkpoint()
        .map()
        .runs()
        .filter(|run| run.source != Source::Zeroes)
        .flat_map(|run| run.first..run.first + run.count);
    let mut open = Some(Writer::new(head, remote.key())?);
    let mut made = None;
    let mut data = vec![0; size];
    remote.put_parts(&name, &mut || {
        let Some(mut writer) = open.take() else { return Ok(None) };
        while writer.ready() < PART {
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
    made.map(|delta| Layer::new(&delta, tag)).ok_or(Error::Overtaken)
}
