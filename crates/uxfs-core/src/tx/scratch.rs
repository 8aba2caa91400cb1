//! What a transaction notes of the buffers it changes, and the memory of that, which transactions use
//! one after the other.

use smallvec::SmallVec;
use uxfs_format::verify::BufKind;

use crate::buf::BufRef;

/// A buffer of a transaction.
pub(crate) struct TxBuf {
    pub(super) buf: BufRef,
    /// One bit for every chunk that was changed.
    pub(super) chunks: SmallVec<[u64; 1]>,
    /// Made in this transaction: there is no old content.
    pub(super) fresh: bool,
    /// Its block was freed: after commit it is forgotten.
    pub(super) stale: bool,
    /// Kind before this transaction.
    pub(super) kind_before: BufKind,
    /// The buffer of another shape that it took the place of.
    pub(super) replaced: Option<BufRef>,
}

/// Memory that transactions use one after the other, so that a small one allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) bufs: Vec<TxBuf>,
    pub(super) undo_chunks: Vec<UndoChunk>,
    pub(super) undo_bytes: Vec<u8>,
}

/// A chunk whose old content is kept.
pub(crate) struct UndoChunk {
    pub(super) slot: u32,
    pub(super) chunk: u32,
}
