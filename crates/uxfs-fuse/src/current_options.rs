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
pub(crate) struct RequestOptions {
    pub(crate) atime: Atime,
    pub(crate) dir_atime: Atime,
    pub(crate) wsync: bool,
    pub(crate) sync: bool,
}

impl RequestOptions {
    fn of(options: &Options) -> Self {
        let Options { atime, dir_atime, wsync, sync, .. } = *options;
        Self { atime, dir_atime, wsync, sync }
    }
}

pub(crate) struct CurrentOptions {
    for_requests: RwLock<RequestOptions>,
    all: RwLock<Options>,
}

impl CurrentOptions {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            for_requests: RwLock::new(RequestOptions::of(options)),
            all: RwLock::new(options.clone()),
        }
    }

    /// The options that requests read.
    pub(crate) fn for_requests(&self) -> RequestOptions {
        *self.for_requests.read()
    }

    pub(crate) fn all(&self) -> Options {
        self.all.read().clone()
    }

    pub(crate) fn set(&self, options: Options) {
        *self.for_requests.write() = RequestOptions::of(&options);
        *self.all.write() = options;
    }
}
