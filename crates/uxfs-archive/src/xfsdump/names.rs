//! The directories of a dump, and the names in them.
//!
//! A dump holds its directories first, in the order of their inode numbers, and its files afterwards,
//! without names. So all names stay in memory until the end.
//!
//! 1. A name takes 20 bytes and its own length and one; a directory, some 140 bytes and its attributes. That
//!    is less than the directories take in the dump: at least 24 bytes for a name, and 256 for a directory.
//! 2. After [`Names::seal`], names are sorted by inode number, then generation, then as they were read.
//! 3. A directory is placed after the one that it is in. One that leads back to itself is an error.
//!
//! Used by the reader of dumps.

use std::ops::Range;

use super::layout::File;
use crate::entry::{PATH_MAX, Xattrs};

/// No name.
const NONE: u32 = u32::MAX;

/// A name: the file that it names, the directory that it is in, and where its text begins.
#[derive(Clone, Copy)]
struct Name {
    ino: [u32; 2],
    generation: u32,
    dir: u32,
    text: u32,
}

impl Name {
    fn ino(&self) -> u64 {
        u64::from(self.ino[0]) << 32 | u64::from(self.ino[1])
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// Waits until its directory is placed.
    Waiting,
    Placed,
    /// Has no name in a directory that is placed.
    Lost,
}

struct Dir {
    file: File,
    xattrs: Option<Box<Xattrs>>,
    /// Its name, and the state of its placement.
    name: u32,
    state: State,
}

/// A directory: its path, header and attributes.
pub(super) type Placed = (Vec<u8>, File, Xattrs);

/// The directories of a dump.
pub(super) struct Names {
    root: u64,
    dirs: Vec<Dir>,
    names: Vec<Name>,
    text: Vec<u8>,
    /// Bits of names whose files came.
    used: Vec<u64>,
    /// Directories that wait, the next at the end; and where to look for more.
    waiting: Vec<u32>,
    next: usize,
    /// The path of the directory that was asked for last.
    last: Option<(u32, Vec<u8>)>,
}

impl Names {
    pub(super) fn new(root: u64) -> Self {
        Self {
            root,
            dirs: Vec::new(),
            names: Vec::new(),
            text: Vec::new(),
            used: Vec::new(),
            waiting: Vec::new(),
            next: 0,
            last: None,
        }
    }

    /// Adds a directory, in which the next names are.
    pub(super) fn add_dir(&mut self, file: File) -> Result<(), String> {
        if self.dirs.len() >= NONE as usize {
            return Err("more than 4 Gi directories".into());
        }
        self.dirs.push(Dir { file, xattrs: None, name: NONE, state: State::New });
        Ok(())
    }

    /// Gives the directory that was added last its attributes. False if it is another one.
    pub(super) fn set_xattrs(&mut self, ino: u64, xattrs: Xattrs) -> bool {
        let Some(dir) = self.dirs.last_mut().filter(|dir| dir.file.ino == ino) else {
            return false;
        };
        if !xattrs.is_empty() {
            dir.xattrs = Some(Box::new(xattrs));
        }
        true
    }

    /// Adds a name in the directory that was added last.
    pub(super) fn add(&mut self, ino: u64, generation: u32, name: &[u8]) -> Result<(), String> {
        let (Ok(len), Ok(text)) = (u8::try_from(name.len()), u32::try_from(self.text.len())) else {
            return Err("a name of more than 255 bytes, or more than 4 GiB of names".into());
        };
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
            return Err(format!("'{}' is no file's name", name.escape_ascii()));
        }
        self.text.push(len);
        self.text.extend_from_slice(name);
        let ino = [(ino >> 32) as u32, ino as u32];
        let dir = self.dirs.len().saturating_sub(1) as u32;
        self.names.push(Name { ino, generation, dir, text });
        Ok(())
    }

    /// Finds the directories' own names, when all are there.
    pub(super) fn seal(&mut self) -> Result<(), String> {
        self.names.sort_unstable_by_key(|name| (name.ino, name.generation, name.text));
        self.used = vec![0; self.names.len().div_ceil(64)];
        let mut order: Vec<u32> = (0..self.dirs.len() as u32).collect();
        order.sort_unstable_by_key(|dir| self.dirs[*dir as usize].file.ino);
        let twice =
            order.windows(2).map(|pair| [pair[0], pair[1]].map(|d| self.dirs[d as usize].file.ino));
        if let Some([ino, _]) = twice.into_iter().find(|[one, other]| one == other) {
            return Err(format!("directory {ino} is there twice"));
        }
        let mut root = false;
        for dir in 0..self.dirs.len() {
            let File { ino, generation, .. } = self.dirs[dir].file;
            if ino == self.root {
                root = true;
                if self.names.iter().any(|name| name.ino() == ino) {
                    return Err(format!("the root directory, inode {ino}, has a name"));
                }
                continue;
            }
            let names = self.find(ino, generation);
            if names.len() > 1 {
                return Err(format!("directory {ino} has {} names", names.len()));
            }
            if let Some(name) = names.into_iter().next() {
                self.mark(name);
                self.dirs[dir].name = name as u32;
            }
        }
        match root {
            true => Ok(()),
            false => Err(format!("the root directory, inode {}, is not there", self.root)),
        }
    }

    /// The names of a file.
    pub(super) fn find(&self, ino: u64, generation: u32) -> Range<usize> {
        let key = (ino, generation);
        let start = self.names.partition_point(|name| (name.ino(), name.generation) < key);
        let end = self.names.partition_point(|name| (name.ino(), name.generation) <= key);
        start..end
    }

    /// Notes that the file of a name came. False if it was noted before.
    pub(super) fn mark(&mut self, name: usize) -> bool {
        let (word, bit) = (name / 64, 1 << (name % 64));
        let new = self.used[word] & bit == 0;
        self.used[word] |= bit;
        new
    }

    /// The next name from `from` on whose file did not come.
    pub(super) fn unused(&self, from: usize) -> Option<usize> {
        (from..self.names.len()).find(|name| self.used[name / 64] & 1 << (name % 64) == 0)
    }

    /// The next directory, or the number of one that has no place.
    pub(super) fn next_dir(&mut self) -> Result<Option<Result<Placed, u64>>, String> {
        while self.waiting.is_empty() {
            let Some(dir) = self.dirs.get(self.next) else { return Ok(None) };
            if dir.state == State::New
                && let Some(lost) = self.line_up(self.next as u32)?
            {
                return Ok(Some(Err(lost)));
            }
            self.next += 1;
        }
        let Some(dir) = self.waiting.pop() else { return Ok(None) };
        let path = self.dir_path(dir)?.to_vec();
        let dir = &mut self.dirs[dir as usize];
        dir.state = State::Placed;
        let xattrs = dir.xattrs.take().map_or_else(Xattrs::new, |xattrs| *xattrs);
        Ok(Some(Ok((path, dir.file, xattrs))))
    }

    /// Lets a directory and those that it is in wait for their places. Returns the number of one that has
    /// none; the directories below it have none either.
    fn line_up(&mut self, dir: u32) -> Result<Option<u64>, String> {
        let mut at = dir;
        loop {
            let dir = &mut self.dirs[at as usize];
            match dir.state {
                State::Placed => return Ok(None),
                State::Waiting => {
                    return Err(format!("directory {} is inside itself", dir.file.ino));
                }
                State::New => {
                    dir.state = State::Waiting;
                    self.waiting.push(at);
                }
                State::Lost => {}
            }
            if dir.file.ino == self.root && dir.state == State::Waiting {
                return Ok(None);
            }
            if dir.name == NONE || dir.state == State::Lost {
                let ino = dir.file.ino;
                for dir in self.waiting.drain(..) {
                    self.dirs[dir as usize].state = State::Lost;
                }
                return Ok(Some(ino));
            }
            at = self.names[dir.name as usize].dir;
        }
    }

    fn text(&self, name: usize) -> &[u8] {
        let at = self.names[name].text as usize;
        let len = usize::from(self.text[at]);
        &self.text[at + 1..at + 1 + len]
    }

    /// The path of a directory that is placed or waits for its turn.
    fn dir_path(&mut self, dir: u32) -> Result<&[u8], String> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != dir) {
            let mut names = Vec::new();
            let (mut at, mut len) = (dir, 0);
            // Those above are placed, so the walk ends at the root.
            while self.dirs[at as usize].file.ino != self.root {
                let name = self.dirs[at as usize].name as usize;
                len += self.text(name).len() + 1;
                if len > PATH_MAX {
                    return Err("a path is longer than 4 MiB".into());
                }
                names.push(name);
                at = self.names[name].dir;
            }
            let mut path = Vec::with_capacity(len);
            for name in names.into_iter().rev() {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(self.text(name));
            }
            self.last = Some((dir, path));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, path)| path))
    }

    /// The path of a name; `None` if its directory has no place.
    pub(super) fn path(&mut self, name: usize) -> Result<Option<Vec<u8>>, String> {
        let dir = self.names[name].dir;
        if self.dirs[dir as usize].state != State::Placed {
            return Ok(None);
        }
        let mut path = self.dir_path(dir)?.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(self.text(name));
        Ok(Some(path))
    }
}
