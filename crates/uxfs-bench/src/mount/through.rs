//! A FUSE server that passes reading and writing on to files of the host: what a mount of any kind
//! costs over the host's own files, on the same crate and settings. It knows one directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr, Request, Session, WriteFlags,
};
use uxfs_fuse::settings::{self, MAX_WRITE, TTL};

use super::empty::{attr, config};

struct Through {
    backing: PathBuf,
    /// Files that were made, by their inode's number less two.
    files: Mutex<Vec<(Box<OsStr>, Arc<File>)>>,
}

/// Mounts the server on a directory and serves it until it is unmounted.
///
/// # Errors
/// What the kernel says.
pub fn serve(backing: &Path, dir: &Path) -> io::Result<()> {
    let through = Through { backing: backing.canonicalize()?, files: Mutex::default() };
    Session::new(through, dir, &config("through"))?.run()
}

thread_local! {
    /// What a thread reads into.
    static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Through {
    fn file(&self, node: INodeNo) -> Option<Arc<File>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(node.0.checked_sub(2)?).ok()?;
        files.get(at).map(|(_, file)| Arc::clone(file))
    }

    fn attr(&self, node: INodeNo) -> io::Result<FileAttr> {
        match self.file(node) {
            Some(file) => Ok(attr(node.0, false, file.metadata()?.len())),
            None => Ok(attr(1, true, 0)),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

impl Filesystem for Through {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        settings::ask(config)
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.iter().position(|(known, _)| **known == *name);
        drop(files);
        let known = found.map(|at| self.attr(INodeNo(at as u64 + 2)));
        match known {
            Some(Ok(attr)) => reply.entry(&TTL, &attr, Generation(0)),
            Some(Err(error)) => reply.error(errno(&error)),
            None => reply.entry(&TTL, &attr(0, false, 0), Generation(0)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(node) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let path = self.backing.join(name);
        let made = File::options().read(true).write(true).create(true).truncate(true).open(path);
        match made {
            Ok(file) => {
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.push((name.into(), Arc::new(file)));
                let ino = files.len() as u64 + 1;
                drop(files);
                reply.entry(&TTL, &attr(ino, false, 0), Generation(0));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match std::fs::remove_file(self.backing.join(name)) {
            Ok(()) => {
                // Its number is not given again.
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                let gone = files.iter_mut().filter(|(known, _)| **known == *name);
                gone.for_each(|(known, _)| *known = OsStr::new("").into());
                drop(files);
                reply.ok();
            }
            Err(error) => reply.error(errno(&error)),
        }
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
        let Some(file) = self.file(node) else { return reply.error(Errno::EISDIR) };
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(MAX_WRITE) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match file.read_at(&mut buffer[..size], offset) {
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
        let Some(file) = self.file(node) else { return reply.error(Errno::EISDIR) };
        match file.write_all_at(data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(node).map(|file| file.sync_all()) {
            Some(Err(error)) => reply.error(errno(&error)),
            _ => reply.ok(),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }
}
