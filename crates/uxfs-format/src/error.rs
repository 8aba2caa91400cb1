//! The error for a damaged structure: what is wrong with it and where it lies.

use crate::types::{AgBlock, AgNo, Daddr, Ino};

/// Location of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A header or block of an allocation group.
    Ag(AgNo, AgBlock),
    /// An address on the device.
    Device(Daddr),
    /// An inode, its forks and the blocks that it owns.
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
    /// XFS' name of the structure, for example `AGF` or `bnobt block`.
    pub structure: &'static str,
    /// Where it lies.
    pub place: Place,
    /// The check that failed, with the values seen.
    pub problem: String,
}

impl Corrupt {
    /// Reports a failed check of `structure` at `place`.
    pub fn new(structure: &'static str, place: Place, problem: impl Into<String>) -> Self {
        Self { structure, place, problem: problem.into() }
    }
}
