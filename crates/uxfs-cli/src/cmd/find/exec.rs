//! `find -exec`: starts programs of this machine with the paths of files as arguments.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use uxfs_host::{OsStrExt, OsStringExt};

use crate::session::{Failure, Result, Session};

/// Most bytes of paths in one command line; well below every kernel's limit.
const PATHS_MAX: usize = 64 << 10;

/// Runs the program for one file. True if it succeeds.
pub(super) fn run(session: &Session, words: &[OsString], path: &[u8]) -> Result<bool> {
    let words: Vec<OsString> = words.iter().map(|word| with_path(word, path)).collect();
    start(session, &words)
}

/// Replaces each `{}` in the word by the path.
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
    // Keep our output before the program's.
    session.flush()?;
    match Command::new(program).args(arguments).status() {
        Ok(status) => Ok(status.success()),
        Err(error) => {
            session.fail(Failure::host(program, &error));
            Ok(false)
        }
    }
}

/// A program that takes many files, and the files collected for its next run.
pub(super) struct Batch {
    words: Vec<OsString>,
    paths: Vec<OsString>,
    bytes: usize,
}

impl Batch {
    /// `words`: the program and its first arguments.
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self { words, paths: Vec::new(), bytes: 0 }
    }

    /// Adds a file. Runs the program when the command line is full.
    pub(super) fn add(&mut self, session: &Session, path: &[u8]) -> Result<()> {
        if self.bytes + path.len() > PATHS_MAX {
            self.finish(session)?;
        }
        self.bytes += path.len() + 1;
        self.paths.push(OsString::from_vec(path.to_vec()));
        Ok(())
    }

    /// Runs the program with the remaining files. If it fails, the exit code is at least 1.
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
