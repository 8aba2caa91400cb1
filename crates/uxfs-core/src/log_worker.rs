//! The log worker: a thread that does what is due in the journal of an open volume. It commits what has
//! waited long enough, pushes the AIL before the log is full, covers an idle log, and writes back old data.
//!
//! A volume works without it. Then a thread that waits for something does what is due, and a commit without a
//! waiter stays in memory until another operation.
//!
//! 1. [`LogWorkPlanner`] decides what is due; this carries it out.
//! 2. The thread ends when it is stopped, or when the volume is shut down. [`LogWorker::stop`] returns when
//!    everything that it had begun is done.
//! 3. No call of the volume waits for it.
//! 4. If it panics, the volume is stopped, and all its waiters get the error.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_journal::{LogWork, LogWorkOptions, LogWorkPlanner};
use uxfs_sync::Thread;

use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::full::{RETRY, Stuck};
use crate::journal::{ImmediateWriter, Journal, Op, superblock_item};

/// The thread; it ends when this is dropped.
#[must_use = "the service ends when this is dropped"]
pub struct LogWorker {
    fs: Arc<Fs>,
    stop: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl LogWorker {
    /// Starts the thread for a volume with a journal.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has no journal, or has a log worker already; the host's errors for
    /// a new thread.
    pub fn start(fs: &Arc<Fs>, log_work: LogWorkOptions) -> Result<Self> {
        let Some(journal) = &fs.journal else {
            return Err(Error::Invalid("a volume without a journal needs no log worker"));
        };
        if !journal.take_worker_place() {
            return Err(Error::Invalid("the volume has a log worker already"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (inner, stop_flag) = (Arc::clone(fs), Arc::clone(&stop));
        let thread = Thread::start("uxfs-journal", move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| serve(&inner, log_work, &stop_flag)));
            if outcome.is_err() {
                inner.stop("the thread that serves the journal panicked");
            }
        });
        match thread {
            Ok(thread) => Ok(Self { fs: Arc::clone(fs), stop, thread: Some(thread) }),
            Err(error) => {
                journal.leave_worker_place();
                Err(no_thread(error))
            }
        }
    }

    /// Ends the thread and waits for its end.
    pub fn stop(self) {}
}

impl Drop for LogWorker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(journal) = &self.fs.journal {
            journal.wake_worker_to_stop();
        }
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        if let Some(journal) = &self.fs.journal {
            journal.leave_worker_place();
        }
    }
}

fn no_thread(source: io::Error) -> Error {
    Error::Io { what: "starting a thread", daddr: uxfs_format::Daddr(0), source }
}

fn serve(fs: &Fs, log_work: LogWorkOptions, stop: &AtomicBool) {
    let Some(journal) = &fs.journal else { return };
    let mut planner = LogWorkPlanner::new(log_work);
    while !stop.load(Ordering::Acquire) {
        match step(fs, journal, &mut planner, stop) {
            Ok(()) => {}
            Err(error) if error.is_host_full() => journal.rest(stop),
            Err(error) => {
                // No other thread may be left to wake the waiters.
                journal.fail(fs, Cause::of("running the log worker", &error));
                return;
            }
        }
    }
}

fn step(fs: &Fs, journal: &Journal, planner: &mut LogWorkPlanner, stop: &AtomicBool) -> Result<()> {
    fs.check_running()?;
    let Some(inside) = fs.background() else {
        // The thaw wakes it.
        journal.rest(stop);
        return Ok(());
    };
    if journal.left_undriven() {
        return journal.drive_on(fs);
    }
    let (now, seen) = (journal.now(), journal.seen());
    if fs.writeback_alarm().is_some_and(|due| due <= now) {
        return fs.writeback_tick(now);
    }
    if journal.is_epoch_due() {
        return fs.cut_epoch().map(|_| ());
    }
    fs.retry_stuck(journal)?;
    if fs.much_dirty(1) && !fs.stuck_lately(Stuck::Metadata) && fs.lighten(journal)? {
        return Ok(());
    }
    match planner.next(now, &seen) {
        LogWork::Tick => {
            journal.tick();
            journal.drive_on(fs)
        }
        LogWork::Push(until) => journal.push_ail(fs, until),
        LogWork::Cover => {
            cover(fs, journal)?;
            planner.covered(journal.now(), journal.head());
            Ok(())
        }
        LogWork::Sleep(until) => {
            // Dirty data wakes no thread, so it is checked now and then.
            let look = fs.writeback_interval().map(|span| now + span);
            let retry = fs.is_anything_stuck().then(|| now + RETRY);
            let until = until.into_iter().chain(look).chain(retry).min();
            // A freezer waits for those inside.
            drop(inside);
            journal.sleep_until(until, &seen, stop);
            Ok(())
        }
    }
}

/// Covers an idle log: writes a dummy transaction, so that the last record names itself as the
/// tail, and writes it in place.
pub(crate) fn cover(fs: &Fs, journal: &Journal) -> Result<()> {
    let mut granted = journal.reserve(fs, fs.log_link(Op::Inode))?;
    {
        let _open = fs.gate.read();
        let mut cil = journal.cil();
        superblock_item::add(&mut cil, fs);
        if let Some(writer) = ImmediateWriter::begin(journal, &mut cil) {
            superblock_item::end(writer, fs);
        }
        let added = journal.taken_in(&mut cil, &mut granted);
        drop(cil);
        if !journal.committed(added, granted) {
            fs.counts.logspace_overruns.one();
        }
    }
    fs.cut_epoch_if_ordered()?;
    journal.force_and_push(fs)?;
    fs.counts.covers.one();
    Ok(())
}
