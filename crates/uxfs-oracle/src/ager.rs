//! Fills and ages a mounted volume: a seeded mix of everything that programs do to a tree.
//!
//! 1. The same seed, tree and number of operations give the same calls.
//! 2. It starts with whatever tree is there, so it can take turns with the code under test.
//! 3. An operation may fail for lack of space, or because a name exists or is gone. Any other
//!    failure is an error, above all an I/O or corruption error.
//!
//! Runs as `uxfs-ager` in the virtual machine ([`crate::vm::age`]), and on any directory.

mod ops;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::Rng;

/// Longest path that it makes, in bytes, well below `PATH_MAX`.
const PATH_LEN_MAX: usize = 3000;

/// Errors with which an operation may fail.
const EXPECTED: [Errno; 12] = [
    Errno::NOSPC,
    Errno::EXIST,
    Errno::NOENT,
    Errno::NOTEMPTY,
    Errno::NAMETOOLONG,
    Errno::MLINK,
    Errno::INVAL,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::OPNOTSUPP,
    Errno::NODATA,
    Errno::FBIG,
];

/// A volume being aged, or any directory.
pub struct Ager {
    root: PathBuf,
    rng: Rng,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// Number of operations that succeeded and that failed as expected, by name.
    counts: BTreeMap<&'static str, (u32, u32)>,
    /// Operations that are skipped.
    left_out: Vec<&'static str>,
}

impl Ager {
    /// Lists the tree below `root`.
    pub fn new(root: &Path, seed: u64) -> io::Result<Self> {
        let mut ager = Self {
            root: root.to_path_buf(),
            rng: Rng::new(seed),
            dirs: vec![root.to_path_buf()],
            files: Vec::new(),
            others: Vec::new(),
            counts: BTreeMap::new(),
            left_out: Vec::new(),
        };
        let mut next = 0;
        while next < ager.dirs.len() {
            let dir = ager.dirs[next].clone();
            next += 1;
            ager.list_tree(&dir)?;
        }
        for list in [&mut ager.dirs, &mut ager.files, &mut ager.others] {
            list.sort();
        }
        Ok(ager)
    }

    fn list_tree(&mut self, dir: &Path) -> io::Result<()> {
        for item in std::fs::read_dir(dir)? {
            let item = item?;
            let (path, kind) = (item.path(), item.file_type()?);
            if path.as_os_str().len() > PATH_LEN_MAX {
                continue;
            }
            let list = match (kind.is_dir(), kind.is_file()) {
                (true, _) => &mut self.dirs,
                (_, true) => &mut self.files,
                _ => &mut self.others,
            };
            list.push(path);
        }
        Ok(())
    }

    /// Skips the operations of these names: for two trees in step, one of which cannot do them.
    #[must_use]
    pub fn without(mut self, names: &[&'static str]) -> Self {
        self.left_out.extend_from_slice(names);
        self
    }

    /// Carries out `ops` operations.
    ///
    /// # Errors
    /// The first failure that must not be, with the operation's name and number.
    pub fn run(&mut self, ops: u32) -> io::Result<()> {
        let total: u64 = ops::TABLE.iter().map(|op| op.weight).sum();
        for number in 0..ops {
            let mut at = self.rng.below(total);
            let chosen = ops::TABLE.iter().find(|op| {
                let here = at < op.weight;
                at = at.saturating_sub(op.weight);
                here
            });
            let Some(op) = chosen.filter(|op| !self.left_out.contains(&op.name)) else { continue };
            let result = (op.run)(self);
            let count = self.counts.entry(op.name).or_default();
            count.0 += 1;
            if let Err(e) = result {
                count.1 += 1;
                self.check_error(&e).map_err(|e| {
                    io::Error::new(e.kind(), format!("operation {number} ({}): {e}", op.name))
                })?;
            }
        }
        Ok(())
    }

    /// Ignores an expected failure, and frees space if there was none.
    fn check_error(&mut self, error: &io::Error) -> io::Result<()> {
        let code = Errno::from_io_error(error);
        if !code.is_some_and(|code| EXPECTED.contains(&code)) {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        if code == Some(Errno::NOSPC) {
            let many = self.files.len() / 10;
            for _ in 0..many {
                self.remove_random_file();
            }
        }
        Ok(())
    }

    /// Removes a random regular file.
    fn remove_random_file(&mut self) {
        if !self.files.is_empty() {
            let at = self.rng.index(self.files.len());
            let path = self.files.swap_remove(at);
            // It may be gone with its directory.
            let _ = std::fs::remove_file(path);
        }
    }

    /// How often each operation ran, and failed as expected.
    #[must_use]
    pub fn report(&self) -> String {
        let mut out = String::new();
        for (name, (ran, failed)) in &self.counts {
            // Writing to a string does not fail.
            let _ = write!(out, "{name} {ran}/{failed} ");
        }
        let (dirs, files, others) = (self.dirs.len(), self.files.len(), self.others.len());
        let _ = write!(out, "left: {dirs} directories, {files} files, {others} others");
        out
    }

    /// A directory to make something in.
    fn dir(&mut self) -> PathBuf {
        let at = self.rng.index(self.dirs.len());
        self.dirs.get(at).unwrap_or(&self.root).clone()
    }

    /// A name that probably does not exist.
    fn fresh(&mut self) -> PathBuf {
        let dir = self.dir();
        let name = self.name();
        let path = dir.join(std::ffi::OsStr::from_bytes(&name));
        if path.as_os_str().len() < PATH_LEN_MAX {
            path
        } else {
            self.root.join(std::ffi::OsStr::from_bytes(&name))
        }
    }

    /// A name: mostly short words, sometimes long, sometimes any bytes.
    fn name(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0 => 1 + self.rng.index(255),
            1 | 2 => 1 + self.rng.index(60),
            _ => 3 + self.rng.index(12),
        };
        let any = self.rng.once_in(8);
        let mut name = self.rng.bytes(len);
        for byte in &mut name {
            if !any {
                *byte = b'a' + *byte % 26;
            } else if matches!(*byte, 0 | b'/') {
                *byte = b'_';
            }
        }
        if matches!(&name[..], b"." | b"..") { b"dots".to_vec() } else { name }
    }

    /// An existing regular file.
    fn file(&mut self) -> io::Result<PathBuf> {
        let at = self.rng.index(self.files.len());
        self.files.get(at).cloned().ok_or(Errno::NOENT.into())
    }

    /// An existing entry of any kind but the root.
    fn any(&mut self) -> io::Result<PathBuf> {
        let all = self.dirs.len() + self.files.len() + self.others.len();
        let at = self.rng.index(all);
        let found = self.dirs.iter().chain(&self.files).chain(&self.others).nth(at);
        found.filter(|path| **path != self.root).cloned().ok_or(Errno::NOENT.into())
    }

    /// Updates the lists after `from`, with everything below it, became `to` or was removed.
    fn moved(&mut self, from: &Path, to: Option<&Path>) {
        for list in [&mut self.dirs, &mut self.files, &mut self.others] {
            let changed = list.drain(..).filter_map(|path| match (path.strip_prefix(from), to) {
                (Err(_), _) => Some(path),
                (Ok(rest), Some(to)) if rest.as_os_str().is_empty() => Some(to.to_path_buf()),
                (Ok(rest), Some(to)) => Some(to.join(rest)),
                (Ok(_), None) => None,
            });
            *list = changed.collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_tree() {
        let tree = |seed: u64| {
            let dir = tempfile::tempdir().unwrap();
            let mut ager = Ager::new(dir.path(), seed).unwrap();
            ager.run(150).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert!(!ager.report().is_empty());
            crate::lister::list(dir.path()).unwrap()
        };
        let fields = crate::Fields::MODE | crate::Fields::SIZE | crate::Fields::CONTENT;
        tree(1).assert_same(&tree(1), fields);
        assert!(!tree(1).differences(&tree(2), fields).is_empty());
    }
}
