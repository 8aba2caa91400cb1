//! A transaction's records of the buffers and dquots that it changes, and their memory, which later
//! transactions reuse.

use smallvec::SmallVec;
use uxfs_format::verify::BufKind;

use crate::buf::BufRef;
use crate::dquot::Changes;

/// A buffer of a transaction.
pub(crate) struct TxBuf {
    pub(super) buf: BufRef,
    /// One bit for each changed chunk.
    pub(super) chunks: SmallVec<[u64; 1]>,
    /// Created in this transaction, without old content.
    pub(super) fresh: bool,
    /// Its block was freed. It is dropped after the commit.
    pub(super) stale: bool,
    /// Kind before this transaction.
    pub(super) kind_before: BufKind,
    /// The buffer of another size that it replaced.
    pub(super) replaced: Option<BufRef>,
}

/// Memory that transactions reuse, so that a small one allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(super) bufs: Vec<TxBuf>,
    pub(super) undo_chunks: Vec<UndoChunk>,
    pub(super) undo_bytes: Vec<u8>,
    pub(super) dquots: Changes,
}

/// The old content of a chunk.
pub(crate) struct UndoChunk {
    pub(super) slot: u32,
    pub(super) chunk: u32,
}
