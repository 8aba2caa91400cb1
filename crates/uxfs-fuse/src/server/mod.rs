//! The FUSE server: one method per request, which decodes it, runs it and sends the reply.
//!
//! 1. The kernel checks permissions (`default_permissions`), sticky bits and locks, because this
//!    volume has no other user.
//! 2. An inode that the kernel knows is held ([`uxfs::Fs::hold`]), once for each lookup that
//!    returned it, until the kernel forgets it. This, not open, keeps an unlinked file alive, and
//!    covers mappings and working directories too. So opening a file needs no request, and there is
//!    none unless `strict_open` is set.
//! 3. A request that must be durable parks its reply ([`Volume::make_durable`]). No thread waits.
//! 4. The kernel caches attributes, access lists and data for a day. It invalidates what most
//!    requests change. What other requests change is invalidated before their reply
//!    ([`cached::Cached`]).

mod cached;
mod credentials;
mod data;
mod dirs;
mod entries;
mod ioctl;
mod outcome;
mod setattr;
mod xattrs;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::posix::Creator;
use uxfs::{Fs, SyncKind};

use crate::attr::{attr_of, ino_of};
use crate::blk;
use crate::control::{self, Control};
use crate::current_options::CurrentOptions;
use crate::durability::{Caller, Scope, Waiter};
use crate::handles::Handles;
use crate::options::Options;
use crate::settings::{self, MAX_WRITE, TTL};
use crate::volume::Volume;
use cached::Cached;
use credentials::Credentials;
use outcome::{Entry, Result};

/// `O_DSYNC`; `O_SYNC` has this bit too.
const O_DSYNC: i32 = 0o10000;
const O_NOATIME: i32 = 0o1000000;
/// The handle of a directory opened with `O_NOATIME`.
const NOATIME_DIR: FileHandle = FileHandle(1);
/// The bit of `O_SYNC` that `O_DSYNC` lacks.
const O_SYNC_ALONE: i32 = 0o4000000;

pub(crate) struct Server {
    volume: Arc<Volume>,
    options: Options,
    current_options: Arc<CurrentOptions>,
    handles: Handles,
    control: Control,
    cached: Cached,
    /// The last attributes of the root. A volume that has stopped still needs a root, so that its
    /// state can be asked for.
    root: Mutex<Option<FileAttr>>,
}

impl Server {
    pub(crate) fn new(volume: Arc<Volume>, options: Options) -> Self {
        let current = volume.current_options();
        let control = Control::new(Arc::clone(&current), volume.is_kept_awake());
        let root = Mutex::new(volume.root_attr());
        let cached = Cached::default();
        Self {
            volume,
            options,
            current_options: current,
            handles: Handles::default(),
            control,
            cached,
            root,
        }
    }

    /// What the kernel has cached. Set when the session exists.
    pub(crate) fn cached(&self) -> Cached {
        self.cached.clone()
    }

    fn ino(&self, node: INodeNo) -> Ino {
        if node == INodeNo::ROOT { self.volume.root() } else { Ino(node.0) }
    }

    /// Discards free space. The reply is sent when that is done.
    fn trim(&self, call: &ioctl::Call<'_>, reply: ReplyIoctl) {
        let trim = self.volume.with(|fs| Ok(ioctl::Trim::of(fs, call)));
        let trim = match trim {
            Ok(Ok(trim)) => trim,
            Ok(Err(error)) | Err(error) => return reply.error(error),
        };
        let (range, least) = (trim.range.clone(), trim.least);
        // If no thread can be started, dropping the reply answers with an error.
        let _ = self.volume.trim(range, least, move |done| match done {
            Ok(trimmed) => reply.ioctl(0, &trim.answer(trimmed)),
            Err(error) => reply.error(error),
        });
    }

    /// Changes the options of the mount in a thread of its own. Other requests continue as far as
    /// they need not wait for the volume.
    fn remount(&self, req: &Request, words: &[u8], size: u32, reply: ReplyXattr) {
        let owner = rustix::process::geteuid().as_raw();
        if req.uid() != 0 && req.uid() != owner {
            return reply.error(Errno::EPERM);
        }
        let (volume, words) = (Arc::clone(&self.volume), String::from_utf8_lossy(words).into());
        let work = std::thread::Builder::new().name("uxfs-remount".into());
        // If no thread can be started, dropping the reply answers with an error.
        let _ = work.spawn(move || {
            xattrs::answer(Ok(control::remounted(volume.remount(words))), size, reply);
        });
    }

    /// Updates the access time of a listed directory.
    fn listed(&self, fs: &Fs, ino: Ino, handle: FileHandle) -> uxfs::Result<()> {
        if handle == NOATIME_DIR {
            Ok(())
        } else {
            fs.accessed(ino, self.current_options.for_requests().dir_atime)
        }
    }

    /// Sends the reply to a change of metadata: now, or when it is durable.
    fn reply_to_change<T: Send + 'static>(
        &self,
        req: &Request,
        result: Result<T>,
        reply: impl Reply<T> + Send + 'static,
    ) {
        match result {
            Ok(value) if self.current_options.for_requests().wsync => {
                let reply = move |durable: Result<()>| reply.answer(durable.map(|()| value));
                self.volume.make_durable(Scope::Changes, Waiter::new(Caller::of(req), reply));
            }
            other => reply.answer(other),
        }
    }
}

/// A reply that can be sent.
trait Reply<T> {
    fn answer(self, result: Result<T>);
}

impl Reply<()> for ReplyEmpty {
    fn answer(self, result: Result<()>) {
        match result {
            Ok(()) => self.ok(),
            Err(error) => self.error(error),
        }
    }
}

impl Reply<Entry> for ReplyEntry {
    fn answer(self, result: Result<Entry>) {
        match result {
            Ok((attr, generation)) => self.entry(&TTL, &attr, Generation(generation.into())),
            Err(error) => self.error(error),
        }
    }
}

/// The flags of every open file.
const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);

impl Reply<(Entry, FileHandle)> for ReplyCreate {
    fn answer(self, result: Result<(Entry, FileHandle)>) {
        match result {
            Ok(((attr, generation), handle)) => {
                self.created(&TTL, &attr, Generation(generation.into()), handle, OPENED);
            }
            Err(error) => self.error(error),
        }
    }
}

impl Reply<FileAttr> for ReplyAttr {
    fn answer(self, result: Result<FileAttr>) {
        match result {
            Ok(attr) => self.attr(&TTL, &attr),
            Err(error) => self.error(error),
        }
    }
}

impl Reply<u32> for ReplyWrite {
    fn answer(self, result: Result<u32>) {
        match result {
            Ok(bytes) => self.written(bytes),
            Err(error) => self.error(error),
        }
    }
}

/// The owner of a file that a request creates.
fn creator(req: &Request, umask: u32) -> Creator {
    Creator { uid: req.uid(), gid: req.gid(), umask: (umask & 0o777) as u16 }
}

/// Type and permissions of a mode.
fn mode16(mode: u32) -> u16 {
    (mode & 0xffff) as u16
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        settings::ask(config)?;
        if self.options.fuseblk {
            let _ = config.set_max_write(blk::MAX_WRITE);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.volume.with(|fs| entries::lookup(fs, parent, name.as_bytes())) {
            Ok(Some(entry)) => reply.answer(Ok(entry)),
            // Number 0 means that the name does not exist, which the kernel may cache.
            Ok(None) => reply.entry(&TTL, &entries::no_entry(), Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        // No caller takes the error. Recovery frees what this could not.
        let _ = self.volume.with(|fs| fs.release(ino_of(fs, node), count));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attr = self.volume.with(|fs| Ok(attr_of(fs, &fs.stat(ino_of(fs, node))?)));
        if node != INodeNo::ROOT {
            return reply.answer(attr);
        }
        match (attr, &mut *self.root.lock()) {
            (Ok(attr), root) => {
                *root = Some(attr);
                reply.answer(Ok(attr));
            }
            (Err(_), Some(attr)) if self.volume.is_stopped() => {
                reply.attr(&Duration::ZERO, attr);
            }
            (failed, _) => reply.answer(failed),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = setattr::Change {
            permissions: mode.map(|mode| mode16(mode) & 0o7777),
            uid,
            gid,
            size,
            atime,
            mtime,
            open: fh.is_some(),
            who: Credentials::of(req),
        };
        let result = self.volume.with(|fs| setattr::apply(fs, ino_of(fs, node), &change));
        self.reply_to_change(req, result, reply);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let target = self.volume.with(|fs| {
            let ino = ino_of(fs, node);
            let target = fs.readlink(ino)?;
            fs.accessed(ino, self.current_options.for_requests().atime)?;
            Ok(target)
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let creator = creator(req, umask);
        let new = entries::New { name: name.as_bytes(), mode: mode16(mode), rdev };
        self.reply_to_change(
            req,
            self.volume.with(|fs| entries::create(fs, &creator, parent, &new)),
            reply,
        );
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let creator = creator(req, umask);
        let mode = mode16(mode) & 0o7777 | uxfs::format::inode::S_IFDIR;
        let new = entries::New { name: name.as_bytes(), mode, rdev: 0 };
        self.reply_to_change(
            req,
            self.volume.with(|fs| entries::create(fs, &creator, parent, &new)),
            reply,
        );
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.volume.with(|fs| fs.unlink(ino_of(fs, parent), name.as_bytes()));
        self.reply_to_change(req, done, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.volume.with(|fs| fs.rmdir(ino_of(fs, parent), name.as_bytes()));
        self.reply_to_change(req, done, reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let creator = creator(req, 0);
        let target = target.as_os_str().as_bytes();
        let made = self.volume.with(|fs| {
            let ino = creator.symlink(fs, ino_of(fs, parent), name.as_bytes(), target)?;
            entries::known(fs, ino)
        });
        self.reply_to_change(req, made, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (parent, name.as_bytes());
        let to = (to, new_name.as_bytes());
        let creator = creator(req, 0);
        let done = entries::rename_flags(flags).and_then(|flags| {
            self.volume.with(|fs| entries::rename(fs, &creator, from, to, flags))
        });
        self.reply_to_change(req, done, reply);
    }

    fn link(&self, req: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.volume.with(|fs| {
            let ino = ino_of(fs, node);
            fs.link(ino, ino_of(fs, parent), name.as_bytes())?;
            entries::known(fs, ino)
        });
        self.reply_to_change(req, linked, reply);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.options.strict_open {
            // The kernel sends no further request of this kind.
            return reply.error(Errno::ENOSYS);
        }
        let ino = self.ino(node);
        let opened = self.volume.with(|fs| {
            entries::may_open(fs, ino, flags)?;
            Ok(self.handles.open(fs.error_cursor(ino)))
        });
        match opened {
            Ok(handle) => reply.opened(handle, OPENED),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.release(handle);
        reply.ok();
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if !self.options.strict_open {
            // From now on the kernel creates and opens a file itself, and sends no release.
            return reply.error(Errno::ENOSYS);
        }
        let creator = creator(req, umask);
        let mode = mode16(mode) & 0o7777 | uxfs::format::inode::S_IFREG;
        let new = entries::New { name: name.as_bytes(), mode, rdev: 0 };
        let made = self.volume.with(|fs| {
            let made = entries::create(fs, &creator, parent, &new)?;
            Ok((made, self.handles.open(fs.error_cursor(Ino(made.0.ino.0)))))
        });
        self.reply_to_change(req, made, reply);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(MAX_WRITE) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let got = self.volume.with(|fs| {
                let ino = ino_of(fs, node);
                let got = fs.read_at(ino, offset, &mut buffer[..size])?;
                if flags.0 & O_NOATIME == 0 {
                    fs.accessed(ino, self.current_options.for_requests().atime)?;
                }
                Ok(got)
            });
            match got {
                Ok(got) => reply.data(&buffer[..got]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let who = Credentials::of(req)
            .for_write(write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID));
        let ino = self.ino(node);
        let written = self.volume.with(|fs| data::write(fs, ino, offset, data, who));
        self.volume.start_writeback_if_needed();
        let kind = match flags.0 & (O_DSYNC | O_SYNC_ALONE) {
            _ if self.current_options.for_requests().sync => SyncKind::All,
            0 => return reply.answer(written),
            O_DSYNC => SyncKind::Data,
            _ => SyncKind::All,
        };
        match written {
            Ok(bytes) => {
                let cursor = self.handles.cursor(handle);
                let reply = move |done: Result<()>| reply.answer(done.map(|()| bytes));
                let waiter = Waiter::new(Caller::of(req), reply);
                self.volume.make_durable(Scope::File { ino, kind, cursor }, waiter);
            }
            failed => reply.answer(failed),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file writes nothing, as with the kernel's XFS. The kernel sends no further
        // flush.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let kind = if datasync { SyncKind::Data } else { SyncKind::All };
        let cursor = self.handles.cursor(handle);
        let waiter = Waiter::new(Caller::of(req), move |done| reply.answer(done));
        self.volume.make_durable(Scope::File { ino: self.ino(node), kind, cursor }, waiter);
    }

    fn opendir(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // The kernel must not cache entries: it could then resume a listing only at entries that
        // still exist.
        let seen = flags.0 & O_NOATIME == 0;
        reply.opened(if seen { FileHandle(0) } else { NOATIME_DIR }, FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let filled = self.volume.with(|fs| {
            let ino = ino_of(fs, node);
            dirs::read(fs, ino, offset, &mut reply)?;
            self.listed(fs, ino, handle)
        });
        match filled {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let filled = self.volume.with(|fs| {
            let ino = ino_of(fs, node);
            dirs::read_plus(fs, ino, offset, &mut reply)?;
            self.listed(fs, ino, handle)
        });
        match filled {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, req: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let scope = match node {
            // fsync of the root syncs the whole volume, because `sync(2)` does not reach the
            // server.
            INodeNo::ROOT => Scope::Volume,
            _ => Scope::File { ino: self.ino(node), kind: SyncKind::All, cursor: None },
        };
        let waiter = Waiter::new(Caller::of(req), move |done| reply.answer(done));
        self.volume.make_durable(scope, waiter);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.volume.with(|fs| Ok(fs.statfs())) {
            Ok(s) => {
                let (free, size) = (s.free_blocks, s.block_size);
                reply.statfs(s.blocks, free, free, s.files, s.free_files, size, 255, size);
            }
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let who = Credentials::of(req);
        let done = self
            .volume
            .with(|fs| xattrs::set(fs, ino_of(fs, node), name.as_bytes(), value, flags, who));
        if done.is_ok() && xattrs::is_raw_list(name.as_bytes()) {
            self.cached.invalidate_attributes(node);
        }
        self.reply_to_change(req, done, reply);
    }

    fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        if let Some(words) = name.strip_prefix(control::REMOUNT) {
            return self.remount(req, words, size, reply);
        }
        let value = self.volume.with(|fs| {
            match self.control.value(&self.volume, fs, self.ino(node), name) {
                Some(value) => Ok(value),
                None => xattrs::get(fs, self.ino(node), name),
            }
        });
        xattrs::answer(value, size, reply);
    }

    fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.volume.with(|fs| xattrs::list(fs, ino_of(fs, node), req.uid() == 0));
        xattrs::answer(names, size, reply);
    }

    fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.volume.with(|fs| xattrs::remove(fs, ino_of(fs, node), name.as_bytes()));
        if done.is_ok() && xattrs::is_raw_list(name.as_bytes()) {
            self.cached.invalidate_attributes(node);
        }
        self.reply_to_change(req, done, reply);
    }

    fn ioctl(
        &self,
        req: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        cmd: u32,
        data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let call = ioctl::Call { cmd, data, out_size: out_size as usize, uid: req.uid() };
        if cmd == ioctl::FITRIM {
            return self.trim(&call, reply);
        }
        match self.volume.with(|fs| Ok(ioctl::run(fs, ino_of(fs, node), &call))) {
            Ok(Ok(answer)) => {
                if ioctl::changes_inode(cmd) {
                    self.cached.invalidate_attributes(node);
                }
                reply.ioctl(0, &answer);
            }
            Ok(Err(error)) | Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let who = Credentials::of(req);
        let done = data::fallocate_mode(mode).and_then(|mode| {
            self.volume.with(|fs| data::fallocate(fs, ino_of(fs, node), mode, (offset, len), who))
        });
        self.reply_to_change(req, done, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = u64::try_from(offset).map_err(|_| Errno::ENXIO).and_then(|offset| {
            self.volume.with(|fs| Ok(data::seek(fs, ino_of(fs, node), offset, whence)))?
        });
        match found {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        from: INodeNo,
        _: FileHandle,
        from_at: u64,
        to: INodeNo,
        _: FileHandle,
        to_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.answer(self.volume.with(|fs: &Fs| {
            let (from, to) = (ino_of(fs, from), ino_of(fs, to));
            let copied =
                data::copy_range(fs, (from, from_at), (to, to_at), len, Credentials::of(req))?;
            self.control.note_copy(to, copied);
            Ok(u32::try_from(copied.shared + copied.written).unwrap_or(u32::MAX))
        }));
    }
}
