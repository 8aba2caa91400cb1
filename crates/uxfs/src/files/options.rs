//! How a volume is opened, and how a file is opened.

use uxfs_core::{Atime, OpenOptions, WritebackOptions};

use super::error::Fault;
use crate::posix::Creator;
use crate::volume::Location;

/// How to open a [`super::Volume`]: by default for reading and writing, with every change logged.
/// New files belong to root, with umask 022; reading does not change access times.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub(super) engine: OpenOptions,
    pub(super) location: Location,
    pub(super) creator: Creator,
    pub(super) atime: Atime,
    pub(super) background: bool,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl VolumeOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            engine: OpenOptions::default(),
            location: Location::whole(),
            creator: Creator { uid: 0, gid: 0, umask: 0o022 },
            atime: Atime::Never,
            background: false,
        }
    }

    /// Refuses all changes, and never writes to the image. A dirty log is replayed in memory.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.engine.read_only = read_only;
        self
    }

    /// Where the volume lies in the image: behind an offset, or in a partition.
    #[must_use]
    pub fn location(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// Owner, group and umask of new files.
    #[must_use]
    pub fn creator(mut self, creator: Creator) -> Self {
        self.creator = creator;
        self
    }

    /// When reading a file changes its access time.
    #[must_use]
    pub fn atime(mut self, atime: Atime) -> Self {
        self.atime = atime;
        self
    }

    /// Keeps written data in memory, within these limits, and allocates its blocks when it is
    /// written back: faster for many small writes. Without this a write reaches the image at once,
    /// though it is durable only after a sync.
    #[must_use]
    pub fn delayed(mut self, writeback: WritebackOptions) -> Self {
        self.engine.writeback = Some(writeback);
        self
    }

    /// Syncs do not wait, and after a crash the whole volume, file contents included, is that of one
    /// earlier moment, at most `loss` old. Needs [`Self::background`] for that bound; without it the volume
    /// is as old as the last [`super::Volume::durable`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # uxfs::Volume::create(&image, 512 << 20)?.close()?;
    /// let options = uxfs::VolumeOptions::new().ordered(Duration::from_secs(5)).background(true);
    /// let volume = uxfs::Volume::open_with(&image, &options)?;
    /// volume.write("/account-a", b"90")?;
    /// volume.write("/account-b", b"110")?;
    /// // No crash leaves the second write without the first. This waits for the disk:
    /// volume.wait(volume.durable()?)?;
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ordered(mut self, loss: std::time::Duration) -> Self {
        self.engine.sync = uxfs_core::SyncMode::Ordered { loss };
        self
    }

    /// Starts a thread that makes changes durable some seconds after they were made, as the kernel
    /// does. Without it changes become durable by a sync, a wait for a ticket, or closing. Ignored
    /// on a volume that is open for reading only.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// All options of the engine: clock, cache, journal. Replaces what [`Self::read_only`] and
    /// [`Self::delayed`] have set.
    #[must_use]
    pub fn engine(mut self, engine: OpenOptions) -> Self {
        self.engine = engine;
        self
    }
}

/// How to open a [`super::File`], as [`std::fs::OpenOptions`].
///
/// ```
/// let options = uxfs::FileOptions::new().append(true).create(true).mode(0o600);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct FileOptions {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    pub(super) mode: u16,
}

/// What opening does about a file that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Creation {
    pub(super) create: bool,
    pub(super) exclusive: bool,
    pub(super) truncate: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl FileOptions {
    /// All options off; new files get mode 0o666 without the umask's bits.
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// Opens for reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Opens for writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Opens for writing, and writes at the end of the file. Appends through one volume never
    /// overlap.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Empties an existing file.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file if there is none.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the file, and fails if there is one. Then [`Self::create`] and [`Self::truncate`] mean
    /// nothing.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Permissions of a new file, before the umask.
    #[must_use]
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode & 0o7777;
        self
    }

    /// The combination of the options, checked as `std::fs` checks it.
    pub(super) fn creation(&self) -> Result<Creation, Fault> {
        if !self.read && !self.write && !self.append {
            return Err(Fault::invalid("open for reading, writing or appending"));
        }
        let changes = self.truncate || self.create || self.create_new;
        if changes && !self.write && !self.append {
            return Err(Fault::invalid("creating or truncating needs write or append"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(Fault::invalid("append and truncate exclude each other"));
        }
        Ok(match self.create_new {
            true => Creation { create: true, exclusive: true, truncate: false },
            false => Creation { create: self.create, exclusive: false, truncate: self.truncate },
        })
    }
}
