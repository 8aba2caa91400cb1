//! Phase 3: compares all claims of a group's blocks with each other, with the reverse mappings and
//! with the reference counts.
//!
//! A block must have one owner, or several files as owners if the volume can share blocks, or it
//! must be free. A block without a claim is leaked.

use rustc_hash::FxHashSet;
use uxfs_format::{AgBlock, AgNo, Ino};

use crate::claim::{self, Claim, FREE};
use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::Group;

/// A run of blocks and the number of its owners.
type Run = (u32, u32, u32);

/// Checks a group's blocks; adds files that share blocks to `sharing`. `complete` means that the
/// owners in all groups have made their claims.
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

/// Reports blocks with conflicting owners and blocks without a claim.
fn overlaps(
    ctx: &Ctx<'_>,
    ag: AgNo,
    claims: &[Claim],
    complete: bool,
    sharing: &mut FxHashSet<Ino>,
) {
    let reflink = ctx.geo.has_reflink();
    // The claims that extend farthest: among all, and among claims that cannot share.
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
            let message = format!("{} are also {}", claim.describe(), other.describe());
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

/// Checks that reverse mappings and claims are the same.
fn mappings(ctx: &Ctx<'_>, ag: AgNo, group: &Group, claims: &[Claim]) {
    let missing = |claim: &Claim| {
        let place = Place::block(ag, AgBlock(claim.start));
        let message = format!("no reverse mapping for {}", claim.describe());
        ctx.find(code::RMAP_MISSING, place, message);
    };
    let extra = |stored: &Claim| {
        let place = Place::block(ag, AgBlock(stored.start));
        let message =
            format!("a reverse mapping for {}, which matches no owner", stored.describe());
        ctx.find(code::RMAP_EXTRA, place, message);
    };
    let mut rmaps = group.rmaps.iter().map(Claim::of).peekable();
    for claim in claims.iter().filter(|claim| claim.owner != FREE) {
        while let Some(stored) = rmaps.next_if(|stored| stored.key() < claim.key()) {
            extra(&stored);
        }
        match rmaps.next_if(|stored| stored.key() == claim.key()) {
            Some(stored) if stored == *claim => {}
            Some(stored) => {
                extra(&stored);
                missing(claim);
            }
            None => missing(claim),
        }
    }
    rmaps.for_each(|stored| extra(&stored));
}

/// Runs of blocks with more than one owner; adjacent runs with equal counts are joined.
fn shared_runs(claims: &[Claim]) -> Vec<Run> {
    let files = claims.iter().filter(|claim| claim.owner != FREE && claim.may_share());
    let mut ends: Vec<u64> = files.clone().map(Claim::end).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut runs: Vec<Run> = Vec::new();
    let (mut at, mut owners) = (0u64, 0u32);
    let mut step = |to: u64, owners: u32, at: &mut u64| {
        if owners > 1 && *at < to {
            // Both fit 32 bits, because they lie in the group.
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

fn compare_counts(ctx: &Ctx<'_>, ag: AgNo, stored: &[Run], counted: &[Run]) {
    let wanted: FxHashSet<&Run> = counted.iter().collect();
    let seen: FxHashSet<&Run> = stored.iter().collect();
    for run in stored.iter().filter(|run| !wanted.contains(run)) {
        let (start, len, count) = run;
        let message = format!("a record says that blocks {start}+{len} have {count} owners");
        ctx.find(code::REFCOUNT, Place::block(ag, AgBlock(*start)), message);
    }
    for run in counted.iter().filter(|run| !seen.contains(run)) {
        let (start, len, count) = run;
        let message = format!("blocks {start}+{len} have {count} owners, but no record");
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
