//! `find -exec`: programs of this machine, told of files by their paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use crate::session::{Failure, Result, Session};

/// Bytes of paths that one start of a program is given at most: well below every kernel's limit.
const PATHS_MAX: usize = 64 << 10;

/// Runs the program for one file; did it succeed?
pub(super) fn run(session: &Session, words: &[OsString], path: &[u8]) -> Result<bool> {
    let words: Vec<OsString> = words.iter().map(|word| with_path(word, path)).collect();
    start(session, &words)
}

/// The word with the path in the place of each `{}`.
fn with_path(word: &OsStr, path: &[u8]) -> OsString {
    let mut text = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{}") {
        text.extend_from_slice(&rest[..at]);
        text.extend_from_slice(path);
        rest = &rest[at + 2..];
    }
    text.extend_from_slice(rest);
    OsString::from_vec(text)
}

fn start(session: &Session, words: &[OsString]) -> Result<bool> {
    let Some((program, arguments)) = words.split_first() else { return Ok(true) };
    // What was printed before stands before what the program prints.
    session.flush()?;
    match Command::new(program).args(arguments).status() {
        Ok(status) => Ok(status.success()),
        Err(error) => {
            session.fail(Failure::host(program, &error));
            Ok(false)
        }
    }
}

/// A program that takes many files, and those it has not been given yet.
pub(super) struct Many {
    words: Vec<OsString>,
    paths: Vec<OsString>,
    bytes: usize,
}

impl Many {
    /// Of the program and its first arguments.
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self { words, paths: Vec::new(), bytes: 0 }
    }

    /// Adds a file; runs the program when there are many.
    pub(super) fn add(&mut self, session: &Session, path: &[u8]) -> Result<()> {
        if self.bytes + path.len() > PATHS_MAX {
            self.finish(session)?;
        }
        self.bytes += path.len() + 1;
        self.paths.push(OsString::from_vec(path.to_vec()));
        Ok(())
    }

    /// Runs the program with what is left. Its failure is one of the command's.
    pub(super) fn finish(&mut self, session: &Session) -> Result<()> {
        if !self.paths.is_empty() {
            let words: Vec<OsString> =
                self.words.iter().cloned().chain(std::mem::take(&mut self.paths)).collect();
            self.bytes = 0;
            if !start(session, &words)? {
                session.set_code(1);
            }
        }
        Ok(())
    }
}
