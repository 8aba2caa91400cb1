//! What a host says when it refuses, told apart by what can be done about it.
//!
//! 1. *Full*: the host has no room for the bytes now (ENOSPC, EDQUOT, EFBIG). Nothing is lost; the
//!    same write can succeed later.
//! 2. *Lost*: the device is no longer the one that was opened: its file was cut short, or it
//!    vanished. Nothing that is read from it or written to it later counts.
//! 3. Everything else is an error of this one access.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// The device is not the one that was opened any more.
#[derive(Debug)]
struct Lost(String);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lost {}

/// An error that says why the device is lost.
pub fn lost(why: impl Into<String>) -> io::Error {
    io::Error::other(Lost(why.into()))
}

/// Does the error say that the device is lost?
pub fn is_lost(error: &io::Error) -> bool {
    let vanished = [Errno::NXIO, Errno::NODEV, Errno::STALE];
    let raw = error.raw_os_error();
    vanished.iter().any(|errno| raw == Some(errno.raw_os_error()))
        || error.get_ref().is_some_and(|inner| inner.is::<Lost>())
}

/// Does the error say that the host has no room now?
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Does the error say that the host has no room now, but may have it when others give some back? A
/// limit on the size of files stays for as long as the process lives.
pub fn is_full_for_now(error: &io::Error) -> bool {
    is_full(error) && error.kind() != io::ErrorKind::FileTooLarge
}

/// Fails if this process may not write up to `end` of a regular file. Setting room aside does not
/// ask for that limit, writing does.
pub(crate) fn check_limit(end: u64) -> io::Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if limit < end => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
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
        let error = lost("cut short");
        assert!(is_lost(&error) && !is_full(&error));
        assert_eq!((error.to_string().as_str(), error.raw_os_error()), ("cut short", None));
        assert!(is_full(&io::ErrorKind::StorageFull.into()));
    }
}
