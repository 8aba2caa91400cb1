//! Intents without a done item.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use uxfs_format::features::{Incompat, LogIncompat};
use uxfs_format::log::{DoneItem, Intent, IntentItem, IntentKind};
use uxfs_format::superblock::Superblock;
use uxfs_format::{Geometry, Lsn};

/// Pending intents in log order.
pub(super) struct Intents {
    by_order: BTreeMap<u64, (Lsn, IntentItem)>,
    by_id: FxHashMap<(IntentKind, u64), u64>,
    next: u64,
    log_attrs: bool,
}

impl Intents {
    pub(super) fn new(sb: &Superblock) -> Self {
        Self {
            by_order: BTreeMap::new(),
            by_id: FxHashMap::default(),
            next: 0,
            log_attrs: sb.log_incompat().contains(LogIncompat::LOG_XATTRS),
        }
    }

    /// Adds an intent, if this volume can have its kind.
    pub(super) fn add(&mut self, lsn: Lsn, item: IntentItem, geo: &Geometry) -> Result<(), String> {
        self.check(&item, geo)?;
        self.by_id.insert((item.kind, item.id), self.next);
        self.by_order.insert(self.next, (lsn, item));
        self.next += 1;
        Ok(())
    }

    fn check(&self, item: &IntentItem, geo: &Geometry) -> Result<(), String> {
        let lacks = |feature: &str| {
            let name = item.kind.items().0.name();
            Err(format!("a {name} item needs {feature}, which the volume does not have"))
        };
        match &item.intent {
            Intent::Rmap(_) if !geo.has_rmap() => lacks("reverse mappings"),
            Intent::Refcount(_) if !geo.has_reflink() => lacks("shared blocks"),
            Intent::Exchange(_) if !geo.incompat.contains(Incompat::EXCHRANGE) => {
                lacks("exchange-range")
            }
            Intent::Attr(attr) if attr.op.is_parent() && !geo.has_parent() => {
                lacks("parent pointers")
            }
            Intent::Attr(attr) if !attr.op.is_parent() && !self.log_attrs => {
                lacks("logged attributes")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn done(&mut self, item: &DoneItem) {
        if let Some(order) = self.by_id.remove(&(item.kind, item.id)) {
            self.by_order.remove(&order);
        }
    }

    pub(super) fn open(self) -> Vec<(Lsn, IntentItem)> {
        self.by_order.into_values().collect()
    }
}
