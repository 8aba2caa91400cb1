//! The images that a command has open.
//!
//! 1. An image is opened once, however many paths lead into it, because a second open would meet
//!    the first one's lock.
//! 2. Changes are logged. A command that is interrupted leaves a volume that the next open
//!    recovers, with everything done up to some moment and nothing half done.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use uxfs::disk::{FileDev, OpenMode};
use uxfs::journal::JournalOptions;
use uxfs::volume::{self, Location};
use uxfs::{Device, Devices, Error, Fs, OpenOptions};

use crate::session::Failure;

/// Device and inode number of an image file.
type FileId = (u64, u64);

/// An open image.
pub(crate) struct Image {
    id: FileId,
    /// The name on the command line.
    name: std::path::PathBuf,
    write: bool,
    /// Number of the volume, unique in this process.
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
    logdev: Option<PathBuf>,
    rtdev: Option<PathBuf>,
}

/// Bits that no device number of the host has, so that no file of an image is taken for a file of
/// the host.
const VOLUMES: u64 = 0xffff_ff00_0000_0000;

impl Images {
    /// None yet; with `norecovery`, images whose log is dirty can be read as they lie there. `place`
    /// tells where in each image its volume lies.
    pub(crate) fn new(norecovery: bool, location: Location) -> Self {
        Self { norecovery, location, ..Self::default() }
    }

    /// Where in each image its volume lies.
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Are dirty logs not replayed?
    pub(crate) fn norecovery(&self) -> bool {
        self.norecovery
    }

    /// The device with the log, if it is not in the image.
    pub(crate) fn logdev(&self) -> Option<&Path> {
        self.logdev.as_deref()
    }

    /// The device with realtime data.
    pub(crate) fn rtdev(&self) -> Option<&Path> {
        self.rtdev.as_deref()
    }

    /// The options common to all commands, for another process.
    pub(crate) fn global_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                args.push(OsString::from(name));
                args.push(value);
            }
        };
        push("--offset", self.location.offset.map(|offset| offset.to_string().into()));
        push("--partition", self.location.partition.as_ref().map(OsString::from));
        push("--logdev", self.logdev.as_ref().map(OsString::from));
        push("--rtdev", self.rtdev.as_ref().map(OsString::from));
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

    /// Sets the devices of the log and of realtime data, for images that have them.
    pub(crate) fn with_devices(self, logdev: Option<&Path>, rtdev: Option<&Path>) -> Self {
        Self { logdev: logdev.map(Path::to_owned), rtdev: rtdev.map(Path::to_owned), ..self }
    }

    /// The image at `path`, opened for reading or writing. An image that will be written must be
    /// opened for writing first.
    pub(crate) fn get(&self, path: &Path, write: bool) -> Result<Rc<Image>, Failure> {
        let host = |error: std::io::Error| Failure::host(path, &error);
        let meta = std::fs::metadata(path).map_err(host)?;
        let id = (meta.dev(), meta.ino());
        let mut open = self.open.borrow_mut();
        if let Some(image) = open.iter().find(|image| image.id == id) {
            if write && !image.write {
                return Err(Failure::new(path.as_os_str(), "is open for reading already"));
            }
            return Ok(Rc::clone(image));
        }
        let mode = if write { OpenMode::Write } else { OpenMode::Read };
        let dev = volume::open(path, mode, &self.location).map_err(host)?;
        let mut options = OpenOptions::default();
        options.read_only = !write;
        options.norecovery = self.norecovery && !write;
        options.journal = write.then_some(self.journal);
        let mut devices = Devices::new(dev);
        devices.log = further(self.logdev.as_deref())?;
        devices.realtime = further(self.rtdev.as_deref())?;
        let fs =
            Fs::open_devices(devices, options).map_err(|error| self.not_a_volume(path, error))?;
        let volume = VOLUMES + open.len() as u64;
        let image = Rc::new(Image { id, name: path.to_owned(), write, volume, fs });
        open.push(Rc::clone(&image));
        Ok(image)
    }

    /// The message for an image that does not open: what it holds instead of XFS, and the
    /// partitions of a disk.
    pub(crate) fn not_a_volume(&self, path: &Path, error: Error) -> Failure {
        let known = match &error {
            // Another file system may have been made over an old volume whose superblock copies
            // still exist.
            Error::NotXfs(_) | Error::Corrupt(_) => {
                volume::open(path, OpenMode::Read, &self.location).ok()
            }
            _ => None,
        };
        let what = known.and_then(|disk| volume::describe(&disk, &self.location));
        let error = what.map_or(error, |what| Error::NotXfs(format!("this is {what}")));
        Failure::volume(path.as_os_str(), error)
    }

    /// Writes all changes and closes the images. No other reference to them is left.
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

/// A device beside the image, opened for reading.
pub(crate) fn further(path: Option<&Path>) -> Result<Option<Device>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let dev = FileDev::open(path, OpenMode::Read).map_err(|error| Failure::host(path, &error))?;
    Ok(Some(Arc::new(dev)))
}

/// An I/O error without the number that Rust adds.
pub(crate) fn text_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    // Text may follow the number.
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    let text = rest.fold(first, |text, rest| text + rest);
    let mut letters = text.chars();
    match letters.next() {
        // Lower case, as the library's own messages.
        Some(first) if text.chars().nth(1).is_some_and(|c| c.is_lowercase()) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text,
    }
}
