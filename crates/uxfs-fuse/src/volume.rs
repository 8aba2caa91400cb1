//! The volume of a mount, open until the mount ends, and its threads other than the server threads.
//!
//! 1. A request uses the volume under a read lock. The end of the mount takes the volume out under
//!    the write lock, so no request is half done then.
//! 2. A panic in work for the mount is caught where that work uses the volume
//!    ([`Volume::guarded`]). The volume is stopped, so that nothing half done is written, and this
//!    and every later request returns EIO.
//! 3. The volume is closed after the log worker has ended and every reply was sent. The result is
//!    kept, and closing again returns it.
//! 4. That the volume has stopped is reported once, by the first request that finds it stopped.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use uxfs::LogWorker;
use uxfs::format::Ino;
use uxfs::journal::{LogWorkOptions, Ticket};
use uxfs::{Error, Fs, Unwritten};
use uxfs_disk::fault::{self, Fault};
use uxfs_transport::{Errno, Requests, Statx, Transport};

use crate::attr::statx_of;
use crate::awake::{Awake, DEVICE};
use crate::current_options::CurrentOptions;
use crate::durability::Durability;
use crate::freeze::Freeze;
use crate::options::Options;
use crate::record::Recorder;
use crate::scrubs::Scrubs;
use crate::settings;
use crate::syslog::Severity;
use crate::worker::Worker;

/// Interval of discards, if freed space is discarded.
const DISCARD: Duration = Duration::from_secs(2);

/// How often data is moved in the background.
const DEFRAG: Duration = Duration::from_millis(250);

/// The progress of a program's FITRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimming {
    pub done: u64,
    pub groups: u64,
    pub bytes: u64,
    /// Time since it began.
    pub elapsed: Duration,
    /// The trimming is done, or failed.
    pub ended: bool,
}

/// Opens the volume with other options.
pub(crate) type Opener = Box<dyn Fn(&Options) -> Result<Fs, String> + Send + Sync>;

/// What lies behind a volume's device, and is finished after the volume is closed.
pub trait Backing: Send + Sync {
    /// Pairs of a name and a value for `uxfs status`.
    fn status(&self) -> Vec<(String, String)>;

    /// Waits until what is durable on the device is there too.
    ///
    /// # Errors
    /// What is missing there, and why.
    fn catch_up(&self) -> Result<(), String>;

    /// Called when the volume is closed.
    ///
    /// # Errors
    /// What is missing there, and what to do.
    fn finish(&self) -> Result<(), String>;
}

type TrimCallback = Box<dyn Fn(Trimming) + Send + Sync>;

pub(crate) struct Volume {
    root: Ino,
    pub(crate) fs: RwLock<Option<Arc<Fs>>>,
    pub(crate) log_worker: Mutex<Option<LogWorker>>,
    /// The thread that writes back much data.
    pub(crate) writer: Worker<Volume>,
    /// The state of requests for durability.
    pub(crate) durability: Durability,
    discarder: Mutex<Option<JoinHandle<()>>>,
    defragger: Mutex<Option<JoinHandle<()>>>,
    /// Receives the progress of trimming.
    trim_callback: Mutex<Option<TrimCallback>>,
    /// A fault planted in the thread that created this, which its worker threads share.
    fault: Option<Fault>,
    /// The writer thread has a job to reduce dirty data.
    writeback_queued: AtomicBool,
    /// Keeps idle processors from halting, if enabled.
    awake: OnceLock<Awake>,
    /// What a freeze holds back.
    pub(crate) freeze: Freeze,
    /// Checks while the mount is used.
    pub(crate) scrubs: Scrubs,
    ending: Mutex<bool>,
    ends: Condvar,
    current_options: Arc<CurrentOptions>,
    /// Opens the volume again with other options.
    pub(crate) opener: OnceLock<Opener>,
    /// What lies behind the device.
    backing: OnceLock<Arc<dyn Backing>>,
    discarding: AtomicBool,
    pub(crate) closed: Mutex<Option<Result<(), String>>>,
    recorder: OnceLock<Recorder>,
    /// How requests come.
    transport: OnceLock<Transport>,
    /// The requests that came, by kind.
    requests: OnceLock<Requests>,
    /// It was reported that the volume has stopped.
    stopped_reported: AtomicBool,
    /// It was reported that something cannot be written now.
    retrying_reported: AtomicBool,
    /// Why the last sync failed, if it did.
    sync_error: Mutex<Option<String>>,
}

/// The FUSE error of an error of the engine.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

impl Volume {
    /// A volume to serve with these options.
    pub(crate) fn new(fs: Fs, options: &Options) -> Arc<Self> {
        let threads = settings::threads(options.threads);
        Arc::new(Self {
            root: fs.root(),
            fs: RwLock::new(Some(Arc::new(fs))),
            log_worker: Mutex::default(),
            writer: Worker::default(),
            durability: Durability::new(threads),
            discarder: Mutex::default(),
            defragger: Mutex::default(),
            trim_callback: Mutex::default(),
            fault: fault::in_force(),
            writeback_queued: AtomicBool::new(false),
            awake: OnceLock::new(),
            freeze: Freeze::default(),
            scrubs: Scrubs::default(),
            ending: Mutex::default(),
            ends: Condvar::new(),
            current_options: Arc::new(CurrentOptions::new(options)),
            opener: OnceLock::new(),
            backing: OnceLock::new(),
            discarding: AtomicBool::new(false),
            closed: Mutex::default(),
            recorder: OnceLock::new(),
            transport: OnceLock::new(),
            requests: OnceLock::new(),
            stopped_reported: AtomicBool::new(false),
            retrying_reported: AtomicBool::new(false),
            sync_error: Mutex::default(),
        })
    }

    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    pub(crate) fn current_options(&self) -> Arc<CurrentOptions> {
        Arc::clone(&self.current_options)
    }

    pub(crate) fn root_stat(&self) -> Option<Statx> {
        self.work(|fs| Ok(statx_of(fs, &fs.stat(self.root)?))).ok()
    }

    /// Has it stopped, or is it closed?
    pub(crate) fn is_stopped(&self) -> bool {
        self.fs.read().as_ref().is_none_or(|fs| fs.stopped_by().is_some())
    }

    /// Sets the receiver of messages.
    pub(crate) fn set_recorder(&self, recorder: Recorder) {
        // Set once, because a volume is mounted once.
        let _ = self.recorder.set(recorder);
    }

    /// Sets what lies behind the device.
    pub(crate) fn set_backing(&self, backing: Arc<dyn Backing>) {
        // Set once, because a volume is mounted once.
        drop(self.backing.set(backing));
    }

    /// What lies behind the device.
    pub(crate) fn backing(&self) -> Option<&Arc<dyn Backing>> {
        self.backing.get()
    }

    /// Waits, in a thread of its own, until what lies behind the device has everything, and calls `reply`.
    pub(crate) fn catch_up(
        self: &Arc<Self>,
        reply: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let Some(backing) = self.backing.get().map(Arc::clone) else { return reply(Ok(())) };
        let volume = Arc::clone(self);
        let wait = move || {
            let done = backing.catch_up();
            if let Err(why) = &done {
                volume.say(Severity::Warning, why);
            }
            reply(done.map_err(|_| Errno::IO));
        };
        // If no thread can be started, dropping the reply answers with an error.
        drop(std::thread::Builder::new().name("uxfs-sync".into()).spawn(wait));
    }

    /// Sets how requests come.
    pub(crate) fn set_transport(&self, transport: Transport) {
        // Set once, because a volume is mounted once.
        let _ = self.transport.set(transport);
    }

    /// Sets the counters of requests.
    pub(crate) fn set_requests(&self, requests: Requests) {
        // Set once, because a volume is mounted once.
        let _ = self.requests.set(requests);
    }

    /// The requests that came so far, by kind.
    pub(crate) fn requests(&self) -> Vec<(&'static str, u64)> {
        self.requests.get().map_or_else(Vec::new, Requests::by_kind)
    }

    /// How requests come.
    pub(crate) fn transport(&self) -> Option<Transport> {
        self.transport.get().copied()
    }

    /// The receiver of messages.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// Reports a message to the users of the mount.
    pub(crate) fn say(&self, severity: Severity, text: &str) {
        match self.recorder.get() {
            Some(recorder) => recorder.say(severity, text),
            None => eprintln!("uxfs: mount: {text}"),
        }
    }

    /// The error of the last sync of the whole volume.
    pub(crate) fn sync_error(&self) -> Option<String> {
        self.sync_error.lock().clone()
    }

    /// Runs `work` on the volume for a request.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Fs) -> uxfs::Result<T>) -> Result<T, Errno> {
        if let Some(awake) = self.awake.get() {
            awake.count_request();
        }
        self.work(f)
    }

    /// Runs `work` on the volume for no request, or for one that is counted already.
    fn work<T>(&self, f: impl FnOnce(&Fs) -> uxfs::Result<T>) -> Result<T, Errno> {
        match &*self.fs.read() {
            Some(fs) => self.guarded(fs, || f(fs)),
            None => Err(Errno::IO),
        }
    }

    /// Runs `work` on the volume, and stops the volume if it panics.
    pub(crate) fn guarded<T>(
        &self,
        fs: &Fs,
        work: impl FnOnce() -> uxfs::Result<T>,
    ) -> Result<T, Errno> {
        if self.fault.is_some() {
            fault::plant(self.fault);
        }
        // Nothing reads what the panic left behind, because the volume is stopped.
        let panic = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => {
                self.report_state(fs);
                return Err(errno(&error));
            }
            Err(panic) => panic,
        };
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // Waiters that this wakes may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| fs.stop(&format!("a request panicked: {said}"))));
        self.report_state(fs);
        Err(Errno::IO)
    }

    /// Reports that the volume has stopped or cannot write, once.
    pub(crate) fn report_state(&self, fs: &Fs) {
        let retrying = fs.retrying();
        if self.retrying_reported.swap(retrying.is_some(), Ordering::AcqRel) != retrying.is_some() {
            let text = match &retrying {
                Some(cause) => format!("{cause}; it is tried again: make room for the image"),
                None => "everything can be written again".into(),
            };
            self.say(Severity::Warning, &text);
        }
        let Some(why) = fs.stopped_by() else { return };
        if !self.stopped_reported.swap(true, Ordering::AcqRel) {
            let text = format!(
                "the volume is stopped, and nothing more is written: {why}; what was synced is on \
                 it: unmount it, and mount it again"
            );
            self.say(Severity::Error, &text);
        }
    }

    /// Starts a sync of the whole volume, and keeps its error, because the kernel forwards only a
    /// number.
    pub(crate) fn begin_sync(&self, fs: &Fs) -> uxfs::Result<Ticket> {
        self.note_sync(fs, fs.begin_sync())
    }

    /// The same for the durability of everything, also in ordered mode.
    pub(crate) fn begin_durable(&self, fs: &Fs) -> uxfs::Result<Ticket> {
        self.note_sync(fs, fs.durable())
    }

    fn note_sync(&self, fs: &Fs, begun: uxfs::Result<Ticket>) -> uxfs::Result<Ticket> {
        *self.sync_error.lock() = begun.as_ref().err().map(ToString::to_string);
        self.report_state(fs);
        begun
    }

    /// Discards free space as [`Fs::trim`] does, in a thread of its own, and calls `reply` with the
    /// number of bytes. The end of the mount waits for one group at most.
    pub(crate) fn trim(
        self: &Arc<Self>,
        range: Range<u64>,
        least: u64,
        reply: impl FnOnce(Result<u64, Errno>) + Send + 'static,
    ) -> io::Result<()> {
        let volume = Arc::clone(self);
        let work = std::thread::Builder::new().name("uxfs-trim".into());
        work.spawn(move || reply(volume.trim_groups(range, least))).map(drop)
    }

    /// Calls `callback` with the progress of trimming.
    pub(crate) fn on_trim(&self, callback: TrimCallback) {
        *self.trim_callback.lock() = Some(callback);
    }

    fn trim_groups(&self, range: Range<u64>, least: u64) -> Result<u64, Errno> {
        let begun = Instant::now();
        let group =
            self.work(|fs| Ok(u64::from(fs.geo.block_size) * u64::from(fs.geo.ag_blocks)))?;
        let groups = range.end.div_ceil(group) - range.start / group;
        let tell = |done, bytes, ended| {
            let elapsed = begun.elapsed();
            if let Some(callback) = &*self.trim_callback.lock() {
                callback(Trimming { done, groups, bytes, elapsed, ended });
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

    /// Called after a write: starts background write-back if much data is dirty, so that writers
    /// can continue.
    pub(crate) fn start_writeback_if_needed(&self) {
        let much = self.work(|fs| Ok(fs.has_writeback_excess()));
        if much != Ok(true) || self.writeback_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let job = |volume: &Self| {
            // A stopped volume reports its error to every request.
            let _ = volume.work(Fs::writeback_excess);
            volume.writeback_queued.store(false, Ordering::Release);
        };
        self.writer.submit(self, Box::new(job));
    }

    /// Discards freed space at intervals until the mount ends.
    fn discard_loop(&self) {
        let mut ending = self.ending.lock();
        while !*ending && self.discarding.load(Ordering::Acquire) {
            drop(ending);
            // A stopped volume reports its error to every request.
            if self.work(Fs::trim_freed).is_err() {
                return;
            }
            ending = self.ending.lock();
            if !*ending {
                self.ends.wait_for(&mut ending, DISCARD);
            }
        }
    }

    /// Moves the data of split files together, `rate` bytes in a second, until the mount ends.
    fn defrag_loop(&self, rate: u64) {
        let mut ending = self.ending.lock();
        while !*ending {
            drop(ending);
            let part = u64::try_from(u128::from(rate) * DEFRAG.as_millis() / 1000).unwrap_or(rate);
            // A stopped volume reports its error to every request.
            let Ok(moved) = self.work(|fs| fs.defrag_pass(part)) else { return };
            ending = self.ending.lock();
            if !*ending {
                // A pass may move more than its share.
                let due = Duration::from_secs_f64(moved as f64 / rate as f64);
                self.ends.wait_for(&mut ending, due.max(DEFRAG));
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
        // Not set before, because a volume is mounted once.
        drop(self.awake.set(begun));
        Ok(())
    }

    /// Are idle processors kept from halting?
    pub(crate) fn is_kept_awake(&self) -> bool {
        self.awake.get().is_some()
    }

    /// Starts the threads, and the discard thread if enabled.
    ///
    /// # Errors
    /// The host cannot start a thread.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let guard = self.fs.read();
        let Some(fs) = guard.as_ref().filter(|fs| fs.journal_options().is_some()) else {
            return Ok(());
        };
        self.start_write_threads(fs)?;
        let options = self.current_options.all();
        if let Some(rate) = options.autodefrag {
            let volume = Arc::clone(self);
            let work = std::thread::Builder::new().name("uxfs-defrag".into());
            let thread = work.spawn(move || volume.defrag_loop(rate))?;
            *self.defragger.lock() = Some(thread);
        }
        self.discard(options.discard)
    }

    /// Starts the threads that write.
    pub(crate) fn start_write_threads(self: &Arc<Self>, fs: &Arc<Fs>) -> io::Result<()> {
        let served = LogWorker::start(fs, LogWorkOptions::default());
        *self.log_worker.lock() = Some(served.map_err(|e| io::Error::other(e.to_string()))?);
        self.writer.start("uxfs-write", Arc::clone(self))?;
        self.durability.start(self)
    }

    /// Enables or disables discards of freed space.
    ///
    /// # Errors
    /// The host cannot start a thread.
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

    /// Ends the threads that write back.
    pub(crate) fn end_write_back(&self) {
        self.writer.end();
        self.durability.end();
    }

    fn end_discarding(&self) {
        self.end_thread(&self.discarder);
    }

    /// Ends a thread that waits for [`Volume::ends`].
    fn end_thread(&self, thread: &Mutex<Option<JoinHandle<()>>>) {
        // Under the lock, so that the thread cannot miss it.
        drop(self.ending.lock());
        self.ends.notify_all();
        if let Some(thread) = thread.lock().take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }

    /// Closes the volume: writes everything in place and leaves a clean log.
    ///
    /// # Errors
    /// What could not be written and why, what is lost by that, and what to do.
    pub(crate) fn close(&self) -> Result<(), String> {
        // What waits for the thaw uses the volume.
        self.thaw_to_end();
        self.end_scrub("the mount ended", true);
        self.end_write_back();
        *self.ending.lock() = true;
        self.end_discarding();
        self.end_thread(&self.defragger);
        let mut closed = self.closed.lock();
        closed.get_or_insert_with(|| self.close_once()).clone()
    }

    fn close_once(&self) -> Result<(), String> {
        let taken = self.fs.write().take();
        // No thread uses the volume any more. The log worker drops its share when it ends.
        drop(self.log_worker.lock().take());
        let Some(fs) = taken else { return Ok(()) };
        match Arc::try_unwrap(fs) {
            Ok(fs) => {
                let stopped = fs.stopped_by();
                // This sends the parked replies. If it fails, closing fails too, or finds that the
                // host has space again.
                let _ = fs.sync();
                let unwritten = fs.unwritten();
                fs.close().map_err(|error| not_closed(&error, stopped, &unwritten))?;
                self.backing().map_or(Ok(()), |backing| backing.finish())
            }
            Err(_shared) => Err(Error::Invalid("the volume is still in use").to_string()),
        }
    }
}

/// The message about a volume that could not be closed.
pub(crate) fn not_closed(error: &Error, stopped: Option<String>, unwritten: &Unwritten) -> String {
    let what = match (stopped, error) {
        (Some(why), _) => format!("the volume had stopped ({why}); {unwritten}"),
        (None, Error::Unwritten { .. }) => error.to_string(),
        (None, _) => format!("not everything could be written ({error}); {unwritten}"),
    };
    let lost = if unwritten.is_empty() { "" } else { "data that was not synced is lost; " };
    format!(
        "{what}; {lost}what was synced is on the image: once the host has room and the device \
         works, `uxfs mount` or `uxfs log quiesce` recovers it from the log"
    )
}
