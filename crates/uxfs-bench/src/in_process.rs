//! A fresh volume of uxfs, opened with the journal, on a device that counts.

use std::path::PathBuf;
use std::sync::Arc;

use uxfs::LogWorker;
use uxfs::disk::{FileDev, OpenMode};
use uxfs::journal::{JournalOptions, LogWorkOptions};
use uxfs::{Fs, OpenOptions, WritebackOptions, mkfs};

use uxfs_testkit::CountDev;

use crate::host::Scratch;
use crate::traffic::Traffic;
use crate::{BenchError, Result};

pub(crate) struct InProcess {
    pub(crate) fs: Arc<Fs>,
    log_worker: LogWorker,
    dev: Arc<CountDev<FileDev>>,
    image: PathBuf,
}

/// The log options that a word stands for, with the largest log buffers.
pub(crate) fn journal(mut options: JournalOptions, word: &str) -> Result<JournalOptions> {
    for word in [word, "logbsize=262144"] {
        options.apply(word).map_err(|e| BenchError::new(word, e))?;
    }
    Ok(options)
}

impl InProcess {
    /// Makes a volume with the options of the kernel's ([`crate::kernel::Mounted::new`]). Data is
    /// written at once, or stays in memory as `data` says.
    pub(crate) fn new(
        scratch: &Scratch,
        size: u64,
        journal: JournalOptions,
        data: Option<WritebackOptions>,
    ) -> Result<Self> {
        let image = scratch.file("own.img");
        let dev = FileDev::open(&image, OpenMode::Create(size))
            .map_err(|e| BenchError::new(image.display().to_string(), e))?;
        let dev = Arc::new(CountDev::new(dev));
        let made = |e: mkfs::MkfsError| BenchError::new("mkfs", e);
        let mut mkfs_options = mkfs::Options::default();
        mkfs_options.apply('l', "size=128m").map_err(made)?;
        mkfs_options.apply('d', "agcount=16").map_err(made)?;
        let layout = mkfs::Layout::new(&mkfs_options, size).map_err(made)?;
        mkfs::write(&layout, &*dev, &mkfs::WriteOptions::default()).map_err(made)?;
        let mut options = OpenOptions::default();
        options.journal = journal;
        options.writeback = data;
        let device: Arc<dyn uxfs::disk::BlockDev> = Arc::clone(&dev) as _;
        let failed = |e: uxfs::Error| BenchError::new("opening", e);
        let fs = Arc::new(Fs::open(device, options).map_err(failed)?);
        let log = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
        dev.watch(log..log + u64::from(fs.geo.log_blocks) * u64::from(fs.geo.block_size));
        // The kernel also has threads for the log.
        let log_worker = LogWorker::start(&fs, LogWorkOptions::default()).map_err(failed)?;
        Ok(Self { fs, log_worker, dev, image })
    }

    /// The traffic to the device so far. Log writes count from the open.
    pub(crate) fn traffic(&self) -> Traffic {
        let counts = self.dev.counts();
        Traffic {
            writes: counts.writes,
            bytes: counts.bytes,
            log_writes: counts.watched_writes,
            log_bytes: counts.watched_bytes,
            flushes: counts.flushes + counts.forced,
        }
    }

    /// Closes the volume and removes its image.
    pub(crate) fn done(self) -> Result<()> {
        drop(self.log_worker);
        let fs = Arc::into_inner(self.fs)
            .ok_or_else(|| BenchError::new("closing", "the volume is still in use"))?;
        fs.close().map_err(|e| BenchError::new("closing", e))?;
        std::fs::remove_file(&self.image).map_err(|e| BenchError::new("removing the image", e))
    }
}
