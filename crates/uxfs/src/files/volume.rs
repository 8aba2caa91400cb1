//! An open volume: the engine behind one lock, so that it can be closed while files are open.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use uxfs_core::{Devices, Error, Fs, LogWorker, StatFs, journal};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_format::Ino;

use super::error::{Fault, PathError, Result};
use super::options::VolumeOptions;
use super::path::bytes_of;
use crate::volume;

/// Errors kept for [`drop_errors`]; the oldest are dropped beyond this number.
const KEPT: usize = 64;

/// Locks of content; files share them.
const CONTENTS: usize = 64;

/// The number of the next volume that is opened.
static NEXT: AtomicU64 = AtomicU64::new(0);

static DROP_ERRORS: Mutex<Vec<PathError>> = Mutex::new(Vec::new());

/// Returns the errors of volumes that were dropped, not closed, since the last call, in any thread of
/// the process: at most the last 64. After such an error, changes of that volume that were not
/// durable may be lost. [`Volume::close`] returns its error instead.
pub fn drop_errors() -> Vec<PathError> {
    std::mem::take(&mut *DROP_ERRORS.lock())
}

/// The engine, and the thread that serves its journal.
struct Engine {
    worker: Mutex<Option<LogWorker>>,
    fs: Arc<Fs>,
}

/// The durability of what was changed up to a moment on one volume: [`Volume::wait`] waits for it.
/// Tickets belong to one opening of a volume; others refuse them with EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// [`Shared::number`].
    volume: u64,
    inner: journal::Ticket,
}

/// What a volume and its open files share.
pub(super) struct Shared {
    /// Another one for each opening of a volume in this process.
    number: u64,
    /// The process that opened the volume. A child process has a copy of the engine, whose writes would
    /// destroy the volume: it may not run it, nor close it.
    process: u32,
    /// `None` after the volume was closed.
    engine: RwLock<Option<Engine>>,
    image: PathBuf,
    pub(super) options: VolumeOptions,
    /// Locks of the content of files, by inode: an append finds the end of the file and writes there
    /// while no other call of this interface changes the length.
    contents: [RwLock<()>; CONTENTS],
}

impl Shared {
    /// Runs `f` on the engine, if the volume is open.
    pub(super) fn run<R>(
        &self,
        f: impl FnOnce(&Fs) -> core::result::Result<R, Fault>,
    ) -> core::result::Result<R, Fault> {
        self.check_process()?;
        // Recursive: `f` may call the volume, and a thread that closes it may wait already.
        f(&self.engine.read_recursive().as_ref().ok_or(Fault::CLOSED)?.fs)
    }

    fn check_process(&self) -> core::result::Result<(), Fault> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(Fault::FORKED),
        }
    }

    fn content(&self, ino: Ino) -> &RwLock<()> {
        &self.contents[(ino.0 % CONTENTS as u64) as usize]
    }

    /// Keeps other threads from changing the content of a file.
    pub(super) fn append_to(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        self.content(ino).write()
    }

    /// Keeps other threads from appending to a file.
    pub(super) fn change(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        // Recursive: a call that changes several files may have this lock already.
        self.content(ino).read_recursive()
    }

    /// The ticket of the engine, as one of this volume.
    pub(super) fn ticket(&self, inner: journal::Ticket) -> Ticket {
        Ticket { volume: self.number, inner }
    }

    fn own(&self, ticket: Ticket) -> core::result::Result<journal::Ticket, Fault> {
        match ticket.volume == self.number {
            true => Ok(ticket.inner),
            false => Err(Fault::invalid("a ticket of another volume, or of an earlier opening")),
        }
    }

    /// Releases a reference to an inode, also from within [`Shared::run`].
    pub(super) fn release(&self, ino: Ino) {
        // In a child process a thread that does not exist there may hold the locks.
        if self.check_process().is_err() {
            return;
        }
        // A thread that closes the volume may wait already, for the reader around this one.
        if let Some(engine) = &*self.engine.read_recursive() {
            // Recovery frees what this fails to free.
            let _ = engine.fs.release(ino, 1);
        }
    }

    fn close(&self) -> core::result::Result<(), Fault> {
        self.check_process()?;
        let engine = self.engine.write().take();
        let Some(Engine { worker, fs }) = engine else { return Ok(()) };
        // The worker's own reference ends with its thread.
        drop(worker);
        match Arc::into_inner(fs) {
            Some(fs) => Ok(fs.close()?),
            None => Err(Fault::Refused(16, "the engine is still in use")),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // Neither its threads nor its locks can be relied on in a child process.
            std::mem::forget(self.engine.get_mut().take());
            return;
        }
        if let Err(fault) = self.close() {
            let mut kept = DROP_ERRORS.lock();
            if kept.len() == KEPT {
                kept.remove(0);
            }
            kept.push(PathError::new("drop", &self.image, fault));
        }
    }
}

/// An open volume. Clones are handles of the same volume.
///
/// Changes are logged, and durable after [`Volume::sync_all`], [`super::File::sync_all`],
/// [`Volume::wait`] or [`Volume::close`]. Dropping the last handle (volume or file) closes the volume
/// too; [`drop_errors`] returns the errors of that.
///
/// ```
/// use std::io::Write;
/// use uxfs::Volume;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = tempfile::tempdir()?;
/// # let image = host.path().join("disk.img");
/// let volume = Volume::create(&image, 512 << 20)?;
/// volume.create_dir_all("notes/2026")?;
/// let mut file = volume.create_file("notes/2026/today")?;
/// file.write_all(b"an XFS file system, without a kernel\n")?;
/// file.sync_all()?;
/// volume.rename("notes/2026/today", "notes/yesterday")?;
/// volume.close()?;
///
/// let volume = Volume::open(&image)?;
/// assert!(volume.read_to_string("/notes/yesterday")?.starts_with("an XFS"));
/// let error = volume.metadata("/notes/2026/today").unwrap_err();
/// assert_eq!((error.errno(), error.kind()), (2, std::io::ErrorKind::NotFound));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Volume(pub(super) Arc<Shared>);

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Volume").field(&self.0.image).finish()
    }
}

impl Volume {
    /// Opens the volume in an image file or on a block device, for reading and writing.
    ///
    /// # Errors
    /// The host's errors (EBUSY if another process has the image open); the errors of [`Fs::open`].
    pub fn open(image: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(image, &VolumeOptions::new())
    }

    /// Opens the volume in an image file or on a block device.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with(image: impl AsRef<Path>, options: &VolumeOptions) -> Result<Self> {
        let image = image.as_ref();
        let mode = if options.engine.read_only { OpenMode::Read } else { OpenMode::Write };
        let opened = volume::open(image, mode, &options.location).map_err(Fault::from);
        let opened = opened.and_then(|dev| Self::on(dev, image, options));
        opened.map_err(|fault| PathError::new("open", image, fault))
    }

    /// Opens the volume on a device of the caller's.
    ///
    /// # Errors
    /// The errors of [`Fs::open`].
    pub fn open_device(dev: Arc<dyn BlockDev>, options: &VolumeOptions) -> Result<Self> {
        let image = Path::new("(device)");
        Self::on(dev, image, options).map_err(|fault| PathError::new("open", image, fault))
    }

    fn on(
        dev: Arc<dyn BlockDev>,
        image: &Path,
        options: &VolumeOptions,
    ) -> core::result::Result<Self, Fault> {
        let fs = Arc::new(Fs::open_devices(Devices::new(dev), options.engine.clone())?);
        let worker = match options.background && !options.engine.read_only {
            true => Some(LogWorker::start(&fs, journal::LogWorkOptions::default())?),
            false => None,
        };
        Ok(Self(Arc::new(Shared {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            engine: RwLock::new(Some(Engine { worker: Mutex::new(worker), fs })),
            image: image.to_owned(),
            options: options.clone(),
            contents: std::array::from_fn(|_| RwLock::default()),
        })))
    }

    /// Makes a volume of `size` bytes in a new image file, with the defaults of mkfs.xfs, and opens
    /// it. A name that ends in `.qcow2` makes a qcow2 image.
    ///
    /// # Errors
    /// EEXIST if there is a file that is not empty; EINVAL for a size that mkfs.xfs refuses (below
    /// 300 MiB); the host's errors.
    #[cfg(feature = "mkfs")]
    pub fn create(image: impl AsRef<Path>, size: u64) -> Result<Self> {
        Self::create_with(image, size, &uxfs_mkfs::Options::default(), &VolumeOptions::new())
    }

    /// As [`Volume::create`], with the options of mkfs.xfs.
    ///
    /// # Errors
    /// As [`Volume::create`].
    #[cfg(feature = "mkfs")]
    pub fn create_with(
        image: impl AsRef<Path>,
        size: u64,
        mkfs: &uxfs_mkfs::Options,
        options: &VolumeOptions,
    ) -> Result<Self> {
        let image = image.as_ref();
        let made = make(image, size, mkfs).and_then(|dev| Self::on(dev, image, options));
        made.map_err(|fault| PathError::new("create", image, fault))
    }

    /// The path of the image.
    pub fn image(&self) -> &Path {
        &self.0.image
    }

    /// Closes the volume: everything is written in place, and the log is left clean. Files that are
    /// still open fail with EBADF afterwards, as do other handles of the volume. Waits for calls that
    /// run in other threads, so it must not be called inside of [`Self::with_fs`] or by the listener of a
    /// copy. Closing a closed volume does nothing.
    ///
    /// # Errors
    /// The errors of [`Fs::close`]: the volume is closed all the same. EBADF in a child process, which
    /// leaves the volume to its parent.
    pub fn close(self) -> Result<()> {
        self.0.close().map_err(|fault| PathError::new("close", &self.0.image, fault))
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// The errors of [`Fs::sync`].
    pub fn sync_all(&self) -> Result<()> {
        self.on_image("sync_all", |fs| Ok(fs.sync()?))
    }

    /// A ticket for all changes so far, including data in memory: begins to write it back.
    ///
    /// # Errors
    /// The errors of [`Fs::begin_sync`].
    pub fn ticket(&self) -> Result<Ticket> {
        self.on_image("ticket", |fs| Ok(self.0.ticket(fs.begin_sync()?)))
    }

    /// A ticket for the order of all changes so far: no later change survives a crash that they do not
    /// survive. It is met at once on a volume in ordered mode ([`VolumeOptions::ordered`]).
    ///
    /// # Errors
    /// As [`Self::ticket`].
    pub fn order(&self) -> Result<Ticket> {
        self.on_image("order", |fs| Ok(self.0.ticket(fs.order()?)))
    }

    /// A ticket for the durability of all changes so far, also in ordered mode.
    ///
    /// # Errors
    /// As [`Self::ticket`].
    pub fn durable(&self) -> Result<Ticket> {
        self.on_image("durable", |fs| Ok(self.0.ticket(fs.durable()?)))
    }

    /// Is everything up to the ticket on stable storage?
    ///
    /// # Errors
    /// EBADF if the volume is closed; EINVAL for a ticket of another one.
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool> {
        self.on_image("is_durable", |fs| Ok(fs.is_durable(self.0.own(ticket)?)))
    }

    /// Waits until everything up to the ticket is on stable storage.
    ///
    /// # Errors
    /// EINVAL for a ticket of another volume; the errors of [`uxfs_core::Engine::wait`].
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.on_image("wait", |fs| Ok(fs.wait(self.0.own(ticket)?)?))
    }

    /// The totals of the volume: blocks, inodes, UUID, label.
    ///
    /// # Errors
    /// EBADF if the volume is closed.
    pub fn statfs(&self) -> Result<StatFs> {
        self.on_image("statfs", |fs| Ok(fs.statfs()))
    }

    /// Calls `f` with the engine, whose calls take inode numbers.
    ///
    /// # Errors
    /// Those of `f`; EBADF if the volume is closed.
    pub fn with_fs<R>(&self, f: impl FnOnce(&Fs) -> core::result::Result<R, Error>) -> Result<R> {
        self.on_image("with_fs", |fs| Ok(f(fs)?))
    }

    pub(super) fn on_image<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&Fs) -> core::result::Result<R, Fault>,
    ) -> Result<R> {
        self.0.run(f).map_err(|fault| PathError::new(call, &self.0.image, fault))
    }

    /// Runs a call that concerns `path`.
    pub(super) fn on_path<R>(
        &self,
        call: &'static str,
        path: &Path,
        f: impl FnOnce(&Fs, &[u8]) -> core::result::Result<R, Fault>,
    ) -> Result<R> {
        let done = self.0.run(|fs| f(fs, &bytes_of(path)));
        done.map_err(|fault| PathError::new(call, path, fault))
    }
}

#[cfg(feature = "mkfs")]
fn make(
    image: &Path,
    size: u64,
    options: &uxfs_mkfs::Options,
) -> core::result::Result<Arc<dyn BlockDev>, Fault> {
    use crate::new_file::NewFile;
    use crate::volume::Location;

    let layout = uxfs_mkfs::Layout::new(options, size)?;
    volume::wants_qcow2(image, &Location::whole())?;
    let mut new = NewFile::create_image(image)?;
    let old = std::fs::metadata(image)?;
    if !old.is_file() || old.len() > 0 {
        return Err(Error::Exists.into());
    }
    volume::prepare(image, layout.size_bytes(), &Location::whole())?;
    let mode = OpenMode::Create(layout.size_bytes());
    let dev = new.open(|| volume::open(image, mode, &Location::whole()))?;
    let mut write = uxfs_mkfs::WriteOptions::default();
    // A new file reads as zeroes.
    write.zero_log = true;
    uxfs_mkfs::write(&layout, &*dev, &write)?;
    new.keep_durably()?;
    Ok(dev)
}
