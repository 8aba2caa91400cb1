//! Moving the data of a file to fewer extents while it is in use, asked for through the control channel: the
//! names [`PART`] and [`EXTENTS`] of the file.
//!
//! 1. One request moves a part of a file ([`MOST`]), so that no request takes long and the caller sees the
//!    progress.
//! 2. Root may ask for it, the owner of the mount, and the owner of the file.
//!
//! Called by the server, and by the command.

use std::io;
use std::path::Path;

use uxfs::format::Ino;
use uxfs::{DefragOptions, Fragmentation, Fs};

use crate::control::{self, Lines};

/// The prefix of the name whose value moves a part of a file: `FROM` in bytes, then `,shared` if shared
/// blocks are moved, too.
pub(crate) const PART: &[u8] = b"uxfs.defrag=";
/// How badly the file is split.
pub(crate) const EXTENTS: &[u8] = b"uxfs.extents";

/// About how many bytes one request moves at most.
const MOST: u64 = 32 << 20;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    from: u64,
    options: DefragOptions,
}

impl Request {
    /// Parses what follows [`PART`].
    pub(crate) fn parse(words: &[u8]) -> Option<Self> {
        let words = std::str::from_utf8(words).ok()?;
        let (from, shared) = match words.strip_suffix(",shared") {
            Some(from) => (from, true),
            None => (words, false),
        };
        Some(Self { from: from.parse().ok()?, options: DefragOptions { shared } })
    }

    /// Moves the part. Returns the value.
    pub(crate) fn run(self, fs: &Fs, ino: Ino) -> uxfs::Result<Vec<u8>> {
        let part = fs.defrag_part(ino, self.options, self.from, MOST)?;
        let mut lines = Lines::default();
        if let Some(next) = part.next {
            lines.add("next", next);
        }
        lines.add("moved", part.moved);
        if let Some(kept) = part.kept {
            lines.add("kept", kept);
        }
        Ok(lines.bytes())
    }
}

/// The value of [`EXTENTS`].
pub(crate) fn extents(fs: &Fs, ino: Ino) -> uxfs::Result<Vec<u8>> {
    let counted = fs.fragmentation(ino)?;
    let mut lines = Lines::default();
    lines.add("extents", counted.extents);
    lines.add("possible", counted.possible);
    Ok(lines.bytes())
}

/// What a request did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Where to go on; `None` at the end of the file.
    pub next: Option<u64>,
    /// Bytes that were moved.
    pub moved: u64,
    /// Why the file was left alone, if it was.
    pub kept: Option<String>,
}

/// Moves a part of a file on a mount to fewer extents, from byte `from` on. With `shared`, also blocks that
/// it shares with other files.
///
/// # Errors
/// EPERM for other users than root and the file's owner; an error of the volume.
pub fn part(path: &Path, from: u64, shared: bool) -> io::Result<Part> {
    let words = format!("{from}{}", if shared { ",shared" } else { "" });
    let mut part = Part::default();
    for (name, value) in control::read_value(path, &[PART, words.as_bytes()].concat())? {
        match name.as_str() {
            "next" => part.next = Some(number(&value)?),
            "moved" => part.moved = number(&value)?,
            "kept" => part.kept = Some(value),
            _ => {}
        }
    }
    Ok(part)
}

/// How badly a file on a mount is split.
///
/// # Errors
/// An error of the volume.
pub fn fragmentation(path: &Path) -> io::Result<Fragmentation> {
    let mut counted = Fragmentation::default();
    for (name, value) in control::read_value(path, EXTENTS)? {
        match name.as_str() {
            "extents" => counted.extents = number(&value)?,
            "possible" => counted.possible = number(&value)?,
            _ => {}
        }
    }
    Ok(counted)
}

fn number(value: &str) -> io::Result<u64> {
    value.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the answer is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_an_offset() {
        let parsed = |words: &str| Request::parse(words.as_bytes());
        let options = |shared| DefragOptions { shared };
        assert_eq!(parsed("4096"), Some(Request { from: 4096, options: options(false) }));
        assert_eq!(parsed("0,shared"), Some(Request { from: 0, options: options(true) }));
        for bad in ["", "x", "0,", "0,all", "-1", "1,shared,shared"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
