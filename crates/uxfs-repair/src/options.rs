//! Options of a repair, and its progress.

use uxfs_core::Device;

/// Options of a repair.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Drop a log that cannot be replayed, with the changes in it.
    pub drop_log: bool,
    /// The device of an external log. Apply the plan to the device that
    /// [`Devices::side_by_side`](uxfs_core::Devices::side_by_side) makes of it and the data.
    pub log: Option<Device>,
}

impl core::fmt::Debug for RepairOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut all = f.debug_struct("RepairOptions");
        all.field("drop_log", &self.drop_log).field("log", &self.log.is_some()).finish()
    }
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
