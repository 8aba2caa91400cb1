//! Findings: a stable code, severity, location and a message.
//!
//! All parts of the check report findings through [`crate::ctx::Ctx::find`]; [`crate::Report`]
//! shows them.

use core::fmt;

use uxfs_format::{AgBlock, AgNo, Ino};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information; nothing is wrong with the volume.
    Note,
    /// An irregularity that no program that reads or writes the volume will fail on.
    Warning,
    /// The volume is inconsistent.
    Error,
}

impl Severity {
    /// Name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Location of a finding, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Allocation group.
    pub ag: Option<AgNo>,
    /// Block in the allocation group.
    pub block: Option<AgBlock>,
    /// Inode that owns the structure.
    pub inode: Option<Ino>,
    /// A path that leads to the inode, in bytes.
    pub path: Option<Vec<u8>>,
}

impl Place {
    /// The volume as a whole.
    pub const VOLUME: Self = Self { ag: None, block: None, inode: None, path: None };

    /// An allocation group.
    pub const fn ag(ag: AgNo) -> Self {
        Self { ag: Some(ag), ..Self::VOLUME }
    }

    /// A block of an allocation group.
    pub const fn block(ag: AgNo, block: AgBlock) -> Self {
        Self { ag: Some(ag), block: Some(block), ..Self::VOLUME }
    }

    /// An inode.
    pub const fn inode(ino: Ino) -> Self {
        Self { inode: Some(ino), ..Self::VOLUME }
    }

    /// This location, as part of an inode.
    #[must_use]
    pub const fn of(mut self, ino: Ino) -> Self {
        self.inode = Some(ino);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(ino) = self.inode {
            write!(f, "inode {ino}")?;
            between = ", ";
        }
        if let Some(path) = &self.path {
            write!(f, " ({})", String::from_utf8_lossy(path).escape_debug())?;
        }
        if let Some(ag) = self.ag {
            write!(f, "{between}AG {ag}")?;
            between = ", ";
        }
        if let Some(block) = self.block {
            write!(f, " block {block}")?;
        }
        if between.is_empty() { f.write_str("volume") } else { Ok(()) }
    }
}

/// One problem or note that the check reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The code, one of [`crate::code::ALL`]; stable across versions.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The location.
    pub place: Place,
    /// The value seen and the expected value, in words.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, severity, place, message } = self;
        write!(f, "{}: {place}: {message} [{code}]", severity.name())
    }
}
