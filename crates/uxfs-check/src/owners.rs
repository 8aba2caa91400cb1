//! Phase 3: all claims of a group's blocks against each other, the reverse mappings and the
//! reference counts.
//!
//! Every block has the owners it should have: one; or several files, if the volume can share and
//! the reference counts say so; or it is free. A block that nobody claims is leaked.

use rustc_hash::FxHashSet;
use uxfs_format::{AgBlock, AgNo, Ino};

use crate::claim::{self, Claim, FREE};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::Group;

/// A run of blocks and the number of its owners.
type Run = (u32, u32, u32);

/// Checks a group's blocks; files that share some go to `sharing`. With `complete`, every owner
/// of every group has made its claims.
pub(crate) fn check(
    ctx: &Ctx<'_>,
    ag: AgNo,
    group: &Group,
    complete: bool,
    sharing: &mut FxHashSet<Ino>,
) {
    let mut claims = core::mem::take(&mut *group.claims.lock());
    claim::merge(&mut claims);
    let complete = complete && group.complete;
    overlaps(ctx, ag, &claims, complete, sharing);
    if ctx.geo.has_rmap() && group.rmaps_complete && complete {
        mappings(ctx, ag, group, &claims);
    }
    if ctx.geo.has_reflink() && group.shared_complete && complete {
        let counted = shared_runs(&claims);
        compare_counts(ctx, ag, &group.shared, &counted);
    }
}

/// Goes along the blocks: who has them besides, and who has none.
fn overlaps(
    ctx: &Ctx<'_>,
    ag: AgNo,
    claims: &[Claim],
    complete: bool,
    sharing: &mut FxHashSet<Ino>,
) {
    let reflink = ctx.geo.has_reflink();
    // The claims that reach farthest: of all, and of those that cannot share.
    let (mut any, mut alone): (Option<Claim>, Option<Claim>) = (None, None);
    let leak = |from: u64, to: u64| {
        if from < to && complete {
            let start = AgBlock(u32::try_from(from).unwrap_or(u32::MAX));
            let message = format!("{} blocks are neither free nor owned", to - from);
            ctx.find(code::BLOCK_LEAK, Place::block(ag, start), message);
        }
    };
    let reaches =
        |far: &Option<Claim>, claim: &Claim| far.filter(|far| far.end() > u64::from(claim.start));
    for claim in claims {
        let shares = reflink && claim.may_share();
        leak(any.map_or(0, |far| far.end()), claim.start.into());
        let other = if shares { reaches(&alone, claim) } else { reaches(&any, claim) };
        if let Some(other) = other {
            let message = format!("{} are {} as well", claim.tell(), other.tell());
            let place = Place::block(ag, AgBlock(claim.start));
            ctx.find(code::BLOCK_OWNERS, place, message);
        } else if let Some(other) = reaches(&any, claim) {
            sharing.extend([Ino(claim.owner.0), Ino(other.owner.0)]);
        }
        let farther = |far: &Option<Claim>| far.is_none_or(|far| far.end() < claim.end());
        if farther(&any) {
            any = Some(*claim);
        }
        if !shares && farther(&alone) {
            alone = Some(*claim);
        }
    }
    leak(any.map_or(0, |far| far.end()), ctx.geo.ag_len(ag).into());
}

/// Reverse mappings and claims are the same, one by one.
fn mappings(ctx: &Ctx<'_>, ag: AgNo, group: &Group, claims: &[Claim]) {
    let missing = |claim: &Claim| {
        let place = Place::block(ag, AgBlock(claim.start));
        let message = format!("no reverse mapping tells of {}", claim.tell());
        ctx.find(code::RMAP_MISSING, place, message);
    };
    let extra = |told: &Claim| {
        let place = Place::block(ag, AgBlock(told.start));
        let message = format!("a reverse mapping tells of {}, which are not", told.tell());
        ctx.find(code::RMAP_EXTRA, place, message);
    };
    let mut rmaps = group.rmaps.iter().map(Claim::of).peekable();
    for claim in claims.iter().filter(|claim| claim.owner != FREE) {
        while let Some(told) = rmaps.next_if(|told| told.key() < claim.key()) {
            extra(&told);
        }
        match rmaps.next_if(|told| told.key() == claim.key()) {
            Some(told) if told == *claim => {}
            Some(told) => {
                extra(&told);
                missing(claim);
            }
            None => missing(claim),
        }
    }
    rmaps.for_each(|told| extra(&told));
}

/// Runs with more than one owner, neighbours with as many joined.
fn shared_runs(claims: &[Claim]) -> Vec<Run> {
    let files = claims.iter().filter(|claim| claim.owner != FREE && claim.may_share());
    let mut ends: Vec<u64> = files.clone().map(Claim::end).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut runs: Vec<Run> = Vec::new();
    let (mut at, mut owners) = (0u64, 0u32);
    let mut step = |to: u64, owners: u32, at: &mut u64| {
        if owners > 1 && *at < to {
            // Both lie in the group.
            let (start, len) = (*at as u32, (to - *at) as u32);
            match runs.last_mut() {
                Some(last) if last.0 + last.1 == start && last.2 == owners => last.1 += len,
                _ => runs.push((start, len, owners)),
            }
        }
        *at = to.max(*at);
    };
    for claim in files {
        while let Some(end) = ends.next_if(|end| *end <= u64::from(claim.start)) {
            step(end, owners, &mut at);
            owners -= 1;
        }
        step(claim.start.into(), owners, &mut at);
        owners += 1;
    }
    for end in ends {
        step(end, owners, &mut at);
        owners -= 1;
    }
    runs
}

fn compare_counts(ctx: &Ctx<'_>, ag: AgNo, told: &[Run], counted: &[Run]) {
    let wanted: FxHashSet<&Run> = counted.iter().collect();
    let seen: FxHashSet<&Run> = told.iter().collect();
    for run in told.iter().filter(|run| !wanted.contains(run)) {
        let (start, len, count) = run;
        let message = format!("blocks {start}+{len} are told to have {count} owners");
        ctx.find(code::REFCOUNT, Place::block(ag, AgBlock(*start)), message);
    }
    for run in counted.iter().filter(|run| !seen.contains(run)) {
        let (start, len, count) = run;
        let message = format!("blocks {start}+{len} have {count} owners, which is not told");
        ctx.find(code::REFCOUNT, Place::block(ag, AgBlock(*start)), message);
    }
}

#[cfg(test)]
mod tests {
    use uxfs_format::btree::RmapOwner;

    use super::*;

    #[test]
    fn runs_of_shared_blocks() {
        let file = |ino, start, len| Claim { start, len, owner: RmapOwner(ino), offset: 0 };
        let mut claims =
            vec![file(1, 10, 10), file(2, 12, 4), file(3, 14, 10), file(4, 40, 1), file(5, 40, 1)];
        claim::merge(&mut claims);
        let runs = shared_runs(&claims);
        assert_eq!(runs, [(12, 2, 2), (14, 2, 3), (16, 4, 2), (40, 1, 2)]);
    }
}
