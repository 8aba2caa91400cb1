//! The kernel's device `/dev/fuse`: one request a read, one reply a write.
//!
//! 1. A reply is written to the descriptor from which its request was read: each clone of the
//!    descriptor has requests of its own.
//! 2. The kernel ends the connection when the last descriptor is closed. The session's threads hold
//!    them, and requests that came here until they are answered; a [`Notifier`] holds none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Failure;

use crate::Errno;
use crate::head::{header, slices};
use crate::stop::Stop;
use crate::sys;

pub(crate) struct Device(OwnedFd);

impl Device {
    /// Opens the device, without a connection.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_with(OFlags::empty())
    }

    fn open_with(flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open("/dev/fuse", flags, Mode::empty())?))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Another descriptor of the connection, with requests of its own.
    pub(crate) fn clone_connection(&self) -> io::Result<Self> {
        self.clone_to(Self::open()?)
    }

    /// The same, with reads that do not block.
    pub(crate) fn clone_nonblocking(&self) -> io::Result<Self> {
        self.clone_to(Self::open_with(OFlags::NONBLOCK)?)
    }

    /// Makes the reads of this descriptor ones that do not block.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0)? | OFlags::NONBLOCK;
        Ok(rustix::fs::fcntl_setfl(&self.0, flags)?)
    }

    fn clone_to(&self, new: Self) -> io::Result<Self> {
        sys::clone_fuse_device(new.0.as_fd(), self.0.as_fd())?;
        Ok(new)
    }

    /// The next request, or `None` when the mount is gone or `stop` is raised. On a descriptor that
    /// blocks, the wait for a request that its caller took back may go on after that.
    pub(crate) fn next<'a>(
        &self,
        buffer: &'a mut [u8],
        stop: Option<&Stop>,
    ) -> io::Result<Option<&'a [u8]>> {
        loop {
            if let Some(stop) = stop
                && self.wait(stop)?
            {
                return Ok(None);
            }
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                // A signal; a request that its caller took back.
                Err(Failure::INTR | Failure::AGAIN | Failure::NOENT) => {}
                Err(Failure::NODEV) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Waits for a request. Returns whether `stop` is raised.
    fn wait(&self, stop: &Stop) -> io::Result<bool> {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [self.as_fd(), stop.as_fd()].map(readable);
        match poll(&mut fds, None) {
            Ok(_) => Ok(!fds[1].revents().is_empty()),
            Err(Failure::INTR) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    pub(crate) fn reply(&self, unique: u64, result: Result<(), Errno>, body: &[&[u8]]) {
        let head = header(unique, result, body.iter().map(|part| part.len()).sum());
        let (slices, count) = slices(&head, body);
        // It fails if the caller is gone, or the mount.
        let _ = rustix::io::writev(&self.0, &slices[..count]);
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let mut head = header(0, Ok(()), body.len());
        head.error = code;
        let (slices, count) = slices(&head, &[body]);
        rustix::io::writev(&self.0, &slices[..count])?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A channel for notifications to the kernel.
#[derive(Clone)]
pub struct Notifier(Weak<Device>);

impl Notifier {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self(Arc::downgrade(device))
    }

    /// Makes the kernel drop the attributes and access lists that it has cached of an inode, and
    /// its data from `offset` on unless that is negative.
    ///
    /// # Errors
    /// ENOENT if the kernel does not know the inode; ENODEV if the mount is gone.
    pub fn inval_inode(&self, node: crate::Node, offset: i64, len: i64) -> io::Result<()> {
        use zerocopy::IntoBytes;
        let body = crate::abi::InvalInodeOut { node: node.0, offset, len };
        let device = self.0.upgrade().ok_or(Failure::NODEV)?;
        device.notify(crate::abi::NOTIFY_INVAL_INODE, body.as_bytes())
    }
}
