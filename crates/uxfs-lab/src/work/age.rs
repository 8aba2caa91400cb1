//! Aging: a volume that is filled and then lived on, month after month: files made, grown and removed,
//! at one level of fullness. Outside of the simulation: what counts is how space is left behind.

use uxfs::format::Ino;
use uxfs::{Fallocate, Fs, NewInode, Result};

use crate::rng::Rng;

/// How a volume lives.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Months that it was in use; in none nothing but the tree of [`crate::work::build`] is on it.
    pub months: u32,
    /// Directories that files are made in; one puts them all into one place.
    pub dirs: u32,
    /// Percent of its blocks that are taken.
    pub fill: u64,
    /// Everything that is left to chance follows from it.
    pub seed: u64,
}

/// Sizes go from this on ...
const LEAST: f64 = 4096.0;
/// ... by factors that are as likely as others, to so many times that.
const FACTOR: f64 = 4096.0;
/// What part of all files is replaced in a month, and what part grows.
const REPLACED: f64 = 0.5;
const GROWN: f64 = 0.5;
/// Changes after which what was freed is made durable, and so may be used again.
const STEP: u32 = 128;

/// A file, and the month in which it was made.
#[derive(Clone, Debug)]
pub struct Old {
    dir: usize,
    name: String,
    /// Its inode.
    pub ino: Ino,
    size: u64,
    /// 0 for those that were there from the first day.
    pub month: u32,
}

struct Volume<'a> {
    fs: &'a Fs,
    dirs: Vec<Ino>,
    files: Vec<Old>,
    rng: Rng,
    made: u32,
    changes: u32,
}

/// Has a volume live so long; gives the files that are on it then.
///
/// # Errors
/// Those of the volume.
pub fn live(fs: &Fs, life: Life) -> Result<Vec<Old>> {
    let mut dirs = Vec::new();
    for number in 0..life.dirs.max(1) {
        let name = format!("old{number}");
        dirs.push(fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755))?);
    }
    if life.months == 0 {
        return Ok(Vec::new());
    }
    let rng = Rng::new(life.seed ^ 0x6167_6564);
    let mut volume = Volume { fs, dirs, files: Vec::new(), rng, made: 0, changes: 0 };
    while volume.has_room(life.fill) {
        volume.make(0)?;
    }
    for month in 1..=life.months {
        volume.month(month, life.fill)?;
    }
    Ok(volume.files)
}

impl Volume<'_> {
    fn has_room(&self, fill: u64) -> bool {
        let all = self.fs.statfs();
        all.free_blocks * 100 > all.blocks * (100 - fill)
    }

    /// What was freed may be used again now and then, as after so many seconds of a real life.
    fn changed(&mut self) -> Result<()> {
        self.changes += 1;
        if self.changes.is_multiple_of(STEP) {
            let ticket = self.fs.begin_sync()?;
            self.fs.wait(ticket)?;
        }
        Ok(())
    }

    fn size(&mut self) -> u64 {
        (LEAST * FACTOR.powf(self.rng.unit())) as u64
    }

    fn make(&mut self, month: u32) -> Result<()> {
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        let size = self.size();
        self.made += 1;
        let name = format!("f{}", self.made);
        let ino = self.fs.create(self.dirs[dir], name.as_bytes(), &NewInode::file(0o644))?;
        self.fs.fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, size)?;
        self.files.push(Old { dir, name, ino, size, month });
        self.changed()
    }

    /// Makes any of them larger, by up to as much as it is.
    fn grow(&mut self) -> Result<()> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let part = self.rng.unit();
        let file = &mut self.files[at];
        let more = (file.size as f64 * part) as u64 + 1;
        let how = Fallocate::Allocate { keep_size: false };
        self.fs.fallocate(file.ino, how, file.size, more)?;
        file.size += more;
        self.changed()
    }

    fn remove(&mut self) -> Result<()> {
        let at = self.rng.below(self.files.len() as u64) as usize;
        let file = self.files.swap_remove(at);
        self.fs.unlink(self.dirs[file.dir], file.name.as_bytes())?;
        self.changed()
    }

    /// A month: in any order files go, come and grow, and as many more go as it takes to keep the level.
    fn month(&mut self, month: u32, fill: u64) -> Result<()> {
        let count = self.files.len() as f64;
        let (replaced, grown) = ((count * REPLACED) as u64, (count * GROWN) as u64);
        for _ in 0..replaced + grown {
            if self.rng.below(replaced + grown) < replaced {
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
