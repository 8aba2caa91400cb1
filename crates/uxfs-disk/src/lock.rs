//! Keeping a device to oneself: two writers, or a writer beside a kernel mount, destroy a volume.
//!
//! 1. A lock whose holder is about to let go ([`Holder`]) is waited for: for [`SOON`] or, while a
//!    server says that it is closing the volume, for [`CLOSING`]. Any other one is refused at once,
//!    with the holder's name. The text does not name the image: those who tell it do.

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

/// How long a holder is waited for that seems about to let go, one that says that it is, and how often
/// it is looked at.
const SOON: Duration = Duration::from_secs(5);
const CLOSING: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(20);
/// How often a lock is tried whose holder is not to be seen: it may be gone by now.
const UNSEEN: u32 = 3;

/// A file that is kept to oneself until this goes, and no longer: to close it would not be enough while
/// a program is being started, which has all of our open files until it runs.
pub(crate) struct Locked(File);

impl Locked {
    /// Takes the lock, as [`lock`] does.
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
        // Where it cannot be given back it was not to be had.
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
    let mut patience = Patience::new();
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            // Media that know no locks cannot be written by anybody else either, or are read at one's
            // own risk, as by any other program.
            Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) if !exclusive => return Ok(()),
            Err(Errno::WOULDBLOCK) => patience.wait(path)?,
            Err(other) => return Err(other.into()),
        }
    }
}

/// Opens a file, and waits for a holder of a block device that is about to let go.
pub(crate) fn open(path: &Path, mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
    let mut patience = Patience::new();
    loop {
        match open() {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                // What the kernel itself has in use has no holder.
                if patience.unseen >= UNSEEN && Holder::of(path).is_none() {
                    return Err(explain(path));
                }
                patience.wait(path)?;
            }
            other => return other,
        }
    }
}

/// How long something was waited for.
struct Patience {
    begun: Instant,
    /// How often in a row no holder was to be seen.
    unseen: u32,
}

impl Patience {
    fn new() -> Self {
        Self { begun: Instant::now(), unseen: 0 }
    }

    /// Waits for a moment.
    ///
    /// # Errors
    /// That the image is in use, by a holder that stays.
    fn wait(&mut self, path: &Path) -> io::Result<()> {
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

/// Says what the kernel means when it refuses the claim of a block device.
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

/// Refuses a file or device that the kernel has mounted, directly or through a loop device.
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

/// Where a device is mounted, if it is.
fn mount_of(major: u32, minor: u32) -> Option<String> {
    let wanted = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == wanted).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
}
