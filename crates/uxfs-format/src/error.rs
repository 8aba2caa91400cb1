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

/// The kind of a failed check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// The magic number of the structure, or its type.
    Magic,
    /// The version of the structure, or a feature that it needs.
    Version,
    /// The CRC32c of the structure.
    Checksum,
    /// The UUID of the volume.
    Uuid,
    /// The own address: block number, inode number or place in the file.
    Address,
    /// The owner of a block or an extent.
    Owner,
    /// A size of the volume or of its allocation groups.
    Geometry,
    /// The level of a block in its tree, or the height of the tree.
    Level,
    /// A count of records, entries or extents.
    Count,
    /// The order of keys, records or hashes.
    Order,
    /// A number or an extent that lies outside its bounds.
    Range,
    /// Records, names or extents that overlap, or that are used or freed twice.
    Overlap,
    /// Flags that are unknown or contradict each other.
    Flags,
    /// A length in bytes or blocks.
    Size,
    /// The format of an inode fork or of a part of a block.
    Format,
    /// The file type in the mode of an inode.
    Mode,
    /// The link count of an inode.
    Links,
    /// The generation of an inode.
    Generation,
    /// A pointer to a child, a sibling, an entry or an inode.
    Pointer,
    /// A name or the type of its entry.
    Name,
    /// A hash value, or the bucket that it selects.
    Hash,
    /// The list of free blocks of an allocation group (AGFL).
    FreeList,
    /// The free space inside directory and attribute blocks, or the index of it.
    FreeSpace,
    /// A summary counter against the objects that it counts.
    Counter,
    /// A record or block that must exist.
    Missing,
    /// Directories or blocks that form a cycle, or that two paths reach.
    Loop,
    /// In use or free, against another structure; or a change of a locked structure.
    State,
    /// Two structures that disagree about the same object.
    CrossReference,
}

impl Check {
    /// A failed check of this kind; `detail` gives the values seen.
    pub fn failed(self, detail: impl Into<String>) -> Problem {
        Problem { check: self, detail: detail.into() }
    }
}

/// A failed check, without the structure and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// The kind of the check.
    pub check: Check,
    /// What is wrong, with the values seen.
    pub detail: String,
}

impl Problem {
    /// Names the structure that has the problem.
    pub fn of(self, structure: &'static str, place: Place) -> Corrupt {
        Corrupt::new(structure, place, self.check, self.detail)
    }
}

/// A structure that failed a check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure} at {place} is damaged: {detail}")]
pub struct Corrupt {
    /// XFS' name of the structure, for example `AGF` or `bnobt block`.
    pub structure: &'static str,
    /// The structure's place on the volume.
    pub place: Place,
    /// The kind of the check that failed.
    pub check: Check,
    /// What is wrong, with the values seen.
    pub detail: String,
}

impl Corrupt {
    /// Reports a failed check of `structure` at `place`.
    pub fn new(
        structure: &'static str,
        place: Place,
        check: Check,
        detail: impl Into<String>,
    ) -> Self {
        Self { structure, place, check, detail: detail.into() }
    }
}
