//! Options of a repair, and its progress.

/// Options of a repair.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Drop a log that cannot be replayed, with the changes in it.
    pub drop_log: bool,
}

/// What a repair does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The volume is checked.
    Check,
    /// The log is replayed.
    Log,
    /// Inodes are mended.
    Inodes,
    /// Directories and links are settled.
    Links,
    /// Trees of the groups are made anew.
    Groups,
    /// Directories are filled again.
    Refill,
}

impl Phase {
    /// The phase in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "checking",
            Self::Log => "replaying the log",
            Self::Inodes => "mending inodes",
            Self::Links => "settling links",
            Self::Groups => "making trees anew",
            Self::Refill => "filling directories",
        }
    }
}
