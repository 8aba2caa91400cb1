//! Deferred steps: what a transaction still owes when its caller is through.
//!
//! Freeing and sharing blocks can touch any allocation group, in any order; locking groups in any
//! order can deadlock. So these steps wait until the end, where the transaction may let go of the
//! groups it holds first ([`Tx::roll`]). With a journal, each step that is still owed is announced by
//! an intent then: each kind of step is one kind of intent.
//!
//! 1. Steps are done in the order in which they were asked for; what a step leaves of its own work
//!    comes right after it, what it brings about comes last.
//! 2. A step that fails before anything was settled undoes the whole transaction; one that fails
//!    later shuts the volume down.
//! 3. A step changes a bounded number of records: one with more to do leaves the rest to another.

use uxfs_format::btree::Rmap;
use uxfs_format::{AgBlock, AgNo};

use crate::alloc;
use crate::error::Result;
use crate::tx::Tx;

/// A step that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deferred {
    /// Blocks are free again. No file maps them; if `owner` is given, its reverse mapping goes too.
    Free {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// Who loses them.
        owner: Option<alloc::Owner>,
    },
    /// Blocks get one more owner.
    Share {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// Blocks lose one owner, and are free if that was the last one.
    Drop {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
    },
    /// A file maps blocks that are not newly allocated.
    Map {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// A file maps blocks no more.
    Unmap {
        /// The group.
        ag: AgNo,
        /// The mapping.
        rmap: Rmap,
    },
    /// A mapping changes between written and unwritten, to what `rmap` says.
    Convert {
        /// The group.
        ag: AgNo,
        /// The mapping as it is to be.
        rmap: Rmap,
    },
}

impl Deferred {
    /// The group that the step works in.
    fn ag(&self) -> AgNo {
        match *self {
            Self::Free { ag, .. }
            | Self::Share { ag, .. }
            | Self::Drop { ag, .. }
            | Self::Map { ag, .. }
            | Self::Unmap { ag, .. }
            | Self::Convert { ag, .. } => ag,
        }
    }
}

/// Does all that waits, including what the steps themselves add.
pub(crate) fn finish(tx: &mut Tx<'_>) -> Result<()> {
    while let Some(step) = tx.next_step() {
        if tx.should_roll() {
            tx.roll()?;
        }
        if !tx.lock_ag(step.ag())? {
            tx.roll()?;
            tx.lock_ag(step.ag())?;
        }
        let rest = one(tx, step)?;
        tx.step_done(rest);
    }
    Ok(())
}

/// Does one step, whose group the transaction holds; gives what is left of it.
fn one(tx: &mut Tx<'_>, step: Deferred) -> Result<Option<Deferred>> {
    match step {
        Deferred::Free { ag, start, len, owner } => alloc::free_now(tx, ag, start, len, owner)?,
        Deferred::Share { ag, start, len } => {
            let rest = alloc::share_now(tx, ag, start, len)?;
            return Ok(rest.map(|(start, len)| Deferred::Share { ag, start, len }));
        }
        Deferred::Drop { ag, start, len } => {
            let rest = alloc::drop_now(tx, ag, start, len)?;
            return Ok(rest.map(|(start, len)| Deferred::Drop { ag, start, len }));
        }
        Deferred::Map { ag, rmap } => alloc::map_now(tx, ag, &rmap)?,
        Deferred::Unmap { ag, rmap } => alloc::unmap_now(tx, ag, &rmap)?,
        Deferred::Convert { ag, rmap } => alloc::convert_now(tx, ag, &rmap)?,
    }
    Ok(None)
}
