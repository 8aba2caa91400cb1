//! What phase 2 shares between its checks: the state of the pass, the results of one thread, and the inode
//! under check.

use rustc_hash::FxHashSet;
use uxfs_format::inode::{self, Fork, InodeCore};
use uxfs_format::{AgIno, AgNo, Extent, Ino};

use crate::claim::Claim;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::Group;
use crate::report::Totals;
use crate::table::Table;
use crate::usage::Usage;

/// Number of claims for which memory is reserved at once.
const KEEP: usize = 1024;

/// The extents of a fork whose blocks are to be read.
pub(crate) type Extents = Vec<Extent>;

/// State of phase 2.
pub(crate) struct Pass<'p, 'a> {
    /// The shared state.
    pub(crate) ctx: &'p Ctx<'a>,
    /// Results of phase 1.
    pub(crate) groups: &'p [Group],
    /// Counts the links.
    pub(crate) table: &'p Table,
}

/// A directory, recorded for the checks of the directory tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirRecord {
    /// The directory.
    pub(crate) ino: Ino,
    /// The inode of "..", if it could be read.
    pub(crate) dotdot: Option<Ino>,
}

/// Results of one thread.
#[derive(Default)]
pub(crate) struct Local {
    claims: Vec<Vec<Claim>>,
    claimed: usize,
    /// Directories found.
    pub(crate) dirs: Vec<DirRecord>,
    /// Entries that lead to directories: (child, parent).
    pub(crate) links: Vec<(Ino, Ino)>,
    /// Inodes without links or on an unlinked list, with the next inode on their list.
    pub(crate) unlinked: Vec<(Ino, AgIno)>,
    /// Files with the reflink flag.
    pub(crate) reflinked: Vec<Ino>,
    /// Inodes whose names are to be recorded.
    pub(crate) wanted: FxHashSet<Ino>,
    /// The recorded names.
    pub(crate) names: Vec<(Ino, Vec<u8>)>,
    /// Counts of checked structures.
    pub(crate) totals: Totals,
    /// Blocks and inodes used by users, groups and projects.
    pub(crate) usage: Usage,
    /// Were the blocks of some inode unreadable?
    pub(crate) incomplete: bool,
}

impl Local {
    /// Adds a claim of blocks of a group.
    pub(crate) fn claim(&mut self, ctx: &Ctx<'_>, ag: AgNo, claim: Claim) {
        let index = ag.0 as usize;
        if self.claims.len() <= index {
            self.claims.resize_with(index + 1, Vec::new);
        }
        if self.claimed.is_multiple_of(KEEP) && !ctx.reserve(KEEP * size_of::<Claim>()) {
            self.incomplete = true;
            return;
        }
        let before = self.claims[index].len();
        crate::claim::push(&mut self.claims[index], claim);
        self.claimed += self.claims[index].len() - before;
    }

    /// Hands the claims to their groups.
    pub(super) fn flush(&mut self, groups: &[Group]) {
        for (claims, group) in self.claims.iter_mut().zip(groups) {
            if !claims.is_empty() {
                group.claims.lock().append(claims);
            }
        }
    }
}

/// An inode in use.
pub(crate) struct Inode<'i> {
    /// Inode number.
    pub(crate) ino: Ino,
    /// The decoded core.
    pub(crate) core: InodeCore,
    /// The raw inode.
    pub(crate) raw: &'i [u8],
}

impl Inode<'_> {
    /// The location for findings.
    pub(crate) fn place(&self) -> Place {
        Place::inode(self.ino)
    }

    /// The raw bytes of a fork.
    pub(crate) fn fork(&self, fork: Fork) -> &[u8] {
        let literal = &self.raw[inode::CORE_LEN..];
        &literal[self.core.fork_range(fork, literal.len())]
    }
}
