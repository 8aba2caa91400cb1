//! One B+tree engine for the seven kinds of XFS trees.
//!
//! A tree supplies what is specific to it ([`Tree`]): its records and keys, the location of its root,
//! and the source of its blocks. The engine provides seek and step ([`cursor`]), insert, update and
//! delete ([`change`]).
//!
//! 1. Records are in ascending key order. No two keys are equal.
//! 2. A key in a node is the lowest key of the child. In overlapping trees (reverse mappings) the
//!    highest key anywhere below the child follows it.
//! 3. Every block but the root is at least half full, except where a root in an inode has only one
//!    child.
//! 4. Level numbers fall by one from parent to child. A block with a wrong level, owner or address is
//!    reported as corrupt, and nothing is changed.
//! 5. A cursor is valid until the tree is changed by anything but the cursor's own calls. After an
//!    insert or a delete the caller must seek again.
//!
//! The caller holds the lock of the AG, or of the inode for extent maps.

mod change;
mod cursor;
mod node;
mod short;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod tree;

pub use cursor::Cursor;
pub use short::{
    AgKind, AgTree, BlockSource, Bno, BnoTree, Cnt, CntTree, FinoKind, FinoTree, InoKind, InoTree,
    RefcountKind, RefcountTree, RmapKind, RmapTree,
};
pub use tree::{Env, Root, Tree};
