//! Why a volume stopped, or why some of it cannot be written at present.
//!
//! 1. The first cause that stops a volume is kept; later failures follow from it.
//! 2. A cause names what failed, where, and with which errno, so that a person can act on it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_format::Daddr;
use uxfs_sync::Mutex;

use crate::error::{Error, Result, errno_of};

/// A failure that stopped the volume, or that is being retried.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// What the engine was doing, such as `writing the log`.
    pub what: String,
    /// Where on the device, if it was at one place.
    pub daddr: Option<Daddr>,
    /// What the host said, if it was the host; 5 (EIO) where it gave no number.
    pub errno: Option<i32>,
    /// All of it in words.
    pub message: String,
}

impl Cause {
    /// `error` ended `what`.
    pub(crate) fn of(what: &str, error: &Error) -> Self {
        let (daddr, errno) = match error {
            Error::Io { daddr, source, .. } => (Some(*daddr), Some(errno_of(source))),
            other => (other.daddr(), None),
        };
        // An error of the device says itself what was attempted: it is not said twice.
        let message = match error {
            Error::Io { what: attempted, .. } if *attempted == what => error.to_string(),
            _ => format!("{what}: {error}"),
        };
        Self { what: what.into(), daddr, errno, message }
    }

    /// The device failed in `what`, at no one place.
    pub(crate) fn device(what: &str, error: &io::Error) -> Self {
        let message = format!("{what}: {error}");
        Self { what: what.into(), daddr: None, errno: Some(errno_of(error)), message }
    }
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self { what: message.clone(), daddr: None, errno: None, message }
    }
}

impl From<&str> for Cause {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Whether a volume is stopped, and by what.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    cause: Mutex<Option<Cause>>,
}

impl Stop {
    /// Stops it, unless it is stopped.
    pub(crate) fn stop(&self, cause: impl Into<Cause>) {
        self.cause.lock().get_or_insert(cause.into());
        self.stopped.store(true, Ordering::Release);
    }

    /// What stopped it.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cause.lock().clone()
    }

    /// Fails if it is stopped.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.cause.lock() {
            Some(cause) => Err(Error::Shutdown(cause.to_string())),
            None => Ok(()),
        }
    }
}

// The errors are numbers of Linux.
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_cause_states_the_operation_its_place_and_errno_once() {
        let source = io::Error::from_raw_os_error(28);
        let error = Error::Io { what: "writing the log", daddr: Daddr(16), source };
        let cause = Cause::of("writing the log", &error);
        assert_eq!((cause.daddr, cause.errno), (Some(Daddr(16)), Some(28)));
        assert!(cause.to_string().starts_with("writing the log at daddr 16"), "{cause}");
        let cause = Cause::of("cutting a checkpoint", &error);
        assert!(cause.to_string().starts_with("cutting a checkpoint: writing the log"), "{cause}");
        let cause = Cause::device("flushing the device", &io::ErrorKind::UnexpectedEof.into());
        assert_eq!((cause.daddr, cause.errno), (None, Some(5)));
    }
}
