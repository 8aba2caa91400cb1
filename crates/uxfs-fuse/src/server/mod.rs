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

mod admin;
mod cached;
mod credentials;
mod data;
mod dirs;
mod entries;
mod ioctl;
mod open_dirs;
mod outcome;
mod replies;
mod setattr;
mod xattrs;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::format::inode::{Flags, S_IFDIR, S_IFREG};
use uxfs::posix::Creator;
use uxfs::{Atime, Fs, SyncKind};
use uxfs_transport::{
    Bytes, CopyRange, Errno, Fallocate, Filesystem, Handle, Ioctl, Listing, Negotiation, Node,
    Offset, Opened, OpenedFlags, Parked, Read, Reply, ReplyAttr, ReplyCreate, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
    Request, SetAttr, Statfs, Statx, Write,
};

use crate::attr::{attr_of, ino_of, statx_of};
use crate::control::{self, Control};
use crate::current_options::CurrentOptions;
use crate::defrag;
use crate::durability::{Caller, Scope, Waiter};
use crate::growth;
use crate::handles::Handles;
use crate::options::Options;
use crate::scrub;
use crate::settings::{self, TTL};
use crate::volume::Volume;
use crate::watcher::{Change, Watcher};
use admin::may_administer;
use cached::Cached;
use credentials::Credentials;
use open_dirs::OpenDirs;
use outcome::Result;

/// `O_DSYNC`; `O_SYNC` has this bit too.
const O_DSYNC: i32 = 0o10000;
const O_NOATIME: i32 = 0o1000000;
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

const RENAME_EXCHANGE: u32 = 2;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 0x10;

/// The bit of `O_SYNC` that `O_DSYNC` lacks.
const O_SYNC_ALONE: i32 = 0o4000000;

pub(crate) struct Server {
    volume: Arc<Volume>,
    options: Options,
    current_options: Arc<CurrentOptions>,
    handles: Handles,
    open_dirs: OpenDirs,
    control: Control,
    cached: Cached,
    /// Each FITRIM that runs, in a thread of its own, has a share of it.
    trims: Arc<()>,
    /// As `trims`, for parts of files that are moved.
    defrags: Arc<()>,
    /// The last attributes of the root. A volume that has stopped still needs a root, so that its
    /// state can be asked for.
    root: Mutex<Option<Statx>>,
    watcher: Option<Arc<dyn Watcher>>,
}

impl Server {
    pub(crate) fn new(volume: Arc<Volume>, options: Options) -> Self {
        let current = volume.current_options();
        let control = Control::new(Arc::clone(&current), volume.is_kept_awake());
        let root = Mutex::new(volume.root_stat());
        let cached = Cached::default();
        Self {
            volume,
            options,
            current_options: current,
            handles: Handles::default(),
            open_dirs: OpenDirs::default(),
            control,
            cached,
            trims: Arc::default(),
            defrags: Arc::default(),
            root,
            watcher: None,
        }
    }

    /// Sets the watcher of changes.
    pub(crate) fn set_watcher(&mut self, watcher: Arc<dyn Watcher>) {
        self.watcher = Some(watcher);
    }

    /// Reports a change to the watcher, if it was made.
    fn saw<'a, T>(&self, req: &Request, result: &Result<T>, change: impl FnOnce(&T) -> Change<'a>) {
        if let (Some(watcher), Ok(done)) = (&self.watcher, result) {
            watcher.saw(req.pid(), &change(done));
        }
    }

    /// What the kernel has cached. Set when the session exists.
    pub(crate) fn cached(&self) -> Cached {
        self.cached.clone()
    }

    fn ino(&self, node: Node) -> Ino {
        if node == Node::ROOT { self.volume.root() } else { Ino(node.0) }
    }

    /// That a file was made.
    fn made<'a>(
        &self,
        (parent, name): (Node, &'a [u8]),
        (ino, generation): (u64, u64),
        mode: u16,
    ) -> Change<'a> {
        Change::Made { name: (self.ino(parent), name), ino: Ino(ino), generation, mode }
    }

    /// Updates the access time of what was read. As in Linux, one that cannot be updated stays as
    /// it is: a full disk does not keep files from being read. A volume that has stopped answers
    /// nothing.
    fn accessed(&self, fs: &Fs, ino: Ino, how: Atime) -> uxfs::Result<()> {
        match fs.accessed(ino, how) {
            Err(error) if fs.stopped_by().is_some() => Err(error),
            Err(_) => {
                self.volume.report_state(fs);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Updates the access time of a listed directory.
    fn listed(&self, fs: &Fs, ino: Ino, handle: Handle) -> uxfs::Result<()> {
        match open_dirs::updates_atime(handle) {
            true => self.accessed(fs, ino, self.current_options.for_requests().dir_atime),
            false => Ok(()),
        }
    }

    fn stat(&self, node: Node) -> Result<Statx> {
        let found = self.volume.with(|fs| Ok(statx_of(fs, &fs.stat(ino_of(fs, node))?)));
        if node != Node::ROOT {
            return found;
        }
        let mut root = self.root.lock();
        match (found, *root) {
            (Ok(found), _) => {
                *root = Some(found);
                Ok(found)
            }
            (Err(_), Some(last)) if self.volume.is_stopped() => {
                Ok(Statx { ttl: Duration::ZERO, ..last })
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Does fsync mean order here, and not durability?
    fn is_ordered(&self) -> bool {
        self.options.mode.is_ordered()
    }
}

/// The flags of every open file.
const OPENED: OpenedFlags = OpenedFlags::KEEP_CACHE.union(OpenedFlags::NO_FLUSH);

/// The owner of a file that a request creates.
fn creator(req: &Request, umask: u32) -> Creator {
    Creator { uid: req.uid(), gid: req.gid(), umask: (umask & 0o777) as u16 }
}

/// Type and permissions of a mode.
fn mode16(mode: u32) -> u16 {
    (mode & 0xffff) as u16
}

impl Filesystem for Server {
    fn init(&self, kernel: &mut Negotiation) -> io::Result<()> {
        settings::ask(kernel)
    }

    fn lookup(&self, _: &Request, parent: Node, name: &[u8], reply: ReplyEntry) {
        reply.send(self.volume.with(|fs| entries::lookup(fs, parent, name)));
    }

    fn forget(&self, node: Node, count: u64) {
        // No caller takes the error. Recovery frees what this could not.
        let _ = self.volume.with(|fs| fs.release(ino_of(fs, node), count));
    }

    fn getattr(&self, _: &Request, node: Node, reply: ReplyAttr) {
        reply.send(self.stat(node).map(|found| (found.attr, found.ttl)));
    }

    fn statx(&self, _: &Request, node: Node, reply: ReplyStatx) {
        reply.send(self.stat(node));
    }

    fn setattr(&self, req: &Request, node: Node, to: &SetAttr, reply: ReplyAttr) {
        let who = Credentials::of(req);
        let who = match req.is_of_guest() && to.size.is_some() {
            true => who.for_write(to.kill_privileges),
            false => who,
        };
        let change = setattr::Change {
            permissions: to.mode.map(|mode| mode16(mode) & 0o7777),
            uid: to.uid,
            gid: to.gid,
            size: to.size,
            atime: to.atime,
            mtime: to.mtime,
            open: to.handle.is_some(),
            who,
        };
        let result = self.volume.with(|fs| setattr::apply(fs, ino_of(fs, node), &change));
        if let Some(size) = to.size {
            self.saw(req, &result, |_| Change::Resized { ino: self.ino(node), size });
        }
        self.reply_to_change(req, result.map(|attr| (attr, TTL)), reply);
    }

    fn readlink(&self, _: &Request, node: Node, reply: Reply<Bytes>) {
        let target = self.volume.with(|fs| {
            let ino = ino_of(fs, node);
            let target = fs.readlink(ino)?;
            self.accessed(fs, ino, self.current_options.for_requests().atime)?;
            Ok(target)
        });
        match target {
            Ok(target) => reply.bytes(&target),
            Err(error) => reply.error(error),
        }
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
        let creator = creator(req, umask);
        let new = entries::New { name, mode: mode16(mode), rdev };
        let made = self.volume.with(|fs| entries::create(fs, &creator, parent, &new));
        self.saw(req, &made, |entry| {
            self.made((parent, name), (entry.attr.ino, entry.generation), new.mode)
        });
        self.reply_to_change(req, made, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: Node,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: ReplyEntry,
    ) {
        let creator = creator(req, umask);
        let mode = mode16(mode) & 0o7777 | S_IFDIR;
        let new = entries::New { name, mode, rdev: (0, 0) };
        let made = self.volume.with(|fs| entries::create(fs, &creator, parent, &new));
        self.saw(req, &made, |entry| {
            self.made((parent, name), (entry.attr.ino, entry.generation), new.mode)
        });
        self.reply_to_change(req, made, reply);
    }

    fn unlink(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEmpty) {
        let done = self.volume.with(|fs| fs.unlink(ino_of(fs, parent), name));
        self.saw(req, &done, |()| Change::Removed { name: (self.ino(parent), name) });
        self.reply_to_change(req, done, reply);
    }

    fn rmdir(&self, req: &Request, parent: Node, name: &[u8], reply: ReplyEmpty) {
        let done = self.volume.with(|fs| fs.rmdir(ino_of(fs, parent), name));
        self.saw(req, &done, |()| Change::Removed { name: (self.ino(parent), name) });
        self.reply_to_change(req, done, reply);
    }

    fn symlink(&self, req: &Request, parent: Node, name: &[u8], target: &[u8], reply: ReplyEntry) {
        let creator = creator(req, 0);
        let made = self.volume.with(|fs| {
            let ino = creator.symlink(fs, ino_of(fs, parent), name, target)?;
            entries::known(fs, ino)
        });
        let name = (self.ino(parent), name);
        self.saw(req, &made, |entry| Change::Symlink {
            name,
            ino: Ino(entry.attr.ino),
            generation: entry.generation,
            target,
        });
        self.reply_to_change(req, made, reply);
    }

    fn rename(
        &self,
        req: &Request,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let creator = creator(req, 0);
        let done = entries::rename_flags(flags).and_then(|flags| {
            self.volume.with(|fs| entries::rename(fs, &creator, from, to, flags))
        });
        self.saw(req, &done, |()| Change::Renamed {
            from: (self.ino(from.0), from.1),
            to: (self.ino(to.0), to.1),
            exchanged: flags & RENAME_EXCHANGE != 0,
        });
        self.reply_to_change(req, done, reply);
    }

    fn link(&self, req: &Request, node: Node, (parent, name): (Node, &[u8]), reply: ReplyEntry) {
        let linked = self.volume.with(|fs| {
            let (ino, parent) = (ino_of(fs, node), ino_of(fs, parent));
            match fs.stat(ino)?.nlink {
                // The kernel allows it for a file that was made without a name.
                0 => fs.link_unlinked(ino, parent, name)?,
                _ => fs.link(ino, parent, name)?,
            }
            entries::known(fs, ino)
        });
        let name = (self.ino(parent), name);
        self.saw(req, &linked, |_| Change::Linked { name, ino: self.ino(node) });
        self.reply_to_change(req, linked, reply);
    }

    fn open(&self, _: &Request, node: Node, flags: i32, reply: ReplyOpen) {
        if !self.options.strict_open {
            // The kernel sends no further request of this kind.
            return reply.error(Errno::NOSYS);
        }
        let ino = self.ino(node);
        let opened = self.volume.with(|fs| {
            entries::may_open(fs, ino, flags)?;
            Ok(self.handles.open(fs.error_cursor(ino)))
        });
        reply.send(opened.map(|handle| Opened { handle, flags: OPENED }));
    }

    fn release(&self, handle: Handle, reply: ReplyEmpty) {
        self.handles.release(handle);
        reply.send(Ok(()));
    }

    fn create(
        &self,
        req: &Request,
        parent: Node,
        name: &[u8],
        (mode, umask): (u32, u32),
        reply: ReplyCreate,
    ) {
        if !self.options.strict_open {
            // From now on the kernel creates and opens a file itself, and sends no release.
            return reply.error(Errno::NOSYS);
        }
        let creator = creator(req, umask);
        let mode = mode16(mode) & 0o7777 | S_IFREG;
        let new = entries::New { name, mode, rdev: (0, 0) };
        let made = self.volume.with(|fs| {
            let made = entries::create(fs, &creator, parent, &new)?;
            let handle = self.handles.open(fs.error_cursor(Ino(made.attr.ino)));
            Ok((made, Opened { handle, flags: OPENED }))
        });
        self.saw(req, &made, |(entry, _)| {
            self.made((parent, name), (entry.attr.ino, entry.generation), mode)
        });
        self.reply_to_change(req, made, reply);
    }

    fn tmpfile(&self, req: &Request, parent: Node, (mode, umask): (u32, u32), reply: ReplyCreate) {
        let creator = creator(req, umask);
        let made = self.volume.with(|fs| {
            let ino = creator.tmpfile(fs, ino_of(fs, parent), mode16(mode) & 0o7777)?;
            let stat = fs.stat(ino)?;
            let handle = match self.options.strict_open {
                true => self.handles.open(fs.error_cursor(ino)),
                false => Handle(0),
            };
            let entry = entries::sent(fs, attr_of(fs, &stat), stat.generation);
            Ok((entry, Opened { handle, flags: OPENED }))
        });
        self.reply_to_change(req, made, reply);
    }

    fn read(&self, _: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.fill(|buffer| {
            self.volume.with(|fs| {
                let ino = ino_of(fs, node);
                let got = fs.read_at(ino, read.offset, buffer)?;
                if read.flags & O_NOATIME == 0 {
                    self.accessed(fs, ino, self.current_options.for_requests().atime)?;
                }
                Ok(got)
            })
        });
    }

    fn write(&self, req: &Request, node: Node, write: &Write<'_>, reply: ReplyWrite) {
        let who = Credentials::of(req).for_write(write.kill_privileges);
        let ino = self.ino(node);
        let written = self.volume.with(|fs| data::write(fs, ino, write.offset, write.data, who));
        self.saw(req, &written, |_| Change::Written {
            ino,
            offset: write.offset,
            data: write.data,
            mapped: write.cached,
        });
        self.volume.start_writeback_if_needed();
        // As with the kernel's XFS, no program waits for a mapped page.
        let of_file = written.is_ok_and(|changed| changed.is_sync) && !write.cached;
        let written = written.map(|changed| changed.bytes);
        let sync = write.flags & (O_DSYNC | O_SYNC_ALONE);
        if self.is_ordered() {
            // O_SYNC means order here. With O_DIRECT it means the disk.
            if sync == 0 || write.flags & O_DIRECT == 0 {
                return reply.send(written);
            }
            let Ok(bytes) = written else { return reply.send(written) };
            let reply = move |done: Result<()>| reply.send(done.map(|()| bytes));
            return self.volume.make_durable(Scope::Durable, Waiter::new(Caller::of(req), reply));
        }
        let kind = match sync {
            _ if of_file || self.current_options.for_requests().sync => SyncKind::All,
            0 => return reply.send(written),
            O_DSYNC => SyncKind::Data,
            _ => SyncKind::All,
        };
        self.saw(req, &written, |_| Change::Synced { ino, data_only: kind == SyncKind::Data });
        match written {
            Ok(bytes) => {
                let cursor = self.handles.cursor(write.handle);
                let reply = move |done: Result<()>| reply.send(done.map(|()| bytes));
                let waiter = Waiter::new(Caller::of(req), reply);
                self.volume.make_durable(Scope::File { ino, kind, cursor }, waiter);
            }
            failed => reply.send(failed),
        }
    }

    fn flush(&self, _: &Request, _: Node, _: Handle, reply: ReplyEmpty) {
        // Closing a file writes nothing, as with the kernel's XFS. The kernel sends no further
        // flush.
        reply.error(Errno::NOSYS);
    }

    fn fsync(&self, req: &Request, node: Node, handle: Handle, data_only: bool, reply: ReplyEmpty) {
        if self.is_ordered() {
            // What was written is in order already. The kernel sends no further fsync.
            return reply.error(Errno::NOSYS);
        }
        let kind = if data_only { SyncKind::Data } else { SyncKind::All };
        self.saw(req, &Ok(()), |()| Change::Synced { ino: self.ino(node), data_only });
        let cursor = self.handles.cursor(handle);
        let waiter = Waiter::new(Caller::of(req), move |done| reply.send(done));
        self.volume.make_durable(Scope::File { ino: self.ino(node), kind, cursor }, waiter);
    }

    fn opendir(&self, _: &Request, node: Node, flags: i32, reply: ReplyOpen) {
        let no_atime = flags & O_NOATIME != 0;
        let how = self.current_options.for_requests().dir_atime;
        let due = || self.volume.with(|fs| fs.is_access_due(ino_of(fs, node), how));
        // An error here is for those who list.
        let may_cache = no_atime || due() == Ok(false);
        let handle = self.open_dirs.open(node, no_atime, may_cache);
        let flags = match open_dirs::uses_cache(handle) {
            true => OpenedFlags::CACHE_DIR | OpenedFlags::KEEP_CACHE,
            false => OpenedFlags::empty(),
        };
        reply.send(Ok(Opened { handle, flags }));
    }

    fn releasedir(&self, node: Node, handle: Handle, reply: ReplyEmpty) {
        self.open_dirs.release(node, handle);
        reply.send(Ok(()));
    }

    fn readdir(&self, _: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.fill(|buffer| {
            let mut listing = Listing::new(buffer);
            self.volume.with(|fs| {
                let ino = ino_of(fs, node);
                dirs::read(fs, ino, read.offset, &mut listing)?;
                self.listed(fs, ino, read.handle)
            })?;
            Ok(listing.len())
        });
    }

    fn readdirplus(&self, _: &Request, node: Node, read: Read, reply: Reply<Bytes>) {
        reply.fill(|buffer| {
            let mut listing = Listing::new(buffer);
            self.volume.with(|fs| {
                let ino = ino_of(fs, node);
                dirs::read_plus(fs, ino, read.offset, &mut listing)?;
                self.listed(fs, ino, read.handle)
            })?;
            Ok(listing.len())
        });
    }

    fn fsyncdir(&self, req: &Request, node: Node, _: bool, reply: ReplyEmpty) {
        if self.is_ordered() {
            return reply.error(Errno::NOSYS);
        }
        if node == Node::ROOT && self.watcher.is_none() {
            // fsync of the root syncs the whole volume, because `sync(2)` does not reach every
            // server. A test wants to see what the call promises elsewhere.
            return self.sync(req, reply);
        }
        self.saw(req, &Ok(()), |()| Change::Synced { ino: self.ino(node), data_only: false });
        let scope = Scope::File { ino: self.ino(node), kind: SyncKind::All, cursor: None };
        let waiter = Waiter::new(Caller::of(req), move |done| reply.send(done));
        self.volume.make_durable(scope, waiter);
    }

    fn syncfs(&self, req: &Request, reply: ReplyEmpty) {
        self.sync(req, reply);
    }

    fn statfs(&self, _: &Request, reply: ReplyStatfs) {
        reply.send(self.volume.with(|fs| Ok(fs.statfs())).map(|space| Statfs {
            blocks: space.blocks,
            free: space.free_blocks,
            available: space.free_blocks,
            files: space.files,
            files_free: space.free_files,
            block_size: space.block_size,
            name_max: 255,
        }));
    }

    fn setxattr(
        &self,
        req: &Request,
        node: Node,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let who = Credentials::of(req);
        let done =
            self.volume.with(|fs| xattrs::set(fs, ino_of(fs, node), name, value, flags, who));
        if done.is_ok() && xattrs::is_raw_list(name) {
            self.cached.invalidate_attributes(node);
        }
        self.reply_to_change(req, done, reply);
    }

    fn getxattr(&self, req: &Request, node: Node, name: &[u8], reply: ReplyXattr) {
        if let Some(words) = name.strip_prefix(control::REMOUNT) {
            return self.remount(req, words, reply);
        }
        if let Some(words) = name.strip_prefix(growth::GROW) {
            return self.grow(req, words, reply);
        }
        if name == control::FREEZE || name == control::THAW {
            return self.freeze_or_thaw(req, name == control::FREEZE, reply);
        }
        if let Some(words) = name.strip_prefix(scrub::BEGIN) {
            return self.scrub(req, Some(words), reply);
        }
        if name == scrub::END {
            return self.scrub(req, None, reply);
        }
        if let Some(value) = self.volume.scrub_value(name) {
            // A report names files of every user.
            let value = may_administer(req).and(value);
            return reply.send(value.as_deref().map_err(|error| *error));
        }
        if let Some(words) = name.strip_prefix(defrag::PART) {
            return self.defrag(req, node, words, reply);
        }
        if name == control::DURABLE {
            let value = control::made_durable();
            let volume = Arc::clone(&self.volume);
            let send = move |done: Result<()>| match done {
                Ok(()) => volume.catch_up(move |done| reply.send(done.map(|()| &*value))),
                Err(error) => reply.error(error),
            };
            return self.volume.make_durable(Scope::Durable, Waiter::new(Caller::of(req), send));
        }
        if name == control::STATUS && req.is_of_guest() {
            // It names processes and files of this machine.
            return reply.error(Errno::OPNOTSUPP);
        }
        let value = self.volume.with(|fs| {
            match self.control.value(&self.volume, fs, self.ino(node), name) {
                Some(value) => Ok(value),
                None if name == defrag::EXTENTS => defrag::extents(fs, self.ino(node)),
                None => xattrs::get(fs, self.ino(node), name),
            }
        });
        reply.send(value.as_deref().map_err(|error| *error));
    }

    fn listxattr(&self, req: &Request, node: Node, reply: ReplyXattr) {
        let names = self.volume.with(|fs| xattrs::list(fs, ino_of(fs, node), req.uid() == 0));
        reply.send(names.as_deref().map_err(|error| *error));
    }

    fn removexattr(&self, req: &Request, node: Node, name: &[u8], reply: ReplyEmpty) {
        let done = self.volume.with(|fs| xattrs::remove(fs, ino_of(fs, node), name));
        if done.is_ok() && xattrs::is_raw_list(name) {
            self.cached.invalidate_attributes(node);
        }
        self.reply_to_change(req, done, reply);
    }

    fn ioctl(&self, req: &Request, node: Node, ioctl: &Ioctl<'_>, reply: ReplyIoctl) {
        let Ioctl { cmd, data, out_size } = *ioctl;
        let who = Credentials::of(req);
        let call = ioctl::Call { cmd, data, out_size: out_size as usize, who };
        match cmd {
            ioctl::FITRIM => return self.trim(&call, reply),
            ioctl::ORDER | ioctl::DURABLE => {
                let scope = if cmd == ioctl::ORDER { Scope::Volume } else { Scope::Durable };
                let send = |done: Result<()>| reply.send(done.map(|()| &[][..]));
                return self.volume.make_durable(scope, Waiter::new(Caller::of(req), send));
            }
            _ => {}
        }
        match self.volume.with(|fs| Ok(ioctl::run(fs, ino_of(fs, node), &call))) {
            Ok(Ok(answer)) => {
                if !ioctl::changes_inode(cmd) {
                    return reply.send(Ok(&answer));
                }
                self.cached.invalidate_attributes(node);
                if !self.current_options.for_requests().wsync {
                    return reply.send(Ok(&answer));
                }
                let send = move |done: Result<()>| reply.send(done.map(|()| &*answer));
                self.volume.make_durable(Scope::Changes, Waiter::new(Caller::of(req), send));
            }
            Ok(Err(error)) | Err(error) => reply.error(error),
        }
    }

    fn fallocate(&self, req: &Request, node: Node, range: Fallocate, reply: ReplyEmpty) {
        let who = Credentials::of(req);
        let Fallocate { offset, len, mode } = range;
        let done = data::fallocate_mode(mode).and_then(|mode| {
            self.volume.with(|fs| data::fallocate(fs, ino_of(fs, node), mode, (offset, len), who))
        });
        if range.mode & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0 {
            self.saw(req, &done, |_| Change::Zeroed { ino: self.ino(node), offset, len });
        }
        let is_sync = done.is_ok_and(|changed| changed.is_sync);
        self.reply_to_content(req, (self.ino(node), is_sync), done.map(drop), reply);
    }

    fn lseek(&self, _: &Request, node: Node, (offset, whence): (u64, u32), reply: ReplyLseek) {
        let found = self.volume.with(|fs| Ok(data::seek(fs, ino_of(fs, node), offset, whence)));
        reply.send(found.and_then(|found| found).map(Offset));
    }

    fn copy_file_range(&self, req: &Request, copy: &CopyRange, reply: ReplyWrite) {
        let CopyRange { from: (from, from_at), to: (to, to_at), len } = *copy;
        let (from, to) = (self.ino(from), self.ino(to));
        let done = self.volume.with(|fs: &Fs| {
            let copied =
                data::copy_range(fs, (from, from_at), (to, to_at), len, Credentials::of(req))?;
            self.control.note_copy(to, copied);
            Ok(u32::try_from(copied.shared + copied.written).unwrap_or(u32::MAX))
        });
        self.saw(req, &done, |copied| Change::Copied {
            from: (from, from_at),
            to: (to, to_at),
            len: u64::from(*copied),
        });
        let is_sync = self.volume.with(|fs| Ok(fs.stat(to)?.flags.contains(Flags::SYNC)));
        self.reply_to_content(req, (to, is_sync == Ok(true)), done, reply);
    }

    fn admit(&self, run: &mut dyn FnMut()) -> bool {
        let Some(_inside) = self.volume.freeze.requests.try_enter() else { return false };
        run();
        true
    }

    fn park(&self, parked: Parked) {
        if let Some(parked) = self.volume.freeze.park(parked) {
            parked.run(self);
        }
    }

    fn destroy(&self) {
        // The result is kept, and returned when the mount has ended.
        let _ = self.volume.close();
    }

    fn knows(&self, node: Node) -> bool {
        self.volume.with(|fs| Ok(fs.is_held(ino_of(fs, node)))) == Ok(true)
    }

    fn forget_all(&self) {
        self.handles.release_all();
        self.open_dirs.release_all();
        // No caller takes the errors. What is not freed is freed when the volume is closed, and what is
        // not written is reported then.
        let _ = self.volume.with(Fs::release_all);
        let _ = self.volume.with(Fs::sync);
    }
}
