//! Reports what programs change on a mount. `uxfs crash-test` uses it to explain which call a program
//! lacks.
//!
//! 1. A change is reported after the engine made it, and before the call returns to the program.
//! 2. A sync is reported when it begins.
//! 3. Changes of owners, permissions, times and attributes, and by ioctls, are not reported.

use uxfs::format::Ino;

/// A name in a directory.
pub type Name<'a> = (Ino, &'a [u8]);

/// A change, or a call that makes changes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A file, directory or node of this mode was made.
    Made {
        name: Name<'a>,
        ino: Ino,
        generation: u64,
        mode: u16,
    },
    Symlink {
        name: Name<'a>,
        ino: Ino,
        generation: u64,
        target: &'a [u8],
    },
    Linked {
        name: Name<'a>,
        ino: Ino,
    },
    Removed {
        name: Name<'a>,
    },
    Renamed {
        from: Name<'a>,
        to: Name<'a>,
        exchanged: bool,
    },
    /// `mapped`: the kernel wrote a page back that a program had changed through a mapping.
    Written {
        ino: Ino,
        offset: u64,
        data: &'a [u8],
        mapped: bool,
    },
    /// The length was set.
    Resized {
        ino: Ino,
        size: u64,
    },
    /// A range reads as zeroes.
    Zeroed {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    Copied {
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    },
    /// fsync, or fdatasync.
    Synced {
        ino: Ino,
        data_only: bool,
    },
    /// Everything was asked to be durable.
    SyncedAll,
}

pub trait Watcher: Send + Sync {
    /// The process `pid` did this; 0 if the kernel did it alone.
    fn saw(&self, pid: u32, change: &Change<'_>);
}
