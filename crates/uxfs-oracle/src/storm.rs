//! Keeps a mounted volume busy until the power is cut, so that its log is dirty at every moment.
//!
//! Three threads work at the same time. One ages a tree ([`crate::ager`]). One shares, splits,
//! punches, renames and removes files of many extents, which takes several transactions each. One
//! makes the volume write its log, so that a cut separates these transactions.
//!
//! Runs as `uxfs-storm` in the virtual machine ([`crate::vm::crash`]), and on any directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, XattrFlags};

use crate::Rng;
use crate::ager::Ager;

/// Bytes between two extents of a fragmented file.
const STEP: u64 = 8192;
/// Files that the second thread works on.
const FILES: usize = 24;

/// Works below `dir`. Makes the file `ready` after `ops` operations of the first thread, and
/// continues until it is killed.
///
/// # Errors
/// An operation of the first thread failed with an error that is not expected.
pub fn run(dir: &Path, seed: u64, ops: u32, ready: &Path) -> io::Result<()> {
    let (aged, shared) = (dir.join("aged"), dir.join("shared"));
    fs::create_dir_all(&aged)?;
    fs::create_dir_all(&shared)?;
    let volume = File::open(dir)?;
    let mut rng = Rng::new(seed ^ 1);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(rng.below(25)));
            if rustix::fs::syncfs(&volume).is_err() {
                return;
            }
        }
    });
    let mut sharing = Sharing { rng: Rng::new(seed ^ 2), dir: shared };
    std::thread::spawn(move || {
        loop {
            // Failures (no space, a file that is gone) are expected.
            let _ = sharing.one();
        }
    });
    let mut ager = Ager::new(&aged, seed)?;
    ager.run(ops)?;
    File::create(ready)?;
    loop {
        ager.run(100)?;
    }
}

struct Sharing {
    rng: Rng,
    dir: std::path::PathBuf,
}

impl Sharing {
    fn file(&mut self) -> std::path::PathBuf {
        self.dir.join(format!("file{}", self.rng.index(FILES)))
    }

    fn open(&mut self) -> io::Result<File> {
        let path = self.file();
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    fn one(&mut self) -> io::Result<()> {
        match self.rng.below(10) {
            0 => self.fragmented(),
            1 | 2 => {
                let (from, to) = (self.open()?, self.open()?);
                Ok(rustix::fs::ioctl_ficlone(&to, &from)?)
            }
            3 | 4 => self.overwrite(),
            5 | 6 => {
                let file = self.open()?;
                let (at, len) = (self.rng.below(100) * STEP, (1 + self.rng.below(40)) * STEP);
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(&file, how, at, len)?)
            }
            7 => self.open()?.set_len(self.rng.below(100 * STEP)),
            8 => {
                let (from, to) = (self.file(), self.file());
                let value = self.rng.bytes(300);
                rustix::fs::lsetxattr(&from, "trusted.storm", &value, XattrFlags::empty())?;
                fs::rename(from, to)
            }
            // An open file that loses its name is freed later.
            _ => {
                let path = self.file();
                let open = File::open(&path)?;
                fs::remove_file(&path)?;
                std::thread::sleep(Duration::from_millis(self.rng.below(20)));
                drop(open);
                Ok(())
            }
        }
    }

    fn fragmented(&mut self) -> io::Result<()> {
        let file = self.open()?;
        let block = self.rng.bytes(4096);
        (0..40 + self.rng.below(120)).try_for_each(|each| file.write_all_at(&block, each * STEP))
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let file = self.open()?;
        for _ in 0..1 + self.rng.below(20) {
            let len = 1 + self.rng.index(12_000);
            let at = self.rng.below(60 * STEP);
            file.write_all_at(&self.rng.bytes(len), at)?;
        }
        file.sync_data()
    }
}
