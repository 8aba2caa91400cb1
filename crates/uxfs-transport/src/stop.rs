//! The end of a connection: one of its threads failed, or its owner wants it.
//!
//! 1. Once raised it stays raised, and ends every wait for it.
//!
//! A session has one if it has rings or [`Settings::can_stop`](crate::Settings::can_stop).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use zerocopy::IntoBytes;

pub(crate) struct Stop(OwnedFd);

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Waits this long for it. Returns whether it is raised.
    pub(crate) fn raised_within(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(count) => Ok(count > 0),
            // A signal ends the wait early.
            Err(Errno::INTR) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    pub(crate) fn raise(&self) {
        // A write fails only if the counter is full. Then an earlier one has raised it.
        let _ = rustix::io::write(&self.0, 1_u64.as_bytes());
    }
}

/// What becomes readable when it is raised.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
