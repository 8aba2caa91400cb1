//! A FUSE server in a process of its own, mounted in the scratch directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use uxfs_fuse::{control, mounts};

use super::requests::Requests;
use crate::host::{Scratch, run, sync_fs};
use crate::traffic::Traffic;
use crate::{BenchError, Result};

pub(crate) struct Served {
    child: Child,
    pub(crate) dir: PathBuf,
    /// The image, if it is a mount of uxfs.
    image: Option<PathBuf>,
    /// The directory of the host that a pass-through server forwards to.
    backing: Option<PathBuf>,
}

impl Served {
    /// A fresh volume of uxfs, made with the options of the kernel's
    /// ([`crate::kernel::Mounted::new`]).
    pub(crate) fn volume(uxfs: &Path, scratch: &Scratch, size: u64, options: &str) -> Result<Self> {
        let image = scratch.file("own.img");
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(size));
        made.map_err(|e| BenchError::new(image.display().to_string(), e))?;
        run("mkfs.xfs", &[&"-q", &"-l", &"size=128m", &"-d", &"agcount=16", &image])?;
        Self::mount(uxfs, scratch, image, options)
    }

    fn mount(uxfs: &Path, scratch: &Scratch, image: PathBuf, options: &str) -> Result<Self> {
        let mut command = Command::new(uxfs);
        command.args(["mount", "-f", "-o", options]).arg(&image).arg(scratch.mnt());
        Self::start(command, scratch, Some(image))
    }

    /// A new mount of the same volume.
    pub(crate) fn again(mut self, uxfs: &Path, scratch: &Scratch, options: &str) -> Result<Self> {
        self.end()?;
        let image = self.image.take();
        Self::mount(uxfs, scratch, image.unwrap_or_else(|| scratch.file("own.img")), options)
    }

    /// A server that keeps only names, in memory.
    pub(crate) fn empty(uxfs: &Path, scratch: &Scratch) -> Result<Self> {
        let mut command = Command::new(uxfs);
        command.args(["bench", "serve-empty"]).arg(scratch.mnt());
        Self::start(command, scratch, None)
    }

    /// A server that forwards everything to files of the host.
    pub(crate) fn through(uxfs: &Path, scratch: &Scratch) -> Result<Self> {
        let backing = scratch.file("backing");
        let made = std::fs::create_dir_all(&backing);
        made.map_err(|e| BenchError::new(backing.display().to_string(), e))?;
        let mut command = Command::new(uxfs);
        command.args(["bench", "serve-through"]).arg(&backing).arg(scratch.mnt());
        let served = Self::start(command, scratch, None)?;
        Ok(Self { backing: Some(backing), ..served })
    }

    fn start(mut command: Command, scratch: &Scratch, image: Option<PathBuf>) -> Result<Self> {
        let fail = |e: std::io::Error| BenchError::new("starting a server", e);
        let dir = scratch.mnt();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(fail)?;
        while !is_mounted(&dir)? {
            if let Some(status) = child.try_wait().map_err(fail)? {
                return Err(BenchError::new("a server", format!("ended too early: {status}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { child, dir, image, backing: None })
    }

    /// The traffic to the volume's device so far; zero for a server without one.
    pub(crate) fn traffic(&self) -> Result<Traffic> {
        if self.image.is_none() {
            return Ok(Traffic::default());
        }
        let pairs = self.stats()?;
        let count = |wanted: &str| {
            let found = pairs.iter().find(|(name, _)| name == wanted);
            found.and_then(|(_, value)| value.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(Traffic {
            writes: count("log_writes") + count("metadata_writes") + count("data_writes"),
            bytes: count("log_bytes") + count("metadata_bytes") + count("data_bytes"),
            log_writes: count("log_writes"),
            log_bytes: count("log_bytes"),
            flushes: count("flushes"),
        })
    }

    fn stats(&self) -> Result<Vec<(String, String)>> {
        let pairs = control::ask(&self.dir, control::STATS);
        pairs.map_err(|e| BenchError::new("asking the mount", e))
    }

    /// The requests that came to the mount so far, with the one of this call.
    pub(crate) fn requests(&self) -> Result<Requests> {
        let pairs = self.stats()?.into_iter();
        let kinds = pairs.filter_map(|(name, count)| {
            let kind = name.strip_prefix(control::REQUESTS)?.strip_prefix('_')?;
            Some((kind.to_owned(), count.parse().ok()?))
        });
        Ok(Requests(kinds.collect()))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let synced = match (&self.image, &self.backing) {
            (Some(_), _) => control::sync(&self.dir).map(drop),
            (None, Some(backing)) => sync_fs(backing),
            (None, None) => Ok(()),
        };
        synced.map_err(|e| BenchError::new("syncing the mount", e))
    }

    /// Largest resident memory of the server so far, in KiB.
    pub(crate) fn memory_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// Unmounts it, and waits for its end.
    fn end(&mut self) -> Result<()> {
        run("umount", &[&self.dir])?;
        let status = self.child.wait().map_err(|e| BenchError::new("a server", e))?;
        if !status.success() {
            return Err(BenchError::new("a server", status));
        }
        Ok(())
    }

    /// Unmounts it, waits for its end, and removes its files.
    pub(crate) fn done(mut self) -> Result<()> {
        self.end()?;
        let gone = |path: &Path, result: std::io::Result<()>| {
            result.map_err(|e| BenchError::new(path.display().to_string(), e))
        };
        if let Some(image) = &self.image {
            gone(image, std::fs::remove_file(image))?;
        }
        if let Some(backing) = &self.backing {
            gone(backing, std::fs::remove_dir_all(backing))?;
        }
        Ok(())
    }
}

fn is_mounted(dir: &Path) -> Result<bool> {
    let list = mounts::list().map_err(|e| BenchError::new("the list of mounts", e))?;
    Ok(list.iter().any(|mount| mount.dir == dir))
}
