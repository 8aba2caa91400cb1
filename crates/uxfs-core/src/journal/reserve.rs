//! The most log space that one link of an operation takes.

use uxfs_format::Geometry;
use uxfs_format::log::CHUNK;
use uxfs_journal::Shape;

use super::context;

/// Bytes of an operation's header in the log.
const OP: u64 = 12;

/// Log space of a buffer of `len` bytes of which every second chunk changed, or all.
pub(crate) fn buffer(len: u64) -> u64 {
    let chunks = len / CHUNK as u64;
    len + chunks * OP + OP + 28 + chunks / 8
}

/// Log space of an inode, with its place in a list of unlinked ones.
pub(crate) fn inode(geo: &Geometry) -> u64 {
    context::INODE_REGIONS * OP + context::INODE_BYTES + geo.literal_len() as u64
}

/// Log space of announcing `steps` steps again.
pub(crate) fn intents(shape: &Shape, steps: u64) -> u64 {
    shape.most_bytes(1, 2 * steps, steps * (context::INTENT_BYTES + context::DONE_BYTES))
}

/// Log space of one deferred step.
pub(crate) fn step(geo: &Geometry) -> u64 {
    40 * buffer(geo.block_size.into())
}

impl crate::fs::Fs {
    /// Log space of a link of a transaction that takes at most `blocks` blocks.
    pub(crate) fn link_bytes(&self, blocks: u64) -> u64 {
        let Some(journal) = &self.journal else { return 0 };
        let bytes = (2 * blocks + 80) * buffer(self.geo.block_size.into());
        journal.shape().most_bytes(1, 0, bytes).min(journal.shape().length / 4)
    }
}
