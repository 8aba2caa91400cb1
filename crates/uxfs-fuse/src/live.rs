//! The current options of a mount, which a remount changes.
//!
//! 1. Requests read them without waiting for a remount. New options hold from the end of the
//!    remount on.
//!
//! Called by `server`, `control` and `volume`.

use parking_lot::RwLock;
use uxfs::Atime;

use crate::options::Options;

/// The options that requests read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hot {
    pub(crate) atime: Atime,
    pub(crate) dir_atime: Atime,
    pub(crate) wsync: bool,
    pub(crate) sync: bool,
}

impl Hot {
    fn of(options: &Options) -> Self {
        let Options { atime, dir_atime, wsync, sync, .. } = *options;
        Self { atime, dir_atime, wsync, sync }
    }
}

/// The options of a mount.
pub(crate) struct Live {
    hot: RwLock<Hot>,
    all: RwLock<Options>,
}

impl Live {
    pub(crate) fn new(options: &Options) -> Self {
        Self { hot: RwLock::new(Hot::of(options)), all: RwLock::new(options.clone()) }
    }

    /// The options that requests read.
    pub(crate) fn hot(&self) -> Hot {
        *self.hot.read()
    }

    /// All options.
    pub(crate) fn all(&self) -> Options {
        self.all.read().clone()
    }

    /// Sets the options.
    pub(crate) fn set(&self, options: Options) {
        *self.hot.write() = Hot::of(&options);
        *self.all.write() = options;
    }
}
