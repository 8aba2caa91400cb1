//! What a caller chooses about a dump, and what it learns while and after one is written.

use uxfs_format::metadump::Content;

use crate::names::Names;

/// Version of the format of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Version {
    /// What every xfs_mdrestore reads.
    #[default]
    One,
    /// What xfs_mdrestore reads from 6.6 on.
    Two,
}

/// How a volume is dumped.
#[derive(Clone)]
pub struct DumpOptions {
    /// Version of the format.
    pub version: Version,
    /// Gives names of files and attributes other names, and clears the values of attributes. `None`
    /// keeps all.
    pub names: Option<Names>,
    /// Keeps the bytes of metadata that are not in use, which may hold old names.
    pub whole_blocks: bool,
    /// Ends the dump at the first read error. Otherwise what cannot be read is left out.
    pub stop_at_read_error: bool,
    /// Extents of directories, attributes and links with more blocks than this are taken for damage
    /// and left out.
    pub longest_extent: u64,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            version: Version::One,
            names: None,
            whole_blocks: false,
            stop_at_read_error: false,
            longest_extent: uxfs_format::extent::MAX_EXTENT_LEN,
        }
    }
}

/// What happens while a dump is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// So much is done.
    Progress(DumpProgress),
    /// Metadata that contradicts itself, cannot be read, or was left out.
    Warning(String),
    /// Something that whoever gets the dump should know.
    Notice(String),
}

/// How far a dump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpProgress {
    /// The headers and trees of this group are being copied.
    Trees {
        /// The group's number.
        ag: u32,
    },
    /// The inodes of this group are being copied.
    Inodes {
        /// Inodes that are done, of all groups.
        done: u64,
        /// Inodes of the volume, as its superblock says.
        total: u64,
        /// The group's number.
        ag: u32,
        /// Number of groups.
        ags: u32,
    },
    /// The log is being copied.
    Log,
    /// An empty log takes the place of a clean one.
    CleanLog,
}

/// What a dump holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DumpSummary {
    /// What the header says.
    pub content: Content,
    /// Inodes, free ones included.
    pub inodes: u64,
    /// Bytes of metadata, without the headers of the dump.
    pub bytes: u64,
    /// Structures that were damaged or could not be read.
    pub warnings: u64,
    /// Bytes that were left out because they could have held names.
    pub withheld: u64,
}
