//! The kernel's file systems, on a loop device over a file.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::host::{Scratch, run};
use crate::traffic::Traffic;
use crate::{BenchError, Result};

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Xfs,
    Ext4,
    Btrfs,
}

impl Kind {
    /// Its name, as `mount -t` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs",
        }
    }
}

/// Bytes of a block in which ext4's journal counts.
const EXT4_BLOCK: u64 = 4096;

/// A fresh mounted file system. [`Mounted::done`] or the end of the scratch directory unmounts and
/// removes it.
pub struct Mounted {
    kind: Kind,
    image: PathBuf,
    pub dir: PathBuf,
    /// Name of the loop device, such as `loop0`.
    dev: String,
}

impl Mounted {
    /// Makes and mounts a file system, XFS with a log of 128 MiB.
    pub(crate) fn new(kind: Kind, scratch: &Scratch, size: u64) -> Result<Self> {
        Self::with(kind, scratch, size, "")
    }

    /// Makes and mounts a file system of `size` bytes; `words` are further mount options.
    ///
    /// # Errors
    /// If it cannot be made, or the kernel does not mount it with these options.
    pub fn with(kind: Kind, scratch: &Scratch, size: u64, words: &str) -> Result<Self> {
        let image = scratch.file("kernel.img");
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(size));
        made.map_err(|e| BenchError::new(image.display().to_string(), e))?;
        match kind {
            Kind::Xfs => {
                let how = ["-q", "-l", "size=128m", "-d", "agcount=16"].map(OsStr::new);
                let args: Vec<&OsStr> = how.into_iter().chain([image.as_os_str()]).collect();
                run("mkfs.xfs", &refs(&args))?
            }
            // Makes everything now, so that the kernel does not do it in the background of the
            // measurement.
            Kind::Ext4 => run(
                "mkfs.ext4",
                &[&"-q", &"-F", &"-E", &"lazy_itable_init=0,lazy_journal_init=0", &image],
            )?,
            Kind::Btrfs => run("mkfs.btrfs", &[&"-q", &"-f", &image])?,
        };
        Self::mount_with(kind, scratch, image, words)
    }

    /// Mounts an image that the kernel made.
    pub(crate) fn mount(kind: Kind, scratch: &Scratch, image: PathBuf) -> Result<Self> {
        Self::mount_with(kind, scratch, image, "")
    }

    fn mount_with(kind: Kind, scratch: &Scratch, image: PathBuf, words: &str) -> Result<Self> {
        let dir = scratch.mnt();
        let mut options = match kind {
            Kind::Xfs => "loop,logbsize=262144".to_owned(),
            Kind::Ext4 | Kind::Btrfs => "loop".to_owned(),
        };
        if !words.is_empty() {
            options = format!("{options},{words}");
        }
        run("mount", &[&"-o", &options, &image, &dir])?;
        let dev = run("findmnt", &[&"-nro", &"SOURCE", &dir])?;
        let dev = dev.trim().trim_start_matches("/dev/").to_owned();
        Ok(Self { kind, image, dir, dev })
    }

    /// Unmounts it and removes its image.
    ///
    /// # Errors
    /// If either cannot be done.
    pub fn done(self) -> Result<()> {
        run("umount", &[&self.dir])?;
        std::fs::remove_file(&self.image)
            .map_err(|e| BenchError::new(self.image.display().to_string(), e))
    }

    /// Unmounts it and returns its image.
    pub(crate) fn unmount(self) -> Result<PathBuf> {
        run("umount", &[&self.dir])?;
        Ok(self.image)
    }

    /// Makes it durable, and nothing else.
    pub(crate) fn sync(&self) -> Result<()> {
        let fail = |e: std::io::Error| BenchError::new(self.dir.display().to_string(), e);
        let dir = std::fs::File::open(&self.dir).map_err(fail)?;
        rustix::fs::syncfs(&dir).map_err(|e| fail(e.into()))
    }

    /// The traffic to its device so far.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn traffic(&self) -> Result<Traffic> {
        let stat = read(&format!("/sys/block/{}/stat", self.dev))?;
        let fields: Vec<u64> = stat.split_whitespace().map_while(|f| f.parse().ok()).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        let (log_writes, log_bytes) = match self.kind {
            Kind::Xfs => self.xfs_log()?,
            Kind::Ext4 => self.ext4_log()?,
            // It has hardly a log: its trees are written elsewhere instead.
            Kind::Btrfs => (0, 0),
        };
        let (writes, bytes, flushes) = (field(4), field(6) * 512, field(15));
        Ok(Traffic { writes, bytes, log_writes, log_bytes, flushes })
    }

    fn xfs_log(&self) -> Result<(u64, u64)> {
        let stats = read(&format!("/sys/fs/xfs/{}/stats/stats", self.dev))?;
        let line = stats.lines().find_map(|l| l.strip_prefix("log "));
        let fields: Vec<u64> =
            line.unwrap_or_default().split_whitespace().map_while(|f| f.parse().ok()).collect();
        match fields.as_slice() {
            [writes, blocks, ..] => Ok((*writes, blocks * 512)),
            _ => Err(BenchError::new("XFS' statistics", "they hold no line about the log")),
        }
    }

    /// Number of journal transactions, and about how many bytes they took: jbd2 reports averages.
    fn ext4_log(&self) -> Result<(u64, u64)> {
        let info = read(&format!("/proc/fs/jbd2/{}-8/info", self.dev))?;
        let first = |line: &str| line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        let transactions = info.lines().next().and_then(first).unwrap_or(0);
        let blocks = info.lines().find(|l| l.ends_with("logged blocks per transaction"));
        let blocks = blocks.and_then(first).unwrap_or(0);
        Ok((transactions, transactions * blocks * EXT4_BLOCK))
    }

    /// Longest time of a commit in memory, in seconds.
    pub fn age(&self) -> u32 {
        match self.kind {
            Kind::Xfs => read("/proc/sys/fs/xfs/xfssyncd_centisecs")
                .ok()
                .and_then(|text| text.trim().parse::<u32>().ok())
                .map_or(30, |centis| centis / 100),
            Kind::Ext4 => 5,
            Kind::Btrfs => 30,
        }
    }
}

fn refs<'a>(args: &'a [&'a OsStr]) -> Vec<&'a dyn AsRef<OsStr>> {
    args.iter().map(|a| a as &dyn AsRef<OsStr>).collect()
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| BenchError::new(path, e))
}
