//! One B+tree engine for XFS' seven trees.
//!
//! A tree plugs in what differs ([`Tree`]): its records and keys, where its root is, where its
//! blocks come from. The engine does the rest: seek and step ([`cursor`]), insert, update, delete
//! ([`change`]).
//!
//! 1. Records are in ascending order of key; no two are equal.
//! 2. A key in a node is the lowest key of the child; in overlapping trees (reverse mappings) the
//!    highest key anywhere below the child follows it.
//! 3. Every block but the root is at least half full, except where a root in an inode has only one
//!    child.
//! 4. Level numbers fall by one from parent to child; a block that breaks this, or names another
//!    owner or address, is damaged, and nothing is changed.
//! 5. A cursor is good until the tree changes by other means than that cursor's own calls; after
//!    an insert or a delete it must be sought anew.
//!
//! The AG's lock (or the inode's, for extents) is held by whoever calls.

mod change;
mod cursor;
mod node;
mod short;
#[cfg(test)]
mod tests;
mod tree;

pub use cursor::Cursor;
pub use short::{
    AgKind, AgTree, BlockSource, Bno, BnoTree, Cnt, CntTree, FinoKind, FinoTree, InoKind, InoTree,
    RefcountKind, RefcountTree, RmapKey, RmapKind, RmapTree,
};
pub use tree::{Env, Root, Tree};
pub(crate) use tree::{ROOT_HEADER, root_max};
