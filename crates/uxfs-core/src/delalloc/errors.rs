//! Errors of write-back: kept with the file, reported once to each open handle.
//!
//! 1. Each error gets a stamp, higher than all before it. A handle has a cursor: the stamp of the last error
//!    that was reported to it. A file's error is reported if its stamp is higher.
//! 2. A cursor that is made before the file's last error was reported to anyone will get that error: an
//!    error that happens while no handle is open is not lost.
//! 3. An error is forgotten only with its file.

use std::collections::BTreeMap;
use std::io;

use uxfs_format::{Daddr, Ino};

use crate::error::Error;

/// The errors of a file's data that were reported to one open handle. Made when the handle is
/// opened.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ErrorCursor(u64);

/// A kept error, which can be reported several times.
#[derive(Clone, Debug)]
enum Kept {
    NoSpace,
    Io { daddr: Daddr, raw: Option<i32>, kind: io::ErrorKind, text: String },
}

impl Kept {
    fn of(error: &Error) -> Self {
        match error {
            Error::NoSpace => Self::NoSpace,
            Error::Io { daddr, source, .. } => Self::Io {
                daddr: *daddr,
                raw: source.raw_os_error(),
                kind: source.kind(),
                text: source.to_string(),
            },
            other => Self::Io {
                daddr: Daddr(0),
                raw: None,
                kind: io::ErrorKind::Other,
                text: other.to_string(),
            },
        }
    }

    fn error(&self) -> Error {
        match self {
            Self::NoSpace => Error::NoSpace,
            Self::Io { daddr, raw, kind, text } => {
                let source = match raw {
                    Some(raw) => io::Error::from_raw_os_error(*raw),
                    None => io::Error::new(*kind, text.clone()),
                };
                Error::Io { what: "writing back data", daddr: *daddr, source }
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    stamp: u64,
    /// It was reported to at least one handle.
    reported: bool,
    /// The cursor of callers without a handle.
    own: ErrorCursor,
    kept: Kept,
}

/// The errors of all files.
#[derive(Debug, Default)]
pub(super) struct Errors {
    last: u64,
    files: BTreeMap<u64, Entry>,
}

impl Errors {
    /// Records an error of a file.
    pub(super) fn record(&mut self, ino: Ino, error: &Error) {
        self.last += 1;
        let (stamp, kept) = (self.last, Kept::of(error));
        let own = self.files.get(&ino.0).map_or_else(ErrorCursor::default, |e| e.own.clone());
        self.files.insert(ino.0, Entry { stamp, reported: false, own, kept });
    }

    /// A cursor for a handle that is opened now.
    pub(super) fn cursor(&self, ino: Ino) -> ErrorCursor {
        let entry = self.files.get(&ino.0).filter(|entry| entry.reported);
        ErrorCursor(entry.map_or(0, |entry| entry.stamp))
    }

    /// The file's last error, if it was not reported to this cursor yet.
    pub(super) fn check(&mut self, ino: Ino, cursor: &mut ErrorCursor) -> Result<(), Error> {
        let Some(entry) = self.files.get_mut(&ino.0).filter(|e| e.stamp > cursor.0) else {
            return Ok(());
        };
        cursor.0 = entry.stamp;
        entry.reported = true;
        Err(entry.kept.error())
    }

    /// The same for callers without a cursor.
    pub(super) fn check_own(&mut self, ino: Ino) -> Result<(), Error> {
        let Some(entry) = self.files.get(&ino.0) else { return Ok(()) };
        let mut own = entry.own.clone();
        let checked = self.check(ino, &mut own);
        if let Some(entry) = self.files.get_mut(&ino.0) {
            entry.own = own;
        }
        checked
    }

    /// Drops the errors of a file that was freed.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_gets_an_error_once() {
        let (ino, mut errors) = (Ino(7), Errors::default());
        let (mut early, mut other) = (errors.cursor(ino), errors.cursor(ino));
        assert!(errors.check(ino, &mut early).is_ok());
        errors.record(ino, &Error::NoSpace);
        // It was reported to no handle, so a new handle gets it too.
        let mut late = errors.cursor(ino);
        for cursor in [&mut early, &mut other, &mut late] {
            assert!(matches!(errors.check(ino, cursor), Err(Error::NoSpace)));
            assert!(errors.check(ino, cursor).is_ok());
        }
        assert!(errors.check_own(ino).is_err());
        assert!(errors.check_own(ino).is_ok());
        // A handle opened after that gets the next error, but not this one.
        let mut last = errors.cursor(ino);
        assert!(errors.check(ino, &mut last).is_ok());
        let source = io::Error::from_raw_os_error(5);
        errors.record(ino, &Error::Io { what: "writing data", daddr: Daddr(8), source });
        for cursor in [&mut early, &mut last] {
            assert_eq!(errors.check(ino, cursor).unwrap_err().errno(), 5);
            assert!(errors.check(ino, cursor).is_ok());
        }
        assert!(errors.check(Ino(8), &mut other).is_ok());
        errors.forget(ino);
        assert!(errors.check(ino, &mut other).is_ok());
    }
}
