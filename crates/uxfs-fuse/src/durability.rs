//! Requests for durability: fsync, `O_SYNC` writes, changes on a mount with `wsync`, and fsync of the
//! root directory, which syncs the whole volume. All take one way, [`Volume::make_durable`]: write
//! back what is dirty, take a ticket, and send the reply when the ticket is durable.
//!
//! 1. The reply is parked until then; no server thread waits for it. The library's log worker drives
//!    the journal and sends the reply. For a lone caller that syncs repeatedly, the request's own
//!    thread drives the journal, which saves a wake-up, if another thread can answer requests
//!    meanwhile. With several callers this would take threads from them, and with io_uring a
//!    processor's only one.
//! 2. More than [`INLINE_MAX`] dirty bytes are written back by the volume's writer thread, so that
//!    they delay no other request. Fewer are written back by the request's own thread, if no other
//!    request does so, and otherwise by the sync thread, one file after the other: threads that wait
//!    for the device answer no requests, and callers wait for each other's answers (the kernel keeps
//!    a directory locked during a lookup in it).
//! 3. A request carries the identity of its caller ([`Caller`]), because the fsync policy depends on
//!    which callers sync repeatedly, and server threads act for all callers.
//! 4. Each waiter gets exactly one reply, also if the volume stops.
//! 5. If callers without new data fsync too, the commit of a file's new data may be deferred until the data
//!    is flushed ([`Fs::begin_fsync_deferred`]). The commit thread commits it then.
//!
//! Called by the server of requests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uxfs::format::Ino;
use uxfs::journal::Ticket;
use uxfs::{BegunFsync, DeferredFsync, Drive, ErrorCursor, Fs, SyncKind};
use uxfs_transport::{Errno, Request, Transport};

use crate::handles::Cursor;
use crate::volume::Volume;
use crate::worker::{JobSender, Worker};

/// Most dirty bytes that a server thread writes back itself.
const INLINE_MAX: u64 = 1 << 20;

/// The identity of a caller of fsync: a thread of a program. The number only shows whether two
/// callers are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(u64);

impl Caller {
    pub(crate) fn of(req: &Request) -> Self {
        // Above the numbers of this process' threads.
        Self(1 << 32 | u64::from(req.pid()))
    }
}

pub(crate) enum Scope {
    /// Everything done so far, except for dirty data.
    Changes,
    File {
        ino: Ino,
        kind: SyncKind,
        /// The errors that were reported to the caller. Without a cursor, an error that was reported
        /// to no caller is returned.
        cursor: Option<Cursor>,
    },
    Volume,
    /// Everything, also on a mount where fsync means order.
    Durable,
}

impl Scope {
    /// Bytes that have to be written back first.
    fn dirty_bytes(&self, fs: &Fs) -> u64 {
        match self {
            Self::Changes => 0,
            Self::File { ino, .. } => fs.dirty_bytes_of(*ino),
            Self::Volume => fs.dirty_bytes(),
            // An epoch writes all that is dirty.
            Self::Durable => u64::MAX,
        }
    }

    /// Writes back, and returns a ticket for what then has to become durable. With `commits`, the commit of
    /// a file may be deferred.
    fn write_back(
        self,
        volume: &Volume,
        fs: &Fs,
        commits: Option<JobSender<Volume>>,
    ) -> uxfs::Result<Begun> {
        let ticket = match self {
            Self::Changes => fs.ticket(),
            Self::File { ino, kind, cursor } => {
                let file = FileSync { ino, cursor, fresh: fs.error_cursor(ino) };
                let Some(commits) = commits else { return file.begin(fs, kind) };
                let begun = fs.begin_fsync_deferred(ino, kind);
                file.check(fs)?;
                match begun? {
                    BegunFsync::Committed(ticket) => ticket,
                    BegunFsync::Deferred(fsync) => {
                        return Ok(Begun::Deferred { fsync, file, commits });
                    }
                }
            }
            Self::Volume => volume.begin_sync(fs)?,
            Self::Durable => volume.begin_durable(fs)?,
        };
        Ok(Begun::Committed(ticket))
    }
}

/// A file that is made durable, and the errors that were reported to the caller.
struct FileSync {
    ino: Ino,
    cursor: Option<Cursor>,
    /// For callers without a cursor.
    fresh: ErrorCursor,
}

impl FileSync {
    fn begin(mut self, fs: &Fs, kind: SyncKind) -> uxfs::Result<Begun> {
        let ticket = match &self.cursor {
            Some(cursor) => fs.begin_fsync(self.ino, kind, &mut cursor.lock()),
            None => fs.begin_fsync(self.ino, kind, &mut self.fresh),
        };
        ticket.map(Begun::Committed)
    }

    /// Reports an error of the file's data that was not reported to the caller.
    fn check(&self, fs: &Fs) -> uxfs::Result<()> {
        match &self.cursor {
            Some(cursor) => fs.check_data_errors(self.ino, &mut cursor.lock()),
            None => fs.check_data_errors(self.ino, &mut self.fresh.clone()),
        }
    }
}

/// A request whose data is written.
enum Begun {
    /// It is served when the ticket is durable.
    Committed(Ticket),
    /// It is to be committed when its data is flushed.
    Deferred { fsync: Box<DeferredFsync>, file: FileSync, commits: JobSender<Volume> },
}

/// A caller that waits for durability, and the function that sends its reply.
pub(crate) struct Waiter {
    caller: Caller,
    reply: Box<dyn FnOnce(Result<(), Errno>) + Send>,
}

impl Waiter {
    pub(crate) fn new(
        caller: Caller,
        reply: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) -> Self {
        Self { caller, reply: Box::new(reply) }
    }
}

/// The state of a volume's requests for durability.
pub(crate) struct Durability {
    /// The thread that syncs files with little dirty data.
    sync_thread: Worker<Volume>,
    /// The thread that commits what was deferred.
    commit_thread: Worker<Volume>,
    /// Number of files with little dirty data that are being synced or wait for it.
    syncing: AtomicUsize,
    parked: Arc<AtomicUsize>,
    last: AtomicU64,
    /// There are enough server threads that one may drive the journal.
    may_drive: bool,
}

/// A parked reply, which counts as such until this is dropped.
struct Parked(Arc<AtomicUsize>);

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Durability {
    /// The state of a volume that `threads` threads serve.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            sync_thread: Worker::default(),
            commit_thread: Worker::default(),
            syncing: AtomicUsize::new(0),
            parked: Arc::default(),
            last: AtomicU64::new(0),
            may_drive: threads > 1,
        }
    }

    /// Starts the sync thread and the commit thread.
    ///
    /// # Errors
    /// The host cannot start a thread.
    pub(crate) fn start(&self, volume: &Arc<Volume>) -> io::Result<()> {
        self.sync_thread.start("uxfs-sync", Arc::clone(volume))?;
        self.commit_thread.start("uxfs-commit", Arc::clone(volume))
    }

    /// Ends the threads, after the syncs and the commits that they were given. The log worker must run.
    pub(crate) fn end(&self) {
        self.sync_thread.end();
        self.commit_thread.end();
    }
}

impl Volume {
    /// Makes `scope` durable, and sends the waiter's reply when it is durable, or can no longer
    /// become durable.
    pub(crate) fn make_durable(&self, scope: Scope, waiter: Waiter) {
        let much = self.with(|fs| Ok(scope.dirty_bytes(fs) > INLINE_MAX));
        if much == Ok(true) {
            let job = move |volume: &Self| volume.park(scope, waiter, Drive::Worker);
            return self.writer.submit(self, Box::new(job));
        }
        if !matches!(scope, Scope::File { .. }) {
            return self.park(scope, waiter, Drive::Caller);
        }
        let is_first = self.durability.syncing.fetch_add(1, Ordering::Relaxed) == 0;
        let job = move |volume: &Self| {
            let drive = if is_first { Drive::Caller } else { Drive::Worker };
            volume.park(scope, waiter, drive);
            volume.durability.syncing.fetch_sub(1, Ordering::Relaxed);
        };
        match is_first {
            true => job(self),
            false => self.durability.sync_thread.submit(self, Box::new(job)),
        }
    }

    /// Writes back, and parks the reply. With [`Drive::Caller`] this thread drives the journal if
    /// its caller is the only one.
    fn park(&self, scope: Scope, waiter: Waiter, drive: Drive) {
        let guard = self.fs.read();
        let Some(fs) = &*guard else { return (waiter.reply)(Err(Errno::IO)) };
        let commits = self.durability.commit_thread.sender();
        let begun = match self.guarded(fs, || scope.write_back(self, fs, commits)) {
            Ok(begun) => begun,
            Err(error) => return (waiter.reply)(Err(error)),
        };
        match begun {
            Begun::Committed(ticket) => self.await_ticket(fs, ticket, waiter, drive),
            Begun::Deferred { fsync, file, commits } => {
                let caller = waiter.caller.0;
                let resumed = move |fsync: Box<DeferredFsync>, result: Result<(), _>| match result {
                    Ok(()) => commits.submit(Box::new(move |volume| {
                        volume.commit_deferred(*fsync, &file, waiter)
                    })),
                    Err(_) => (waiter.reply)(Err(Errno::IO)),
                };
                // A reply dropped by a panic is sent as EIO.
                let _ = self.guarded(fs, || {
                    fs.when_flushed(caller, fsync, Drive::Worker, resumed);
                    Ok(())
                });
            }
        }
    }

    /// Commits what was deferred, and parks the reply.
    fn commit_deferred(&self, fsync: DeferredFsync, file: &FileSync, waiter: Waiter) {
        let guard = self.fs.read();
        let Some(fs) = &*guard else { return (waiter.reply)(Err(Errno::IO)) };
        let committed = self.guarded(fs, || {
            let ticket = fs.commit_fsync(fsync);
            file.check(fs)?;
            ticket
        });
        match committed {
            Ok(ticket) => self.await_ticket(fs, ticket, waiter, Drive::Worker),
            Err(error) => (waiter.reply)(Err(error)),
        }
    }

    /// Sends the reply when the ticket is durable, or can no longer become durable.
    fn await_ticket(&self, fs: &Fs, ticket: Ticket, waiter: Waiter, drive: Drive) {
        let Waiter { caller, reply } = waiter;
        let state = &self.durability;
        let again = state.last.swap(caller.0, Ordering::Relaxed) == caller.0;
        let is_alone = state.parked.fetch_add(1, Ordering::Relaxed) == 0 && again;
        // A ring's thread serves a processor's callers alone, and is bound to a processor that an
        // interrupt of the device need not reach.
        let may_drive = state.may_drive && self.transport() != Some(Transport::Ring);
        let drive = if is_alone && may_drive { drive } else { Drive::Worker };
        let parked = Parked(Arc::clone(&state.parked));
        let notify = move |result: Result<(), _>| {
            drop(parked);
            reply(result.map_err(|_| Errno::IO));
        };
        // A reply dropped by a panic is sent as EIO.
        let _ = self.guarded(fs, || {
            fs.when_durable_for(caller.0, ticket, drive, notify);
            Ok(())
        });
    }
}
