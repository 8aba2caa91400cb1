//! A host that refuses requests on command: a FUSE file system with one file, an image, backed by a
//! file of the real host.
//!
//! 1. Every write reaches the server at once: the file is opened for direct I/O, and the kernel keeps
//!    neither data nor attributes.
//! 2. Without a refusal it behaves as the real host.
//! 3. Each refused request is counted, so that a test can see that the refusal took effect.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno as Os;

/// Name of the only file.
pub(crate) const IMAGE: &str = "a.img";

const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::ZERO;
/// Granularity of allocation on the host.
const BLOCK: u64 = 4096;

/// The kind of request that the host refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Allocations: writes into holes, and fallocate over them.
    Allocating(Os),
    /// All writes and allocations.
    Writing(Os),
    /// Flushes. Writes succeed.
    Flushing(Os),
    /// Writes at or after this offset.
    Beyond(u64, Os),
    /// The second half of each write, so that it returns a short count.
    Half,
    /// All bytes of each write: a write returns 0.
    Nothing,
    /// Every request.
    Everything(Os),
}

struct State {
    file: File,
    refusal: Option<Refusal>,
    /// Writes, flushes and allocations that succeed before the refusal begins.
    before: u64,
    /// Refused requests after which the refusal ends.
    times: u64,
    /// Number of refused requests.
    refused: u64,
    /// For each block: is it allocated?
    allocated: Vec<bool>,
}

pub(crate) struct Host {
    dir: PathBuf,
    backing: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Host {
    /// Mounts a host on `dir`, with an empty file that `backing` stores.
    pub(crate) fn new(backing: &Path, dir: &Path) -> Self {
        let open = OpenOptions::new().read(true).write(true).create_new(true).open(backing);
        let file = open.unwrap();
        let state =
            State { file, refusal: None, before: 0, times: 0, refused: 0, allocated: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("refusing-host".into())];
        config.n_threads = Some(2);
        let session = Session::new(Server(Arc::clone(&state)), dir, &config)
            .unwrap_or_else(|error| panic!("no FUSE here (modprobe fuse, fuse3): {error}"));
        // The thread ends with the mount.
        std::thread::spawn(move || session.run());
        Self { dir: dir.to_owned(), backing: backing.to_owned(), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The path of the image on this host.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.join(IMAGE)
    }

    /// Begins to refuse after `before` more writes, flushes and allocations. The refusal ends after
    /// `times` refused requests.
    pub(crate) fn refuse(&self, refusal: Refusal, before: u64, times: u64) {
        let mut state = self.state();
        (state.refusal, state.before, state.times, state.refused) =
            (Some(refusal), before, times, 0);
    }

    pub(crate) fn stop_refusing(&self) {
        self.state().refusal = None;
    }

    /// Number of refused requests.
    pub(crate) fn refused(&self) -> u64 {
        self.state().refused
    }

    /// Truncates the file. Returns the part that it cuts off.
    pub(crate) fn cut(&self, len: u64) -> Cut {
        let mut state = self.state();
        let whole = self.backing.with_extension("whole");
        std::fs::copy(&self.backing, &whole).unwrap();
        let old = state.file.metadata().unwrap().len();
        state.resize(len).unwrap();
        Cut { whole, from: len, to: old }
    }

    /// Has anything been written after the point where the file was cut?
    pub(crate) fn has_grown(&self, cut: &Cut) -> bool {
        self.state().file.metadata().unwrap().len() > cut.from
    }

    /// Restores the part that was cut off.
    pub(crate) fn restore(&self, cut: &Cut) {
        let mut state = self.state();
        state.resize(cut.from).unwrap();
        state.resize(cut.to).unwrap();
        let whole = File::open(&cut.whole).unwrap();
        let mut at = cut.from;
        while let Ok(data) = rustix::fs::seek(&whole, SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&whole, SeekFrom::Hole(data)).unwrap();
            let mut bytes = vec![0; usize::try_from(end - data).unwrap()];
            whole.read_exact_at(&mut bytes, data).unwrap();
            state.write(data, &bytes).unwrap();
            at = end;
        }
    }
}

/// The part that was cut off a file.
pub(crate) struct Cut {
    whole: PathBuf,
    from: u64,
    to: u64,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop_refusing();
        // The server's thread ends with the connection.
        let _ = uxfs_fuse::mounts::unmount(&self.dir, true);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks that a range touches.
fn blocks(offset: u64, len: u64) -> std::ops::Range<usize> {
    (offset / BLOCK) as usize..(offset + len).div_ceil(BLOCK) as usize
}

impl State {
    /// Fails if every request is refused.
    fn answer(&mut self) -> io::Result<()> {
        match self.refusal {
            Some(Refusal::Everything(error)) if self.before == 0 => self.refuse_with(error),
            _ => Ok(()),
        }
    }

    fn refuse_with<T>(&mut self, error: Os) -> io::Result<T> {
        self.count();
        Err(error.into())
    }

    fn count(&mut self) {
        self.refused += 1;
        if self.refused >= self.times {
            self.refusal = None;
        }
    }

    /// The refusal in effect for a request that writes, flushes or allocates.
    fn current_refusal(&mut self) -> Option<Refusal> {
        if self.refusal.is_some() && self.before > 0 {
            self.before -= 1;
            return None;
        }
        self.refusal
    }

    /// Number of bytes of a write that succeed; at least one unless the write is refused.
    fn accepted_bytes(&mut self, offset: u64, len: u64) -> io::Result<u64> {
        let (room, error) = match self.current_refusal() {
            None | Some(Refusal::Flushing(_)) => return Ok(len),
            Some(Refusal::Writing(error) | Refusal::Everything(error)) => (0, error),
            Some(Refusal::Beyond(end, error)) => (end.saturating_sub(offset), error),
            Some(Refusal::Allocating(error)) => {
                let is_hole = |at: &usize| !self.allocated.get(*at).is_some_and(|is| *is);
                match blocks(offset, len).find(is_hole) {
                    Some(hole) => ((hole as u64 * BLOCK).saturating_sub(offset), error),
                    None => return Ok(len),
                }
            }
            Some(Refusal::Half) => {
                if len > 1 {
                    self.count();
                }
                return Ok(len.div_ceil(2));
            }
            Some(Refusal::Nothing) => {
                self.count();
                return Ok(0);
            }
        };
        match room.min(len) {
            0 => self.refuse_with(error),
            taken => Ok(taken),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let taken = self.accepted_bytes(offset, data.len() as u64)? as usize;
        self.file.write_all_at(&data[..taken], offset)?;
        self.mark(offset, taken as u64, true);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.current_refusal() {
            Some(Refusal::Flushing(error) | Refusal::Everything(error)) => self.refuse_with(error),
            // The machine stays up, so the real host needs no flush.
            _ => Ok(()),
        }
    }

    fn fallocate(&mut self, offset: u64, len: u64, mode: i32) -> io::Result<()> {
        self.answer()?;
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let punches = flags.contains(FallocateFlags::PUNCH_HOLE);
        // fallocate succeeds or fails as a whole; it is never short.
        let whole = matches!(self.refusal, Some(Refusal::Half | Refusal::Nothing));
        if !punches && !whole && self.accepted_bytes(offset, len)? < len {
            return match self.refusal {
                Some(Refusal::Allocating(error) | Refusal::Beyond(_, error)) => {
                    self.refuse_with(error)
                }
                _ => Ok(()),
            };
        }
        rustix::fs::fallocate(&self.file, flags, offset, len)?;
        if punches {
            let whole = offset.next_multiple_of(BLOCK)..(offset + len) / BLOCK * BLOCK;
            self.mark(whole.start, whole.end.saturating_sub(whole.start), false);
        } else {
            self.mark(offset, len, true);
        }
        Ok(())
    }

    fn resize(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.allocated.truncate(len.div_ceil(BLOCK) as usize);
        Ok(())
    }

    fn mark(&mut self, offset: u64, len: u64, allocated: bool) {
        let range = blocks(offset, len);
        if self.allocated.len() < range.end {
            self.allocated.resize(range.end, false);
        }
        if !range.is_empty() {
            self.allocated[range].fill(allocated);
        }
    }

    fn attr(&mut self, node: INodeNo) -> io::Result<FileAttr> {
        self.answer()?;
        let dir = node == ROOT;
        let size = if dir { 0 } else { self.file.metadata()?.len() };
        Ok(FileAttr {
            ino: node,
            size,
            blocks: self.allocated.iter().filter(|is| **is).count() as u64 * (BLOCK / 512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if dir { FileType::Directory } else { FileType::RegularFile },
            perm: if dir { 0o755 } else { 0o644 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        })
    }
}

struct Server(Arc<Mutex<State>>);

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

fn done(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn attributes(result: io::Result<FileAttr>, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name != IMAGE {
            return reply.error(Errno::ENOENT);
        }
        match lock(&self.0).attr(FILE) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(lock(&self.0).attr(node), reply);
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
        let mut state = lock(&self.0);
        let set = state.answer().and_then(|()| size.map_or(Ok(()), |size| state.resize(size)));
        attributes(set.and_then(|()| state.attr(node)), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match lock(&self.0).answer() {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = lock(&self.0);
        let mut bytes = vec![0; size as usize];
        let read = state.answer().and_then(|()| {
            let mut got = 0;
            while got < bytes.len() {
                match state.file.read_at(&mut bytes[got..], offset + got as u64)? {
                    0 => break,
                    more => got += more,
                }
            }
            Ok(got)
        });
        match read {
            Ok(got) => reply.data(&bytes[..got]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = lock(&self.0);
        // A synchronous write is a write and a flush.
        let forced = flags.0 & OFlags::DSYNC.bits() as i32 != 0;
        let written = state.write(offset, data);
        match written
            .and_then(|taken| if forced { state.flush().map(|()| taken) } else { Ok(taken) })
        {
            Ok(taken) => reply.written(taken as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // After ENOSYS the kernel sends no more flush requests. Otherwise a killed test process, which
        // closes its files after its server threads are gone, would wait for ever.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(lock(&self.0).flush(), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        done(lock(&self.0).fallocate(offset, length, mode), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const DATA: i32 = 3;
        let mut state = lock(&self.0);
        let from = if whence == DATA { SeekFrom::Data } else { SeekFrom::Hole };
        let sought = state
            .answer()
            .and_then(|()| Ok(rustix::fs::seek(&state.file, from(offset.unsigned_abs()))?));
        match sought {
            Ok(at) => reply.offset(at as i64),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
