//! dbench's load file: one operation per line, as a file server's client asked for it.
//!
//! `NTCreateX "NAME" OPTIONS DISPOSITION HANDLE STATUS`, `ReadX HANDLE OFFSET BYTES GOT STATUS`,
//! `Flush HANDLE STATUS`, and so on. A name is that of a file below `\clients\client1`; playing it
//! replaces the client's number. The status is that of the original server and is not compared:
//! some of it depends on other clients.

use std::path::Path;

use crate::{BenchError, Result};

/// A name: its parts, below the client's own directory.
pub type Name = Vec<Box<[u8]>>;

/// The number of an open file in a load file.
pub type Handle = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Open,
    /// The file is created if it does not exist.
    Create,
    /// The file is created if it does not exist, and emptied otherwise.
    Overwrite,
}

/// An operation, as dbench maps it to a file system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens or makes a file, or a directory.
    Open {
        name: Name,
        directory: bool,
        /// What happens if it exists or not.
        how: Disposition,
        handle: Handle,
    },
    Close(Handle),
    Read {
        handle: Handle,
        offset: u64,
        len: u32,
    },
    Write {
        handle: Handle,
        offset: u64,
        len: u32,
    },
    /// `fsync`.
    Flush(Handle),
    Unlink(Name),
    Rename(Name, Name),
    Mkdir(Name),
    /// Takes a directory and all below it away.
    Deltree(Name),
    /// `stat`.
    QueryPath(Name),
    /// `fstat`.
    QueryFile(Handle),
    /// `statfs`.
    QueryFs,
    SetFile(Handle),
    /// Lists the directory that a pattern lies in.
    Find(Name),
    /// Locks of ranges, which are not the file system's.
    Lock,
}

/// Reads a load file.
///
/// # Errors
/// If it cannot be read, or holds what is no operation.
pub fn read(path: &Path) -> Result<Vec<Op>> {
    let text = std::fs::read(path).map_err(|e| BenchError::new(path.display().to_string(), e))?;
    let mut ops = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let op = parse(line).ok_or_else(|| {
            let what = format!("{} line {}", path.display(), number + 1);
            BenchError::new(what, format!("not an operation: {}", line.escape_ascii()))
        })?;
        ops.push(op);
    }
    if ops.is_empty() {
        return Err(BenchError::new(path.display().to_string(), "holds no operation"));
    }
    Ok(ops)
}

fn parse(line: &[u8]) -> Option<Op> {
    let words = words(line)?;
    let word = |at: usize| words.get(at).copied();
    let name = |at: usize| word(at).map(name_of);
    let number = |at: usize| {
        let text = core::str::from_utf8(word(at)?).ok()?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let handle = |at: usize| Handle::try_from(number(at)?).ok();
    let len = |at: usize| u32::try_from(number(at)?).ok().filter(|len| *len <= LEN_MAX);
    Some(match word(0)? {
        b"NTCreateX" => Op::Open {
            name: name(1)?,
            directory: number(2)? & 1 != 0,
            how: match number(3)? {
                1 => Disposition::Open,
                4 | 5 => Disposition::Overwrite,
                _ => Disposition::Create,
            },
            handle: handle(4)?,
        },
        b"Close" => Op::Close(handle(1)?),
        b"ReadX" => Op::Read { handle: handle(1)?, offset: number(2)?, len: len(3)? },
        b"WriteX" => Op::Write { handle: handle(1)?, offset: number(2)?, len: len(3)? },
        b"Flush" => Op::Flush(handle(1)?),
        b"Unlink" => Op::Unlink(name(1)?),
        b"Rename" => Op::Rename(name(1)?, name(2)?),
        b"Mkdir" => Op::Mkdir(name(1)?),
        b"Deltree" => Op::Deltree(name(1)?),
        b"QUERY_PATH_INFORMATION" => Op::QueryPath(name(1)?),
        b"QUERY_FILE_INFORMATION" => Op::QueryFile(handle(1)?),
        b"QUERY_FS_INFORMATION" => Op::QueryFs,
        b"SET_FILE_INFORMATION" => Op::SetFile(handle(1)?),
        b"FIND_FIRST" => Op::Find(name(1)?),
        b"LockX" | b"UnlockX" => Op::Lock,
        _ => return None,
    })
}

/// Longest single read or write that a load file may ask for.
const LEN_MAX: u32 = 16 << 20;

/// The words of a line, of which those in quotes may hold spaces.
fn words(line: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|byte| *byte == b'"')?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        words.push(word);
        rest = after;
    }
}

/// The parts of a name below the client's directory.
fn name_of(text: &[u8]) -> Name {
    let parts = text.split(|byte| matches!(byte, b'\\' | b'/')).filter(|part| !part.is_empty());
    let parts: Vec<&[u8]> = parts.collect();
    let own = match parts.as_slice() {
        [b"clients", client, rest @ ..] if client.starts_with(b"client") => rest,
        [b"clients"] => &[],
        all => all,
    };
    own.iter().map(|part| Box::from(*part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_operations() {
        let name = |parts: &[&str]| parts.iter().map(|p| Box::from(p.as_bytes())).collect::<Name>();
        let made =
            parse(br#"NTCreateX "\clients\client1\~dmtmp\A B.PPT" 0x40 0x2 9938 NT_STATUS_OK"#);
        let how = Disposition::Create;
        let want =
            Op::Open { name: name(&["~dmtmp", "A B.PPT"]), directory: false, how, handle: 9938 };
        assert_eq!(made, Some(want));
        let write = parse(b"WriteX 9938 65534 1 1 NT_STATUS_OK");
        assert_eq!(write, Some(Op::Write { handle: 9938, offset: 65534, len: 1 }));
        let top = parse(br#"NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK"#);
        let want = Op::Open { name: name(&[]), directory: true, how, handle: 1 };
        assert_eq!(top, Some(want));
        assert_eq!(
            parse(br#"Rename "\clients\client1\A" "\clients\client1\B" NT_STATUS_OK"#),
            Some(Op::Rename(name(&["A"]), name(&["B"])))
        );
        assert_eq!(parse(b"Flush 10012 NT_STATUS_OK"), Some(Op::Flush(10012)));
        assert_eq!(parse(b"Frobnicate 1"), None);
        assert_eq!(parse(b"Close \"unfinished"), None);
        assert_eq!(parse(b"ReadX 1 0 4294967295 0 NT_STATUS_OK"), None);
    }
}
