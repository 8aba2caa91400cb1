//! What a server implements: one method per kind of request.
//!
//! 1. Methods run on the transport's threads, several at once. One that waits keeps the requests
//!    behind it waiting; a reply may be sent later, from any thread.
//! 2. A reply that is dropped answers with EIO.

use std::io;

use crate::attr::{Handle, Node, SetTime};
use crate::negotiation::Negotiation;
use crate::park::Parked;
use crate::reply::{
    Bytes, Reply, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
use crate::{Errno, Request};

/// The attributes that a request changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The open file through which the request was made.
    pub handle: Option<Handle>,
    /// With a size: the server removes set-ID bits and capabilities.
    pub kill_privileges: bool,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub handle: Handle,
    pub offset: u64,
    pub data: &'a [u8],
    /// The server removes set-ID bits and capabilities.
    pub kill_privileges: bool,
    /// The kernel writes a page of its cache back, which no process waits for.
    pub cached: bool,
    /// The flags of the open file.
    pub flags: i32,
}

/// A read of a file or directory.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub handle: Handle,
    pub offset: u64,
    /// The flags of the open file.
    pub flags: i32,
}

/// An ioctl.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    pub cmd: u32,
    pub data: &'a [u8],
    pub out_size: u32,
}

/// A range of a file's space.
#[derive(Clone, Copy, Debug)]
pub struct Fallocate {
    pub offset: u64,
    pub len: u64,
    pub mode: i32,
}

/// A copy between two files.
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    pub from: (Node, u64),
    pub to: (Node, u64),
    pub len: u64,
}

/// A file system's answers. The defaults answer that the server does not know the request.
#[expect(unused_variables, reason = "the defaults use none")]
pub trait Filesystem: Send + Sync + 'static {
    /// Calls `run`, which runs a request that may change files, or returns false if such requests have
    /// to wait now. The request is then parked.
    fn admit(&self, run: &mut dyn FnMut()) -> bool {
        run();
        true
    }

    /// Keeps a request that was not admitted, to be run later with [`Parked::run`].
    fn park(&self, parked: Parked)
    where
        Self: Sized,
    {
        parked.run(self);
    }

    /// Chooses the settings of the connection. Called before everything else.
    ///
    /// # Errors
    /// The kernel lacks what the server needs. The mount fails.
    fn init(&self, kernel: &mut Negotiation) -> io::Result<()>;

    fn lookup(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEntry) {
        reply.error(Errno::NOSYS);
    }
    fn forget(&self, node: Node, count: u64) {}
    fn getattr(&self, req: &Request, node: Node, reply: ReplyAttr) {
        reply.error(Errno::NOSYS);
    }
    /// As `getattr`, for a caller that wants to know when the inode was made.
    fn statx(&self, req: &Request, node: Node, reply: ReplyStatx) {
        reply.error(Errno::NOSYS);
    }
    fn setattr(&self, req: &Request, node: Node, change: &SetAttr, reply: ReplyAttr) {
        reply.error(Errno::NOSYS);
    }
    fn readlink(&self, req: &Request, node: Node, reply: Reply<Bytes>) {
        reply.error(Errno::NOSYS);
    }
    fn mknod(
        &self,
        req: &Request,
        parent: Node,
        name: &[u8],
        (mode, umask): (u32, u32),
        rdev: (u32, u32),
        reply: ReplyEntry,
    ) {
        reply.error(Errno::NOSYS);
    }
    fn mkdir(
        &self,
        req: &Request,
        parent: Node,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: ReplyEntry,
    ) {
        reply.error(Errno::NOSYS);
    }
    fn unlink(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn rmdir(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn symlink(&self, req: &Request, parent: Node, name: &[u8], target: &[u8], reply: ReplyEntry) {
        reply.error(Errno::NOSYS);
    }
    fn rename(
        &self,
        req: &Request,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::NOSYS);
    }
    fn link(&self, req: &Request, node: Node, to: (Node, &[u8]), reply: ReplyEntry) {
        reply.error(Errno::NOSYS);
    }
    /// ENOSYS: the kernel opens files itself from then on.
    fn open(&self, req: &Request, node: Node, flags: i32, reply: ReplyOpen) {
        reply.error(Errno::NOSYS);
    }
    fn read(&self, req: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.error(Errno::NOSYS);
    }
    fn write(&self, req: &Request, node: Node, write: &Write<'_>, reply: ReplyWrite) {
        reply.error(Errno::NOSYS);
    }
    /// ENOSYS: the kernel sends no further flush.
    fn flush(&self, req: &Request, node: Node, handle: Handle, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn release(&self, handle: Handle, reply: ReplyEmpty) {
        reply.send(Ok(()));
    }
    fn fsync(&self, req: &Request, node: Node, handle: Handle, data_only: bool, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn opendir(&self, req: &Request, node: Node, flags: i32, reply: ReplyOpen) {
        reply.error(Errno::NOSYS);
    }
    fn releasedir(&self, node: Node, handle: Handle, reply: ReplyEmpty) {
        reply.send(Ok(()));
    }
    fn readdir(&self, req: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.error(Errno::NOSYS);
    }
    fn readdirplus(&self, req: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.error(Errno::NOSYS);
    }
    fn fsyncdir(&self, req: &Request, node: Node, data_only: bool, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    /// Everything must become durable: `sync(2)` and `syncfs(2)`.
    fn syncfs(&self, req: &Request, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn statfs(&self, req: &Request, reply: ReplyStatfs) {
        reply.error(Errno::NOSYS);
    }
    fn setxattr(
        &self,
        req: &Request,
        node: Node,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::NOSYS);
    }
    fn getxattr(&self, req: &Request, node: Node, name: &[u8], reply: ReplyXattr) {
        reply.error(Errno::NOSYS);
    }
    fn listxattr(&self, req: &Request, node: Node, reply: ReplyXattr) {
        reply.error(Errno::NOSYS);
    }
    fn removexattr(&self, req: &Request, node: Node, name: &[u8], reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn access(&self, req: &Request, node: Node, mask: u32, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    /// ENOSYS: the kernel makes a file and opens it in two requests.
    fn create(
        &self,
        req: &Request,
        parent: Node,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: ReplyCreate,
    ) {
        reply.error(Errno::NOSYS);
    }
    /// Makes and opens a regular file without a name, in a directory's place on disk.
    fn tmpfile(&self, req: &Request, parent: Node, (mode, umask): (u32, u32), reply: ReplyCreate) {
        reply.error(Errno::NOSYS);
    }
    fn ioctl(&self, req: &Request, node: Node, ioctl: &Ioctl<'_>, reply: ReplyIoctl) {
        reply.error(Errno::NOSYS);
    }
    fn fallocate(&self, req: &Request, node: Node, range: Fallocate, reply: ReplyEmpty) {
        reply.error(Errno::NOSYS);
    }
    fn lseek(&self, req: &Request, node: Node, (offset, whence): (u64, u32), reply: ReplyLseek) {
        reply.error(Errno::NOSYS);
    }
    fn copy_file_range(&self, req: &Request, copy: &CopyRange, reply: ReplyWrite) {
        reply.error(Errno::NOSYS);
    }
    /// The last request of a mount that waits for its reply (`fuseblk`).
    fn destroy(&self) {}

    /// Does the kernel hold this inode: a reply named it, and the kernel has not forgotten it?
    /// Asked for requests of guests.
    fn knows(&self, node: Node) -> bool {
        true
    }
    /// A guest's kernel knows nothing any more: its mount has ended, or it has started again.
    /// It may mount again.
    fn forget_all(&self) {}
}
