//! Classifies the host's I/O errors by what can be done about them.
//!
//! 1. *Full*: the host has no space for the bytes now (ENOSPC, EDQUOT, EFBIG). Nothing is lost; the
//!    same write can succeed later.
//! 2. *Lost*: the device is no longer the one that was opened: its file was truncated, or the
//!    device vanished. Later reads and writes are meaningless.
//! 3. Every other error concerns the one access that reported it.

use std::fmt;
use std::io;

use crate::sys;

/// The device is no longer the one that was opened; the text says why.
#[derive(Debug)]
struct Lost(String);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lost {}

/// Errors of a device that is not there any more.
#[cfg(unix)]
const VANISHED: [i32; 3] = [
    rustix::io::Errno::NXIO.raw_os_error(),
    rustix::io::Errno::NODEV.raw_os_error(),
    rustix::io::Errno::STALE.raw_os_error(),
];
/// ERROR_DEV_NOT_EXIST, ERROR_DEVICE_NOT_CONNECTED, ERROR_DEVICE_REMOVED.
#[cfg(not(unix))]
const VANISHED: [i32; 3] = [55, 1167, 1617];

/// Makes an error that reports the device as lost, with the reason.
pub fn lost(why: impl Into<String>) -> io::Error {
    io::Error::other(Lost(why.into()))
}

/// Does the error report that the device is lost?
pub fn is_lost(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|raw| VANISHED.contains(&raw))
        || error.get_ref().is_some_and(|inner| inner.is::<Lost>())
}

/// Does the error report that the host has no space now?
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Does the error report that the host has no space now, but may have it after other files are
/// deleted? EFBIG does not qualify: the limit on file size lasts as long as the process.
pub fn is_full_for_now(error: &io::Error) -> bool {
    is_full(error) && error.kind() != io::ErrorKind::FileTooLarge
}

/// Fails if the process's file size limit forbids a write up to `end` of a regular file. Reserving
/// space does not check this limit; writing does.
pub(crate) fn check_limit(end: u64) -> io::Result<()> {
    sys::check_limit(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn errors_of_unix_are_classified() {
        use rustix::io::Errno;

        for (errno, full, gone) in [
            (Errno::NOSPC, true, false),
            (Errno::DQUOT, true, false),
            (Errno::FBIG, true, false),
            (Errno::IO, false, false),
            (Errno::NXIO, false, true),
            (Errno::NODEV, false, true),
            (Errno::STALE, false, true),
        ] {
            let error = io::Error::from(errno);
            assert_eq!((is_full(&error), is_lost(&error)), (full, gone), "{errno:?}");
            assert_eq!(is_full_for_now(&error), full && errno != Errno::FBIG, "{errno:?}");
        }
    }

    #[test]
    fn errors_are_classified() {
        let error = lost("cut short");
        assert!(is_lost(&error) && !is_full(&error));
        assert_eq!((error.to_string().as_str(), error.raw_os_error()), ("cut short", None));
        assert!(is_full(&io::ErrorKind::StorageFull.into()));
    }
}
