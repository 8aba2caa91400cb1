//! The record of a mount: a small file with the state of the mount, and after its end with the
//! result.
//!
//! A server in the background has no terminal, and umount(8) does not wait for it. So the server
//! writes its messages to this file and to the system's log; `uxfs umount` and `uxfs status` read
//! the file.
//!
//! 1. An image has one record. The next mount of the image replaces it.
//! 2. A record is replaced as a whole, by a rename, and is at most 16 KiB long.
//! 3. A directory keeps at most 64 records of ended mounts; the oldest are removed first.
//! 4. A record with the state [`State::Mounted`] or [`State::Closing`] whose process is gone
//!    belongs to a server that was killed ([`Record::liveness`]).
//! 5. A mount works without a record where there is no directory for it.
//!
//! Written by `session` and `volume`, read by the commands.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::mounts;
use crate::syslog::{self, Severity};

/// Most bytes of a record.
const RECORD_MAX: usize = 16 << 10;
/// Most messages in a record, and bytes of one message.
const LINES: usize = 16;
const LINE: usize = 500;
/// Most records of ended mounts in a directory.
const KEPT: usize = 64;
const O_NOFOLLOW: i32 = 0o400000;
const O_NONBLOCK: i32 = 0o4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server answers requests.
    Mounted,
    /// The mount is gone, and the server closes the volume.
    Closing,
    /// The volume was closed: everything is written and the log is clean.
    Ended,
    /// The mount is gone, and not everything was written.
    Failed,
}

impl State {
    const ALL: [Self; 4] = [Self::Mounted, Self::Closing, Self::Ended, Self::Failed];

    /// The word for it in a record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mounted => "mounted",
            Self::Closing => "closing",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// Whether the server of a record is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    Dead,
    /// Its process namespace cannot be seen from here.
    Unknown,
}

/// The identity of an image: the file, the device of a device file, or the text of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageId {
    device: u64,
    /// 0 for a block device.
    inode: u64,
    /// Creation time of the file in nanoseconds, if the host has it, because inode numbers are used
    /// again.
    born: u128,
}

impl ImageId {
    /// The identity of the image at a path.
    ///
    /// # Errors
    /// An I/O error of the host.
    pub fn of(path: &Path) -> io::Result<Self> {
        let meta = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_address(path) => {
                return Ok(Self { device: u64::MAX, inode: hash(path), born: 0 });
            }
            other => other?,
        };
        if meta.file_type().is_block_device() {
            return Ok(Self { device: meta.rdev(), inode: 0, born: 0 });
        }
        let born = meta.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born = born.map_or(0, |time| time.as_nanos());
        Ok(Self { device: meta.dev(), inode: meta.ino(), born })
    }

    fn file_name(&self) -> String {
        format!("{:x}-{}", self.device, self.inode)
    }
}

/// Is it an address rather than a path? No file has the name that an address begins with.
fn is_address(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(3).any(|bytes| bytes == b"://")
}

/// FNV-1a of the path's bytes: the same in every process.
fn hash(path: &Path) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The identity of a process, which differs from a later process with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Process {
    pub id: u32,
    /// Start time in ticks since boot.
    pub started: u64,
    /// The inode of its process namespace.
    pub namespace: u64,
}

impl Process {
    pub fn current() -> Self {
        let id = std::process::id();
        Self { id, started: start_time(id).unwrap_or(0), namespace: namespace() }
    }

    pub fn liveness(&self) -> Liveness {
        if self.namespace != namespace() {
            return Liveness::Unknown;
        }
        match start_time(self.id) {
            Some(started) if started == self.started => Liveness::Alive,
            _ => Liveness::Dead,
        }
    }
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

/// Start time of a process; `None` if it is not running.
fn start_time(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command name is in parentheses and may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The path of the image at the time of the mount.
    pub image: PathBuf,
    /// Where it is mounted, or the socket on which it is served.
    pub dir: PathBuf,
    pub process: Process,
    /// Time of the mount in seconds since 1970.
    pub since: u64,
    /// Time of the last change of the record in seconds since 1970.
    pub changed: u64,
    pub state: State,
    /// The server's messages, the newest last.
    pub words: Vec<String>,
    id: ImageId,
}

impl Record {
    /// The record of a new mount.
    fn new(image: &Path, dir: &Path) -> io::Result<Self> {
        let (image, dir, now) = (image.to_owned(), dir.to_owned(), now());
        let (id, process) = (ImageId::of(&image)?, Process::current());
        let (state, words) = (State::Mounted, Vec::new());
        Ok(Self { image, dir, process, since: now, changed: now, state, words, id })
    }

    pub fn liveness(&self) -> Liveness {
        self.process.liveness()
    }

    /// Did the server die before it closed the volume?
    pub fn died(&self) -> bool {
        matches!(self.state, State::Mounted | State::Closing) && self.liveness() == Liveness::Dead
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut line = |name: &str, value: &[u8]| {
            text.extend_from_slice(name.as_bytes());
            text.push(b' ');
            text.extend_from_slice(&mounts::escaped(value));
            text.push(b'\n');
        };
        line("image", self.image.as_os_str().as_bytes());
        line("dir", self.dir.as_os_str().as_bytes());
        let Process { id, started, namespace } = self.process;
        let ImageId { device, inode, born } = self.id;
        let numbers: [(&str, u128); 8] = [
            ("process", id.into()),
            ("started", started.into()),
            ("namespace", namespace.into()),
            ("device", device.into()),
            ("inode", inode.into()),
            ("born", born),
            ("since", self.since.into()),
            ("changed", self.changed.into()),
        ];
        for (name, number) in numbers {
            line(name, number.to_string().as_bytes());
        }
        line("state", self.state.word().as_bytes());
        for word in &self.words {
            line("said", word.as_bytes());
        }
        text
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let lines = || text.split(|byte| *byte == b'\n').filter_map(split);
        let value = |wanted: &str| lines().find(|(name, _)| *name == wanted.as_bytes());
        let path = |name: &str| Some(mounts::unescaped(value(name)?.1));
        let number = |name: &str| std::str::from_utf8(value(name)?.1).ok()?.parse::<u128>().ok();
        let short = |name: &str| u64::try_from(number(name)?).ok();
        let (_, state) = value("state")?;
        let said = lines().filter(|(name, _)| *name == b"said").take(LINES);
        let said = said.map(|(_, word)| mounts::unescaped(word).to_string_lossy().into_owned());
        Some(Self {
            image: path("image")?,
            dir: path("dir")?,
            process: Process {
                id: u32::try_from(number("process")?).ok()?,
                started: short("started")?,
                namespace: short("namespace")?,
            },
            since: short("since")?,
            changed: short("changed")?,
            state: State::ALL.into_iter().find(|known| known.word().as_bytes() == state)?,
            words: said.collect(),
            id: ImageId { device: short("device")?, inode: short("inode")?, born: number("born")? },
        })
    }
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..at], &line[at + 1..]))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Reads a record.
///
/// # Errors
/// An I/O error of the host; [`io::ErrorKind::InvalidData`] if the file is not a record.
pub fn read(path: &Path) -> io::Result<Record> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let mut text = Vec::new();
    file.take(RECORD_MAX as u64).read_to_end(&mut text)?;
    Record::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The record of the last mount of an image; the newest if several users mounted it.
pub fn of_image(image: &Path) -> Option<Record> {
    let id = ImageId::of(image).ok()?;
    let found = places().into_iter().filter_map(|dir| read(&dir.join(id.file_name())).ok());
    found.filter(|record| record.id == id).max_by_key(|record| record.changed)
}

/// The record of the last mount on a directory.
pub fn of_dir(dir: &Path) -> Option<Record> {
    let all = places().into_iter().flat_map(|place| records(&place));
    all.map(|(_, record)| record).filter(|r| r.dir == dir).max_by_key(|record| record.changed)
}

fn records(place: &Path) -> Vec<(PathBuf, Record)> {
    let files = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter_map(|file| read(&file).ok().map(|record| (file, record))).collect()
}

/// The directory of this user's records.
fn own_place() -> Option<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Some("/run/uxfs".into());
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let session = session.filter(|dir| dir.is_absolute() && dir.is_dir());
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let session = session.or_else(|| usual.is_dir().then_some(usual));
    Some(session.map_or_else(|| format!("/tmp/uxfs-{}", user.as_raw()).into(), |d| d.join("uxfs")))
}

/// The directories of records that concern this user.
fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/run/uxfs")];
    places.extend(own_place());
    if rustix::process::geteuid().is_root() {
        let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
        places.extend(users.map(|user| user.path().join("uxfs")));
        let temporary = fs::read_dir("/tmp").into_iter().flatten().flatten();
        let ours = |name: &OsStr| name.as_bytes().starts_with(b"uxfs-");
        places.extend(temporary.filter(|e| ours(&e.file_name())).map(|entry| entry.path()));
    }
    places.dedup();
    places
}

/// Creates the directory of this user's records; `None` if it is not this user's alone.
fn make_place() -> Option<PathBuf> {
    let place = own_place()?;
    let root = rustix::process::geteuid();
    let mode = if root.is_root() { 0o755 } else { 0o700 };
    // An existing one is checked below.
    let _ = DirBuilder::new().mode(mode).create(&place);
    let meta = fs::symlink_metadata(&place).ok()?;
    // In /tmp any user may have created it.
    let own = meta.is_dir() && meta.uid() == root.as_raw() && meta.mode() & 0o022 == 0;
    own.then_some(place)
}

/// The server's side of a record: messages go there, to standard error, and, in the background, to
/// the system's log.
pub(crate) struct Recorder {
    /// The command that serves, for messages.
    command: &'static str,
    file: Option<PathBuf>,
    record: Mutex<Option<Record>>,
    background: AtomicBool,
}

impl Recorder {
    /// Starts the record of a mount, in place of the last one of the image.
    /// `dir` is where it is mounted, or the socket on which it is served.
    pub(crate) fn begin(command: &'static str, image: &Path, dir: &Path) -> Self {
        let record = Record::new(image, dir).ok();
        let place = record.as_ref().and_then(|_| make_place());
        if let Some(place) = &place {
            remove_oldest(place);
        }
        let file = place.zip(record.as_ref()).map(|(dir, record)| dir.join(record.id.file_name()));
        let recorder =
            Self { command, file, record: Mutex::new(record), background: AtomicBool::new(false) };
        recorder.update(|_| {});
        recorder
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Notes that nothing reads standard error any more.
    pub(crate) fn to_background(&self) {
        self.background.store(true, Ordering::Relaxed);
    }

    fn update(&self, change: impl FnOnce(&mut Record)) {
        let mut record = self.record.lock();
        let Some(record) = &mut *record else { return };
        change(record);
        record.changed = now();
        if let Some(file) = &self.file {
            // A mount works without a record.
            let _ = replace(file, &record.text());
        }
    }

    /// Reports a message to the users of the mount.
    pub(crate) fn say(&self, severity: Severity, text: &str) {
        if !self.background.load(Ordering::Relaxed) {
            let _ = writeln!(io::stderr(), "uxfs: {}: {}", self.command, self.named(text));
        }
        self.note(severity, text);
    }

    /// As above, for a message that the caller prints on the terminal itself.
    pub(crate) fn note(&self, severity: Severity, text: &str) {
        let text = &without_errno(text);
        if self.background.load(Ordering::Relaxed) {
            syslog::send(severity, &self.named(text));
        }
        self.update(|record| record.add(text));
    }

    /// A message with the image's path before it.
    fn named(&self, text: &str) -> String {
        match &*self.record.lock() {
            Some(record) => format!("{}: {text}", record.image.display()),
            None => text.to_owned(),
        }
    }

    /// Notes that the mount is gone and the volume is being closed.
    pub(crate) fn closing(&self) {
        self.update(|record| record.state = State::Closing);
    }

    /// Records the end of the mount.
    pub(crate) fn end(&self, result: &Result<(), String>) {
        let state = match result {
            Ok(()) => State::Ended,
            Err(why) => {
                self.note(Severity::Error, why);
                State::Failed
            }
        };
        self.update(|record| record.state = state);
    }
}

impl Record {
    /// Adds a message, and drops the oldest ones if there are too many.
    fn add(&mut self, text: &str) {
        if self.words.len() == LINES {
            self.words.remove(0);
        }
        let end = (0..=LINE.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        self.words.push(text[..end.unwrap_or(0)].to_owned());
    }
}

/// A text without the error numbers that Rust adds to errors of the host.
pub(crate) fn without_errno(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    rest.fold(first, |text, rest| text + rest)
}

fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644).custom_flags(O_NOFOLLOW);
    let written = options.open(&new).and_then(|mut file: File| file.write_all(text));
    let done = written.and_then(|()| fs::rename(&new, file));
    if done.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&new);
    }
    done
}

/// Removes the oldest records of ended mounts, down to fewer than [`KEPT`].
fn remove_oldest(place: &Path) {
    let mut ended = records(place);
    ended.retain(|(_, record)| {
        matches!(record.state, State::Ended | State::Failed) || record.died()
    });
    ended.sort_by_key(|(_, record)| record.changed);
    let surplus = (ended.len() + 1).saturating_sub(KEPT);
    for (file, _) in &ended[..surplus] {
        // Another server may have removed it.
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let image = tempfile::NamedTempFile::new().unwrap();
        let dir = Path::new(OsStr::from_bytes(b"/mnt/a\nb \xff\\040"));
        let mut record = Record::new(image.path(), dir).unwrap();
        record.state = State::Failed;
        record.add("two\nlines");
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = record();
        assert_eq!(Record::parse(&record.text()), Some(record));
        assert_eq!(Record::parse(b"image /a\nnonsense\n"), None);
    }

    #[test]
    fn an_address_has_an_identity() {
        let of = |address: &str| ImageId::of(Path::new(address)).unwrap();
        assert_eq!(of("nbd://host/a"), of("nbd://host/a"));
        assert_ne!(of("nbd://host/a"), of("nbd://host/b"));
        assert!(ImageId::of(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn messages_omit_errno_numbers() {
        let text =
            without_errno("writing: No space left (os error 28); tried (again): I/O (os error 5)");
        assert_eq!(text, "writing: No space left; tried (again): I/O");
    }

    #[test]
    fn a_record_stays_small() {
        let mut record = record();
        (0..100).for_each(|n| record.add(&format!("{n} {}", "\u{e4}".repeat(LINE))));
        assert_eq!(record.words.len(), LINES);
        assert!(record.words[LINES - 1].starts_with("99 "));
        assert!(record.text().len() < RECORD_MAX, "{}", record.text().len());
    }

    #[test]
    fn a_killed_server_is_detected() {
        let mut record = record();
        record.state = State::Mounted;
        assert!(!record.died());
        record.process.started += 1;
        assert!(record.died(), "the number is that of another process");
        record.state = State::Ended;
        assert!(!record.died());
        record.process.namespace += 1;
        assert_eq!(record.liveness(), Liveness::Unknown);
    }

    #[test]
    fn the_oldest_records_are_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..KEPT as u64 + 5 {
            let record = Record { changed: n, ..record() };
            replace(&dir.path().join(format!("{n}")), &record.text()).unwrap();
        }
        let live = Record { changed: 0, state: State::Mounted, ..record() };
        replace(&dir.path().join("live"), &live.text()).unwrap();
        remove_oldest(dir.path());
        let mut left: Vec<u64> = records(dir.path()).iter().map(|(_, r)| r.changed).collect();
        left.sort_unstable();
        assert_eq!(left.len(), KEPT, "with the one that is mounted");
        assert_eq!(left[..2], [0, 6]);
    }
}
