//! The target of workloads: a volume of uxfs in this process, or a directory of the host through
//! system calls.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use uxfs::LogWorker;
use uxfs::disk::{BlockDev, FileDev, OpenMode};
use uxfs::format::Ino;
use uxfs::format::timestamp::Timestamp;
use uxfs::journal::{JournalOptions, LogWorkOptions, Ticket};
use uxfs::{Fs, NewInode, OpenOptions, SetAttr, SyncKind, WritebackOptions, mkfs};
use uxfs_bench::{Scratch, sync_fs};

use super::recorder::Recorder;
use crate::durability::Ack;
use crate::setup::{RunResult, promise_of};
use crate::sim::{Store, StoreDev};
use crate::{LabError, Result};

/// Bytes of a volume, for what is not used a hole: 16 groups must each be larger than the log.
pub(super) const SIZE: u64 = 4 << 30;
/// Bytes of one write.
const PIECE: usize = 64 << 10;
/// The time of extracted files.
const TIME: i64 = 1_259_812_262;

/// When a file is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncMode {
    /// Never.
    Nothing,
    /// By a sync of everything at the end.
    End,
    Each,
    /// Started at once, awaited later.
    Ticket,
}

#[derive(Clone, Debug)]
pub(super) struct Dir {
    ino: Ino,
    path: PathBuf,
    name: Arc<str>,
}

pub(super) struct NewFile<'a> {
    pub(super) name: &'a str,
    pub(super) content: &'a [u8],
    /// The word that fills it.
    pub(super) word: u64,
    /// Times are set afterwards, as tar does.
    pub(super) dated: bool,
}

/// A durability to await at the end.
pub(super) struct PendingTicket(Option<Ticket>, Ack);

/// uxfs in this process, on a file.
pub(super) struct Own {
    pub(super) fs: Arc<Fs>,
    pub(super) dev: Arc<Recorder>,
    /// In a lock, because it cannot be shared between threads.
    service: Mutex<LogWorker>,
    journal: JournalOptions,
    initial: Store,
    pub(super) acks: Mutex<Vec<Ack>>,
}

/// Either target.
pub(super) enum Volume {
    Own(Box<Own>),
    Host(PathBuf),
}

fn failed(what: &str) -> impl Fn(uxfs::Error) -> LabError {
    move |e| LabError::new(what, e)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> LabError {
    move |e| LabError::new(path.display().to_string(), e)
}

impl Own {
    /// A new volume in the scratch directory, with these mount options of the log.
    pub(super) fn new(scratch: &Scratch, words: &[&str]) -> Result<Self> {
        let made = |e: mkfs::MkfsError| LabError::new("mkfs", e);
        let mut journal = JournalOptions::default();
        for word in ["logbsize=262144"].iter().chain(words) {
            journal.apply(word).map_err(|e| LabError::new(*word, e))?;
        }
        let mut shape = mkfs::Options::default();
        shape.apply('l', "size=128m").map_err(made)?;
        shape.apply('d', "agcount=16").map_err(made)?;
        let layout = mkfs::Layout::new(&shape, SIZE).map_err(made)?;
        let path = scratch.file("own.img");
        let file = FileDev::open(&path, OpenMode::Create(SIZE))
            .map_err(|e| LabError::new(path.display().to_string(), e))?;
        // The same bytes in memory, for the cuts.
        let memory = StoreDev::new(Store::new(SIZE));
        let mut how = mkfs::WriteOptions::default();
        how.now = Some(Timestamp { sec: TIME, nsec: 0 });
        mkfs::write(&layout, &file, &how).map_err(made)?;
        mkfs::write(&layout, &memory, &how).map_err(made)?;
        file.flush().map_err(at(&path))?;
        let dev = Arc::new(Recorder::new(file));
        let mut options = OpenOptions::default();
        options.journal = journal;
        options.writeback = Some(WritebackOptions::default());
        let device: Arc<dyn BlockDev> = Arc::clone(&dev) as _;
        let fs = Arc::new(Fs::open(device, options).map_err(failed("opening"))?);
        let service =
            LogWorker::start(&fs, LogWorkOptions::default()).map_err(failed("the service"))?;
        let service = Mutex::new(service);
        let (initial, acks) = (memory.store(), Mutex::default());
        Ok(Self { fs, dev, service, journal, initial, acks })
    }

    fn put(
        &self,
        dir: &Dir,
        file: &NewFile<'_>,
        sync: SyncMode,
    ) -> uxfs::Result<Option<PendingTicket>> {
        let fs = &self.fs;
        let began = self.dev.now();
        let ino = fs.create(dir.ino, file.name.as_bytes(), &NewInode::file(0o644))?;
        for (at, piece) in (0..).zip(file.content.chunks(PIECE)) {
            fs.write_at(ino, at * PIECE as u64, piece)?;
        }
        let ticket = match sync {
            SyncMode::Ticket => {
                let mut cursor = fs.error_cursor(ino);
                Some(fs.begin_fsync(ino, SyncKind::All, &mut cursor)?)
            }
            SyncMode::Each => fs.fsync(ino).map(|()| None)?,
            SyncMode::Nothing | SyncMode::End => None,
        };
        let ack = Ack {
            began,
            at: self.dev.now(),
            until: u64::MAX,
            synced: sync != SyncMode::Nothing,
            dir: Arc::clone(&dir.name),
            name: file.name.to_owned(),
            from: 0,
            size: file.content.len() as u64,
            word: if file.content.is_empty() { 0 } else { file.word },
            logged: true,
        };
        if file.dated {
            let time = Some(Timestamp { sec: TIME, nsec: 0 });
            fs.set_attr(ino, &SetAttr { atime: time, mtime: time, ..SetAttr::default() })?;
        }
        match sync {
            SyncMode::Nothing | SyncMode::Each => {
                self.acks.lock().push(ack);
                Ok(None)
            }
            SyncMode::End | SyncMode::Ticket => Ok(Some(PendingTicket(ticket, ack))),
        }
    }

    /// The observations for the check. `span` is the measured part.
    fn ran(self, span: (u64, u64)) -> Result<RunResult<()>> {
        let Self { fs, dev, service, journal, initial, acks } = self;
        let start = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
        let len = u64::from(fs.geo.log_blocks) * u64::from(fs.geo.block_size);
        let trace = dev.take();
        drop(service);
        let fs = Arc::into_inner(fs)
            .ok_or_else(|| LabError::new("closing", "the volume is still in use"))?;
        fs.close().map_err(failed("closing"))?;
        Ok(RunResult {
            value: (),
            trace,
            log: start..start + len,
            begun: span.0,
            ended: span.1,
            watched: span.1,
            history: None,
            acks: acks.into_inner(),
            busy_ns: 0,
            latencies: Vec::new(),
            initial,
            // The disk below is unknown, so the worst is assumed.
            volatile: true,
            promise: promise_of(&journal, Some(&WritebackOptions::default()), true),
        })
    }
}

impl Volume {
    /// Nanoseconds since a fixed time.
    pub(super) fn now(&self, since: std::time::Instant) -> u64 {
        match self {
            Self::Own(own) => own.dev.now(),
            Self::Host(_) => u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn root(&self) -> Dir {
        let (ino, path) = match self {
            Self::Own(own) => (own.fs.root(), PathBuf::new()),
            Self::Host(path) => (Ino(0), path.clone()),
        };
        Dir { ino, path, name: "".into() }
    }

    pub(super) fn mkdir(&self, parent: &Dir, name: &str) -> Result<Dir> {
        let path = parent.path.join(name);
        let full = match &*parent.name {
            "" => name.to_owned(),
            above => format!("{above}/{name}"),
        };
        let ino = match self {
            Self::Own(own) => own
                .fs
                .create(parent.ino, name.as_bytes(), &NewInode::dir(0o755))
                .map_err(failed("making a directory"))?,
            Self::Host(_) => std::fs::create_dir(&path).map(|()| Ino(0)).map_err(at(&path))?,
        };
        Ok(Dir { ino, path, name: full.into() })
    }

    /// Creates a file. Its result must be awaited.
    pub(super) fn put(
        &self,
        dir: &Dir,
        file: &NewFile<'_>,
        sync: SyncMode,
    ) -> Result<Option<PendingTicket>> {
        if let Self::Own(own) = self {
            return own.put(dir, file, sync).map_err(failed("making a file"));
        }
        let path = dir.path.join(file.name);
        let make = || -> std::io::Result<()> {
            let mut new = File::create_new(&path)?;
            for piece in file.content.chunks(PIECE) {
                new.write_all(piece)?;
            }
            if sync == SyncMode::Each {
                new.sync_all()?;
            }
            if file.dated {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(TIME.unsigned_abs());
                new.set_times(FileTimes::new().set_accessed(time).set_modified(time))?;
            }
            Ok(())
        };
        make().map(|()| None).map_err(at(&path))
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Self::Own(own) => {
                let ticket = own.fs.begin_sync().map_err(failed("syncing"))?;
                own.fs.wait(ticket).map_err(failed("syncing"))
            }
            Self::Host(path) => sync_fs(path).map_err(at(path)),
        }
    }

    /// Awaits these durabilities.
    pub(super) fn wait_durable(&self, pending: Vec<PendingTicket>) -> Result<()> {
        let Self::Own(own) = self else { return Ok(()) };
        for PendingTicket(ticket, ack) in pending {
            if let Some(ticket) = ticket {
                own.fs.wait(ticket).map_err(failed("waiting for a file"))?;
            }
            own.acks.lock().push(Ack { at: own.dev.now(), ..ack });
        }
        Ok(())
    }

    /// The observations of uxfs. There are none of others.
    pub(super) fn end(self, span: (u64, u64)) -> Result<Option<RunResult<()>>> {
        match self {
            Self::Own(own) => own.ran(span).map(Some),
            Self::Host(_) => Ok(None),
        }
    }
}
