//! A mount from its start to its end.
//!
//! 1. When [`mount`] returns, the server answers requests: all its threads run, and one request was
//!    answered.
//! 2. When [`Mounted::wait`] returns, the volume is closed: everything is written in place and the
//!    log is clean, unless it returns an error. The record of the mount ([`crate::record`]) says
//!    the same.
//! 3. A mount that must end and stays busy is detached: its open files return errors from then on,
//!    and the volume is closed. The same happens to a mount that is left in other mount namespaces
//!    only, also in those that this process may not see. [`Detached`] tells the two apart.
//! 4. A frozen mount that must end is thawed before, and what waited is done, also if it was detached by
//!    its users and cannot be thawed by them any more.
//! 5. When [`Mounted::wait`] returns for a watched mount, no request of it is answered any more, also if copies
//!    are left, and its connection ends by itself ([`Stopper`]). That of another mount ends with its process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use uxfs::Fs;
use uxfs_transport::{MountOptions, Parked, Session, Stopper, Transport};

use crate::holders::{self, Named};
use crate::mounts::{self, Mount};
use crate::options::Options;
use crate::record::Recorder;
use crate::server::Server;
use crate::syslog::Severity;
use crate::volume::{Backing, Trimming, Volume};
use crate::watcher::Watcher;
use crate::{blk, control, settings};

/// How long a mount that must end may stay busy before it is detached, and the interval of checks. The kernel
/// ends the connection of one that is unmounted everywhere within the call: after that time there is a copy.
const DETACH_AFTER: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The name of a server's main thread while it closes the volume; `uxfs-disk` looks for it.
const CLOSING: &std::ffi::CStr = c"uxfs-closing";

pub struct Mounted {
    volume: Arc<Volume>,
    dir: PathBuf,
    /// Its entry in the list of mounts; `None` if the list cannot be read.
    entry: Option<Mount>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// `None` for a mount whose process ends soon after it.
    stopper: Option<Stopper>,
}

#[derive(Clone)]
pub struct Ender {
    dir: PathBuf,
    /// The entry in the list of mounts. The mount may have been moved or covered since.
    entry: Option<Mount>,
    volume: Arc<Volume>,
    sender: Arc<Mutex<Sender<Event>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// Its connection has ended, or failed.
    Ended(Result<(), String>),
    /// It is unmounted here. Unless it is mounted elsewhere too, its connection has ended.
    Unmounted,
    /// It was in use and was detached.
    Detached(Detached),
}

/// A mount that was ended while it was in use, or left in other mount namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    dir: PathBuf,
    /// Does a process use it, or are there only copies in other namespaces?
    has_users: bool,
    /// Names who has it.
    by: String,
}

impl Detached {
    /// Did a process use files of the volume? Otherwise only mount namespaces of other processes had copies of
    /// the mount.
    pub fn has_users(&self) -> bool {
        self.has_users
    }
}

impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, by) = (self.dir.display(), &self.by);
        write!(f, "{dir} was in use{by}: it is gone all the same, and files open there give errors")
    }
}

/// Mounts a volume on a directory. `source` is the image, which the list of mounts shows.
///
/// # Errors
/// ENOTDIR if `dir` is not a directory; those of the kernel and `fusermount3`. The volume is then
/// closed, and nothing is mounted.
pub fn mount(fs: Fs, source: &Path, dir: &Path, options: &Options) -> io::Result<Mounted> {
    mount_with(fs, source, dir, options, Audience::Users)
}

/// Mounts a volume for a test: keeps no record, and reports to `watcher` what programs change. With a
/// watcher an fsync of the root directory makes no more durable than that of any directory.
///
/// # Errors
/// As for [`mount`].
pub fn mount_watched(
    fs: Fs,
    source: &Path,
    dir: &Path,
    options: &Options,
    watcher: Option<Arc<dyn Watcher>>,
) -> io::Result<Mounted> {
    mount_with(fs, source, dir, options, Audience::Test(watcher))
}

/// The users of a mount.
enum Audience {
    /// People: `uxfs status` finds the record of the mount.
    Users,
    Test(Option<Arc<dyn Watcher>>),
}

fn mount_with(
    fs: Fs,
    source: &Path,
    dir: &Path,
    options: &Options,
    audience: Audience,
) -> io::Result<Mounted> {
    let volume = Volume::new(fs, options);
    let started = start(&volume, source, dir, options, audience);
    match started {
        Ok(mounted) => Ok(mounted),
        Err(error) => {
            // The first error is reported.
            let _ = volume.close();
            if let Some(recorder) = volume.recorder() {
                recorder.end(&Err(error.to_string()));
            }
            Err(error)
        }
    }
}

fn start(
    volume: &Arc<Volume>,
    source: &Path,
    dir: &Path,
    options: &Options,
    audience: Audience,
) -> io::Result<Mounted> {
    let dir = dir.canonicalize()?;
    if !dir.is_dir() {
        return Err(rustix::io::Errno::NOTDIR.into());
    }
    if options.awake {
        volume.keep_awake()?;
    }
    volume.start()?;
    let mut server = Server::new(Arc::clone(volume), options.clone());
    if let Audience::Test(Some(watcher)) = &audience {
        server.set_watcher(Arc::clone(watcher));
    }
    let cached = server.cached();
    let mut settings = settings::session(options.threads, options.io_uring != Some(false));
    settings.can_stop = matches!(audience, Audience::Test(_));
    let session = match options.fuseblk {
        true => blk::mount(server, (source, &dir), words(options), settings)?,
        false => Session::mount(server, &dir, &mount_options(source, options), settings)?,
    };
    if let (Some(true), Transport::Device(why)) = (options.io_uring, session.transport()) {
        // The first error is reported.
        let _ = mounts::unmount(&dir, true);
        return Err(io::Error::other(format!("option 'io_uring': {why}")));
    }
    cached.connect(session.notifier());
    volume.set_transport(session.transport());
    volume.set_requests(session.requests());
    let server = Arc::downgrade(session.server());
    // Without a server the request is dropped, and its caller gets an error.
    let run = move |parked: Parked| server.upgrade().map_or((), |server| parked.run(&*server));
    volume.freeze.run_with(Box::new(run));
    // Before the first request, so that the record has every message.
    if let Audience::Users = audience {
        volume.set_recorder(Recorder::begin("mount", source, &dir));
    }
    let (sender, events) = channel();
    let ended = sender.clone();
    let (threads, stopper) = (session.threads(), session.stopper());
    let thread = std::thread::Builder::new().name("uxfs-mount".into()).spawn(move || {
        let result = session.run().map_err(|error| error.to_string());
        // There is no receiver if the mount was detached.
        let _ = ended.send(Event::Ended(result));
    });
    let ready = thread.and_then(|_| wait_until_serving(&dir, threads, &events));
    if let Err(error) = ready {
        // The mount may be gone already.
        let _ = mounts::unmount(&dir, true);
        return Err(error);
    }
    settings::read_ahead(&dir);
    let entry = mounts::on(&dir).ok().flatten();
    Ok(Mounted { volume: Arc::clone(volume), dir, entry, events, sender, stopper })
}

/// Waits until all server threads wait for requests, each with the memory that it needs, and one
/// request was answered.
fn wait_until_serving(dir: &Path, threads: usize, events: &Receiver<Event>) -> io::Result<()> {
    loop {
        match events.try_recv() {
            Ok(Event::Ended(Err(error))) => return Err(io::Error::other(error)),
            Ok(_) | Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the mount ended before it was used"));
            }
            Err(TryRecvError::Empty) => {}
        }
        // Without /proc only the request below is used.
        if idle_threads().is_none_or(|idle| idle >= threads) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    control::ask(dir, control::STATUS).map(drop)
}

/// Number of the transport's threads that sleep, and so wait for requests.
fn idle_threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let is_idle = |task: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains("(fuse-") && stat.contains(") S ")
    };
    Some(tasks.filter(is_idle).count())
}

fn mount_options(source: &Path, options: &Options) -> MountOptions {
    MountOptions {
        source: source.to_string_lossy().into_owned(),
        fs_type: "fuse.uxfs".into(),
        words: words(options),
    }
}

/// The words of the mount that the kernel handles. As with every FUSE mount, set-ID bits and device
/// nodes count only if that was asked for.
fn words(options: &Options) -> Vec<String> {
    let mut words = vec!["default_permissions"];
    words.extend(&options.kernel);
    let absent = [("suid", "nosuid"), ("dev", "nodev")].into_iter();
    words.extend(absent.filter(|(word, _)| !options.kernel.contains(word)).map(|(_, no)| no));
    words.extend(options.read_only.then_some("ro"));
    words.extend(options.allow_other.then_some("allow_other"));
    words.into_iter().map(String::from).collect()
}

impl Mounted {
    /// A handle that ends the mount.
    pub fn ender(&self) -> Ender {
        Ender {
            dir: self.dir.clone(),
            entry: self.entry.clone(),
            volume: Arc::clone(&self.volume),
            sender: Arc::new(Mutex::new(self.sender.clone())),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Calls `tell` with the progress of a program's FITRIM after each group. It delays the
    /// trimming and nothing else.
    pub fn on_trim(&self, callback: impl Fn(Trimming) + Send + Sync + 'static) {
        self.volume.on_trim(Box::new(callback));
    }

    /// Enables remounts that change options of open: `open` opens the volume again.
    pub fn reopen_with(
        &self,
        open: impl Fn(&Options) -> Result<Fs, String> + Send + Sync + 'static,
    ) {
        // The first one is kept.
        let _ = self.volume.opener.set(Box::new(open));
    }

    /// Sets what lies behind the volume's device.
    pub fn set_backing(&self, backing: Arc<dyn Backing>) {
        self.volume.set_backing(backing);
    }

    /// Notes that nothing reads standard error any more: messages go to the system's log.
    pub fn to_background(&self) {
        if let Some(recorder) = self.volume.recorder() {
            recorder.to_background();
        }
    }

    /// Waits until the mount has ended, and closes the volume. Returns who still had it.
    ///
    /// # Errors
    /// If the connection to the kernel failed, or not everything could be written.
    pub fn wait(self) -> io::Result<Option<Detached>> {
        let event = match self.events.recv().map_err(io::Error::other)? {
            Event::Unmounted => match self.events.recv_timeout(DETACH_AFTER) {
                Err(RecvTimeoutError::Timeout) => self.left_elsewhere(),
                other => other.map_err(io::Error::other)?,
            },
            other => other,
        };
        let recorder = self.volume.recorder();
        if let Some(recorder) = recorder {
            recorder.closing();
        }
        // Commands that find the image in use see from the name that it will be free soon. They
        // wait less if the name cannot be set.
        let _ = rustix::thread::set_name(CLOSING);
        let closed = self.volume.close();
        let ended = match event {
            Event::Ended(Err(error)) => Err(error),
            Event::Ended(Ok(())) | Event::Unmounted => Ok(None),
            Event::Detached(detached) => {
                self.end_connection();
                Ok(Some(detached))
            }
        };
        let ended = closed.and(ended);
        if let Some(recorder) = recorder {
            if let Ok(Some(detached)) = &ended {
                recorder.note(Severity::Warning, &detached.to_string());
            }
            recorder.end(&ended.as_ref().map(drop).map_err(Clone::clone));
        }
        ended.map_err(io::Error::other)
    }

    /// What it means that a mount that is unmounted here does not end: someone had detached it and uses it, or
    /// a namespace that cannot be seen has a copy.
    fn left_elsewhere(&self) -> Event {
        let users = self.entry.as_ref().map(holders::users).unwrap_or_default();
        let by = match users.is_empty() {
            true => " in another namespace".into(),
            false => format!(" by {}", Named(&users)),
        };
        Event::Detached(Detached { dir: self.dir.clone(), has_users: !users.is_empty(), by })
    }

    /// Ends the connection of a mount that others still have, if its process goes on.
    fn end_connection(&self) {
        let Some(stopper) = &self.stopper else { return };
        stopper.stop();
        // It fails without the thread that runs the connection, which has ended then.
        while !matches!(self.events.recv(), Ok(Event::Ended(_)) | Err(_)) {}
    }
}

impl Ender {
    /// Ends the mount. A frozen one is thawed first. A mount in use is detached after two seconds.
    /// [`Mounted::wait`] returns soon after.
    ///
    /// # Errors
    /// If it can neither be unmounted nor detached.
    pub fn end(&self) -> io::Result<()> {
        let ended = self.unmount();
        if let Err(error) = &ended {
            self.volume.say(Severity::Warning, &format!("cannot unmount: {error}"));
        }
        ended
    }

    fn unmount(&self) -> io::Result<()> {
        // Programs whose changes wait keep the mount busy, also one that is detached already.
        self.volume.thaw_to_end();
        // A mount may have several bind mounts.
        while let Some(mount) = self.find()? {
            if self.unmount_one(&mount.dir).is_err() {
                let users = holders::users(&mount);
                mounts::unmount(&mount.dir, true)?;
                let by = match users.is_empty() {
                    true => String::new(),
                    false => format!(" by {}", Named(&users)),
                };
                self.detached(true, by);
            }
        }
        // Unless it is mounted elsewhere too, this ends it.
        let elsewhere = self.entry.as_ref().map(holders::elsewhere).unwrap_or_default();
        if elsewhere.is_empty() {
            self.tell(Event::Unmounted);
            return Ok(());
        }
        let users = self.entry.as_ref().map(holders::users_elsewhere).unwrap_or_default();
        let named = if users.is_empty() { &elsewhere } else { &users };
        self.detached(!users.is_empty(), format!(" in another namespace, by {}", Named(named)));
        Ok(())
    }

    /// An entry of this mount in the list of mounts.
    fn find(&self) -> io::Result<Option<Mount>> {
        let ours = |mount: &Mount| match &self.entry {
            None => mount.dir == self.dir,
            Some(entry) => mount.is_copy_of(entry),
        };
        Ok(mounts::list()?.into_iter().rev().find(ours))
    }

    fn detached(&self, has_users: bool, by: String) {
        self.tell(Event::Detached(Detached { dir: self.dir.clone(), has_users, by }));
    }

    fn tell(&self, event: Event) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver it has ended already.
        let _ = sender.send(event);
    }

    /// Unmounts, unless the mount stays in use. A mount is in use for a moment whenever a program
    /// with an open file there starts another program, which has the file open too until it runs.
    fn unmount_one(&self, dir: &Path) -> io::Result<()> {
        let since = Instant::now();
        loop {
            match mounts::unmount(dir, false) {
                Err(error) if may_be_busy(&error) && since.elapsed() < DETACH_AFTER => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                other => return other,
            }
        }
    }
}

/// Is the error that files are in use? `fusermount3` reports it only as text.
fn may_be_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::Other)
}
