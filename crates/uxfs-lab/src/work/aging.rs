//! A volume that is used for months: files made, grown and deleted at a fill level.

use uxfs::format::Ino;
use uxfs::{Fs, NewInode, Result};

use super::{fill, word};
use crate::rng::Rng;

/// How a volume is used.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Months.
    pub months: u32,
    /// The part of the volume that is in use.
    pub fill: f64,
    /// The part of it that is deleted and made anew each month.
    pub turnover: f64,
    /// What is done, when.
    pub seed: u64,
}

struct Lived {
    dirs: Vec<Ino>,
    files: Vec<(usize, String, Ino, u64)>,
    next: u64,
    rng: Rng,
}

impl Lived {
    /// A file of 4 KiB to about a megabyte, most of them small; sometimes one that is there grows.
    fn make(&mut self, fs: &Fs) -> Result<u64> {
        let scale = 1 << self.rng.below(8);
        let size = 4096 + self.rng.below(8192 * scale);
        if self.rng.below(5) == 0 && !self.files.is_empty() {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let (.., ino, have) = &mut self.files[at];
            fs.write_at(*ino, *have, &fill(word(1 << 32 | self.next), size as usize))?;
            *have += size;
            return Ok(size);
        }
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        self.next += 1;
        let name = format!("f{}", self.next);
        let ino = fs.create(self.dirs[dir], name.as_bytes(), &NewInode::file(0o644))?;
        fs.write_at(ino, 0, &fill(word(1 << 32 | self.next), size as usize))?;
        self.files.push((dir, name, ino, size));
        Ok(size)
    }

    fn delete(&mut self, fs: &Fs) -> Result<u64> {
        let at = self.rng.below(self.files.len().max(1) as u64) as usize;
        if at >= self.files.len() {
            return Ok(0);
        }
        let (dir, name, _, size) = self.files.swap_remove(at);
        fs.unlink(self.dirs[dir], name.as_bytes())?;
        Ok(size)
    }
}

/// Fills a volume and uses it for so long.
///
/// # Errors
/// Those of the volume.
pub fn live(fs: &Fs, life: Life) -> Result<()> {
    let (mut dirs, rng) = (Vec::new(), Rng::new(life.seed));
    for dir in 0..64 {
        dirs.push(fs.create(fs.root(), format!("d{dir}").as_bytes(), &NewInode::dir(0o755))?);
    }
    let mut lived = Lived { dirs, files: Vec::new(), next: 0, rng };
    let room = fs.statfs().blocks * u64::from(fs.geo.block_size);
    let wanted = (room as f64 * life.fill) as u64;
    let mut have = 0;
    while have < wanted {
        have += lived.make(fs)?;
    }
    let mut left = (wanted as f64 * life.turnover * f64::from(life.months)) as u64;
    while left > 0 {
        have = have.saturating_sub(lived.delete(fs)?);
        while have < wanted {
            let made = lived.make(fs)?;
            have += made;
            left = left.saturating_sub(made);
        }
    }
    Ok(())
}
