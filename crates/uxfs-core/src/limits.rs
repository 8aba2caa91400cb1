//! Limits of one step of an operation, from which block and log reservations are computed.

/// Most blocks by which a fork's btree grows in one step.
pub(crate) const TREE_BLOCKS: u64 = 10;

/// Most extents freed in one transaction when a file is truncated.
pub(crate) const EXTENTS_A_STEP: u64 = 32;
