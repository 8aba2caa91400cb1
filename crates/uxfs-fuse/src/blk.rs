//! A mount of the kernel's type `fuseblk`, which receives `sync(2)` and `syncfs(2)`: for root, on
//! Linux 6.18 and later.
//!
//! The FUSE library does not know that request (`FUSE_SYNCFS`), and answers it so that the kernel
//! never sends it again. So the library does not read the kernel's device. Two threads stand
//! between them, with a pair of sockets: they forward every message except that one. This costs two
//! more context switches per request, so it is an option and not the default.
//!
//! The kernel wants a block device for such a mount, but does not use it. A loop device stands for
//! the image; the kernel releases it when the mount ends.
//!
//! 1. A request or a reply is one message, forwarded whole and in order.
//! 2. `syncfs` is answered when everything is durable. No thread waits for it.
//! 3. The kernel waits for the answer to its last request (`FUSE_DESTROY`), and the volume is
//!    closed before that. So when umount(8) returns, everything is written in place.
//! 4. The end of the mount reaches the library as the end of its socket, which it takes for an
//!    error. [`Between::result`] returns the real result.

#![expect(clippy::host_endian_bytes, reason = "the kernel talks in the machine's byte order")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{Config, Errno, MountOption, Session, SessionACL};
use parking_lot::Mutex;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::durability::{Caller, Scope, Waiter};
use crate::mounts::BLOCK_TYPE;
use crate::options::Options;
use crate::server::Server;
use crate::volume::Volume;

/// Most bytes of one read or write. A message between sockets holds at most twice as many.
pub(crate) const MAX_WRITE: u32 = 128 << 10;
/// Most bytes of a request or reply without its data.
const HEADER_MAX: usize = 8 << 10;
/// Bytes of a reply without data.
const REPLY: usize = 16;
const FUSE_DESTROY: u32 = 38;
const FUSE_SYNCFS: u32 = 50;
/// The errno of a read when the mount is gone, and when a request was interrupted.
const ENODEV: i32 = 19;
const ENOENT: i32 = 2;

/// The threads between the kernel and the library.
pub(crate) struct Between {
    ours: Arc<UnixDatagram>,
    /// The library's socket, through which it learns of the end.
    theirs: Arc<UnixDatagram>,
    end: Arc<End>,
}

#[derive(Default)]
struct End {
    /// The kernel has ended the mount.
    gone: AtomicBool,
    /// The error of closing the volume.
    failed: Mutex<Option<String>>,
}

impl Between {
    /// The result of the mount, given the library's result.
    pub(crate) fn result(&self, said: io::Result<()>) -> io::Result<()> {
        match self.end.failed.lock().take() {
            Some(why) => Err(io::Error::other(why)),
            None if self.end.gone.load(Ordering::Acquire) => Ok(()),
            None => said,
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // Ends all reads that still wait there.
        let _ = self.theirs.shutdown(Shutdown::Both);
        let _ = self.ours.shutdown(Shutdown::Both);
    }
}

/// Mounts, and starts the threads.
///
/// # Errors
/// Errors of the kernel and of `losetup`; not root.
pub(crate) fn mount(
    server: Server,
    volume: &Arc<Volume>,
    (source, dir): (&Path, &Path),
    options: &Options,
    config: Config,
) -> io::Result<(Session<Server>, Between)> {
    let dev = Arc::new(File::options().read(true).write(true).open("/dev/fuse")?);
    mount_device(&dev, source, dir, options)?;
    let started = start(server, volume, dev, config, options.allow_other);
    if started.is_err() {
        // The first error is reported.
        let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
    }
    started
}

fn start(
    server: Server,
    volume: &Arc<Volume>,
    dev: Arc<File>,
    mut config: Config,
    everybody: bool,
) -> io::Result<(Session<Server>, Between)> {
    let (ours, theirs) = UnixDatagram::pair()?;
    let given = OwnedFd::from(theirs.try_clone()?);
    let (ours, theirs) = (Arc::new(ours), Arc::new(theirs));
    let between = Between { ours, theirs, end: Arc::default() };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let requests = Requests {
        dev: Arc::clone(&dev),
        ours: Arc::clone(&between.ours),
        theirs: Arc::clone(&between.theirs),
        end: Arc::clone(&between.end),
        volume: Arc::clone(volume),
    };
    thread("uxfs-requests").spawn(move || requests.pass())?;
    let ours = Arc::clone(&between.ours);
    thread("uxfs-replies").spawn(move || pass_replies(&ours, &dev))?;
    config.clone_fd = false;
    let acl = if everybody { SessionACL::All } else { SessionACL::Owner };
    let session = Session::from_fd(server, given, acl, config)?;
    Ok((session, between))
}

struct Requests {
    dev: Arc<File>,
    ours: Arc<UnixDatagram>,
    theirs: Arc<UnixDatagram>,
    end: Arc<End>,
    volume: Arc<Volume>,
}

impl Requests {
    fn pass(&self) {
        let mut buffer = vec![0; MAX_WRITE as usize + HEADER_MAX];
        loop {
            let len = match (&*self.dev).read(&mut buffer) {
                Ok(len) => len,
                Err(error) => match (error.kind(), error.raw_os_error()) {
                    (io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock, _) => continue,
                    (_, Some(ENOENT)) => continue,
                    (_, code) => {
                        self.end.gone.store(code == Some(ENODEV), Ordering::Release);
                        break;
                    }
                },
            };
            let request = Head::of(&buffer[..len]);
            match request {
                Some(Head { opcode: FUSE_SYNCFS, unique, pid }) => {
                    self.sync(unique, pid);
                    continue;
                }
                Some(Head { opcode: FUSE_DESTROY, .. }) => self.close(),
                _ => {}
            }
            // Fails only when the library has ended.
            if self.ours.send(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = self.theirs.shutdown(Shutdown::Both);
    }

    fn close(&self) {
        if let Err(error) = self.volume.close() {
            *self.end.failed.lock() = Some(error);
        }
    }

    fn sync(&self, unique: u64, pid: u32) {
        let dev = Arc::clone(&self.dev);
        let waiter = Waiter::new(Caller::process(pid), move |done: Result<(), Errno>| {
            let error = done.err().map_or(0, |error| -error.code());
            let mut reply = [0; REPLY];
            reply[..4].copy_from_slice(&16_u32.to_ne_bytes());
            reply[4..8].copy_from_slice(&error.to_ne_bytes());
            reply[8..].copy_from_slice(&unique.to_ne_bytes());
            // The caller may be gone.
            let _ = (&*dev).write(&reply);
        });
        self.volume.make_durable(Scope::Volume, waiter);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    opcode: u32,
    unique: u64,
    pid: u32,
}

impl Head {
    fn of(request: &[u8]) -> Option<Self> {
        let word = |at: usize| request.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let unique = request.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)?;
        Some(Self { opcode: word(4)?, unique, pid: word(32)? })
    }
}

fn pass_replies(ours: &UnixDatagram, dev: &File) {
    let mut buffer = vec![0; MAX_WRITE as usize + HEADER_MAX];
    while let Ok(len @ 1..) = ours.recv(&mut buffer) {
        let mut dev = dev;
        // The kernel refuses a reply to an interrupted request, which needs none.
        let _ = dev.write(&buffer[..len]);
    }
}

fn mount_device(dev: &File, source: &Path, dir: &Path, options: &Options) -> io::Result<()> {
    let mut attach = vec![OsStr::new("--find"), OsStr::new("--show"), source.as_os_str()];
    if options.read_only {
        attach.push(OsStr::new("--read-only"));
    }
    let device = losetup(&attach)?;
    let others = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions{others}",
        dev.as_raw_fd()
    );
    let data = std::ffi::CString::new(data)?;
    let mounted = rustix::mount::mount(&*device, dir, BLOCK_TYPE, flags(options), data.as_c_str());
    // Released when its last user is gone: now, or when the mount ends.
    let given_back = losetup(&[OsStr::new("-d"), OsStr::new(&device)]);
    mounted.map_err(|error| {
        let error = io::Error::from(error);
        io::Error::other(format!(
            "option 'fuseblk': mounting {device} on {}: {error}",
            dir.display()
        ))
    })?;
    given_back.map(drop)
}

/// Where losetup may be: a system command that is not in every root's `PATH`.
const LOSETUP: [&str; 3] = ["losetup", "/sbin/losetup", "/usr/sbin/losetup"];

/// Runs losetup. Returns its output.
fn losetup(args: &[&OsStr]) -> io::Result<String> {
    let failed = |why: &dyn core::fmt::Display| {
        io::Error::other(format!("option 'fuseblk' needs a loop device: {why}"))
    };
    for program in LOSETUP {
        let output = match Command::new(program).args(args).output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| failed(&format_args!("{program}: {error}")))?,
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        return match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(failed(&text(&output.stderr))),
        };
    }
    Err(failed(&"losetup is missing (install util-linux or mount)"))
}

fn flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    for option in &options.kernel {
        match option {
            MountOption::Suid => flags.remove(MountFlags::NOSUID),
            MountOption::Dev => flags.remove(MountFlags::NODEV),
            MountOption::NoExec => flags.insert(MountFlags::NOEXEC),
            MountOption::NoAtime => flags.insert(MountFlags::NOATIME),
            _ => {}
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_headers_are_parsed() {
        let mut request = [0; 48];
        request[4..8].copy_from_slice(&FUSE_SYNCFS.to_ne_bytes());
        request[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        request[32..36].copy_from_slice(&1234_u32.to_ne_bytes());
        assert_eq!(Head::of(&request), Some(Head { opcode: 50, unique: 77, pid: 1234 }));
        assert_eq!(Head::of(&request[..35]), None);
    }
}
