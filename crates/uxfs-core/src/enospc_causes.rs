//! What stood between a transaction and free space: busy blocks, groups held by others.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often transactions that were given up had something in their way.
#[derive(Default)]
pub(crate) struct EnospcCauses {
    busy: AtomicU64,
    taken: AtomicU64,
}

impl EnospcCauses {
    /// A transaction that saw busy blocks, or groups that were taken, is given up.
    pub(crate) fn note(&self, busy: bool, taken: bool) {
        self.busy.fetch_add(busy.into(), Ordering::Relaxed);
        self.taken.fetch_add(taken.into(), Ordering::Relaxed);
    }

    /// How often each was seen.
    pub(crate) fn seen(&self) -> (u64, u64) {
        (self.busy.load(Ordering::Relaxed), self.taken.load(Ordering::Relaxed))
    }
}
