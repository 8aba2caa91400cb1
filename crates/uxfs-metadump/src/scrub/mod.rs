//! What is done to a metadata block before it is dumped: unused bytes are cleared, names get other names,
//! values of attributes are cleared.
//!
//! 1. A block is checked first, so the code for each kind meets only blocks that keep the rules of
//!    `uxfs-format`.
//! 2. A block that fails the check stays as it is; in a dump with other names only its header stays,
//!    because the rest can hold names, whatever kind it was to be.
//! 3. A checksum that was right is made right again.

mod ag;
mod attr;
mod dir;
mod inode;
mod rules;
mod symlink;
mod tree;
mod used;

use uxfs_format::Daddr;
use uxfs_format::verify::{self, BufKind};

use rules::HEADER_LEN;

pub(crate) use inode::{core, fork_range};
pub(crate) use rules::{Outcome, Scrub};

impl Scrub<'_> {
    /// Changes a block of `kind` that lies at `daddr`.
    pub(crate) fn block(&self, block: &mut [u8], kind: BufKind, daddr: Daddr) -> Outcome {
        if let Err(problem) = verify::check(block, kind, daddr, self.geo) {
            return Outcome::Damaged(problem, self.withhold(block, HEADER_LEN));
        }
        self.sealed(block, kind, |block| match kind {
            BufKind::Superblock | BufKind::Agf | BufKind::Agi => {
                self.clear(block, ag::used(block, kind))
            }
            BufKind::Btree(tree) => self.clear(block, tree::used(block, tree)),
            BufKind::DirBlock | BufKind::DirData => self.dir_data(block, kind),
            BufKind::DirLeaf1 | BufKind::DirLeafN | BufKind::DirFree | BufKind::DaNode => {
                self.clear(block, dir::used(block, kind));
            }
            BufKind::AttrLeaf => self.attr_leaf(block),
            BufKind::AttrRemote => self.attr_value(block),
            BufKind::Agfl | BufKind::Symlink | BufKind::InodeCluster | BufKind::Dquot(_) => {}
        });
        Outcome::Fine
    }
}
