//! A mount from its beginning to its end.
//!
//! 1. When [`Mounted::wait`] returns, the volume is closed: everything is home and the log is clean,
//!    unless it says otherwise.
//! 2. A mount that is to end and stays busy is detached: whoever still has files open there gets
//!    errors from then on, and the volume is closed all the same.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{Config, MountOption, Session, SessionACL};
use uxfs::Fs;

use crate::blk;
use crate::mounts;
use crate::options::Options;
use crate::server::Server;
use crate::settings;
use crate::volume::{Trimming, Volume};

/// How long a mount that is to end may be busy before it is detached, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(10);

/// A volume that is mounted.
pub struct Mounted {
    volume: Arc<Volume>,
    dir: PathBuf,
    events: Receiver<Event>,
    told: Sender<Event>,
}

/// Ends a mount.
#[derive(Clone)]
pub struct Ender {
    dir: PathBuf,
    told: Arc<Mutex<Sender<Event>>>,
}

/// How a mount ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// It was unmounted, or its connection failed.
    Ended(Result<(), String>),
    /// It was in use and had to be taken away.
    Detached,
}

/// Mounts a volume on a directory. `source` is what the list of mounts shows as what is mounted.
///
/// # Errors
/// What the kernel or `fusermount3` says. The volume is closed then.
pub fn mount(fs: Fs, source: &Path, dir: &Path, options: &Options) -> io::Result<Mounted> {
    let volume = Volume::new(fs, settings::threads(options.threads));
    let started = start(&volume, source, dir, options);
    match started {
        Ok(mounted) => Ok(mounted),
        Err(error) => {
            // Whoever asked hears of the first failure.
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
    if options.awake {
        volume.keep_awake()?;
    }
    volume.start(options.discard)?;
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
    settings::read_ahead(&dir);
    let (told, events) = channel();
    let ended = told.clone();
    std::thread::Builder::new().name("uxfs-mount".into()).spawn(move || {
        let result = match (session.run(), &between) {
            (said, Some(between)) => between.result(said),
            (said, None) => said,
        };
        let result = result.map_err(|error| error.to_string());
        // Nobody listens any more if the mount was detached.
        let _ = ended.send(Event::Ended(result));
    })?;
    Ok(Mounted { volume: Arc::clone(volume), dir, events, told })
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
        Ender { dir: self.dir.clone(), told: Arc::new(Mutex::new(self.told.clone())) }
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

    /// Waits until the mount has ended and closes the volume. Tells what there is to tell.
    ///
    /// # Errors
    /// If the connection to the kernel failed, or not everything could be brought home.
    pub fn wait(self) -> io::Result<Option<String>> {
        let event = self.events.recv().map_err(io::Error::other)?;
        self.volume.close().map_err(|error| io::Error::other(error.to_string()))?;
        match event {
            Event::Ended(Ok(())) => Ok(None),
            Event::Ended(Err(error)) => Err(io::Error::other(error)),
            Event::Detached => Ok(Some(format!(
                "{} was in use: it is gone all the same, and files open there give errors",
                self.dir.display()
            ))),
        }
    }
}

impl Ender {
    /// Ends the mount; one that stays in use for two seconds is detached. [`Mounted::wait`] returns soon
    /// after.
    ///
    /// # Errors
    /// If it can neither be unmounted nor detached.
    pub fn end(&self) -> io::Result<()> {
        match self.unmount() {
            Ok(()) => Ok(()),
            Err(_busy) => {
                mounts::unmount(&self.dir, true)?;
                let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                // If nobody listens it has ended already.
                let _ = told.send(Event::Detached);
                Ok(())
            }
        }
    }

    /// Unmounts it, unless it is in use all the time. For a moment it is whenever somebody who had a
    /// file open there starts a program, which has that file open too until it runs.
    fn unmount(&self) -> io::Result<()> {
        let since = Instant::now();
        loop {
            match mounts::unmount(&self.dir, false) {
                Err(error) if may_be_busy(&error) && since.elapsed() < PATIENCE => {
                    std::thread::sleep(AGAIN);
                }
                other => return other,
            }
        }
    }
}

/// Is it that somebody has files open there? `fusermount3` only has words for that.
fn may_be_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::Other)
}
