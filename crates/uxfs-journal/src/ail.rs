//! The active item list (AIL): every object that is logged and not yet written in place, by the position of
//! the checkpoint that logged it last.
//!
//! 1. An object's position only moves forward until the object is written in place; checkpoints are added
//!    in the order of their positions.
//! 2. The log's tail is not beyond the lowest position here.
//! 3. A checkpoint stays listed while an object's last copy is in it: the first listed one has the lowest
//!    position.
//!
//! The waiters of a checkpoint wait while its objects are added, so adding one costs a single lookup.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::log_item::LogItem;
use crate::log_pos::LogPos;

/// Objects that a checkpoint logged.
#[derive(Debug)]
struct Logged<K> {
    position: LogPos,
    /// Number of objects whose last copy is in it.
    live: usize,
    /// Their keys, and keys of some that were written in place or logged again since.
    keys: Vec<K>,
}

/// An object, and its position.
#[derive(Debug)]
struct Active<I> {
    position: LogPos,
    at: usize,
    item: I,
}

/// The list.
#[derive(Debug)]
pub struct Ail<I: LogItem> {
    objects: FxHashMap<I::Key, Active<I>>,
    checkpoints: VecDeque<Logged<I::Key>>,
}

impl<I: LogItem> Default for Ail<I> {
    fn default() -> Self {
        Self { objects: FxHashMap::default(), checkpoints: VecDeque::new() }
    }
}

/// Number of outdated keys that a checkpoint's list may hold beyond the number of valid ones.
const SLACK: usize = 32;

impl<I: LogItem> Ail<I> {
    /// Adds or moves an object that a durable checkpoint at `position` logged.
    pub fn insert(&mut self, position: LogPos, item: I) {
        let key = item.key();
        let last = self.checkpoints.back().map(|last| last.position);
        debug_assert!(last <= Some(position), "{key:?} moves back in the log");
        if last != Some(position) {
            self.checkpoints.push_back(Logged { position, live: 0, keys: Vec::new() });
        }
        let Some(last) = self.checkpoints.back_mut() else { return };
        let at = last.keys.len();
        last.keys.push(key);
        last.live += 1;
        let old = self.objects.insert(key, Active { position, at, item });
        if let Some(old) = old {
            self.left(old.position);
        }
    }

    /// Removes an object that was written in place or freed. A new object in its place stays.
    pub fn remove(&mut self, item: &I) {
        let key = item.key();
        if let Some(position) = self.position(item) {
            self.objects.remove(&key);
            self.left(position);
        }
    }

    /// Notes that an object's last copy is no longer in the checkpoint at `position`.
    fn left(&mut self, position: LogPos) {
        let found = self.checkpoints.binary_search_by_key(&position, |logged| logged.position);
        debug_assert!(found.is_ok(), "nothing is listed at {position}");
        let Ok(found) = found else { return };
        let logged = &mut self.checkpoints[found];
        logged.live -= 1;
        if logged.keys.len() > 2 * logged.live + SLACK {
            let objects = &mut self.objects;
            let mut before = 0;
            let mut kept = 0;
            logged.keys.retain(|key| {
                let active = objects.get_mut(key);
                let active = active.filter(|a| a.position == position && a.at == before);
                before += 1;
                let stays = active.is_some();
                if let Some(active) = active {
                    active.at = kept;
                    kept += 1;
                }
                stays
            });
            logged.keys.shrink_to_fit();
        }
        while self.checkpoints.front().is_some_and(|first| first.live == 0) {
            self.checkpoints.pop_front();
        }
    }

    /// The position at which an object was logged last.
    pub fn position(&self, item: &I) -> Option<LogPos> {
        let active = self.objects.get(&item.key());
        active.filter(|active| active.item.is(item)).map(|active| active.position)
    }

    /// The lowest position.
    pub fn lowest(&self) -> Option<LogPos> {
        self.checkpoints.front().map(|first| first.position)
    }

    /// The objects below `position`, each with its position.
    pub fn below(&self, position: LogPos) -> Vec<(LogPos, I)> {
        let those = self.checkpoints.iter().take_while(|logged| logged.position < position);
        let all = those.flat_map(|logged| {
            logged.keys.iter().enumerate().filter_map(|(at, key)| {
                let active = self.objects.get(key)?;
                let here = active.position == logged.position && active.at == at;
                here.then(|| (active.position, active.item.clone()))
            })
        });
        all.collect()
    }

    /// Number of objects.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs is_empty")]
    pub fn len(&self) -> usize {
        self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    use crate::log_item::tests::{Item, intent};

    fn check(ail: &Ail<Item>, model: &BTreeMap<u64, LogPos>) {
        assert_eq!(ail.len(), model.len());
        assert_eq!(ail.lowest(), model.values().min().copied());
        let highest = model.values().max().copied().unwrap_or_default();
        for until in [LogPos(0), LogPos(highest.0 / 2), highest, highest + 1] {
            let mut below: Vec<_> =
                ail.below(until).into_iter().map(|(at, item)| (at, item.0)).collect();
            assert!(below.is_sorted_by_key(|(at, _)| *at));
            below.sort_unstable();
            let mut expected: Vec<_> =
                model.iter().filter(|(_, at)| **at < until).map(|(id, at)| (*at, *id)).collect();
            expected.sort_unstable();
            assert_eq!(below, expected);
        }
    }

    #[test]
    fn ail_matches_a_model_and_stays_compact() {
        let mut rng = uxfs_testkit::Rng::new(1);
        let mut next = |below: u64| rng.below(below);
        let (mut ail, mut model, mut position) =
            (Ail::<Item>::default(), BTreeMap::new(), LogPos(1000));
        for step in 0..20_000 {
            match next(8) {
                0 => position = position + 512 * next(3),
                1 | 2 => {
                    let id = next(300);
                    ail.remove(&intent(id));
                    model.remove(&id);
                }
                _ => {
                    let id = next(300);
                    ail.insert(position, intent(id));
                    model.insert(id, position);
                }
            }
            if step % 97 == 0 {
                check(&ail, &model);
            }
        }
        let listed: usize = ail.checkpoints.iter().map(|logged| logged.keys.len()).sum();
        assert!(listed <= 2 * ail.len() + SLACK * ail.checkpoints.len());
        for id in 0..300 {
            ail.remove(&intent(id));
        }
        assert!(ail.checkpoints.is_empty() && ail.lowest().is_none());
    }
}
