//! Locks a device: two writers, or a writer beside a kernel mount, destroy a volume.
//!
//! 1. If the holder of a lock is about to release it ([`Holder`]), the lock is awaited for
//!    [`SOON`], or for [`CLOSING`] while a server reports that it is closing the volume. Any other
//!    held lock is refused at once with the holder's name. The error text does not name the image;
//!    the caller adds its name.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::holder::{Ending, Holder};

#[cfg(target_os = "linux")]
mod mounted;

#[cfg(target_os = "linux")]
use mounted::explain;
#[cfg(target_os = "linux")]
pub(crate) use mounted::refuse_mounted;

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

impl Drop for Locked {
    fn drop(&mut self) {
        // If unlocking fails, the file system has no locks.
        let _ = self.0.unlock();
    }
}

/// Takes an advisory lock on the file, shared for readers, exclusive for writers.
pub(crate) fn lock(file: &File, exclusive: bool, path: &Path) -> io::Result<()> {
    let mut wait = HolderWait::new();
    loop {
        match if exclusive { file.try_lock() } else { file.try_lock_shared() } {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => wait.retry(path)?,
            // On a file system without locks, no other process can lock the file either. Reading is
            // then at the user's own risk, as with any other program.
            Err(TryLockError::Error(error)) if !exclusive && has_no_locks(&error) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Does the error say that the file system knows no locks?
fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    return {
        use rustix::io::Errno;
        let none = [Errno::OPNOTSUPP, Errno::NOLCK, Errno::NOSYS];
        none.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    };
    #[cfg(not(unix))]
    return error.kind() == io::ErrorKind::Unsupported;
}

/// Opens a file; if it is a busy block device, waits for a holder that is about to release it.
pub(crate) fn open(path: &Path, mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
    let mut wait = HolderWait::new();
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
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

/// Explains why the host refused the file.
#[cfg(not(target_os = "linux"))]
fn explain(_: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "in use by another program")
}

/// Fails for what the kernel has mounted: no other kernel than Linux mounts XFS.
#[cfg(not(target_os = "linux"))]
pub(crate) fn refuse_mounted(_: &File) -> io::Result<()> {
    Ok(())
}
