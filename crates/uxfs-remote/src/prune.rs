//! Checkpoints that are kept, and the removal of the others.
//!
//! 1. The last checkpoint is always kept.
//! 2. Manifests are removed first, then the deltas that none of the remaining names. What a crash leaves
//!    between is removed the next time. A manifest's object with a delta that one of the remaining names stays until
//!    none does. The floor rises first, so that none of them is taken for a checkpoint.
//! 3. The number that a writer who lost its place would try next stays taken: otherwise that writer would
//!    put a checkpoint in the past, and take it for the last one. It is the first number of the next epoch, or
//!    one of the two before it: one may be the writer's own, whose answer was lost, and one a compaction of
//!    that. `Remote::mark` keeps these numbers.
//! 4. A delta is removed only if its number is not above that of the last manifest: a writer that is about
//!    to name a delta gives it the next number.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::fault::{Fault, planted};
use crate::parallel;
use crate::remote::{Listing, manifest_name, name_of, sequence_of};
use crate::{Entry, Error, Remote, Result};

/// Requests at once.
const REQUESTS: usize = 16;

/// Which checkpoints are kept. One that either rule keeps stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// So many of the last ones.
    pub last: Option<u64>,
    /// Those made at this moment or later, and the last one before it: milliseconds since 1970.
    pub since: Option<u64>,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Checkpoints that are left.
    pub kept: u64,
    /// Checkpoints that were removed.
    pub checkpoints: u64,
    /// Objects of deltas that were removed. Deltas in the objects of removed checkpoints are not counted.
    pub deltas: u64,
    /// Bytes of these objects.
    pub bytes: u64,
}

/// Removes checkpoints that `retention` does not keep, and all deltas that no checkpoint names. Without a
/// rule all checkpoints are kept.
///
/// # Errors
/// Those of the store; what is wrong with a manifest that is kept. Nothing that is kept is then missing.
pub fn prune(remote: &Remote, retention: Retention) -> Result<Pruned> {
    let Listing { checkpoints, removed, markers, floors } = remote.listing()?;
    let Some(newest) = checkpoints.last().copied() else { return Err(Error::NoVolume) };
    let from = first_kept(remote, &checkpoints, retention)?;
    let (gone, kept) = checkpoints.split_at(from);
    let named = parking_lot::Mutex::new(HashSet::new());
    let read = if planted(Fault::NamedRemoved) { &kept[kept.len() - 1..] } else { kept };
    parallel::for_each(REQUESTS, read, |_, number| {
        let (manifest, _) = remote.manifest(*number)?;
        named.lock().extend(manifest.layers.iter().map(name_of));
        Ok::<(), Error>(())
    })?;
    let named = named.into_inner();
    let below = [&removed, gone].concat();
    let stays = |number: &u64| named.contains(&manifest_name(*number));
    let staying: BTreeSet<u64> = below.iter().copied().filter(stays).collect();
    // Also for those that go: one whose delta went first is no checkpoint any more.
    let mut floors = BTreeSet::from_iter(floors);
    if !below.is_empty() && !planted(Fault::FloorForgotten) {
        remote.raise_floor(kept[0])?;
        floors.insert(kept[0]);
    }
    remove(remote, &below, &staying, &kept[..kept.len().min(2)], &markers)?;
    let is_past = |floor: &&u64| staying.is_empty() || **floor < kept[0];
    floors.iter().filter(is_past).try_for_each(|floor| remote.remove_floor(*floor))?;
    let is_garbage = |entry: &Entry| {
        sequence_of(&entry.name).is_some_and(|sequence| sequence <= newest)
            && !named.contains(&entry.name)
    };
    let garbage: Vec<Entry> = remote.deltas()?.into_iter().filter(is_garbage).collect();
    parallel::for_each(REQUESTS, &garbage, |_, entry| remote.remove_delta(&entry.name))?;
    Ok(Pruned {
        kept: kept.len() as u64,
        checkpoints: gone.len() as u64,
        deltas: garbage.len() as u64,
        bytes: garbage.iter().map(|entry| entry.len).sum(),
    })
}

/// Removes the objects of checkpoints, which ascend, but for those that stay; `next` are the two checkpoints that
/// follow.
fn remove(
    remote: &Remote,
    below: &[u64],
    staying: &BTreeSet<u64>,
    next: &[u64],
    markers: &[u64],
) -> Result<()> {
    let Some(first) = below.first().copied() else { return Ok(()) };
    let epochs = parking_lot::Mutex::new(BTreeMap::new());
    let near: Vec<u64> = markers.iter().copied().filter(|number| number + 1 >= first).collect();
    parallel::for_each(REQUESTS, &near, |_, number| {
        let epoch = remote.marker(*number)?;
        epochs.lock().extend(epoch.map(|epoch| (*number, epoch)));
        Ok::<(), Error>(())
    })?;
    let read = [below, next].concat();
    parallel::for_each(REQUESTS, &read, |_, number| {
        let (manifest, _) = remote.manifest(*number)?;
        epochs.lock().insert(*number, manifest.epoch);
        Ok::<(), Error>(())
    })?;
    let epochs = epochs.into_inner();
    let epoch = |number: u64| epochs.get(&number).copied().unwrap_or(0);
    let turns = |number: u64| {
        let differs = |other: u64| epochs.get(&other).is_some_and(|other| *other != epoch(number));
        differs(number.wrapping_sub(1)) || differs(number + 1) || differs(number + 2)
    };
    // When one that stays is removed, it must still be seen that the epoch changes there.
    let turns_nearby = |number: u64| {
        let mut nearby = staying.range(number.saturating_sub(2)..=number + 2);
        turns(number) || nearby.any(|number| turns(*number))
    };
    let going: Vec<u64> = below.iter().copied().filter(|one| !staying.contains(one)).collect();
    parallel::for_each(REQUESTS, &going, |_, number| match turns_nearby(*number) {
        true => remote.mark(*number, epoch(*number)),
        false => remote.remove_manifest(*number),
    })
}

/// How many of the numbers, which ascend, are not kept.
fn first_kept(remote: &Remote, numbers: &[u64], retention: Retention) -> Result<usize> {
    let all_but_one = numbers.len() - 1;
    let by_count = retention.last.map(|last| {
        let last = usize::try_from(last.max(1)).unwrap_or(usize::MAX);
        numbers.len().saturating_sub(last)
    });
    let by_time = match retention.since {
        None => None,
        Some(since) => {
            let (mut from, mut to) = (0, numbers.len());
            while from < to {
                let middle = usize::midpoint(from, to);
                if remote.manifest(numbers[middle])?.0.made_at < since {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            // The state at that moment is that of the last checkpoint before it.
            Some(from.saturating_sub(1))
        }
    };
    let first = match (by_count, by_time) {
        (Some(count), Some(time)) => count.min(time),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => 0,
    };
    Ok(first.min(all_but_one))
}
