//! The kernel's device `/dev/fuse`: one request a read, one reply a write.
//!
//! 1. A reply is written to the descriptor from which its request was read: each clone of the
//!    descriptor has requests of its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno as Failure;

use crate::Errno;
use crate::head::{header, slices};
use crate::sys;

pub(crate) struct Device(OwnedFd);

impl Device {
    /// Opens the device, without a connection.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::options().read(true).write(true).open("/dev/fuse")?.into()))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Another descriptor of the connection, with requests of its own.
    pub(crate) fn clone_connection(&self) -> io::Result<Self> {
        let new = Self::open()?;
        sys::clone_fuse_device(new.0.as_fd(), self.0.as_fd())?;
        Ok(new)
    }

    /// The next request, or `None` when the mount is gone.
    pub(crate) fn next<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(&buffer[..len])),
                // A signal; a request that its caller took back.
                Err(Failure::INTR | Failure::AGAIN | Failure::NOENT) => {}
                Err(Failure::NODEV) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
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
pub struct Notifier(pub(crate) Arc<Device>);

impl Notifier {
    /// Makes the kernel drop the attributes and access lists that it has cached of an inode, and
    /// its data from `offset` on unless that is negative.
    ///
    /// # Errors
    /// ENOENT if the kernel does not know the inode; ENODEV if the mount is gone.
    pub fn inval_inode(&self, node: crate::Node, offset: i64, len: i64) -> io::Result<()> {
        use zerocopy::IntoBytes;
        let body = crate::abi::InvalInodeOut { node: node.0, offset, len };
        self.0.notify(crate::abi::NOTIFY_INVAL_INODE, body.as_bytes())
    }
}
