//! A deferred operation: work that a transaction leaves for its commit, in memory and in the log.
//!
//! | part | where |
//! |---|---|
//! | the type, the intent (EFI, CUI, RUI) that announces it, the done item | here |
//! | [`Deferred::recover`]: the operations that a pending intent announced | here |
//! | `Deferred::finish`, which runs it, at run time and in recovery | [`crate::defer`] |
//!
//! 1. One operation is one intent of one element. Recovery of an intent that another writer logged gives one
//!    operation for each element.
//! 2. What [`Deferred::recover`] makes of [`Deferred::intent`] does the same as the operation itself. It may
//!    do more work: an EFI does not name the owner of the blocks.
//!
//! Changes of a file's mappings are not deferred: they are made in the first transaction, with the inode.
//! Attributes and parent pointers change in one transaction, and ranges are not exchanged. So BUI, ATTRI and
//! XMI are not written, and the superblock needs no bit for them; recovery completes those of other writers
//! (`recovery/steps.rs`).
//!
//! Called by [`crate::alloc`], which defers operations, by transactions that roll, and by recovery.

use uxfs_format::btree::{Rmap, RmapOwner};
use uxfs_format::log::{
    DoneItem, ExtentRun, Intent, IntentItem, IntentKind, RefcountOp, RefcountStep, RmapOp, RmapStep,
};
use uxfs_format::{AgBlock, AgNo, FileBlock, Geometry};

use crate::alloc::Owner;

/// Blocks that the offsets of a fork can address.
const FORK_BLOCKS: u64 = 1 << 54;

/// A result whose error is the extent of an intent that lies in no group of the volume, or that no fork can
/// map at its offset.
pub(crate) type Outcome<T> = core::result::Result<T, ExtentRun>;

/// The reverse mapping that goes with freed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedOwner {
    /// None: an operation of its own removed it.
    None,
    /// That of this owner.
    Known(Owner),
    /// Whichever the reverse mapping btree holds, because an EFI names none.
    Any,
}

/// A deferred operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// Free blocks that no file maps, and remove the reverse mapping of `owner`.
    Free {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// The owner whose reverse mapping is removed.
        owner: FreedOwner,
    },
    /// Change the reference counts of blocks.
    Refcount {
        /// The group.
        ag: AgNo,
        /// First block.
        start: AgBlock,
        /// Number of blocks.
        len: u32,
        /// The change.
        change: RefcountChange,
    },
    /// Change a reverse mapping.
    Rmap {
        /// The group.
        ag: AgNo,
        /// The mapping, after a conversion.
        rmap: Rmap,
        /// The change.
        change: RmapChange,
    },
}

/// A change of reference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefcountChange {
    /// Add one owner.
    Increase,
    /// Remove one owner, and free the blocks if it was the last one.
    Decrease,
    /// Record CoW staging blocks. Only recovery meets this.
    Stage,
    /// Remove the record of CoW staging blocks, which stay allocated. Only recovery meets this.
    Unstage,
}

/// A change of a reverse mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmapChange {
    /// Add the mapping of blocks.
    Map,
    /// Remove the mapping of blocks.
    Unmap,
    /// Convert between written and unwritten.
    Convert,
}

impl Deferred {
    /// The group in which the operation works.
    pub(crate) fn ag(&self) -> AgNo {
        match *self {
            Self::Free { ag, .. } | Self::Refcount { ag, .. } | Self::Rmap { ag, .. } => ag,
        }
    }

    /// The intent, numbered `id`, that announces the operation.
    pub(crate) fn intent(&self, geo: &Geometry, id: u64) -> IntentItem {
        let run = |ag: AgNo, start: AgBlock, len| ExtentRun { start: geo.fsb(ag, start), len };
        let (kind, intent) = match *self {
            Self::Free { ag, start, len, .. } => {
                (IntentKind::Free, Intent::Free(vec![run(ag, start, len)]))
            }
            Self::Refcount { ag, start, len, change } => {
                let op = match change {
                    RefcountChange::Increase => RefcountOp::Increase,
                    RefcountChange::Decrease => RefcountOp::Decrease,
                    RefcountChange::Stage => RefcountOp::AllocCow,
                    RefcountChange::Unstage => RefcountOp::FreeCow,
                };
                let step = RefcountStep { op, run: run(ag, start, len) };
                (IntentKind::Refcount, Intent::Refcount(vec![step]))
            }
            Self::Rmap { ag, rmap, change } => {
                // Where data can be shared, other mappings of the same blocks have to be expected.
                let shared = geo.has_reflink() && !rmap.attr;
                let op = match (change, shared) {
                    (RmapChange::Map, false) => RmapOp::Map,
                    (RmapChange::Map, true) => RmapOp::MapShared,
                    (RmapChange::Unmap, false) => RmapOp::Unmap,
                    (RmapChange::Unmap, true) => RmapOp::UnmapShared,
                    (RmapChange::Convert, false) => RmapOp::Convert,
                    (RmapChange::Convert, true) => RmapOp::ConvertShared,
                };
                let step = RmapStep {
                    op,
                    owner: rmap.owner.0,
                    run: run(ag, rmap.start, rmap.len),
                    offset: FileBlock(rmap.offset),
                    attr: rmap.attr,
                    bmbt: rmap.bmbt,
                    unwritten: rmap.unwritten,
                };
                (IntentKind::Rmap, Intent::Rmap(vec![step]))
            }
        };
        IntentItem { kind, id, intent }
    }

    /// The item that says that the operation announced as `id` is done.
    pub(crate) fn done(&self, geo: &Geometry, id: u64) -> DoneItem {
        let IntentItem { kind, intent, .. } = self.intent(geo, id);
        let extents = match intent {
            Intent::Free(runs) => runs,
            _ => Vec::new(),
        };
        DoneItem { kind, id, extents }
    }

    /// The operations that `intent` announced, in order: none for BUI, ATTRI and XMI, which announce
    /// no deferred operation.
    ///
    /// # Errors
    /// The extent of an element that does not lie in one group of the volume, or that no fork can map at its
    /// offset.
    pub(crate) fn recover(geo: &Geometry, intent: &Intent) -> Outcome<Vec<Self>> {
        match intent {
            Intent::Free(runs) => runs.iter().map(|run| Self::free(geo, *run)).collect(),
            Intent::Refcount(all) => all.iter().map(|step| Self::refcount(geo, step)).collect(),
            Intent::Rmap(all) => all.iter().map(|step| Self::rmap(geo, step)).collect(),
            Intent::Bmap(_) | Intent::Attr(_) | Intent::Exchange(_) => Ok(Vec::new()),
        }
    }

    fn free(geo: &Geometry, run: ExtentRun) -> Outcome<Self> {
        let (ag, start) = in_one_group(geo, run)?;
        Ok(Self::Free { ag, start, len: run.len, owner: FreedOwner::Any })
    }

    fn refcount(geo: &Geometry, step: &RefcountStep) -> Outcome<Self> {
        let (ag, start) = in_one_group(geo, step.run)?;
        let change = match step.op {
            RefcountOp::Increase => RefcountChange::Increase,
            RefcountOp::Decrease => RefcountChange::Decrease,
            RefcountOp::AllocCow => RefcountChange::Stage,
            RefcountOp::FreeCow => RefcountChange::Unstage,
        };
        Ok(Self::Refcount { ag, start, len: step.run.len, change })
    }

    fn rmap(geo: &Geometry, step: &RmapStep) -> Outcome<Self> {
        let (ag, start) = in_one_group(geo, step.run)?;
        // What a record can hold; blocks of an extent map have no offset.
        let end = step.offset.0.checked_add(step.run.len.into());
        if !step.bmbt && end.is_none_or(|end| end > FORK_BLOCKS) {
            return Err(step.run);
        }
        let change = match step.op {
            RmapOp::Map | RmapOp::MapShared | RmapOp::Alloc => RmapChange::Map,
            RmapOp::Unmap | RmapOp::UnmapShared | RmapOp::Free => RmapChange::Unmap,
            RmapOp::Convert | RmapOp::ConvertShared => RmapChange::Convert,
        };
        let rmap = Rmap {
            start,
            len: step.run.len,
            owner: RmapOwner(step.owner),
            offset: if step.bmbt { 0 } else { step.offset.0 },
            attr: step.attr,
            bmbt: step.bmbt,
            unwritten: step.unwritten,
        };
        Ok(Self::Rmap { ag, rmap, change })
    }
}

/// The group and first block of an extent.
///
/// # Errors
/// The extent, if it is empty or does not lie in one group of the volume.
pub(crate) fn in_one_group(geo: &Geometry, run: ExtentRun) -> Outcome<(AgNo, AgBlock)> {
    match run.len > 0 && geo.fsb_valid(run.start, run.len.into()) {
        true => Ok((geo.fsb_ag(run.start), geo.fsb_agblock(run.start))),
        false => Err(run),
    }
}

#[cfg(test)]
mod tests {
    use uxfs_format::features::RoCompat;
    use uxfs_format::superblock::Superblock;
    use zerocopy::FromZeros;

    use super::*;

    /// Four groups of 1000 blocks of 4 KiB.
    fn geometry(reflink: bool) -> Geometry {
        let mut sb = Superblock::new_zeroed();
        sb.versionnum.set(5);
        sb.blocksize.set(4096);
        (sb.blocklog, sb.agblklog) = (12, 10);
        sb.sectsize.set(512);
        sb.sectlog = 9;
        sb.inodesize.set(512);
        (sb.inodelog, sb.inopblog) = (9, 3);
        sb.dblocks.set(4000);
        sb.agblocks.set(1000);
        sb.agcount.set(4);
        let features = RoCompat::RMAPBT.bits() | if reflink { RoCompat::REFLINK.bits() } else { 0 };
        sb.features_ro_compat.set(features);
        Geometry::new(&sb)
    }

    /// Invariant 2, for each operation on a volume with and without shared blocks.
    #[test]
    fn recovery_of_an_intent_gives_the_same_operation() {
        for reflink in [false, true] {
            let geo = geometry(reflink);
            let (ag, start, len) = (AgNo(1), AgBlock(100), 7);
            let mut all = vec![Deferred::Free { ag, start, len, owner: FreedOwner::Any }];
            all.extend(
                [
                    RefcountChange::Increase,
                    RefcountChange::Decrease,
                    RefcountChange::Stage,
                    RefcountChange::Unstage,
                ]
                .map(|change| Deferred::Refcount { ag, start, len, change }),
            );
            for change in [RmapChange::Map, RmapChange::Unmap, RmapChange::Convert] {
                for flags in 0..8 {
                    let [attr, bmbt, unwritten] = [1, 2, 4].map(|bit| flags & bit != 0);
                    let owner = RmapOwner(131);
                    let offset = if bmbt { 0 } else { 9 };
                    let rmap = Rmap { start, len, owner, offset, attr, bmbt, unwritten };
                    all.push(Deferred::Rmap { ag, rmap, change });
                }
            }
            for step in all {
                let logged = step.intent(&geo, 5);
                assert_eq!(Deferred::recover(&geo, &logged.intent), Ok(vec![step]));
                let done = step.done(&geo, 5);
                assert_eq!((done.kind, done.id), (logged.kind, 5));
                let freed = matches!(step, Deferred::Free { .. });
                assert_eq!(done.extents.len(), usize::from(freed), "{step:?}");
            }
        }
    }

    #[test]
    fn an_extent_outside_the_groups_is_refused() {
        let geo = geometry(true);
        let last = geo.fsb(AgNo(0), AgBlock(geo.ag_len(AgNo(0)) - 1));
        for (start, len) in [(last, 2), (last, 0), (geo.fsb(AgNo(0), AgBlock(0)), 1)] {
            let run = ExtentRun { start, len };
            assert_eq!(Deferred::recover(&geo, &Intent::Free(vec![run])), Err(run));
        }
    }

    #[test]
    fn a_reverse_mapping_beyond_the_end_of_forks_is_refused() {
        let geo = geometry(true);
        let run = ExtentRun { start: geo.fsb(AgNo(1), AgBlock(100)), len: 7 };
        let recover = |offset, bmbt| {
            let (op, offset) = (RmapOp::MapShared, FileBlock(offset));
            let step =
                RmapStep { op, owner: 131, run, offset, attr: false, bmbt, unwritten: false };
            Deferred::recover(&geo, &Intent::Rmap(vec![step])).map(|steps| steps.len())
        };
        assert_eq!(recover(FORK_BLOCKS - 7, false), Ok(1));
        for offset in [FORK_BLOCKS - 6, u64::MAX - 3] {
            assert_eq!((recover(offset, false), recover(offset, true)), (Err(run), Ok(1)));
        }
    }
}
