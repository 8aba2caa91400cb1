//! Replays a recording in real time: on uxfs in this process, or in a directory of the host through
//! system calls.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustc_hash::FxHashMap;
use uxfs::Fs;

use super::volume::{Own, Volume};
use crate::durability::Ack;
use crate::work::recording::{PathNo, Recording, Step};
use crate::work::replay::{Cost, Played, Player, ReplayHost, acknowledge, populate};
use crate::work::{fill, word};
use crate::{LabError, Result};

/// The directory it is played in.
const CLIENT_DIR: &str = "played";

impl ReplayHost for Own {
    fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    fn now(&self) -> u64 {
        self.dev.now()
    }

    fn cost(&self, _cost: Cost) {}

    fn ack(&self, ack: Ack) {
        self.acks.lock().push(ack);
    }

    fn touch(&self, dir: &str, name: &str) {
        let now = self.dev.now();
        let mut acks = self.acks.lock();
        for ack in acks.iter_mut().filter(|ack| ack.until == u64::MAX) {
            if &*ack.dir == dir && ack.name == name {
                ack.until = now;
            }
        }
    }

    fn took(&self, _since: u64) {}

    fn reads(&self) -> bool {
        true
    }
}

pub(super) enum Client<'a> {
    Own { own: &'a Own, recording: &'a Recording, player: Option<Player<'a, Own>> },
    Host(Host<'a>),
}

impl Volume {
    /// A client for a recording, with the initial files created.
    pub(super) fn client<'a>(&'a self, recording: &'a Recording) -> Result<Client<'a>> {
        let failed = |e: uxfs::Error| LabError::new("planting the tree", e);
        match self {
            Self::Own(own) => {
                populate(&own.fs, recording, CLIENT_DIR).map_err(failed)?;
                let player = Player::new(&**own, recording, CLIENT_DIR, 0).map_err(failed)?;
                Ok(Client::Own { own, recording, player: Some(player) })
            }
            Self::Host(path) => Host::new(path, recording).map(Client::Host),
        }
    }
}

impl Client<'_> {
    pub(super) fn play(&mut self) -> Result<Played> {
        match self {
            Self::Own { player: Some(player), .. } => {
                player.play().map_err(|e| LabError::new("playing the recording", e))
            }
            Self::Own { player: None, .. } => Ok(Played::default()),
            Self::Host(host) => host.play(),
        }
    }

    /// Notes that everything was synced.
    pub(super) fn synced(self) {
        if let Self::Own { own, recording, player: Some(player) } = self {
            acknowledge(own, recording, player.left());
        }
    }
}

/// A directory of the host, through system calls. Files stay open as in the recording.
pub(super) struct Host<'a> {
    recording: &'a Recording,
    paths: Vec<PathBuf>,
    open: FxHashMap<PathNo, (File, u32)>,
    content: Vec<u8>,
}

impl<'a> Host<'a> {
    fn new(top: &Path, recording: &'a Recording) -> Result<Self> {
        let home = top.join(CLIENT_DIR);
        let failed = |path: &Path, e: io::Error| LabError::new(path.display().to_string(), e);
        std::fs::create_dir(&home).map_err(|e| failed(&home, e))?;
        let numbers = 0..recording.paths.len() as PathNo;
        let paths: Vec<PathBuf> = numbers.map(|path| home.join(recording.path_of(path))).collect();
        for (path, size) in &recording.before {
            let path = &paths[*path as usize];
            let made = match size {
                None => std::fs::create_dir(path),
                Some(size) => std::fs::write(path, fill(word(1), *size as usize)),
            };
            made.map_err(|e| failed(path, e))?;
        }
        Ok(Self { recording, paths, open: FxHashMap::default(), content: Vec::new() })
    }

    /// Missing files are skipped, as on uxfs.
    fn play(&mut self) -> Result<Played> {
        let mut played = Played::default();
        for step in &self.recording.steps {
            played.syncs += u64::from(matches!(step, Step::Sync { .. }));
            match self.step(step) {
                Ok(()) => played.done += 1,
                Err(e) if tolerable(e.kind()) => played.left_out += 1,
                Err(e) => return Err(LabError::new(format!("playing {step:?}"), e)),
            }
        }
        self.open.clear();
        Ok(played)
    }

    fn at(&self, path: PathNo) -> &Path {
        &self.paths[path as usize]
    }

    /// Uses an open file, or opens it.
    fn with(&self, path: PathNo, f: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        match self.open.get(&path) {
            Some((file, _)) => f(file),
            None => f(&OpenOptions::new().read(true).write(true).open(self.at(path))?),
        }
    }

    fn opened(&mut self, path: PathNo, make: bool) -> io::Result<()> {
        if let Some((_, count)) = self.open.get_mut(&path) {
            *count += 1;
            return Ok(());
        }
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(make).truncate(make);
        let file = how.open(self.at(path))?;
        self.open.insert(path, (file, 1));
        Ok(())
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        match *step {
            // Real time has its own.
            Step::Work { .. } => Ok(()),
            Step::Make(path) => self.opened(path, true),
            Step::Open(path) => self.opened(path, false),
            Step::Close(path) => {
                let last = self.open.get_mut(&path).is_some_and(|(_, count)| {
                    *count -= 1;
                    *count == 0
                });
                if last {
                    self.open.remove(&path);
                }
                Ok(())
            }
            Step::Read { path, at, len } => {
                let mut buf = vec![0; len as usize];
                self.with(path, |file| file.read_at(&mut buf, at).map(|_| ()))
            }
            Step::Write { path, at, len } => {
                let mut content = core::mem::take(&mut self.content);
                if content.len() < len as usize {
                    content = fill(word(2), len as usize);
                }
                let done = self.with(path, |file| file.write_all_at(&content[..len as usize], at));
                self.content = content;
                done
            }
            Step::Cut { path, size } => self.with(path, |file| file.set_len(size)),
            Step::Sync { path, .. } if self.at(path).is_dir() => {
                File::open(self.at(path))?.sync_all()
            }
            Step::Sync { path, data: false } => self.with(path, File::sync_all),
            Step::Sync { path, data: true } => self.with(path, File::sync_data),
            Step::Rename(from, to) => {
                std::fs::rename(self.at(from), self.at(to))?;
                self.open.remove(&to);
                if let Some(open) = self.open.remove(&from) {
                    self.open.insert(to, open);
                }
                Ok(())
            }
            Step::Link(from, to) => std::fs::hard_link(self.at(from), self.at(to)),
            Step::Symlink { path, len } => {
                std::os::unix::fs::symlink("x".repeat(len as usize), self.at(path))
            }
            Step::MakeDir(path) => std::fs::create_dir(self.at(path)),
            Step::RemoveDir(path) => std::fs::remove_dir(self.at(path)),
            Step::Unlink(path) => {
                self.open.remove(&path);
                std::fs::remove_file(self.at(path))
            }
            Step::Attr(path) => {
                let times = FileTimes::new().set_modified(SystemTime::now());
                match self.at(path).is_dir() {
                    true => File::open(self.at(path))?.set_times(times),
                    false => self.with(path, |file| file.set_times(times)),
                }
            }
            Step::Look(path) | Step::Miss(path) => match std::fs::symlink_metadata(self.at(path)) {
                Err(e) if !tolerable(e.kind()) => Err(e),
                _ => Ok(()),
            },
            Step::List(path) => {
                std::fs::read_dir(self.at(path))?.try_for_each(|entry| entry.map(|_| ()))
            }
        }
    }
}

/// Errors that a step may get because its file is gone, or still exists.
fn tolerable(kind: ErrorKind) -> bool {
    use ErrorKind::{
        AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, NotFound, PermissionDenied,
    };
    matches!(
        kind,
        AlreadyExists
            | DirectoryNotEmpty
            | IsADirectory
            | NotADirectory
            | NotFound
            | PermissionDenied
    )
}
