//! Recordings of the file operations of a real program on a tree, made by `tools/record-trace`.
//!
//! A recording is gzipped text. Its first line is `uxfs-trace 1`; a line that begins with `#` describes
//! the recording. Each other line is an operation; paths are given by number, and 0 is the tree's top:
//!
//! | line | meaning |
//! |---|---|
//! | `p PARENT NAME` | defines the next path number |
//! | `d PATH`, `f PATH SIZE` | a directory, a file that existed before |
//! | `w US` | programs used the processor for this many microseconds |
//! | `C`, `O`, `K PATH` | a file created and opened, opened, closed |
//! | `R`, `W PATH AT LEN` | bytes read, written |
//! | `T PATH SIZE` | truncated or extended to a size |
//! | `S`, `B PATH` | fsync, fdatasync |
//! | `N`, `L PATH PATH` | renamed to, linked as |
//! | `Y PATH LEN` | a symbolic link created, with a target of this many bytes |
//! | `D`, `X`, `U PATH` | a directory created, removed; a file unlinked |
//! | `A PATH` | attributes changed |
//! | `G`, `M PATH` | a lookup that found the name; one that did not |
//! | `E PATH` | a directory listed |
//!
//! 1. No recording makes this module panic or use more memory than fixed bounds allow.
//! 2. A name is valid in a directory: it holds no slash and is not `.` or `..`. So no path leads out of
//!    the tree.

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::{LabError, Result};

/// The largest unpacked recording, in bytes.
const LONGEST: u64 = 256 << 20;
/// The largest file in a recording, in bytes.
const LARGEST: u64 = 1 << 40;
/// The largest read or write, in bytes.
const PIECE: u64 = 1 << 30;

pub type PathNo = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Work { us: u64 },
    Make(PathNo),
    Open(PathNo),
    Close(PathNo),
    Read { path: PathNo, at: u64, len: u64 },
    Write { path: PathNo, at: u64, len: u64 },
    Cut { path: PathNo, size: u64 },
    Sync { path: PathNo, data: bool },
    Rename(PathNo, PathNo),
    Link(PathNo, PathNo),
    Symlink { path: PathNo, len: u64 },
    MakeDir(PathNo),
    RemoveDir(PathNo),
    Unlink(PathNo),
    Attr(PathNo),
    Look(PathNo),
    Miss(PathNo),
    List(PathNo),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub about: String,
    /// The parent and the name of each path. The first is the tree's top.
    pub paths: Vec<(PathNo, String)>,
    /// What existed before: each path, with the size if it is a file.
    pub before: Vec<(PathNo, Option<u64>)>,
    pub steps: Vec<Step>,
}

/// git: a clone of a repository, five commits, `git gc`.
const GIT: &[u8] = include_bytes!("../../traces/git.trace.gz");
/// GNU hello 2.10: `configure` and `make`.
const COMPILE: &[u8] = include_bytes!("../../traces/compile.trace.gz");

impl Recording {
    /// A recording that comes with the lab: `git` or `compile`.
    ///
    /// # Errors
    /// If there is no such recording.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "git" => Self::unpack(GIT, name),
            "compile" => Self::unpack(COMPILE, name),
            _ => Err(LabError::new(name, "no such recording; known: git, compile")),
        }
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a recording.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let packed = std::fs::read(path).map_err(|e| LabError::new(name.as_str(), e))?;
        Self::unpack(&packed, &name)
    }

    fn unpack(packed: &[u8], name: &str) -> Result<Self> {
        let mut text = String::new();
        let mut unpacked = MultiGzDecoder::new(packed).take(LONGEST + 1);
        unpacked
            .read_to_string(&mut text)
            .map_err(|e| LabError::new(name, format!("not a gzipped recording: {e}")))?;
        if text.len() as u64 > LONGEST {
            return Err(LabError::new(name, format!("larger than {LONGEST} bytes when unpacked")));
        }
        Self::parse(&text, name)
    }

    /// Parses the text of a recording; `name` is for messages.
    ///
    /// # Errors
    /// If the text is not a recording. The error names the line.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, first)| first != "uxfs-trace 1") {
            return Err(LabError::new(
                name,
                "not a recording: it must begin with \"uxfs-trace 1\"",
            ));
        }
        let mut found = Self { paths: vec![(0, String::new())], ..Self::default() };
        for (number, line) in lines {
            found.line(line).ok_or_else(|| {
                LabError::new(
                    format!("{name}, line {number}"),
                    format!("not a valid operation: {line:?}"),
                )
            })?;
        }
        Ok(found)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (op, rest) = line.split_once(' ')?;
        if op == "#" {
            self.about = rest.to_owned();
            return Some(());
        }
        if op == "p" {
            let (parent, name) = rest.split_once(' ')?;
            let fine = !name.is_empty() && name.len() <= 255 && name != "." && name != "..";
            let fine = fine && !name.contains(['/', '\0']);
            let parent = self.path(Some(parent))?;
            self.paths.push((parent, fine.then(|| name.to_owned())?));
            return Some(());
        }
        let mut words = rest.split(' ');
        if op == "w" {
            let us = words.next()?.parse().ok().filter(|us| *us <= 3_600_000_000)?;
            self.steps.push(Step::Work { us });
            return words.next().is_none().then_some(());
        }
        let path = self.path(words.next())?;
        let mut size = |most: u64| words.next()?.parse().ok().filter(|n: &u64| *n <= most);
        let step = match op {
            "d" => {
                self.before.push((path, None));
                None
            }
            "f" => {
                let size = size(PIECE)?;
                self.before.push((path, Some(size)));
                None
            }
            "C" => Some(Step::Make(path)),
            "O" => Some(Step::Open(path)),
            "K" => Some(Step::Close(path)),
            "R" => Some(Step::Read { path, at: size(LARGEST)?, len: size(PIECE)? }),
            "W" => Some(Step::Write { path, at: size(LARGEST)?, len: size(PIECE)? }),
            "T" => Some(Step::Cut { path, size: size(LARGEST)? }),
            "S" => Some(Step::Sync { path, data: false }),
            "B" => Some(Step::Sync { path, data: true }),
            "N" => Some(Step::Rename(path, self.path(words.next())?)),
            "L" => Some(Step::Link(path, self.path(words.next())?)),
            "Y" => Some(Step::Symlink { path, len: size(1023)? }),
            "D" => Some(Step::MakeDir(path)),
            "X" => Some(Step::RemoveDir(path)),
            "U" => Some(Step::Unlink(path)),
            "A" => Some(Step::Attr(path)),
            "G" => Some(Step::Look(path)),
            "M" => Some(Step::Miss(path)),
            "E" => Some(Step::List(path)),
            _ => return None,
        };
        self.steps.extend(step);
        words.next().is_none().then_some(())
    }

    fn path(&self, word: Option<&str>) -> Option<PathNo> {
        word?.parse().ok().filter(|path: &PathNo| (*path as usize) < self.paths.len())
    }

    /// A path relative to the tree's top, without a slash at its ends.
    pub fn path_of(&self, path: PathNo) -> String {
        let mut parts = Vec::new();
        let mut at = path;
        // A parent has a smaller number than its children, so this ends.
        while at != 0 {
            let (parent, name) = &self.paths[at as usize];
            parts.push(name.as_str());
            at = *parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Seconds of processor time of the recorded programs.
    pub fn work_s(&self) -> f64 {
        let work = |step: &Step| if let Step::Work { us } = step { *us } else { 0 };
        self.steps.iter().map(work).sum::<u64>() as f64 / 1e6
    }

    /// The number of operations without processor time.
    pub fn calls(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, Step::Work { .. })).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_into_steps() {
        let text = "uxfs-trace 1\n# of a test\np 0 dir\np 1 a name\nd 1\nf 2 70\nw 30\nO 2\n\
                    R 2 0 70\nW 2 70 5\nT 2 9\nS 2\nB 2\nK 2\nN 2 1\nL 1 2\nY 2 4\nD 1\nX 1\nU 2\n\
                    A 2\nG 2\nM 2\nE 1\nC 2\n";
        let found = Recording::parse(text, "text").unwrap();
        assert_eq!((found.about.as_str(), found.path_of(2).as_str()), ("of a test", "dir/a name"));
        assert_eq!(found.before, [(1, None), (2, Some(70))]);
        assert_eq!((found.steps.len(), found.calls(), found.work_s()), (19, 18, 30e-6));
        assert_eq!(found.steps[2], Step::Read { path: 2, at: 0, len: 70 });
        assert_eq!(found.steps[6], Step::Sync { path: 2, data: true });
    }

    #[test]
    fn an_invalid_recording_is_refused() {
        let recording = |line: &str| format!("uxfs-trace 1\np 0 a\n{line}\n");
        for line in [
            "p 0 ..",
            "p 0 .",
            "p 0 a/b",
            "p 0 ",
            "p 2 b",
            "C 2",
            "C",
            "C 1 1",
            "C -1",
            "R 1 0",
            "W 1 0 99999999999",
            "W 1 99999999999999 1",
            "T 1 x",
            "Z 1",
            "w 99999999999",
            "",
        ] {
            let error = Recording::parse(&recording(line), "text").unwrap_err().to_string();
            assert!(error.contains("line 3"), "{line}: {error}");
        }
        assert!(Recording::parse("", "text").is_err());
        assert!(Recording::parse("uxfs-trace 2\n", "text").is_err());
        assert!(Recording::unpack(b"no gzip", "text").is_err());
        assert!(Recording::named("svn").unwrap_err().to_string().contains("compile"));
    }

    /// The recordings in the repository can be read, and are small.
    #[test]
    fn the_included_recordings_are_read() {
        for (name, packed) in [("git", GIT), ("compile", COMPILE)] {
            let found = Recording::named(name).unwrap();
            println!("{name}: {}, {} calls, {} s", found.about, found.calls(), found.work_s());
            assert!(found.calls() > 20_000 && found.work_s() > 0.5, "{name}");
            assert!(packed.len() < 200_000, "{name}: {} bytes", packed.len());
        }
        let syncs = |s: &&Step| matches!(s, Step::Sync { .. });
        assert!(Recording::named("git").unwrap().steps.iter().filter(syncs).count() > 0);
    }
}
