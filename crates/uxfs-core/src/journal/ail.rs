//! The active item list: every object that is logged and not home yet, by the position of the
//! checkpoint that logged it last.
//!
//! 1. An object's position only moves forward, until it is home.
//! 2. The log's tail is not beyond the lowest position here.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::context::{Handle, Key};

/// The list.
#[derive(Default)]
pub(crate) struct Ail {
    objects: FxHashMap<Key, (u64, Handle)>,
    order: BTreeSet<(u64, Key)>,
}

impl Ail {
    /// A checkpoint at `position` that logged the object is durable.
    pub(crate) fn insert(&mut self, position: u64, handle: Handle) {
        let key = handle.key();
        if let Some((old, _)) = self.objects.insert(key, (position, handle)) {
            debug_assert!(old <= position, "{key:?} moves back in the log");
            self.order.remove(&(old, key));
        }
        self.order.insert((position, key));
    }

    /// The object is home, or is no more. One that took its place stays.
    pub(crate) fn remove(&mut self, handle: &Handle) {
        let key = handle.key();
        if let Some((position, _)) = self.objects.get(&key).filter(|(_, held)| held.is(handle)) {
            self.order.remove(&(*position, key));
            self.objects.remove(&key);
        }
    }

    /// Where the object was logged last.
    pub(crate) fn position(&self, handle: &Handle) -> Option<u64> {
        self.objects.get(&handle.key()).filter(|(_, held)| held.is(handle)).map(|(at, _)| *at)
    }

    /// The lowest position.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.order.first().map(|(position, _)| *position)
    }

    /// Objects below `position`, each with its own.
    pub(crate) fn below(&self, position: u64) -> Vec<(u64, Handle)> {
        let keys = self.order.iter().take_while(|(at, _)| *at < position);
        keys.map(|(_, key)| self.objects[key].clone()).collect()
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}
