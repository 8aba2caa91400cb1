//! The images that a command has open.
//!
//! 1. Each image is opened once, however many arguments name it: a second open would fail on the
//!    first one's lock.
//! 2. Changes are logged. If a command is killed, the next open recovers the volume. The volume then
//!    holds all changes up to some moment, and no partial change.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::journal::JournalOptions;
use uxfs::quota::QuotaFlags;
use uxfs::volume::{self, Location};
use uxfs::{Device, Devices, Error, Fs, OpenOptions};

use crate::address::{self, Identity};
use crate::session::Failure;

/// An open image.
pub(crate) struct Image {
    id: Identity,
    /// The path given on the command line.
    name: std::path::PathBuf,
    write: bool,
    /// A number for the volume, unique in this process.
    pub(crate) volume: u64,
    /// The volume.
    pub(crate) fs: Fs,
}

/// The open images.
#[derive(Default)]
pub(crate) struct Images {
    open: RefCell<Vec<Rc<Image>>>,
    norecovery: bool,
    journal: JournalOptions,
    location: Location,
    quota: Option<QuotaFlags>,
    others: OtherDevices,
}

/// The external log device and the realtime device that the command line names.
#[derive(Clone, Default)]
pub(crate) struct OtherDevices {
    log: Option<PathBuf>,
    realtime: Option<PathBuf>,
}

impl OtherDevices {
    /// Is there one?
    #[cfg(all(target_os = "linux", feature = "remote"))]
    pub(crate) fn any(&self) -> bool {
        self.log.is_some() || self.realtime.is_some()
    }

    /// Opens them: all devices of the volume whose data is on `data`.
    pub(crate) fn beside(&self, data: Device, mode: OpenMode) -> Result<Devices, Failure> {
        let open = |path: &Option<PathBuf>, mode| -> Result<Option<Device>, Failure> {
            let Some(path) = path else { return Ok(None) };
            let dev = FileDev::open(path, mode).map_err(|error| Failure::host(path, &error))?;
            Ok(Some(Arc::new(dev)))
        };
        let mut devices = Devices::new(data);
        devices.log = open(&self.log, mode)?;
        devices.realtime = open(&self.realtime, OpenMode::Read)?;
        Ok(devices)
    }
}

/// First number for volumes. No device of the host has a number with all these bits set, so a file of
/// an image is never mistaken for a file of the host.
const VOLUMES: u64 = 0xffff_ff00_0000_0000;

impl Images {
    /// With `norecovery`, images with a dirty log are read without replay. `location` is the position
    /// of the volume in each image.
    pub(crate) fn new(norecovery: bool, location: Location) -> Self {
        Self { norecovery, location, ..Self::default() }
    }

    /// The position of the volume in each image.
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Are images with a dirty log read without replay?
    pub(crate) fn norecovery(&self) -> bool {
        self.norecovery
    }

    /// The devices besides that of the data.
    pub(crate) fn others(&self) -> &OtherDevices {
        &self.others
    }

    /// The volume options as arguments for another process.
    #[cfg(target_os = "linux")]
    pub(crate) fn global_args(&self) -> Vec<std::ffi::OsString> {
        use std::ffi::OsString;
        let mut args = Vec::new();
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                args.push(OsString::from(name));
                args.push(value);
            }
        };
        push("--offset", self.location.offset.map(|offset| offset.to_string().into()));
        push("--partition", self.location.partition.as_ref().map(OsString::from));
        push("--logdev", self.others.log.as_ref().map(OsString::from));
        push("--rtdev", self.others.realtime.as_ref().map(OsString::from));
        if self.norecovery {
            args.push("--norecovery".into());
        }
        args
    }

    /// Sets how changes are logged.
    pub(crate) fn with_journal(self, journal: JournalOptions) -> Self {
        Self { journal, ..self }
    }

    /// How changes are logged.
    pub(crate) fn journal(&self) -> JournalOptions {
        self.journal
    }

    /// No images yet, to be opened with the same options; those for writing account and enforce these quotas.
    pub(crate) fn again(&self, quota: Option<QuotaFlags>) -> Self {
        Self {
            norecovery: self.norecovery,
            location: self.location.clone(),
            journal: self.journal,
            quota,
            others: self.others.clone(),
            open: RefCell::default(),
        }
    }

    /// Sets the external log device and the realtime device. The server of a mount works in another directory.
    pub(crate) fn with_devices(self, logdev: Option<&Path>, rtdev: Option<&Path>) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let others = OtherDevices { log: logdev.map(absolute), realtime: rtdev.map(absolute) };
        Self { others, ..self }
    }

    /// Opens the image at `path`, or returns it if it is open. An image that was first opened for
    /// reading cannot be opened for writing later.
    pub(crate) fn get(&self, path: &Path, write: bool) -> Result<Rc<Image>, Failure> {
        let host = |error: std::io::Error| Failure::host(path, &error);
        let id = address::identity(path).map_err(host)?;
        let mut open = self.open.borrow_mut();
        if let Some(image) = open.iter().find(|image| image.id == id) {
            if write && !image.write {
                return Err(Failure::new(path.as_os_str(), "is open for reading already"));
            }
            return Ok(Rc::clone(image));
        }
        let mode = if write { OpenMode::Write } else { OpenMode::Read };
        let dev = address::open(path, mode, &self.location).map_err(host)?;
        let mut options = OpenOptions::default();
        options.read_only = !write;
        options.norecovery = self.norecovery && !write;
        options.journal = self.journal;
        options.quota = self.quota;
        let devices = self.others.beside(dev, mode)?;
        let fs =
            Fs::open_devices(devices, options).map_err(|error| self.not_a_volume(path, error))?;
        let volume = VOLUMES + open.len() as u64;
        let image = Rc::new(Image { id, name: path.to_owned(), write, volume, fs });
        open.push(Rc::clone(&image));
        Ok(image)
    }

    /// The failure for an image that does not open. Says what the image holds instead of XFS; for a
    /// partitioned disk, names the partitions.
    pub(crate) fn not_a_volume(&self, path: &Path, error: Error) -> Failure {
        let known = match &error {
            // Another file system may have been made over an old volume. The old superblock's copies
            // then lead to `Corrupt`.
            Error::NotXfs(_) | Error::Corrupt(_) => {
                address::open(path, OpenMode::Read, &self.location).ok()
            }
            _ => None,
        };
        let what = known.and_then(|disk| volume::describe(&disk, &self.location));
        let error = what.map_or(error, |what| Error::NotXfs(format!("this is {what}")));
        Failure::volume(path.as_os_str(), error)
    }

    /// Writes all changes and closes the images. The caller must have dropped all references to them.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let mut first = Ok(());
        for image in self.open.into_inner() {
            let closed = match Rc::into_inner(image) {
                Some(Image { fs, name, .. }) => {
                    fs.close().map_err(|error| Failure::volume(name.as_os_str(), error))
                }
                None => Err(Failure::bare("an image is still in use at the end")),
            };
            first = first.and(closed);
        }
        first
    }
}

/// The text of an I/O error without the error number that Rust appends.
pub(crate) fn text_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    // The text can continue after the number.
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    let text = rest.fold(first, |text, rest| text + rest);
    let mut letters = text.chars();
    match letters.next() {
        // The library's own messages begin in lower case.
        Some(first) if text.chars().nth(1).is_some_and(|c| c.is_lowercase()) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text,
    }
}
