//! A FUSE server that does next to nothing: names in memory, writes thrown away. With the same
//! crate and settings, no mount can be faster.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use std::{io, sync::Mutex, sync::PoisonError};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session,
    TimeOrNow, WriteFlags,
};
use uxfs_fuse::settings::{self, TTL};

/// Names are spread over this many tables, each with a lock of its own.
const SHARDS: usize = 64;

/// Names of a shard, with the inode each stands for.
type Names = Mutex<HashMap<(u64, OsString), u64>>;

struct Empty {
    names: [Names; SHARDS],
    next: AtomicU64,
}

/// Mounts the server on a directory and serves it until it is unmounted.
///
/// # Errors
/// What the kernel says.
pub fn serve(dir: &Path) -> io::Result<()> {
    let empty =
        Empty { names: core::array::from_fn(|_| Mutex::default()), next: AtomicU64::new(2) };
    Session::new(empty, dir, &config("empty"))?.run()
}

/// As the mount is made.
pub(super) fn config(source: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.into()),
        MountOption::CUSTOM("subtype=uxfs".into()),
        MountOption::DefaultPermissions,
    ];
    settings::set_threads(&mut config, None);
    config
}

/// An inode's attributes: directories have even numbers, but for the root.
pub(super) fn attr(ino: u64, is_dir: bool, size: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn attr_of(ino: u64) -> FileAttr {
    attr(ino, ino == 1 || ino.is_multiple_of(2), 0)
}

impl Empty {
    fn names(&self, dir: u64, name: &OsStr) -> &Names {
        use std::os::unix::ffi::OsStrExt;
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = name.as_bytes().iter().fold(dir, mix);
        &self.names[(hash % SHARDS as u64) as usize]
    }

    fn make(&self, dir: INodeNo, name: &OsStr, is_dir: bool, reply: ReplyEntry) {
        let ino = 2 * self.next.fetch_add(1, Ordering::Relaxed) + u64::from(!is_dir);
        let names = self.names(dir.0, name);
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert((dir.0, name.into()), ino);
        drop(names);
        reply.entry(&TTL, &attr_of(ino), Generation(0));
    }

    fn remove(&self, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let names = self.names(dir.0, name);
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = names.remove(&(dir.0, name.into()));
        drop(names);
        match gone {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }
}

impl Filesystem for Empty {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        settings::ask(config)
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let names = self.names(parent.0, name);
        let names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.get(&(parent.0, name.into())).copied();
        drop(names);
        reply.entry(&TTL, &found.map_or(attr(0, false, 0), attr_of), Generation(0));
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attr_of(node.0));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&TTL, &attr_of(node.0));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        self.make(parent, name, false, reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.make(parent, name, true, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
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

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
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
