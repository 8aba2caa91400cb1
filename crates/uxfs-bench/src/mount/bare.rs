//! The common part of the servers that a mount is compared with: the mount's own settings, and the
//! answers to the kernel that cost nothing. A [`Content`] holds the files.
//!
//! 1. The kernel gets the same permissions, requests and cache settings as with a mount of a
//!    volume. So the speed of such a server is the limit of the FUSE crate with these settings.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    Session, TimeOrNow, WriteFlags,
};
use uxfs_fuse::settings::{self, MAX_WRITE, TTL};

/// Number of the root directory.
pub(super) const ROOT: u64 = 1;
/// The errno of a name that does not exist, and of reading a directory.
pub(super) const ENOENT: i32 = 2;
pub(super) const EISDIR: i32 = 21;

/// An inode, as these servers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) ino: u64,
    pub(super) is_dir: bool,
    pub(super) size: u64,
}

/// The files of a server.
pub(super) trait Content: Send + Sync + 'static {
    fn find(&self, dir: u64, name: &OsStr) -> io::Result<Option<Node>>;
    /// An inode that the kernel has looked up.
    fn node(&self, ino: u64) -> io::Result<Node>;
    fn make(&self, dir: u64, name: &OsStr, is_dir: bool) -> io::Result<Node>;
    fn remove(&self, dir: u64, name: &OsStr) -> io::Result<()>;
    /// Sets the length of a file, in bytes.
    fn resize(&self, ino: u64, size: u64) -> io::Result<()>;
    /// Reads. Returns the number of bytes.
    fn read(&self, ino: u64, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    fn write(&self, ino: u64, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes a file durable, if the content can be durable.
    fn sync(&self, ino: u64) -> io::Result<()>;
}

/// Mounts a server on a directory, as a volume is mounted, and serves it until it is unmounted.
///
/// # Errors
/// The kernel refuses the mount, or serving it fails.
pub(super) fn serve(content: impl Content, source: &str, dir: &Path) -> io::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.into()),
        MountOption::CUSTOM("subtype=uxfs".into()),
        MountOption::DefaultPermissions,
    ];
    settings::set_threads(&mut config, None);
    let session = Session::new(Bare(content), dir, &config)?;
    settings::read_ahead(&dir.canonicalize()?);
    session.run()
}

struct Bare<C>(C);

fn attr(node: Node) -> FileAttr {
    FileAttr {
        ino: INodeNo(node.ino),
        size: node.size,
        blocks: node.size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if node.is_dir { FileType::Directory } else { FileType::RegularFile },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

fn entry(found: io::Result<Node>, reply: ReplyEntry) {
    match found {
        Ok(node) => reply.entry(&TTL, &attr(node), Generation(0)),
        Err(error) => reply.error(errno(&error)),
    }
}

fn done(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn attributes(node: io::Result<Node>, reply: ReplyAttr) {
    match node {
        Ok(node) => reply.attr(&TTL, &attr(node)),
        Err(error) => reply.error(errno(&error)),
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<C: Content> Filesystem for Bare<C> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        settings::ask(config)
    }

    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // Number 0 means that the name does not exist; the kernel may cache that.
        let none = Node { ino: 0, is_dir: false, size: 0 };
        entry(self.0.find(dir.0, name).map(|found| found.unwrap_or(none)), reply);
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.0.node(node.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.map_or(Ok(()), |size| self.0.resize(node.0, size));
        attributes(resized.and_then(|()| self.0.node(node.0)), reply);
    }

    fn mknod(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(self.0.make(dir.0, name, false), reply);
    }

    fn mkdir(&self, _: &Request, dir: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(self.0.make(dir.0, name, true), reply);
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.remove(dir.0, name), reply);
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.remove(dir.0, name), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(MAX_WRITE) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.0.read(node.0, offset, &mut buffer[..size]) {
                Ok(got) => reply.data(&buffer[..got]),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(node.0, offset, data) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.0.sync(node.0), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096);
    }
}
