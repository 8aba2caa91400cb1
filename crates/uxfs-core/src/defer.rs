//! Deferred operations: the work that a transaction leaves for its commit.
//!
//! Freeing and sharing blocks can touch any allocation group, and locking groups in any order can deadlock.
//! So these operations wait for the end of the transaction, where it may give up the groups that it holds
//! first ([`Tx::roll`]). With a journal, each operation that is still pending then is announced by an intent
//! ([`Deferred::intent`]). Recovery runs the operations that pending intents announced by the same code.
//!
//! 1. Operations run in the order in which they were added. What an operation leaves of its own work comes
//!    right after it; what it causes comes last.
//! 2. An operation that fails before the first roll cancels the whole transaction. One that fails later
//!    shuts the volume down.
//! 3. An operation changes a bounded number of records; one with more to do leaves the rest to another.
//!
//! Called by [`Tx::commit`], through the function that [`crate::engine::Engine`] holds.

use crate::alloc;
use crate::deferred::{Deferred, RefcountChange, RmapChange};
use crate::error::Result;
use crate::tx::Tx;

/// Runs all deferred operations, including those that they defer themselves.
pub(crate) fn finish(tx: &mut Tx<'_>) -> Result<()> {
    while let Some(step) = tx.next_step() {
        if tx.should_roll() {
            tx.roll()?;
        }
        if !tx.lock_ag(step.ag())? {
            tx.roll()?;
            tx.lock_ag(step.ag())?;
        }
        let rest = step.finish(tx)?;
        tx.step_done(rest);
    }
    Ok(())
}

impl Deferred {
    /// Runs the operation, whose group the transaction has locked. Returns the unfinished rest.
    fn finish(self, tx: &mut Tx<'_>) -> Result<Option<Self>> {
        match self {
            Self::Free { ag, start, len, owner } => alloc::free_now(tx, ag, start, len, owner)?,
            Self::Refcount { ag, start, len, change } => {
                let rest = match change {
                    RefcountChange::Increase => alloc::share_now(tx, ag, start, len)?,
                    RefcountChange::Decrease => alloc::drop_now(tx, ag, start, len)?,
                    RefcountChange::Stage => {
                        alloc::staging::stage(tx, ag, start, len)?;
                        None
                    }
                    RefcountChange::Unstage => {
                        alloc::staging::unstage(tx, ag, start, len)?;
                        None
                    }
                };
                return Ok(rest.map(|(start, len)| Self::Refcount { ag, start, len, change }));
            }
            Self::Rmap { ag, rmap, change } => match change {
                RmapChange::Map => alloc::map_now(tx, ag, &rmap)?,
                RmapChange::Unmap => alloc::unmap_now(tx, ag, &rmap)?,
                RmapChange::Convert => alloc::convert_now(tx, ag, &rmap)?,
            },
        }
        Ok(None)
    }
}
