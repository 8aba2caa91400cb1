//! Reads a directory tree as a [`Source`] with what every system has.
//!
//! The order is that of the other walk: depth first, the names of each directory in byte order.
//!
//! Invariants:
//! 1. Symbolic links are not followed, except the root that the user named. Files are opened by path,
//!    so who changes the tree meanwhile can redirect the walk: this is weaker than on Linux.
//! 2. Extended attributes and holes are left out. What a system without owners and modes gives
//!    instead is in [`Stat`]; a warning says it once.
//! 3. If a file has become shorter since it was examined, the missing end reads as zeros, with a
//!    warning.
//!
//! Used by [`open`](crate::open) on systems other than Linux.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use uxfs_host::{OsStrExt, Stat, Type};

use crate::entry::{Entry, Kind, Meta, Time};
use crate::error::{ArchiveError, Warnings, show};
use crate::file_data::FileData;
use crate::source::Source;
use crate::window::{self, Window, Windowed};

use super::DirOptions;

/// What is said once of what this system does not have.
const LEFT_OUT: &str = if cfg!(unix) {
    "extended attributes and holes are not read on this system"
} else {
    "this system has no owners and modes: files belong to 0:0, with the modes 0755 and 0644; \
     a tar archive keeps both"
};

struct Level {
    /// Names not yet visited.
    names: std::vec::IntoIter<OsString>,
    /// Length of the directory's path in the tree.
    path_len: usize,
    /// The directory on the host.
    dir: PathBuf,
}

/// A directory tree as a source.
pub struct DirSource {
    options: DirOptions,
    /// The root's device, if the host numbers devices.
    device: Option<u64>,
    /// The root, until it was returned.
    first: Option<Stat>,
    levels: Vec<Level>,
    /// Path of the current entry in the tree, and on the host.
    path: Vec<u8>,
    host_path: PathBuf,
    /// First name of each file with several names, and the number of names not seen yet.
    links: HashMap<(u64, u64), (Vec<u8>, u32)>,
    data: Option<FileData>,
    window: Window,
    done: u64,
    warnings: Warnings,
}

impl DirSource {
    /// Opens the tree under `root`, which may be a symbolic link to a directory.
    ///
    /// # Errors
    /// If `root` cannot be read as a directory.
    pub fn new(root: &Path, options: DirOptions) -> Result<Self, ArchiveError> {
        let mut source = Self {
            options,
            device: None,
            first: None,
            levels: Vec::new(),
            path: Vec::new(),
            host_path: root.to_owned(),
            links: HashMap::new(),
            data: None,
            window: Window::default(),
            done: 0,
            warnings: Warnings::default(),
        };
        let meta = std::fs::metadata(root).map_err(|error| source.failed("opening", error))?;
        let stat = Stat::of(&meta);
        source.device = stat.id.map(|id| id.0);
        source.first = Some(stat);
        source.push_level()?;
        source.warnings.push_once(LEFT_OUT.into());
        Ok(source)
    }

    fn failed(&self, what: &str, error: io::Error) -> ArchiveError {
        ArchiveError::io(format!("{what} {}", self.host_path.display()), error)
    }

    /// Lists the directory at `host_path` and puts it on top of `levels`.
    fn push_level(&mut self) -> Result<(), ArchiveError> {
        let listed = std::fs::read_dir(&self.host_path)
            .and_then(|listing| listing.map(|item| Ok(item?.file_name())).collect());
        let mut names: Vec<OsString> = listed.map_err(|error| self.failed("listing", error))?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        self.levels.push(Level {
            names: names.into_iter(),
            path_len: self.path.len(),
            dir: self.host_path.clone(),
        });
        Ok(())
    }

    /// The entry at the current path; `None` if it was deleted.
    fn visit(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let stat = match std::fs::symlink_metadata(&self.host_path) {
            Ok(meta) => Stat::of(&meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("{} vanished while it was read", show(&self.path));
                self.warnings.push(text);
                return Ok(None);
            }
            Err(error) => return Err(self.failed("opening", error)),
        };
        let meta = meta(&stat);
        let path = self.path.clone();
        if stat.kind != Type::Dir
            && stat.links > 1
            && let Some(target) = self.earlier_name(&stat)
        {
            return Ok(Some(Entry { path, kind: Kind::Hardlink { target }, meta }));
        }
        let (major, minor) = stat.rdev;
        let kind = match stat.kind {
            Type::Dir => {
                if !self.options.one_file_system || stat.id.map(|id| id.0) == self.device {
                    self.push_level()?;
                }
                Kind::Dir
            }
            Type::File => self.file()?,
            Type::Symlink => {
                let target = std::fs::read_link(&self.host_path)
                    .map_err(|error| self.failed("reading the link", error))?;
                let mut target = target.as_os_str().as_bytes().to_vec();
                if cfg!(windows) {
                    target.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
                }
                Kind::Symlink { target }
            }
            Type::Char => Kind::Char { major, minor },
            Type::Block => Kind::Block { major, minor },
            Type::Fifo => Kind::Fifo,
            Type::Socket => Kind::Socket,
            Type::Other => {
                let error = io::Error::other("unknown file type");
                return Err(self.failed("reading the metadata of", error));
            }
        };
        Ok(Some(Entry { path, kind, meta }))
    }

    /// The first name of a file with several names; records the name if it is the first.
    fn earlier_name(&mut self, stat: &Stat) -> Option<Vec<u8>> {
        let id = stat.id?;
        let Some((first, left)) = self.links.get_mut(&id) else {
            self.links.insert(id, (self.path.clone(), stat.links - 1));
            return None;
        };
        *left = left.saturating_sub(1);
        let (first, left) = (first.clone(), *left);
        if left == 0 {
            self.links.remove(&id);
        }
        Some(first)
    }

    fn file(&mut self) -> Result<Kind, ArchiveError> {
        let opened = File::open(&self.host_path);
        let data = opened.and_then(|file| {
            let stat = Stat::of(&file.metadata()?);
            if stat.kind != Type::File {
                return Err(io::Error::other("the file was replaced while it was read"));
            }
            Ok((stat.size, FileData::new(file, stat.size, stat.size)?))
        });
        let (size, data) = data.map_err(|error| self.failed("opening", error))?;
        let map = data.map.clone();
        self.data = Some(data);
        Ok(Kind::File { size, map })
    }
}

fn meta(stat: &Stat) -> Meta {
    let time = |(sec, nsec)| Time { sec, nsec };
    Meta {
        mode: stat.mode.into(),
        uid: stat.uid,
        gid: stat.gid,
        mtime: time(stat.mtime),
        atime: Some(time(stat.atime)),
        ctime: stat.ctime.map(time),
        crtime: stat.created.map(time),
        ..Meta::default()
    }
}

impl Windowed for DirSource {
    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some(data) = &mut self.data else { return Ok(0) };
        let before = data.shrunk;
        let result = data.read(buf);
        if data.shrunk && !before {
            let path = show(&self.path);
            self.warnings
                .push(format!("{path} became shorter while it was read: zeros at its end"));
        }
        let count = result.map_err(|error| self.failed("reading", error))?;
        self.done += count as u64;
        Ok(count)
    }
}

impl Source for DirSource {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.data = None;
        self.window.clear();
        if let Some(stat) = self.first.take() {
            return Ok(Some(Entry { path: Vec::new(), kind: Kind::Dir, meta: meta(&stat) }));
        }
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.path.truncate(level.path_len);
            let Some(name) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.as_bytes());
            self.host_path = level.dir.join(name);
            if let Some(entry) = self.visit()? {
                return Ok(Some(entry));
            }
        }
    }

    window::data_methods!();

    fn many_files(&self) -> bool {
        true
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.done, None)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All entries with their data.
    fn all(mut source: impl Source) -> Vec<(Entry, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(entry) = source.next().unwrap() {
            let mut data = Vec::new();
            let mut piece = [0; 5];
            loop {
                match source.read(&mut piece).unwrap() {
                    0 => break,
                    count => data.extend_from_slice(&piece[..count]),
                }
            }
            all.push((entry, data));
        }
        all
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("b/deep/er")).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        std::fs::write(at("a"), b"first").unwrap();
        std::fs::write(at("b/none"), b"").unwrap();
        std::fs::write(at("b/deep/file"), vec![7; 12_345]).unwrap();
        std::fs::write(at("b.txt"), b"between").unwrap();
        dir
    }

    #[test]
    fn a_tree_is_read_in_byte_order() {
        let dir = tree();
        let all = all(DirSource::new(dir.path(), DirOptions::default()).unwrap());
        let paths: Vec<&str> =
            all.iter().map(|(entry, _)| std::str::from_utf8(&entry.path).unwrap()).collect();
        let expected =
            ["", "a", "b", "b/deep", "b/deep/er", "b/deep/file", "b/none", "b.txt", "empty"];
        assert_eq!(paths, expected);
        assert_eq!(all[1].1, b"first");
        assert_eq!(all[5].1, vec![7; 12_345]);
        assert!(matches!(&all[4].0.kind, Kind::Dir));
    }

    /// Both walks tell the same of a tree that has nothing of Linux alone.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_tells_what_the_walk_of_linux_tells() {
        let dir = tree();
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink("../a", at("b/link")).unwrap();
        std::fs::hard_link(at("a"), at("z")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        // The first walk changes access times.
        let _ = all(DirSource::new(dir.path(), DirOptions::default()).unwrap());
        let here = all(DirSource::new(dir.path(), DirOptions::default()).unwrap());
        let there = all(super::super::DirSource::new(dir.path(), DirOptions::default()).unwrap());
        assert_eq!(here.len(), there.len());
        for (mut here, mut there) in here.into_iter().zip(there) {
            (here.0.meta.atime, there.0.meta.atime) = (None, None);
            assert_eq!(here, there);
        }
    }
}
