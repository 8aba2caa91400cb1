//! Locks a device: two writers, or a writer beside a kernel mount, destroy a volume.
//!
//! 1. If the holder of a lock is about to release it ([`Holder`]), the lock is awaited for
//!    [`SOON`], or for [`CLOSING`] while a server reports that it is closing the volume. Any other
//!    held lock is refused at once with the holder's name. The error text does not name the image;
//!    the caller adds its name.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::holder::{Ending, Holder};

/// Maximum wait for a holder that seems about to release the lock, maximum wait for one that
/// reports that it is closing the volume, and the interval between attempts.
const SOON: Duration = Duration::from_secs(5);
const CLOSING: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(20);
/// Number of attempts if no holder is visible: it may have exited already.
const UNSEEN: u32 = 3;

/// A locked file. Dropping it unlocks the file explicitly: closing alone is not enough, because a
/// child process that is being started holds copies of all open files until it calls exec.
pub(crate) struct Locked(File);

impl Locked {
    /// Locks `file`, see [`lock`].
    pub(crate) fn new(file: File, exclusive: bool, path: &Path) -> io::Result<Self> {
        lock(&file, exclusive, path)?;
        Ok(Self(file))
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If unlocking fails, the file system has no locks.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes an advisory lock on the file, shared for readers, exclusive for writers.
pub(crate) fn lock(file: &File, exclusive: bool, path: &Path) -> io::Result<()> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    let mut wait = HolderWait::new();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            // On a file system without locks, no other process can lock the file either. Reading is
            // then at the user's own risk, as with any other program.
            Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) if !exclusive => return Ok(()),
            Err(Errno::WOULDBLOCK) => wait.retry(path)?,
            Err(other) => return Err(other.into()),
        }
    }
}

/// Opens a file; if it is a busy block device, waits for a holder that is about to release it.
pub(crate) fn open(path: &Path, mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
    let mut wait = HolderWait::new();
    loop {
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                // The kernel's own claims have no holder in /proc.
                if wait.unseen >= UNSEEN && Holder::of(path).is_none() {
                    return Err(explain(path));
                }
                wait.retry(path)?;
            }
            other => return other,
        }
    }
}

/// State of waiting for a lock's holder.
struct HolderWait {
    begun: Instant,
    /// Number of successive attempts for which no holder was visible.
    unseen: u32,
}

impl HolderWait {
    fn new() -> Self {
        Self { begun: Instant::now(), unseen: 0 }
    }

    /// Sleeps until the next attempt.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if the holder keeps the image.
    fn retry(&mut self, path: &Path) -> io::Result<()> {
        let holder = Holder::of(path);
        self.unseen = if holder.is_some() { 0 } else { self.unseen + 1 };
        let ending = match holder.as_ref().map(|holder| holder.ending) {
            Some(Ending::No) => false,
            Some(Ending::Soon) => self.begun.elapsed() < SOON,
            Some(Ending::Closing) => self.begun.elapsed() < CLOSING,
            None => self.unseen <= UNSEEN,
        };
        if !ending {
            let text = format!("in use by {}", holder.unwrap_or_default());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        std::thread::sleep(AGAIN);
        Ok(())
    }
}

/// Explains why the kernel refused the exclusive claim on a block device.
fn explain(path: &Path) -> io::Error {
    let how = std::fs::metadata(path)
        .ok()
        .and_then(|meta| mount_of(rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())));
    let text = match how {
        Some(at) => format!("in use: mounted by the kernel on {at}; unmount it first"),
        None => "in use by the kernel: it or a part of it is mounted, or belongs to another device"
            .into(),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Fails for a file or device that the kernel has mounted, directly or through a loop device.
pub(crate) fn refuse_mounted(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    let busy = |how: &str| {
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("in use: mounted by the kernel {how}; unmount it first"),
        ))
    };
    if meta.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        if let Some(at) = mount_of(major, minor) {
            return busy(&format!("on {at}"));
        }
        return Ok(());
    }
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(()) };
    for device in devices.flatten() {
        let backing = device.path().join("loop/backing_file");
        let Ok(text) = std::fs::read_to_string(backing) else { continue };
        let Ok(other) = std::fs::metadata(text.trim_end_matches('\n')) else { continue };
        if (other.dev(), other.ino()) != (meta.dev(), meta.ino()) {
            continue;
        }
        let name = device.file_name().to_string_lossy().into_owned();
        let number = std::fs::read_to_string(device.path().join("dev")).unwrap_or_default();
        if let Some((major, minor)) = number.trim().split_once(':')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
            && let Some(at) = mount_of(major, minor)
        {
            return busy(&format!("through /dev/{name} on {at}"));
        }
    }
    Ok(())
}

/// The mount point of a device, if it is mounted.
fn mount_of(major: u32, minor: u32) -> Option<String> {
    let wanted = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == wanted).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
}
