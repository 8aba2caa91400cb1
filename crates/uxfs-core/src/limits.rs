//! Bounds of what one step of an operation does, by which space and log space are reserved.

/// Blocks that a fork's tree may grow by in one step.
pub(crate) const TREE_BLOCKS: u64 = 10;

/// Extents freed in one transaction when a file is cut.
pub(crate) const EXTENTS_A_STEP: u64 = 32;
