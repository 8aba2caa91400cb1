//! A mount from its beginning to its end.
//!
//! 1. When [`mount`] returns, the server answers requests: all its threads run, and one request was
//!    answered.
//! 2. When [`Mounted::wait`] returns, the volume is closed: everything is written in place and the log
//!    is clean, unless it says otherwise. The record of the mount ([`crate::record`]) says the same.
//! 3. A mount that is to end and stays busy is detached: files that are open there give errors from
//!    then on, and the volume is closed all the same. So is one that is left in other namespaces of
//!    mounts only.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use uxfs::Fs;

use crate::holders::{self, Named};
use crate::mounts::{self, Mount};
use crate::options::Options;
use crate::record::Recorder;
use crate::server::Server;
use crate::syslog::Severity;
use crate::volume::{Trimming, Volume};
use crate::{blk, control, settings};

/// How long a mount that is to end may be busy before it is detached, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(10);

/// The name of a server's main thread while it closes the volume; `uxfs-disk` looks for it.
const CLOSING: &std::ffi::CStr = c"uxfs-closing";

/// A volume that is mounted.
pub struct Mounted {
    volume: Arc<Volume>,
    dir: PathBuf,
    device: String,
    events: Receiver<Event>,
    told: Sender<Event>,
}

/// Ends a mount.
#[derive(Clone)]
pub struct Ender {
    dir: PathBuf,
    /// By which the list of mounts knows it; it may have been moved or covered.
    device: String,
    volume: Arc<Volume>,
    told: Arc<Mutex<Sender<Event>>>,
}

/// How a mount ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// It was unmounted, or its connection failed.
    Ended(Result<(), String>),
    /// It was in use and had to be taken away: from whom.
    Detached(String),
}

/// Mounts a volume on a directory. `source` is the image; the list of mounts shows it.
///
/// # Errors
/// ENOTDIR if `dir` is not a directory; what the kernel or `fusermount3` says. The volume is closed
/// then, and nothing is left mounted.
pub fn mount(fs: Fs, source: &Path, dir: &Path, options: &Options) -> io::Result<Mounted> {
    let volume = Volume::new(fs, options);
    let started = start(&volume, source, dir, options);
    match started {
        Ok(mounted) => Ok(mounted),
        Err(error) => {
            // The first failure is the one to be told.
            let _ = volume.close();
            Err(error)
        }
    }
}

fn start(
    volume: &Arc<Volume>,
    source: &Path,
    dir: &Path,
    options: &Options,
) -> io::Result<Mounted> {
    let dir = dir.canonicalize()?;
    if !dir.is_dir() {
        return Err(rustix::io::Errno::NOTDIR.into());
    }
    if options.awake {
        volume.keep_awake()?;
    }
    volume.start()?;
    let server = Server::new(Arc::clone(volume), options.clone());
    let cached = server.cached();
    let config = config(source, options);
    let (session, between) = match options.fuseblk {
        true => {
            let (session, between) = blk::mount(server, volume, (source, &dir), options, config)?;
            (session, Some(between))
        }
        false => (Session::new(server, &dir, &config)?, None),
    };
    cached.connect(session.notifier());
    let (told, events) = channel();
    let ended = told.clone();
    let thread = std::thread::Builder::new().name("uxfs-mount".into()).spawn(move || {
        let result = match (session.run(), &between) {
            (said, Some(between)) => between.result(said),
            (said, None) => said,
        };
        let result = result.map_err(|error| error.to_string());
        // Nobody listens any more if the mount was detached.
        let _ = ended.send(Event::Ended(result));
    });
    let threads = settings::threads(options.threads);
    let ready = thread.and_then(|_| until_it_serves(&dir, threads, &events));
    if let Err(error) = ready {
        // It may be gone already.
        let _ = mounts::unmount(&dir, true);
        return Err(error);
    }
    settings::read_ahead(&dir);
    let mount = mounts::on(&dir).ok().flatten();
    let device = mount.map(|mount| mount.device).unwrap_or_default();
    volume.set_recorder(Recorder::begin(source, &dir));
    Ok(Mounted { volume: Arc::clone(volume), dir, device, events, told })
}

/// Waits until all threads that answer requests wait for one, each with the memory it needs, and a
/// request was answered.
fn until_it_serves(dir: &Path, threads: usize, events: &Receiver<Event>) -> io::Result<()> {
    loop {
        match events.try_recv() {
            Ok(Event::Ended(Err(error))) => return Err(io::Error::other(error)),
            Ok(_) | Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the mount ended before it was used"));
            }
            Err(TryRecvError::Empty) => {}
        }
        // Without /proc the request below has to do.
        if idle_threads().is_none_or(|idle| idle >= threads) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    control::ask(dir, control::STATUS).map(drop)
}

/// How many of the FUSE library's threads are asleep, which is how they wait for requests.
fn idle_threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let is_idle = |task: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains("(fuser-") && stat.contains(") S ")
    };
    Some(tasks.filter(is_idle).count())
}

fn config(source: &Path, options: &Options) -> Config {
    let mut config = Config::default();
    let mut source = source.to_string_lossy().into_owned();
    if !rustix::process::geteuid().is_root() {
        // fusermount3 takes options apart at commas.
        source = source.replace('\\', "\\\\").replace(',', "\\,");
    }
    config.mount_options = vec![
        MountOption::FSName(source),
        // Not the variant of that name, which goes to fusermount3 only.
        MountOption::CUSTOM("subtype=uxfs".into()),
        MountOption::DefaultPermissions,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.mount_options.extend(options.kernel.iter().cloned());
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    settings::set_threads(&mut config, options.threads);
    config
}

impl Mounted {
    /// What ends it.
    pub fn ender(&self) -> Ender {
        Ender {
            dir: self.dir.clone(),
            device: self.device.clone(),
            volume: Arc::clone(&self.volume),
            told: Arc::new(Mutex::new(self.told.clone())),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has `tell` told how far a program's FITRIM has come, group by group. It holds up the trimming,
    /// and nothing else.
    pub fn tell_trims(&self, tell: impl Fn(Trimming) + Send + Sync + 'static) {
        self.volume.tell_trims(Box::new(tell));
    }

    /// Makes it possible to change options that hold from the opening of the volume on: `open` opens it
    /// anew.
    pub fn reopen_with(
        &self,
        open: impl Fn(&Options) -> Result<Fs, String> + Send + Sync + 'static,
    ) {
        // The first one stays.
        let _ = self.volume.opener.set(Box::new(open));
    }

    /// From now on nobody reads the standard error: what there is to say goes to the system's log.
    pub fn to_background(&self) {
        if let Some(recorder) = self.volume.recorder() {
            recorder.to_background();
        }
    }

    /// Waits until the mount has ended and closes the volume. Returns what there is to tell.
    ///
    /// # Errors
    /// If the connection to the kernel failed, or not everything could be written.
    pub fn wait(self) -> io::Result<Option<String>> {
        let event = self.events.recv().map_err(io::Error::other)?;
        let recorder = self.volume.recorder();
        if let Some(recorder) = recorder {
            recorder.closing();
        }
        // Those who find the image in use see by it that it will not be for long. It is a help, and no
        // more: where the name cannot be set they wait less.
        let _ = rustix::thread::set_name(CLOSING);
        let closed = self.volume.close();
        let ended = match event {
            Event::Ended(Ok(())) => Ok(None),
            Event::Ended(Err(error)) => Err(error),
            Event::Detached(from) => Ok(Some(format!(
                "{} was in use{from}: it is gone all the same, and files open there give errors",
                self.dir.display()
            ))),
        };
        let ended = closed.and(ended);
        if let Some(recorder) = recorder {
            if let Ok(Some(line)) = &ended {
                recorder.note(Severity::Warning, line);
            }
            recorder.end(&ended.as_ref().map(drop).map_err(Clone::clone));
        }
        ended.map_err(io::Error::other)
    }
}

impl Ender {
    /// Ends the mount; one that stays in use for two seconds is detached. [`Mounted::wait`] returns soon
    /// after.
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
        // A mount may be bound to several directories.
        while let Some(mount) = self.find()? {
            if self.unmount_one(&mount.dir).is_err() {
                let users = holders::users(&mount);
                mounts::unmount(&mount.dir, true)?;
                let by = match users.is_empty() {
                    true => String::new(),
                    false => format!(" by {}", Named(&users)),
                };
                self.detached(by);
            }
        }
        // If it was mounted nowhere else it has ended by this.
        let elsewhere = holders::elsewhere(&self.device);
        if !elsewhere.is_empty() {
            self.detached(format!(" in another namespace, by {}", Named(&elsewhere)));
        }
        Ok(())
    }

    /// An entry of the list of mounts that is this mount.
    fn find(&self) -> io::Result<Option<Mount>> {
        let ours = |mount: &Mount| match self.device.is_empty() {
            true => mount.dir == self.dir,
            false => mount.device == self.device,
        };
        Ok(mounts::list()?.into_iter().rev().find(ours))
    }

    fn detached(&self, from: String) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // If nobody listens it has ended already.
        let _ = told.send(Event::Detached(from));
    }

    /// Unmounts it, unless it is in use all the time. For a moment it is whenever a program that has
    /// a file open there starts another one, which has that file open too until it runs.
    fn unmount_one(&self, dir: &Path) -> io::Result<()> {
        let since = Instant::now();
        loop {
            match mounts::unmount(dir, false) {
                Err(error) if may_be_busy(&error) && since.elapsed() < PATIENCE => {
                    std::thread::sleep(AGAIN);
                }
                other => return other,
            }
        }
    }
}

/// Is it that files are open there? `fusermount3` only has words for that.
fn may_be_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::Other)
}
