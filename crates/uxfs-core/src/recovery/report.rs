//! The report that a recovery returns to the caller that opened the volume.

use uxfs_log::Bounds;

/// What recovery did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// The log's ends, as they were found.
    pub bounds: Bounds,
    /// What replay did.
    pub replay: uxfs_log::Report,
    /// What was announced and not done, and is done now.
    pub intents: u64,
    /// Inodes without a name that were freed.
    pub unlinked: u64,
    /// Blocks staged for copy on write that nobody used, freed.
    pub staged: u64,
    /// Did all of it stay in memory?
    pub in_memory: bool,
}
