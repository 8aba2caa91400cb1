//! The volume behind a mount: open until the mount ends, with the threads that work for it beside
//! those that answer requests.
//!
//! 1. Every request works on the volume under a read lock; whoever ends the mount takes the volume
//!    out under the write lock, so that no request is half done then.
//! 2. A request that asks for durability begins it, hands in its reply and goes: the reply is sent
//!    when what it needs is on stable storage, by the library's service thread, which drives the
//!    journal. Where one caller alone asks again and again, its request's own thread drives instead,
//!    which saves waking another one, if there is a further thread to answer requests meanwhile; where
//!    there are several, that would keep a thread from them.
//! 3. To begin it may mean writing much data: more than [`AT_ONCE`] is written by a thread of its
//!    own, so that it holds up nobody else's request. That thread also writes what is dirty when it
//!    becomes much, while those who write go on. Little is written by the request's own thread, if no
//!    other is at that, and else by another thread of its own, one file after the other: threads that
//!    wait for the device answer nobody, and callers wait for each other's answers (the kernel keeps
//!    a directory locked while it asks for a name in it).
//! 4. Whoever asks for durability is told from others ([`Asker`]): how flushes are shared depends on
//!    who comes again, and the threads that ask here do so for everybody.
//! 5. A panic, wherever it happens in what is done for the mount, is met where that works on the
//!    volume ([`Volume::guarded`]): the volume is stopped, so that nothing half done is written, who
//!    asked is answered with EIO, and so is everybody after that.
//! 6. The volume is closed after the service has ended and every reply has been sent. How that went is
//!    kept: whoever closes it again is told the same.
//! 7. That the volume has stopped is said once, by the first request that finds it so.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Errno, FileAttr, Request};
use parking_lot::{Condvar, Mutex, RwLock};
use uxfs::LogWorker;
use uxfs::disk::fault::{self, Fault};
use uxfs::format::Ino;
use uxfs::journal::{LogWorkOptions, Ticket};
use uxfs::{Error, Fs, SyncKind, Unwritten};

use crate::attr::attr_of;
use crate::awake::{Awake, DEVICE};
use crate::handles::Cursor;
use crate::live::Live;
use crate::options::Options;
use crate::record::Recorder;
use crate::settings;
use crate::syslog::Severity;
use crate::worker::Worker;

/// Most bytes of dirty data that a thread which answers requests writes back itself.
const AT_ONCE: u64 = 1 << 20;

/// How often what was freed is discarded, if it is to be.
const DISCARD: Duration = Duration::from_secs(2);

/// How far a program's FITRIM has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimming {
    /// Allocation groups that were gone through.
    pub done: u64,
    /// Allocation groups to go through, all of them.
    pub groups: u64,
    /// Bytes discarded.
    pub bytes: u64,
    /// Time since it began.
    pub elapsed: Duration,
    /// Nothing more comes: it is done, or failed.
    pub ended: bool,
}

/// Opens the volume with other options.
pub(crate) type Opener = Box<dyn Fn(&Options) -> Result<Fs, String> + Send + Sync>;

/// Is told of each step.
type Teller = Box<dyn Fn(Trimming) + Send + Sync>;

/// Who asks for durability: a thread of a program, or nobody in particular. A number that says
/// nothing but whether it is the same one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker(u64);

impl Asker {
    /// The one that sent a request.
    pub(crate) fn of(req: &Request) -> Self {
        Self::process(req.pid())
    }

    /// A process.
    pub(crate) fn process(pid: u32) -> Self {
        // Beyond the numbers that threads of this process have there.
        Self(1 << 32 | u64::from(pid))
    }
}

/// An open volume that is mounted.
pub(crate) struct Volume {
    root: Ino,
    pub(crate) fs: RwLock<Option<Arc<Fs>>>,
    pub(crate) service: Mutex<Option<LogWorker>>,
    /// Writes back what is much.
    pub(crate) writer: Worker<Volume>,
    /// Brings files down, of which each has little to write.
    pub(crate) syncer: Worker<Volume>,
    /// How many are being brought down, or are to be, of those that have little to write.
    syncing: AtomicUsize,
    discarder: Mutex<Option<JoinHandle<()>>>,
    /// Who wants to know how far trimming has come.
    teller: Mutex<Option<Teller>>,
    /// A fault that was planted in the thread that made this, which those that work for it share.
    fault: Option<Fault>,
    /// The writer has been asked to make room.
    relieving: AtomicBool,
    /// Requests that wait for durability.
    parked: Arc<AtomicUsize>,
    /// Who asked for durability last.
    asked: AtomicU64,
    /// Keeps idle processors from halting, if that is wanted.
    awake: OnceLock<Awake>,
    /// There are threads enough that one of them may see to durability itself.
    may_drive: bool,
    /// The mount ends.
    ending: Mutex<bool>,
    ends: Condvar,
    /// How it is mounted at present.
    live: Arc<Live>,
    /// Opens it anew, with other options.
    pub(crate) opener: OnceLock<Opener>,
    /// What is freed is discarded.
    discarding: AtomicBool,
    /// How closing went.
    pub(crate) closed: Mutex<Option<Result<(), String>>>,
    /// Where is said what a server has to say.
    recorder: OnceLock<Recorder>,
    /// It was said that the volume has stopped.
    said_stopped: AtomicBool,
    /// It was said that something cannot be written at present.
    said_retrying: AtomicBool,
    /// Why the last sync failed, if it did.
    sync_error: Mutex<Option<String>>,
}

/// A request that waits for durability, and does not when this is dropped.
struct Parked(Arc<AtomicUsize>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What FUSE says of a failure.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

impl Volume {
    /// A volume to be served with these options.
    pub(crate) fn new(fs: Fs, options: &Options) -> Arc<Self> {
        let threads = settings::threads(options.threads);
        Arc::new(Self {
            root: fs.root(),
            fs: RwLock::new(Some(Arc::new(fs))),
            service: Mutex::default(),
            writer: Worker::default(),
            syncer: Worker::default(),
            syncing: AtomicUsize::new(0),
            discarder: Mutex::default(),
            teller: Mutex::default(),
            fault: fault::in_force(),
            relieving: AtomicBool::new(false),
            parked: Arc::default(),
            asked: AtomicU64::new(0),
            awake: OnceLock::new(),
            may_drive: threads > 1,
            ending: Mutex::default(),
            ends: Condvar::new(),
            live: Arc::new(Live::new(options)),
            opener: OnceLock::new(),
            discarding: AtomicBool::new(false),
            closed: Mutex::default(),
            recorder: OnceLock::new(),
            said_stopped: AtomicBool::new(false),
            said_retrying: AtomicBool::new(false),
            sync_error: Mutex::default(),
        })
    }

    /// Its root directory.
    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    /// How it is mounted at present.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// The attributes of its root.
    pub(crate) fn root_attr(&self) -> Option<FileAttr> {
        self.work(|fs| Ok(attr_of(fs, &fs.stat(self.root)?))).ok()
    }

    /// Has it stopped, or is it closed?
    pub(crate) fn is_stopped(&self) -> bool {
        self.fs.read().as_ref().is_none_or(|fs| fs.stopped_by().is_some())
    }

    /// From now on what there is to say goes there.
    pub(crate) fn set_recorder(&self, recorder: Recorder) {
        // A volume is mounted once.
        let _ = self.recorder.set(recorder);
    }

    /// Where is said what there is to say.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// Says something to those who look after the mount.
    pub(crate) fn say(&self, severity: Severity, text: &str) {
        match self.recorder.get() {
            Some(recorder) => recorder.say(severity, text),
            None => eprintln!("uxfs: mount: {text}"),
        }
    }

    /// Why the last sync of everything failed, if it did.
    pub(crate) fn sync_error(&self) -> Option<String> {
        self.sync_error.lock().clone()
    }

    /// Works on the volume for a request.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Fs) -> uxfs::Result<T>) -> Result<T, Errno> {
        if let Some(awake) = self.awake.get() {
            awake.stir();
        }
        self.work(f)
    }

    /// Works on the volume, for nobody who waits, or for who was counted already.
    fn work<T>(&self, f: impl FnOnce(&Fs) -> uxfs::Result<T>) -> Result<T, Errno> {
        match &*self.fs.read() {
            Some(fs) => self.guarded(fs, || f(fs)),
            None => Err(Errno::EIO),
        }
    }

    /// Does something with the volume, and stops it if that panics.
    fn guarded<T>(&self, fs: &Fs, work: impl FnOnce() -> uxfs::Result<T>) -> Result<T, Errno> {
        if self.fault.is_some() {
            fault::plant(self.fault);
        }
        // What the panic left behind is looked at by nobody: the volume lets nobody in any more.
        let panic = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => {
                self.notice(fs);
                return Err(errno(&error));
            }
            Err(panic) => panic,
        };
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // Who is told by this may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| fs.stop(&format!("a request panicked: {said}"))));
        self.notice(fs);
        Err(Errno::EIO)
    }

    /// Says that the volume has stopped or cannot write, if that is so and was not said.
    pub(crate) fn notice(&self, fs: &Fs) {
        let retrying = fs.retrying();
        if self.said_retrying.swap(retrying.is_some(), Ordering::AcqRel) != retrying.is_some() {
            let text = match &retrying {
                Some(cause) => format!("{cause}; it is tried again: make room for the image"),
                None => "everything can be written again".into(),
            };
            self.say(Severity::Warning, &text);
        }
        let Some(why) = fs.stopped_by() else { return };
        if !self.said_stopped.swap(true, Ordering::AcqRel) {
            let text = format!(
                "the volume is stopped, and nothing more is written: {why}; what was synced is on \
                 it: unmount it, and mount it again"
            );
            self.say(Severity::Error, &text);
        }
    }

    /// Calls `told` when everything done so far, but for data still to be written back, is on
    /// stable storage, or cannot be any more.
    pub(crate) fn when_durable(
        &self,
        who: Asker,
        told: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        self.park(who, true, told, |fs| Ok(fs.ticket()));
    }

    /// The same for what the ticket stands for that `begin` gives. `here`: by this thread, if nobody
    /// else waits.
    fn park(
        &self,
        who: Asker,
        here: bool,
        told: impl FnOnce(Result<(), Errno>) + Send + 'static,
        begin: impl FnOnce(&Fs) -> uxfs::Result<Ticket>,
    ) {
        let guard = self.fs.read();
        let Some(fs) = &*guard else { return told(Err(Errno::EIO)) };
        let ticket = match self.guarded(fs, || begin(fs)) {
            Ok(ticket) => ticket,
            Err(error) => return told(Err(error)),
        };
        // Who asks twice in a row, with nobody in between, and nobody else waits.
        let again = self.asked.swap(who.0, Ordering::Relaxed) == who.0;
        let alone = self.parked.fetch_add(1, Ordering::Relaxed) == 0 && again;
        let parked = Parked(Arc::clone(&self.parked));
        let told = move |result: Result<(), _>| {
            drop(parked);
            told(result.map_err(|_| Errno::EIO));
        };
        // A reply that is dropped by a panic is one of EIO.
        let _ = self.guarded(fs, || {
            match alone && here && self.may_drive {
                true => fs.make_durable_for(who.0, ticket, told),
                false => fs.when_durable_for(who.0, ticket, told),
            }
            Ok(())
        });
    }

    /// Brings a file down: calls `told` when it is on stable storage, or cannot be. `cursor` is
    /// what its caller was told of errors so far; without one, an error that nobody was told of is
    /// told.
    pub(crate) fn fsync(
        &self,
        who: Asker,
        ino: Ino,
        kind: SyncKind,
        cursor: Option<Cursor>,
        told: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let begin = move |fs: &Fs| match cursor {
            Some(cursor) => fs.begin_fsync(ino, kind, &mut cursor.lock()),
            None => fs.begin_fsync(ino, kind, &mut fs.error_cursor(ino)),
        };
        let much = self.with(|fs| Ok(fs.dirty_bytes_of(ino) > AT_ONCE));
        if much == Ok(true) {
            let job = move |volume: &Self| volume.park(who, false, told, begin);
            return self.writer.hand(self, Box::new(job));
        }
        let others = self.syncing.fetch_add(1, Ordering::Relaxed) > 0;
        let job = move |volume: &Self| {
            volume.park(who, !others, told, begin);
            volume.syncing.fetch_sub(1, Ordering::Relaxed);
        };
        match others {
            true => self.syncer.hand(self, Box::new(job)),
            false => job(self),
        }
    }

    /// Brings everything down, and calls `told` then.
    pub(crate) fn sync(&self, who: Asker, told: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let much = self.with(|fs| Ok(fs.dirty_bytes() > AT_ONCE));
        match much {
            Ok(true) => {
                let job = move |volume: &Self| {
                    volume.park(who, false, told, |fs| volume.begin_sync(fs));
                };
                self.writer.hand(self, Box::new(job));
            }
            _ => self.park(who, true, told, |fs| self.begin_sync(fs)),
        }
    }

    /// Begins to bring everything down, and remembers why that failed: the kernel passes on no more
    /// than a number.
    fn begin_sync(&self, fs: &Fs) -> uxfs::Result<Ticket> {
        let begun = fs.begin_sync();
        *self.sync_error.lock() = begun.as_ref().err().map(ToString::to_string);
        self.notice(fs);
        begun
    }

    /// Discards free space, as [`Fs::trim`] does, in a thread of its own, and calls `told` with how
    /// many bytes that were. The end of the mount waits for no more than a group.
    pub(crate) fn trim(
        self: &Arc<Self>,
        range: Range<u64>,
        least: u64,
        told: impl FnOnce(Result<u64, Errno>) + Send + 'static,
    ) -> io::Result<()> {
        let volume = Arc::clone(self);
        let work = std::thread::Builder::new().name("uxfs-trim".into());
        work.spawn(move || told(volume.trim_groups(range, least))).map(drop)
    }

    /// Has `teller` told how far trimming has come, whenever it has got further.
    pub(crate) fn tell_trims(&self, teller: Teller) {
        *self.teller.lock() = Some(teller);
    }

    fn trim_groups(&self, range: Range<u64>, least: u64) -> Result<u64, Errno> {
        let begun = Instant::now();
        let group =
            self.work(|fs| Ok(u64::from(fs.geo.block_size) * u64::from(fs.geo.ag_blocks)))?;
        let groups = range.end.div_ceil(group) - range.start / group;
        let tell = |done, bytes, ended| {
            let elapsed = begun.elapsed();
            if let Some(teller) = &*self.teller.lock() {
                teller(Trimming { done, groups, bytes, elapsed, ended });
            }
        };
        let (mut at, mut done, mut trimmed) = (range.start, 0, 0);
        while at < range.end {
            tell(done, trimmed, false);
            let next = (at / group + 1).saturating_mul(group).min(range.end);
            match self.work(|fs| fs.trim(at..next, least, &mut |_, _| {})) {
                Ok(bytes) => trimmed += bytes,
                Err(error) => {
                    tell(done, trimmed, true);
                    return Err(error);
                }
            }
            (at, done) = (next, done + 1);
        }
        tell(done, trimmed, true);
        Ok(trimmed)
    }

    /// Something was written: has the writer bring some of what is dirty to the device, if that is
    /// much, so that those who write go on meanwhile.
    pub(crate) fn relieve(&self) {
        let much = self.work(|fs| Ok(fs.has_writeback_excess()));
        if much != Ok(true) || self.relieving.swap(true, Ordering::AcqRel) {
            return;
        }
        let job = |volume: &Self| {
            // A volume that cannot any more says so to those who use it.
            let _ = volume.work(Fs::writeback_excess);
            volume.relieving.store(false, Ordering::Release);
        };
        self.writer.hand(self, Box::new(job));
    }

    /// Discards what was freed, now and then, until the mount ends.
    fn discard_loop(&self) {
        let mut ending = self.ending.lock();
        while !*ending && self.discarding.load(Ordering::Acquire) {
            drop(ending);
            // A volume that cannot any more says so to those who use it.
            if self.work(Fs::trim_freed).is_err() {
                return;
            }
            ending = self.ending.lock();
            if !*ending {
                self.ends.wait_for(&mut ending, DISCARD);
            }
        }
    }

    /// Keeps idle processors from halting while there are many requests.
    ///
    /// # Errors
    /// If this process may not ask for that, or cannot.
    pub(crate) fn keep_awake(&self) -> io::Result<()> {
        let begun = Awake::start().map_err(|error| {
            let why = format!("option 'awake': {DEVICE}: {error}");
            io::Error::new(error.kind(), why)
        })?;
        // Nobody has begun it before: a volume is mounted once.
        drop(self.awake.set(begun));
        Ok(())
    }

    /// Are idle processors kept from halting?
    pub(crate) fn is_kept_awake(&self) -> bool {
        self.awake.get().is_some()
    }

    /// Starts the threads, and one that discards what was freed if that is wanted.
    ///
    /// # Errors
    /// What the host says to new threads.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let guard = self.fs.read();
        let Some(fs) = guard.as_ref().filter(|fs| fs.journal_options().is_some()) else {
            return Ok(());
        };
        self.serve(fs)?;
        self.discard(self.live.all().discard)
    }

    /// Starts the threads that write.
    pub(crate) fn serve(self: &Arc<Self>, fs: &Arc<Fs>) -> io::Result<()> {
        let served = LogWorker::start(fs, LogWorkOptions::default());
        *self.service.lock() = Some(served.map_err(|e| io::Error::other(e.to_string()))?);
        self.writer.start("uxfs-write", Arc::clone(self))?;
        self.syncer.start("uxfs-sync", Arc::clone(self))
    }

    /// From now on what is freed is discarded, or is not.
    ///
    /// # Errors
    /// What the host says to a new thread.
    pub(crate) fn discard(self: &Arc<Self>, wanted: bool) -> io::Result<()> {
        if self.discarding.swap(wanted, Ordering::AcqRel) == wanted {
            return Ok(());
        }
        if !wanted {
            self.end_discarding();
            return Ok(());
        }
        let volume = Arc::clone(self);
        let work = std::thread::Builder::new().name("uxfs-discard".into());
        *self.discarder.lock() = Some(work.spawn(move || volume.discard_loop())?);
        Ok(())
    }

    fn end_discarding(&self) {
        // Under the lock, so that the thread cannot miss it.
        drop(self.ending.lock());
        self.ends.notify_all();
        if let Some(thread) = self.discarder.lock().take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }

    /// Ends the use of the volume: writes everything in place and leaves a clean log.
    ///
    /// # Errors
    /// What could not be written and why, what is lost by that, and what to do.
    pub(crate) fn close(&self) -> Result<(), String> {
        self.writer.end();
        self.syncer.end();
        *self.ending.lock() = true;
        self.end_discarding();
        let mut closed = self.closed.lock();
        closed.get_or_insert_with(|| self.close_once()).clone()
    }

    fn close_once(&self) -> Result<(), String> {
        let taken = self.fs.write().take();
        // Nobody works on the volume any more; the service's share of it ends with the service.
        drop(self.service.lock().take());
        let Some(fs) = taken else { return Ok(()) };
        match Arc::try_unwrap(fs) {
            Ok(fs) => {
                let stopped = fs.stopped_by();
                // Replies that are parked are sent by this. If it fails closing does too, or finds that
                // there is room again.
                let _ = fs.sync();
                let unwritten = fs.unwritten();
                fs.close().map_err(|error| not_closed(&error, stopped, &unwritten))
            }
            Err(_shared) => Err(Error::Invalid("the volume is still in use").to_string()),
        }
    }
}

/// What to tell of a volume that could not be closed.
pub(crate) fn not_closed(error: &Error, stopped: Option<String>, unwritten: &Unwritten) -> String {
    let what = match (stopped, error) {
        (Some(why), _) => format!("the volume had stopped ({why}); {unwritten}"),
        (None, Error::Unwritten { .. }) => error.to_string(),
        (None, _) => format!("not everything could be written ({error}); {unwritten}"),
    };
    let lost = if unwritten.is_empty() { "" } else { "data that was not synced is lost; " };
    format!(
        "{what}; {lost}what was synced is on the image: once the host has room and the device \
         works, `uxfs mount` or `uxfs log settle` recovers it from the log"
    )
}
