//! The common part of the servers that a mount is compared with: the mount's own settings, and the
//! answers to the kernel that cost nothing. A [`Content`] holds the files.
//!
//! 1. The kernel gets the same permissions, requests and cache settings as with a mount of a
//!    volume. So the speed of such a server is the limit of the FUSE crate with these settings.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uxfs_fuse::settings::{self, TTL};
use uxfs_transport::{
    Attr, Bytes, Entry, Errno, Filesystem, Handle, Listing, MountOptions, Name, Negotiation,
    Node as Number, Opened, Read, Reply, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, Session, SetAttr, Statfs, Write,
};

/// Number of the root directory.
pub(super) const ROOT: u64 = 1;
/// The errno of a name that does not exist, and of what a server does not know.
pub(super) const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

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
    fn remove(&self, dir: u64, name: &OsStr, is_dir: bool) -> io::Result<()>;
    fn rename(&self, _from: (u64, &OsStr), _to: (u64, &OsStr)) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(ENOSYS))
    }
    /// Calls `add` for each name of a directory after `from`, until it returns false.
    fn list(
        &self,
        _dir: u64,
        _from: u64,
        _add: &mut dyn FnMut(&Name<'_>) -> bool,
    ) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(ENOSYS))
    }
    /// The kernel gives up this many of the references that `find` and `make` gave it.
    fn forget(&self, _ino: u64, _count: u64) {}
    fn change(&self, ino: u64, change: &SetAttr) -> io::Result<()>;
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
    let options = MountOptions {
        source: source.into(),
        fs_type: "fuse.uxfs".into(),
        words: vec!["default_permissions".into()],
    };
    let session = Session::mount(Bare(content), dir, &options, settings::session(None, true))?;
    settings::read_ahead(&dir.canonicalize()?);
    session.run()
}

struct Bare<C>(C);

fn attr(node: Node) -> Attr {
    Attr {
        ino: node.ino,
        size: node.size,
        blocks: node.size.div_ceil(512),
        mode: if node.is_dir { 0o40777 } else { 0o100_777 },
        nlink: 1,
        blksize: 4096,
        ..Attr::default()
    }
}

fn entry(node: Node) -> Entry {
    Entry { node: Number(node.ino), generation: 0, ttl: TTL, attr: attr(node) }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn done<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| errno(&error))
}

impl<C: Content> Filesystem for Bare<C> {
    fn init(&self, kernel: &mut Negotiation) -> io::Result<()> {
        settings::ask(kernel)
    }

    fn lookup(&self, _: &Request, dir: Number, name: &[u8], reply: ReplyEntry) {
        // Number 0 means that the name does not exist; the kernel may cache that.
        let none = Node { ino: 0, is_dir: false, size: 0 };
        let found = self.0.find(dir.0, OsStr::from_bytes(name));
        reply.send(done(found.map(|found| entry(found.unwrap_or(none)))));
    }

    fn forget(&self, node: Number, count: u64) {
        self.0.forget(node.0, count);
    }

    fn getattr(&self, _: &Request, node: Number, reply: ReplyAttr) {
        reply.send(done(self.0.node(node.0).map(|node| (attr(node), TTL))));
    }

    fn setattr(&self, _: &Request, node: Number, change: &SetAttr, reply: ReplyAttr) {
        let node = self.0.change(node.0, change).and_then(|()| self.0.node(node.0));
        reply.send(done(node.map(|node| (attr(node), TTL))));
    }

    fn mknod(
        &self,
        _: &Request,
        dir: Number,
        name: &[u8],
        _: (u32, u32),
        _: (u32, u32),
        reply: ReplyEntry,
    ) {
        reply.send(done(self.0.make(dir.0, OsStr::from_bytes(name), false).map(entry)));
    }

    fn mkdir(&self, _: &Request, dir: Number, name: &[u8], _: (u32, u32), reply: ReplyEntry) {
        reply.send(done(self.0.make(dir.0, OsStr::from_bytes(name), true).map(entry)));
    }

    fn unlink(&self, _: &Request, dir: Number, name: &[u8], reply: ReplyEmpty) {
        reply.send(done(self.0.remove(dir.0, OsStr::from_bytes(name), false)));
    }

    fn rmdir(&self, _: &Request, dir: Number, name: &[u8], reply: ReplyEmpty) {
        reply.send(done(self.0.remove(dir.0, OsStr::from_bytes(name), true)));
    }

    fn rename(
        &self,
        _: &Request,
        (dir, name): (Number, &[u8]),
        (to_dir, to_name): (Number, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        if flags != 0 {
            return reply.error(Errno::INVAL);
        }
        let from = (dir.0, OsStr::from_bytes(name));
        reply.send(done(self.0.rename(from, (to_dir.0, OsStr::from_bytes(to_name)))));
    }

    fn readdir(&self, _: &Request, node: Number, read: Read, reply: Reply<Bytes>) {
        reply.fill(|buffer| {
            let mut listing = Listing::new(buffer);
            done(self.0.list(node.0, read.offset, &mut |name| listing.add(name)))?;
            Ok(listing.len())
        });
    }

    fn readdirplus(&self, _: &Request, node: Number, read: Read, reply: Reply<Bytes>) {
        // Without attributes: the kernel asks for those that it needs.
        let nothing = entry(Node { ino: 0, is_dir: false, size: 0 });
        reply.fill(|buffer| {
            let mut listing = Listing::new(buffer);
            done(self.0.list(node.0, read.offset, &mut |name| listing.add_plus(&nothing, name)))?;
            Ok(listing.len())
        });
    }

    fn read(&self, _: &Request, node: Number, read: Read, reply: Reply<Bytes>) {
        reply.fill(|buffer| done(self.0.read(node.0, read.offset, buffer)));
    }

    fn write(&self, _: &Request, node: Number, write: &Write<'_>, reply: ReplyWrite) {
        let written = self.0.write(node.0, write.offset, write.data);
        reply.send(done(written.map(|()| u32::try_from(write.data.len()).unwrap_or(u32::MAX))));
    }

    fn fsync(&self, _: &Request, node: Number, _: Handle, _: bool, reply: ReplyEmpty) {
        reply.send(done(self.0.sync(node.0)));
    }

    fn opendir(&self, _: &Request, _: Number, _: i32, reply: ReplyOpen) {
        reply.send(Ok(Opened::default()));
    }

    fn getxattr(&self, _: &Request, _: Number, _: &[u8], reply: ReplyXattr) {
        reply.send(Err(Errno::NODATA));
    }

    fn statfs(&self, _: &Request, reply: ReplyStatfs) {
        let many = 1 << 20;
        reply.send(Ok(Statfs {
            blocks: many,
            free: many,
            available: many,
            files: many,
            files_free: many,
            block_size: 4096,
            name_max: 255,
        }));
    }
}
