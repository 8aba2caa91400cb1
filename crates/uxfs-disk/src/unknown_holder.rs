//! The process that holds the lock of an image, on systems that do not tell: always an unnamed one.
//! Stands in for `holder` there.

use std::fmt;
use std::path::Path;

/// The process that has an image in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Is the process about to release the image?
    pub(crate) ending: Ending,
}

/// Is a holder about to release the image?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "this system never shows the other two")]
pub(crate) enum Ending {
    /// There is no sign that it will.
    #[default]
    No,
    /// Probably.
    Soon,
    /// Yes.
    Closing,
}

impl Holder {
    /// The process that holds a lock on the file at `path`: this system does not show it.
    pub(crate) fn of(_: &Path) -> Option<Self> {
        None
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another process")
    }
}
