//! The first 8 KiB of a fork: twice the place for a head, which names the base and where the deltas begin.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | magic number `uxfsfork` |
//! | 8 | version, 1 |
//! | 12 | state: 0 in use, 1 being committed |
//! | 16 | number of this head; the higher one of the two counts |
//! | 24 | where the first frame begins |
//! | 32 | up to where the file was durable when the head was written |
//! | 40 | random name of the fork, 16 bytes |
//! | 56 | length of the base |
//! | 64 | when the base was last changed |
//! | 72 | SHA-256 of the base's first 64 KiB |
//! | 104 | length of the base's path |
//! | 108 | the base's path, at most 3072 bytes |
//! | 4064 | SHA-256 of all bytes above |
//!
//! All numbers are little-endian.
//!
//! 1. A head is written where the older one of the two is, so a power cut leaves one of them.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use uxfs_delta::Hash;
use uxfs_host::{FileExt, OsStrExt, OsStringExt};

use crate::base::Base;
use crate::damaged;

const MAGIC: [u8; 8] = *b"uxfsfork";
const VERSION: u32 = 1;
const LEN: usize = 4096;
const PATH_MAX: usize = 3072;
const HASH_AT: usize = LEN - 32;

/// Where the frames may begin.
pub(crate) const HEADS_LEN: u64 = 2 * LEN as u64;

/// What is being done with a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    InUse,
    /// Its base has received a part of it.
    Committing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) state: State,
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) durable: u64,
    pub(crate) name: [u8; 16],
    pub(crate) base: Base,
}

/// Does a file hold a fork?
///
/// # Errors
/// The errors of reading the file.
pub fn is_fork(file: &File) -> io::Result<bool> {
    let mut magic = [[0; 8]; 2];
    for (at, magic) in magic.iter_mut().enumerate() {
        match file.read_exact_at(magic, (at * LEN) as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            other => other?,
        }
    }
    // A new one is made in the second place; a cut may have left nothing in the first.
    Ok(magic.contains(&MAGIC))
}

impl Head {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let path = self.base.path.as_os_str().as_bytes();
        let len = u32::try_from(path.len()).ok().filter(|len| *len as usize <= PATH_MAX);
        let Some(len) = len else {
            let text = format!("the base's path is longer than {PATH_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, text));
        };
        let state: u32 = if self.state == State::InUse { 0 } else { 1 };
        let mut bytes = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &state.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.start.to_le_bytes(),
            &self.durable.to_le_bytes(),
            &self.name,
            &self.base.len.to_le_bytes(),
            &self.base.changed.to_le_bytes(),
            &self.base.head.0,
            &len.to_le_bytes(),
            path,
        ]
        .concat();
        bytes.resize(HASH_AT, 0);
        bytes.extend_from_slice(&Hash::of(&bytes).0);
        Ok(bytes)
    }

    fn parse(bytes: &[u8; LEN]) -> io::Result<Option<Self>> {
        if bytes[..8] != MAGIC || Hash::of(&bytes[..HASH_AT]).0 != bytes[HASH_AT..] {
            return Ok(None);
        }
        let mut rest = &bytes[8..];
        let version = u32::from_le_bytes(next(&mut rest));
        if version != VERSION {
            let text = format!("a fork of version {version}: use a newer uxfs");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let state = match u32::from_le_bytes(next(&mut rest)) {
            0 => State::InUse,
            1 => State::Committing,
            other => return Err(damaged(format_args!("its state is {other}"))),
        };
        let mut number = || u64::from_le_bytes(next(&mut rest));
        let (count, start, durable) = (number(), number(), number());
        let name = next(&mut rest);
        let mut number = || u64::from_le_bytes(next(&mut rest));
        let (len, changed) = (number(), number());
        let head = Hash(next(&mut rest));
        let path_len = u32::from_le_bytes(next(&mut rest)) as usize;
        if path_len > PATH_MAX || start < HEADS_LEN || i64::try_from(len).is_err() {
            return Err(damaged("its head has impossible values"));
        }
        let path = std::ffi::OsString::from_vec(rest[..path_len].to_vec());
        let base = Base { path: PathBuf::from(path), len, changed, head };
        Ok(Some(Self { state, number: count, start, durable, name, base }))
    }

    /// Reads the head of a fork.
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        let mut newest: Option<Self> = None;
        for place in 0..2 {
            let mut bytes = [0; LEN];
            file.read_exact_at(&mut bytes, place * LEN as u64)?;
            if let Some(head) = Self::parse(&bytes)?
                && newest.as_ref().is_none_or(|newest| newest.number < head.number)
            {
                newest = Some(head);
            }
        }
        newest.ok_or_else(|| damaged("neither of its heads is whole"))
    }

    /// Writes the next head, durably.
    pub(crate) fn write(&mut self, file: &File) -> io::Result<()> {
        let next = Self { number: self.number + 1, ..self.clone() };
        file.write_all_at(&next.to_bytes()?, next.number % 2 * LEN as u64)?;
        file.sync_data()?;
        *self = next;
        Ok(())
    }
}

/// Takes the next bytes of a head, all of which are there.
fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, later) = rest.split_at(N);
    *rest = later;
    let mut bytes = [0; N];
    bytes.copy_from_slice(first);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_heads_the_newer_whole_one_counts() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(HEADS_LEN).unwrap();
        assert!(Head::read(&file).is_err() && !is_fork(&file).unwrap());
        let base = Base { path: "b".into(), len: 1, changed: 2, head: Hash([3; 32]) };
        let mut head = Head {
            state: State::InUse,
            number: 0,
            start: HEADS_LEN,
            durable: 0,
            name: [7; 16],
            base,
        };
        head.write(&file).unwrap();
        assert!(is_fork(&file).unwrap());
        let first = Head::read(&file).unwrap();
        head.state = State::Committing;
        head.write(&file).unwrap();
        assert_eq!(Head::read(&file).unwrap(), head);
        // The newer one, number 2, lies in the first place.
        file.write_all_at(&[9], 50).unwrap();
        assert_eq!(Head::read(&file).unwrap(), first);
    }
}
