//! Test volumes: made by either mkfs, opened, judged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uxfs::{Fs, OpenOptions, WritebackOptions, clock::Clock, mkfs};
use uxfs_crash::RuledDev;
use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::Xfsprogs;

pub(crate) const MIB: u64 = 1 << 20;

/// A number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

/// An image in a directory of its own.
pub(crate) struct Volume {
    /// The image's path; removed with the volume.
    _dir: TempDir,
    pub(crate) path: PathBuf,
    /// Does the newer xfs_repair accept the fresh volume? On small volumes with large blocks
    /// it contradicts the older release's mkfs.xfs.
    agreed: bool,
}

impl Volume {
    /// A volume made by the library's mkfs, which may be smaller than mkfs.xfs allows.
    pub(crate) fn small(mib: u64, line: &str) -> Self {
        let volume = Self::empty();
        let mut options = mkfs::Options::default();
        options.unsupported = true;
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let letter = pair[0].chars().nth(1).unwrap();
            options.apply(letter, pair[1]).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
        let layout =
            mkfs::Layout::new(&options, mib * MIB).unwrap_or_else(|e| panic!("{line}: {e}"));
        let dev = FileDev::open(&volume.path, OpenMode::Create(mib * MIB)).unwrap();
        mkfs::write(&layout, &dev, &mkfs::WriteOptions::default()).unwrap();
        drop(dev);
        volume.made()
    }

    /// A volume made by the real mkfs.xfs.
    pub(crate) fn real(mib: u64, line: &str) -> Self {
        let volume = Self::empty();
        let words: Vec<&str> = line.split_whitespace().collect();
        uxfs_oracle::mkfs(&volume.path, mib * MIB, &words);
        volume.made()
    }

    fn made(self) -> Self {
        let agreed = Xfsprogs::Current.repair(&self.path).is_ok();
        Self { agreed, ..self }
    }

    /// An empty image path.
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.img");
        Self { _dir: dir, path, agreed: true }
    }

    /// Opens it with the clock fixed at second `now`.
    pub(crate) fn open_at(&self, now: i64, cache_bytes: usize) -> Fs {
        let mut options = OpenOptions::default();
        options.clock = Clock::Fixed(Timestamp { sec: now, nsec: 123_456_789 });
        options.seed = Some(now as u64);
        options.cache_bytes = cache_bytes;
        let writeback = setting("UXFS_WRITEBACK", 0) > 0;
        options.writeback = writeback.then(WritebackOptions::default);
        self.open_with(options)
    }

    pub(crate) fn open(&self) -> Fs {
        self.open_at(1_700_000_000, 64 << 20)
    }

    pub(crate) fn open_with(&self, options: OpenOptions) -> Fs {
        let mode = if options.read_only { OpenMode::Read } else { OpenMode::Write };
        let dev: Arc<dyn BlockDev> = Arc::new(device(&self.path, mode));
        // The trace rules check the writes.
        Fs::open(Arc::new(RuledDev::new(dev)), options).unwrap()
    }

    pub(crate) fn open_read_only(&self) -> Fs {
        self.open_with(OpenOptions::read_only())
    }

    /// As [`Volume::judge`], after an old kernel has changed it.
    pub(crate) fn judge_aged(&self, when: &str) {
        uxfs_oracle::both_after_old_kernel(&self.path).unwrap_or_else(|f| panic!("{when}: {f}"));
    }

    /// Passes if xfsprogs find no damage.
    pub(crate) fn judge(&self, when: &str) {
        let judged = match self.agreed {
            true => uxfs_oracle::both(&self.path),
            false => {
                uxfs_oracle::repair(&self.path).and_then(|()| uxfs_oracle::db_check(&self.path))
            }
        };
        judged.unwrap_or_else(|f| panic!("{when}: {f}"));
    }
}

/// An image as a device.
pub(crate) fn device(path: &Path, mode: OpenMode) -> FileDev {
    FileDev::open(path, mode).unwrap()
}
