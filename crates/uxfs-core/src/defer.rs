//! Deferred steps: the work that a transaction leaves for its commit.
//!
//! Freeing and sharing blocks can touch any allocation group, and locking groups in any order can deadlock.
//! So these steps wait for the end of the transaction, where it may give up the groups that it holds first
//! ([`Tx::roll`]). With a journal, each step that is still owed then is announced by an intent; each kind of
//! step has one kind of intent.
//!
//! 1. Steps are done in the order in which they were added. What a step leaves of its own work comes right
//!    after it; what it causes comes last.
//! 2. A step that fails before the first roll undoes the whole transaction. One that fails later shuts the
//!    volume down.
//! 3. A step changes a bounded number of records; one with more to do leaves the rest to another step.

use crate::alloc;
use crate::deferred::Deferred;
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
        let rest = one(tx, step)?;
        tx.step_done(rest);
    }
    Ok(())
}

/// Runs one operation, whose group the transaction has locked. Returns the unfinished rest.
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
