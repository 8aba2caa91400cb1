//! Aging: fills a volume, then creates, grows and removes files for simulated months at a constant fill
//! level. It runs before the simulation begins: only the resulting layout of space matters.

use uxfs::format::Ino;
use uxfs::{Fallocate, Fs, NewInode, Result};

use uxfs_testkit::Rng;

/// The history of an aged volume.
#[derive(Clone, Copy, Debug)]
pub struct Aging {
    /// Months of use. With 0, the volume holds only the tree of [`crate::work::build`].
    pub months: u32,
    /// Directories in which files are created. With 1, all files are in one.
    pub dirs: u32,
    /// Used blocks, in percent.
    pub fill: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The smallest file, in bytes.
const SIZE_MIN: f64 = 4096.0;
/// The largest file divided by the smallest; the logarithm of sizes is uniform.
const SIZE_FACTOR: f64 = 4096.0;
/// The share of all files that is replaced in a month, and the share that grows.
const REPLACED_SHARE: f64 = 0.5;
const GROWN_SHARE: f64 = 0.5;
/// Changes between two syncs. A sync makes freed blocks available again.
const STEP: u32 = 128;

/// A file and the month of its creation.
#[derive(Clone, Debug)]
pub struct AgedFile {
    dir: usize,
    name: String,
    pub ino: Ino,
    size: u64,
    /// 0 for files of the initial fill.
    pub month: u32,
}

struct Volume<'a> {
    fs: &'a Fs,
    dirs: Vec<Ino>,
    files: Vec<AgedFile>,
    rng: Rng,
    made: u32,
    changes: u32,
}

/// Ages a volume and returns the files that it then holds.
///
/// # Errors
/// An error of the volume.
pub fn age(fs: &Fs, aging: Aging) -> Result<Vec<AgedFile>> {
    let mut dirs = Vec::new();
    for number in 0..aging.dirs.max(1) {
        let name = format!("old{number}");
        dirs.push(fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755))?);
    }
    if aging.months == 0 {
        return Ok(Vec::new());
    }
    let rng = Rng::spread(aging.seed ^ 0x6167_6564);
    let mut volume = Volume { fs, dirs, files: Vec::new(), rng, made: 0, changes: 0 };
    while volume.has_room(aging.fill) {
        volume.make(0)?;
    }
    for month in 1..=aging.months {
        volume.month(month, aging.fill)?;
    }
    Ok(volume.files)
}

impl Volume<'_> {
    fn has_room(&self, fill: u64) -> bool {
        let all = self.fs.statfs();
        all.free_blocks * 100 > all.blocks * (100 - fill)
    }

    /// Counts a change and syncs after each [`STEP`] changes, as periodic write-back does.
    fn changed(&mut self) -> Result<()> {
        self.changes += 1;
        if self.changes.is_multiple_of(STEP) {
            let ticket = self.fs.begin_sync()?;
            self.fs.wait(ticket)?;
        }
        Ok(())
    }

    fn size(&mut self) -> u64 {
        (SIZE_MIN * SIZE_FACTOR.powf(self.rng.unit())) as u64
    }

    fn make(&mut self, month: u32) -> Result<()> {
        let dir = self.rng.scaled(self.dirs.len() as u64) as usize;
        let size = self.size();
        self.made += 1;
        let name = format!("f{}", self.made);
        let ino = self.fs.create(self.dirs[dir], name.as_bytes(), &NewInode::file(0o644))?;
        self.fs.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, size)?;
        self.files.push(AgedFile { dir, name, ino, size, month });
        self.changed()
    }

    /// Grows a random file, at most to twice its size.
    fn grow(&mut self) -> Result<()> {
        let at = self.rng.scaled(self.files.len() as u64) as usize;
        let part = self.rng.unit();
        let file = &mut self.files[at];
        let more = (file.size as f64 * part) as u64 + 1;
        let how = Fallocate::Allocate { keep_size: false };
        self.fs.fallocate(file.ino, how, file.size, more)?;
        file.size += more;
        self.changed()
    }

    fn remove(&mut self) -> Result<()> {
        let at = self.rng.scaled(self.files.len() as u64) as usize;
        let file = self.files.swap_remove(at);
        self.fs.unlink(self.dirs[file.dir], file.name.as_bytes())?;
        self.changed()
    }

    /// Removes, creates and grows files in random order, and removes more as needed to keep the fill level.
    fn month(&mut self, month: u32, fill: u64) -> Result<()> {
        let count = self.files.len() as f64;
        let (replaced, grown) = ((count * REPLACED_SHARE) as u64, (count * GROWN_SHARE) as u64);
        for _ in 0..replaced + grown {
            if self.rng.scaled(replaced + grown) < replaced {
                self.remove()?;
                if self.has_room(fill) {
                    self.make(month)?;
                }
            } else if self.has_room(fill) {
                self.grow()?;
            }
            while !self.files.is_empty() && !self.has_room(fill) {
                self.remove()?;
            }
        }
        while self.has_room(fill) {
            self.make(month)?;
        }
        Ok(())
    }
}
