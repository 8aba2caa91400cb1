//! Claims: each claim is a run of blocks that one owner uses.
//!
//! The walks of phases 1 and 2 record claims. Phase 3 ([`crate::owners`]) compares them with each
//! other, with the reverse mappings and with the reference counts. A claim has the form of the
//! expected reverse mapping; [`merge`] joins claims as the reverse-mapping btree does.

use uxfs_format::btree::{Rmap, RmapOwner};

/// Owner of free blocks, which have no reverse mapping.
pub(crate) const FREE: RmapOwner = RmapOwner(-1i64 as u64);

/// A run of blocks of one group with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    /// First block.
    pub(crate) start: u32,
    /// Number of blocks.
    pub(crate) len: u32,
    /// Owner.
    pub(crate) owner: RmapOwner,
    /// Offset in the fork with the flags, packed as in reverse mappings.
    pub(crate) offset: u64,
}

const FLAGS: u64 = 7 << 61;
const BMBT: u64 = 1 << 62;
const ATTR: u64 = 1 << 63;
const UNWRITTEN: u64 = 1 << 61;

impl Claim {
    /// Claims blocks for one of the special owners.
    pub(crate) const fn special(owner: RmapOwner, start: u32, len: u32) -> Self {
        Self { start, len, owner, offset: 0 }
    }

    /// First block behind the run.
    pub(crate) const fn end(&self) -> u64 {
        self.start as u64 + self.len as u64
    }

    /// May several files own these blocks?
    pub(crate) const fn may_share(&self) -> bool {
        self.owner.is_inode() && self.offset & (BMBT | ATTR) == 0
    }

    /// Sort key, as for reverse mappings.
    pub(crate) const fn key(&self) -> (u32, u64, u64) {
        (self.start, self.owner.0, self.offset & !UNWRITTEN)
    }

    /// Does `next` continue this run, so that one reverse mapping covers both?
    fn joins(&self, next: &Self) -> bool {
        let moves = self.owner.is_inode() && self.offset & BMBT == 0;
        let ahead = if moves { u64::from(self.len) } else { 0 };
        self.owner == next.owner
            && self.end() == u64::from(next.start)
            && self.offset & FLAGS == next.offset & FLAGS
            && (self.offset & !FLAGS) + ahead == next.offset & !FLAGS
            && u64::from(self.len) + u64::from(next.len) <= u64::from(u32::MAX)
    }

    /// Describes the claim for a message.
    pub(crate) fn describe(&self) -> String {
        let owner = match self.owner {
            FREE => "free space".to_owned(),
            RmapOwner::FS => "the headers".to_owned(),
            RmapOwner::LOG => "the log".to_owned(),
            RmapOwner::AG => "the free-space trees and list".to_owned(),
            RmapOwner::INOBT => "the inode trees".to_owned(),
            RmapOwner::INODES => "inodes".to_owned(),
            RmapOwner::REFC => "the reference count tree".to_owned(),
            RmapOwner::COW => "copy on write".to_owned(),
            RmapOwner(ino) => format!("inode {ino}"),
        };
        let fork = match (self.offset & ATTR != 0, self.offset & BMBT != 0) {
            (false, false) if !self.owner.is_inode() => String::new(),
            (false, false) => format!(" (offset {})", self.offset & !FLAGS),
            (true, false) => format!(" (attribute fork, offset {})", self.offset & !FLAGS),
            (_, true) => " (extent tree)".to_owned(),
        };
        let unwritten = if self.offset & UNWRITTEN != 0 { ", unwritten" } else { "" };
        format!("blocks {}+{} of {owner}{fork}{unwritten}", self.start, self.len)
    }

    /// The claim that matches a reverse mapping.
    pub(crate) fn of(rmap: &Rmap) -> Self {
        Self { start: rmap.start.0, len: rmap.len, owner: rmap.owner, offset: rmap.packed_offset() }
    }
}

/// Adds a claim from a walk that visits an owner's blocks in order; joins it with the last claim
/// if possible.
pub(crate) fn push(claims: &mut Vec<Claim>, claim: Claim) {
    match claims.last_mut() {
        Some(last) if last.joins(&claim) => last.len += claim.len,
        _ => claims.push(claim),
    }
}

/// Sorts claims and joins those of owners that are not walked in order. [`push`] already joined
/// the claims of files.
pub(crate) fn merge(claims: &mut Vec<Claim>) {
    claims.sort_unstable_by_key(Claim::key);
    let mut kept: usize = 0;
    for index in 0..claims.len() {
        let claim = claims[index];
        match kept.checked_sub(1).map(|last| &mut claims[last]) {
            Some(last) if last.joins(&claim) => last.len += claim.len,
            _ => {
                claims[kept] = claim;
                kept += 1;
            }
        }
    }
    claims.truncate(kept);
}

#[cfg(test)]
mod tests {
    use uxfs_format::AgBlock;

    use super::*;

    #[test]
    fn runs_join_like_reverse_mappings() {
        let file = |start, len, offset| Claim { start, len, owner: RmapOwner(131), offset };
        let mut claims = Vec::new();
        push(&mut claims, file(10, 5, 0));
        push(&mut claims, file(15, 5, 5));
        push(&mut claims, file(20, 5, 10 | UNWRITTEN));
        push(&mut claims, file(25, 5, 16 | UNWRITTEN));
        assert_eq!(claims.len(), 3);
        claims.push(Claim::special(RmapOwner::AG, 7, 1));
        claims.push(Claim::special(RmapOwner::AG, 6, 1));
        merge(&mut claims);
        assert_eq!(claims.len(), 4);
        assert_eq!(claims[0], Claim::special(RmapOwner::AG, 6, 2));
        let mut rmap =
            Rmap { start: AgBlock(10), len: 10, owner: RmapOwner(131), ..Rmap::default() };
        rmap.set_packed_offset(0);
        assert_eq!(Claim::of(&rmap), claims[1]);
    }
}
