//! Limits of one step of an operation, from which block and log reservations are computed.

/// Blocks that a fork's tree may grow by in one step.
pub(crate) const TREE_BLOCKS: u64 = 10;

/// Extents freed in one transaction when a file is cut.
pub(crate) const EXTENTS_A_STEP: u64 = 32;
