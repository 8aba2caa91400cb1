//! The calls of a run that changed names or contents, against which [`crate::moment`] judges what a power cut
//! left.
//!
//! 1. The beginning and the end of each call have a position. Positions count from 1, in the order of the
//!    simulation.
//! 2. A call is recorded when it ends. Calls that fail are not recorded: they end the run.
//!
//! Filled by the clients of a run through [`crate::setup::Lab`].

use std::sync::Arc;

use uxfs::format::Ino;

/// Bytes that a call wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A word, repeated for this many bytes.
    Word([u8; 8], usize),
    Bytes(Arc<[u8]>),
}

impl Written {
    pub fn new(bytes: &[u8]) -> Self {
        let word = bytes.first_chunk::<8>().copied();
        let same = |word: &[u8; 8]| bytes.chunks(8).all(|chunk| *chunk == word[..chunk.len()]);
        match word.filter(same) {
            Some(word) => Self::Word(word, bytes.len()),
            None => Self::Bytes(bytes.into()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Word(_, len) => *len,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from this offset on.
    pub fn copy(&self, from: usize, into: &mut [u8]) {
        match self {
            Self::Word(word, _) => {
                for (i, byte) in into.iter_mut().enumerate() {
                    *byte = word[(from + i) % 8];
                }
            }
            Self::Bytes(bytes) => into.copy_from_slice(&bytes[from..from + into.len()]),
        }
    }
}

/// What a new name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink(Vec<u8>),
}

/// A change of names or contents. Names are those in a directory.
#[derive(Clone, Debug)]
pub enum Change {
    Made {
        dir: Ino,
        name: String,
        ino: Ino,
        kind: Kind,
    },
    Linked {
        ino: Ino,
        dir: Ino,
        name: String,
    },
    Removed {
        dir: Ino,
        name: String,
    },
    Renamed {
        dir: Ino,
        name: String,
        to_dir: Ino,
        to_name: String,
    },
    Wrote {
        ino: Ino,
        at: u64,
        bytes: Written,
    },
    Cut {
        ino: Ino,
        size: u64,
    },
    /// Everything that ended before this call began is durable when it ends.
    MadeDurable,
}

/// A call, from one position to another.
#[derive(Clone, Debug)]
pub struct Call {
    pub begin: u64,
    pub end: u64,
    pub change: Change,
}

/// The calls of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they ended.
    pub calls: Vec<Call>,
    /// The time of each position.
    times: Vec<u64>,
}

impl History {
    /// The position of something that happens now.
    pub fn position(&mut self, now: u64) -> u64 {
        self.times.push(now);
        self.times.len() as u64
    }

    /// Records a call that ends now.
    pub fn ended(&mut self, begin: u64, now: u64, change: Change) {
        let end = self.position(now);
        self.calls.push(Call { begin, end, change });
    }

    /// The times at which calls ended that made everything durable.
    pub fn made_durable(&self) -> impl Iterator<Item = u64> {
        let durable = self.calls.iter().filter(|call| matches!(call.change, Change::MadeDurable));
        durable.filter_map(|call| self.time(call.end))
    }

    /// The last position at or before a time; 0 if there is none.
    pub fn position_at(&self, time: u64) -> u64 {
        self.times.partition_point(|at| *at <= time) as u64
    }

    /// The time of a position; `None` after the last.
    pub fn time(&self, position: u64) -> Option<u64> {
        self.times.get(usize::try_from(position).ok()?.checked_sub(1)?).copied()
    }
}
