//! What an import tells of itself: how far it is, and what it did.

/// The progress of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read from the source.
    pub read: u64,
    /// Bytes of the whole source, if known.
    pub total: Option<u64>,
    /// Files created so far.
    pub files: u64,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Entries of the source: files, directories, links and others.
    pub entries: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// True if a new file system was created.
    pub created: bool,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Texts about what could not be kept exactly.
    pub warnings: Vec<String>,
}
