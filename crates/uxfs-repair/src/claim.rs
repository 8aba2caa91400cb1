//! Claims: runs of blocks of a group, each with the owner that uses it. All trees of a group follow
//! from its claims.
//!
//! A claim has the form of a reverse mapping, and [`merge`] joins claims as the reverse-mapping tree
//! does.

use uxfs_format::btree::{Refcount, Rmap, RmapOwner};
use uxfs_format::inode::Fork;
use uxfs_format::{AgBlock, AgNo, Extent, FsBlock, Geometry, Ino};

/// The claims of every group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    groups: Vec<Vec<Rmap>>,
}

/// First block behind a claim.
pub(crate) const fn end(claim: &Rmap) -> u32 {
    claim.start.0.saturating_add(claim.len)
}

/// The part of a claim from a block on.
pub(crate) fn from(claim: &Rmap, start: u32) -> Rmap {
    let skip = start - claim.start.0;
    let ahead = if claim.offset_moves() { u64::from(skip) } else { 0 };
    let (start, len) = (AgBlock(start), claim.len - skip);
    Rmap { start, len, offset: claim.offset + ahead, ..*claim }
}

/// May several files own these blocks?
pub(crate) const fn may_share(claim: &Rmap) -> bool {
    claim.owner.is_inode() && !claim.attr && !claim.bmbt
}

/// The order of claims.
pub(crate) type Key = (u32, u64, bool, bool, u64);

/// Where a claim is in the order.
pub(crate) const fn key(claim: &Rmap) -> Key {
    (claim.start.0, claim.owner.0, claim.attr, claim.bmbt, claim.offset)
}

fn joins(first: &Rmap, next: &Rmap) -> bool {
    let ahead = if first.offset_moves() { u64::from(first.len) } else { 0 };
    first.owner == next.owner
        && end(first) == next.start.0
        && (first.attr, first.bmbt, first.unwritten) == (next.attr, next.bmbt, next.unwritten)
        && first.offset + ahead == next.offset
        && first.len.checked_add(next.len).is_some()
}

/// Sorts claims as reverse mappings are sorted, and joins those that continue each other.
pub(crate) fn merge(claims: &mut Vec<Rmap>) {
    claims.sort_unstable_by_key(key);
    claims.dedup_by(|next, kept| {
        let joined = joins(kept, next);
        if joined {
            kept.len += next.len;
        }
        joined
    });
}

/// The runs between `from` and `to` that no claim covers: start and length. The claims are sorted.
pub(crate) fn free_runs(claims: &[Rmap], to: u32) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    let mut at = 0;
    for claim in claims {
        if claim.start.0 > at {
            runs.push((at, claim.start.0 - at));
        }
        at = at.max(end(claim));
    }
    if to > at {
        runs.push((at, to - at));
    }
    runs
}

/// Runs of blocks that several files own. The claims are sorted.
pub(crate) fn shared_runs(claims: &[Rmap]) -> Vec<Refcount> {
    let files = || claims.iter().filter(|claim| may_share(claim));
    let mut edges: Vec<(u32, bool)> =
        files().flat_map(|claim| [(claim.start.0, true), (end(claim), false)]).collect();
    edges.sort_unstable();
    let mut runs: Vec<Refcount> = Vec::new();
    let (mut at, mut owners) = (0, 0u32);
    for (block, begins) in edges {
        if owners > 1 && at < block {
            match runs.last_mut() {
                Some(last) if last.start.0 + last.len == at && last.count == owners => {
                    last.len += block - at;
                }
                _ => runs.push(Refcount {
                    start: AgBlock(at),
                    len: block - at,
                    count: owners,
                    cow: false,
                }),
            }
        }
        at = block;
        owners = if begins { owners + 1 } else { owners - 1 };
    }
    runs
}

impl Claims {
    /// No claims but those of the headers and the log.
    pub(crate) fn fixed(geo: &Geometry) -> Self {
        let mut claims = Self { groups: vec![Vec::new(); geo.ag_count as usize] };
        for ag in (0..geo.ag_count).map(AgNo) {
            claims.special(ag, RmapOwner::FS, 0, geo.ag_header_blocks());
        }
        if geo.log_start.0 != 0 {
            let (ag, start) = (geo.fsb_ag(geo.log_start), geo.fsb_agblock(geo.log_start).0);
            claims.special(ag, RmapOwner::LOG, start, geo.log_blocks);
        }
        claims
    }

    /// The claims of a group.
    pub(crate) fn group(&self, ag: AgNo) -> &[Rmap] {
        &self.groups[ag.0 as usize]
    }

    /// Claims blocks for a special owner.
    pub(crate) fn special(&mut self, ag: AgNo, owner: RmapOwner, start: u32, len: u32) {
        let claim = Rmap { start: AgBlock(start), len, owner, ..Rmap::default() };
        self.groups[ag.0 as usize].push(claim);
    }

    /// Claims the blocks of an extent of an inode's fork.
    pub(crate) fn extent(&mut self, geo: &Geometry, ino: Ino, fork: Fork, extent: &Extent) {
        let claim = Rmap {
            start: geo.fsb_agblock(extent.start),
            // An extent has fewer than 2^21 blocks.
            len: extent.len as u32,
            owner: RmapOwner(ino.0),
            offset: extent.offset.0,
            attr: fork == Fork::Attr,
            bmbt: false,
            unwritten: extent.unwritten,
        };
        self.push(geo.fsb_ag(extent.start), claim);
    }

    /// Claims a block of a fork's extent tree.
    pub(crate) fn bmbt(&mut self, geo: &Geometry, ino: Ino, fork: Fork, fsb: FsBlock) {
        let claim = Rmap {
            start: geo.fsb_agblock(fsb),
            len: 1,
            owner: RmapOwner(ino.0),
            attr: fork == Fork::Attr,
            bmbt: true,
            ..Rmap::default()
        };
        self.push(geo.fsb_ag(fsb), claim);
    }

    fn push(&mut self, ag: AgNo, claim: Rmap) {
        let claims = &mut self.groups[ag.0 as usize];
        match claims.last_mut() {
            Some(last) if joins(last, &claim) => last.len += claim.len,
            _ => claims.push(claim),
        }
    }

    /// Withdraws all claims for which `gone` is true.
    pub(crate) fn withdraw(&mut self, gone: impl Fn(&Rmap) -> bool) {
        for claims in &mut self.groups {
            claims.retain(|claim| !gone(claim));
        }
    }

    /// Sorts and joins the claims of all groups.
    pub(crate) fn merge(&mut self) {
        self.groups.iter_mut().for_each(merge);
    }
}
