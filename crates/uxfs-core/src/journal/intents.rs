//! Intents: what a rolling transaction still owes, in the form in which recovery finds it.
//!
//! Each deferred step ([`crate::deferred`]) is one intent of one element: blocks freed (EFI), a reference
//! count changed (CUI), a reverse mapping changed (RUI).
//!
//! 1. When a transaction rolls, every step that is then still owed is announced by an intent in the open
//!    checkpoint, with the changes made so far.
//! 2. The transaction that does a step logs the done item, and announces what the step left over or caused,
//!    in the same checkpoint.
//! 3. An intent keeps the log's tail before it until its done item is durable. A rolling transaction that
//!    waits for log space logs its intents again, so its own intents do not block it.
//!
//! Changes of a file's mappings are no step of their own: they are made in the first transaction, with the
//! inode. Attributes and parent pointers change in one transaction, and ranges are not exchanged. So BUI,
//! ATTRI and XMI are not written, and the superblock needs no bit for them.

use uxfs_format::btree::Rmap;
use uxfs_format::log::{
    DoneItem, ExtentRun, Intent, IntentItem, IntentKind, RefcountOp, RefcountStep, RmapOp, RmapStep,
};
use uxfs_format::{AgBlock, AgNo, FileBlock, Geometry};

use crate::deferred::Deferred;

/// The intent that announces a step.
pub(crate) fn intent(geo: &Geometry, step: &Deferred, id: u64) -> IntentItem {
    let run = |ag: AgNo, start: AgBlock, len| ExtentRun { start: geo.fsb(ag, start), len };
    let count = |op, run| (IntentKind::Refcount, Intent::Refcount(vec![RefcountStep { op, run }]));
    let (kind, intent) = match *step {
        // Whoever still has a reverse mapping of the blocks loses it when they are freed.
        Deferred::Free { ag, start, len, .. } => {
            (IntentKind::Free, Intent::Free(vec![run(ag, start, len)]))
        }
        Deferred::Share { ag, start, len } => count(RefcountOp::Increase, run(ag, start, len)),
        Deferred::Drop { ag, start, len } => count(RefcountOp::Decrease, run(ag, start, len)),
        Deferred::Map { ag, rmap } => mapping(geo, ag, &rmap, RmapOp::Map, RmapOp::MapShared),
        Deferred::Unmap { ag, rmap } => mapping(geo, ag, &rmap, RmapOp::Unmap, RmapOp::UnmapShared),
        Deferred::Convert { ag, rmap } => {
            mapping(geo, ag, &rmap, RmapOp::Convert, RmapOp::ConvertShared)
        }
    };
    IntentItem { kind, id, intent }
}

fn mapping(
    geo: &Geometry,
    ag: AgNo,
    rmap: &Rmap,
    alone: RmapOp,
    shared: RmapOp,
) -> (IntentKind, Intent) {
    // Where data can be shared, other mappings of the same blocks have to be expected.
    let op = if geo.has_reflink() && !rmap.attr { shared } else { alone };
    let step = RmapStep {
        op,
        owner: rmap.owner.0,
        run: ExtentRun { start: geo.fsb(ag, rmap.start), len: rmap.len },
        offset: FileBlock(rmap.offset),
        attr: rmap.attr,
        bmbt: rmap.bmbt,
        unwritten: rmap.unwritten,
    };
    (IntentKind::Rmap, Intent::Rmap(vec![step]))
}

/// The item that says that a step which was announced as `id` is done.
pub(crate) fn done(geo: &Geometry, step: &Deferred, id: u64) -> DoneItem {
    let IntentItem { kind, intent, .. } = intent(geo, step, id);
    let extents = match intent {
        Intent::Free(runs) => runs,
        _ => Vec::new(),
    };
    DoneItem { kind, id, extents }
}
