//! What is wrong with a structure, and where it lies.

use crate::types::{AgBlock, AgNo, Daddr, Ino};

/// Where a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A header or block of an allocation group.
    Ag(AgNo, AgBlock),
    /// A place on the device.
    Device(Daddr),
    /// An inode and what hangs on it.
    Inode(Ino),
    /// The volume as a whole.
    Volume,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ag(ag, block) => write!(f, "AG {ag} block {block}"),
            Self::Device(daddr) => write!(f, "daddr {daddr} (byte {})", daddr.bytes()),
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Volume => f.write_str("the volume"),
        }
    }
}

/// A structure that failed a check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at {place} is damaged: {problem}")]
pub struct Corrupt {
    /// The structure by XFS' name, such as `AGF` or `bnobt block`.
    pub structure: &'static str,
    /// Where it lies.
    pub place: Place,
    /// The check that failed, with the values seen.
    pub problem: String,
}

impl Corrupt {
    /// A failed check of `structure` at `place`.
    pub fn new(structure: &'static str, place: Place, problem: impl Into<String>) -> Self {
        Self { structure, place, problem: problem.into() }
    }
}
