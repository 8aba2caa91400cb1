//! Rungs below a wait for stable storage: the same calls of fsync, for less durability.

use crate::durability::Fsyncs;
use crate::setup::Setup;

/// What a row's calls of fsync are served with.
pub(super) struct Rung {
    pub(super) name: &'static str,
    mount: &'static [&'static str],
    fsyncs: Fsyncs,
}

pub(super) const EATMYDATA: &str = "eatmydata";
pub(super) const ORDERED: &str = "ordered, loss=5";

pub(super) const RUNGS: [Rung; 4] = [
    Rung { name: "nobarrier", mount: &["nobarrier"], fsyncs: Fsyncs::Waited },
    Rung { name: EATMYDATA, mount: &[], fsyncs: Fsyncs::Ignored },
    Rung { name: ORDERED, mount: &[], fsyncs: Fsyncs::Ordered { loss_s: 5 } },
    Rung { name: "ordered, loss=1", mount: &[], fsyncs: Fsyncs::Ordered { loss_s: 1 } },
];

impl Rung {
    pub(super) fn apply(&self, setup: Setup) -> Setup {
        setup.mount(self.mount).fsyncs(self.fsyncs)
    }
}

/// The note about these rows.
pub(super) const NOTE: &str = "eatmydata: fsync does nothing, on a volume that waits otherwise; ordered: sync=ordered with this \
     loss=, and after each cut the whole tree must be of one moment";
