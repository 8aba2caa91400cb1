//! Deferred steps: what a transaction still owes when its caller is through.
//!
//! Freeing blocks can touch any allocation group, in any order; locking groups in any order can
//! deadlock. So these steps wait until the end, where the transaction may let go of the groups it
//! holds first ([`Tx::roll`]). With a journal, each step is announced by an intent before that.
//!
//! 1. Steps are done in the order in which they were asked for.
//! 2. A step that fails before anything was settled undoes the whole transaction; one that fails
//!    later shuts the volume down.

use uxfs_format::btree::Rmap;
use uxfs_format::{AgBlock, AgNo};

use crate::alloc;
use crate::error::Result;
use crate::tx::Tx;

/// A step that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deferred {
    /// Blocks lose an owner, and are free if that was the last one.
    Free {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// Who loses them, if reverse mappings know.
        owner: Option<alloc::Owner>,
        /// May other files own them too?
        shared: bool,
    },
    /// A mapping changes between written and unwritten, to what `rmap` says.
    Convert {
        /// The group.
        ag: AgNo,
        /// The mapping as it is to be.
        rmap: Rmap,
    },
}

/// Does all that waits, including what the steps themselves add.
pub(crate) fn finish(tx: &mut Tx<'_>) -> Result<()> {
    let mut at = 0;
    while let Some(step) = tx.deferred.get(at).copied() {
        at += 1;
        let (Deferred::Free { ag, .. } | Deferred::Convert { ag, .. }) = step;
        if !tx.lock_ag(ag)? {
            tx.roll();
            tx.lock_ag(ag)?;
        }
        match step {
            Deferred::Free { ag, start, len, owner, shared } => {
                alloc::free_now(tx, ag, start, len, owner, shared)?;
            }
            Deferred::Convert { ag, rmap } => alloc::convert_now(tx, ag, &rmap)?,
        }
    }
    tx.deferred.clear();
    Ok(())
}
