//! The volume behind a mount: open until the mount ends, and the thread that makes parked replies
//! come true.
//!
//! 1. Every request works on the volume under a read lock; whoever ends the mount takes the volume
//!    out under the write lock, so that no request is half done then.
//! 2. A request that asks for durability hands in its reply and goes: the reply is sent when what
//!    had been done until then is on stable storage. The committer drives the journal as long as
//!    replies are parked.
//! 3. What is committed does not stay in memory for longer than [`AGE`], though nobody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::Errno;
use parking_lot::{Condvar, Mutex, RwLock};
use uxfs::journal::Ticket;
use uxfs::{Error, Fs};

/// How long changes stay in memory at most.
pub(crate) const AGE: Duration = Duration::from_secs(5);

/// An open volume that is mounted.
pub(crate) struct Volume {
    fs: RwLock<Option<Fs>>,
    parked: Arc<AtomicU64>,
    committer: Mutex<Committer>,
    wake: Condvar,
}

#[derive(Default)]
struct Committer {
    asked: bool,
    ended: bool,
}

/// What FUSE says of a failure.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

impl Volume {
    pub(crate) fn new(fs: Fs) -> Arc<Self> {
        Arc::new(Self {
            fs: RwLock::new(Some(fs)),
            parked: Arc::default(),
            committer: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    /// Works on the volume.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Fs) -> uxfs::Result<T>) -> Result<T, Errno> {
        match &*self.fs.read() {
            Some(fs) => f(fs).map_err(|error| errno(&error)),
            None => Err(Errno::EIO),
        }
    }

    /// Calls `told` when everything done so far is on stable storage, or cannot be any more.
    pub(crate) fn when_durable(&self, told: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let guard = self.fs.read();
        let Some(fs) = &*guard else { return told(Err(Errno::EIO)) };
        let ticket = fs.ticket();
        if fs.is_durable(ticket) {
            return told(Ok(()));
        }
        self.park(fs, ticket, told);
    }

    fn park(&self, fs: &Fs, ticket: Ticket, told: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        self.parked.fetch_add(1, Ordering::AcqRel);
        let parked = Arc::clone(&self.parked);
        fs.when_durable(ticket, move |result| {
            parked.fetch_sub(1, Ordering::AcqRel);
            told(result.map_err(|_| Errno::EIO));
        });
        self.committer.lock().asked = true;
        self.wake.notify_one();
    }

    /// Starts the thread that drives the journal.
    pub(crate) fn start_committer(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let volume = Arc::clone(self);
        std::thread::Builder::new().name("uxfs-commit".into()).spawn(move || volume.commit_loop())
    }

    fn commit_loop(&self) {
        loop {
            let timed_out = {
                let mut committer = self.committer.lock();
                let mut timed_out = false;
                while !committer.asked && !committer.ended && !timed_out {
                    timed_out = self.wake.wait_for(&mut committer, AGE).timed_out();
                }
                if committer.ended {
                    return;
                }
                committer.asked = false;
                timed_out
            };
            let guard = self.fs.read();
            let Some(fs) = &*guard else { return };
            if timed_out {
                // A failure stops the volume, which whoever uses it is told.
                let _ = fs.sync();
            }
            self.drain(fs);
        }
    }

    /// Drives the journal until no reply is parked.
    fn drain(&self, fs: &Fs) {
        while self.parked.load(Ordering::Acquire) > 0 {
            // A failure reaches every parked reply.
            let _ = fs.drive_journal();
            if self.parked.load(Ordering::Acquire) > 0 {
                let _ = fs.sync();
            }
        }
    }

    /// Ends the use of the volume: brings everything home and leaves a clean log.
    ///
    /// # Errors
    /// As [`Fs::close`].
    pub(crate) fn close(&self) -> uxfs::Result<()> {
        let taken = self.fs.write().take();
        self.committer.lock().ended = true;
        self.wake.notify_all();
        let Some(fs) = taken else { return Ok(()) };
        self.drain(&fs);
        fs.close()
    }
}
