//! What the check found: a code that stays the same, how bad it is, where, and in words.
//!
//! Made by every part of the check through [`crate::ctx::Ctx::find`]; shown by [`crate::Report`].

use core::fmt;

use uxfs_format::{AgBlock, AgNo, Ino};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong with the volume.
    Note,
    /// Not as it should be, but no program that reads or writes the volume will stumble over it.
    Warning,
    /// The volume contradicts itself.
    Error,
}

impl Severity {
    /// Its name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Where a finding lies: as much as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Allocation group.
    pub ag: Option<AgNo>,
    /// Block in that group.
    pub block: Option<AgBlock>,
    /// Inode that it belongs to.
    pub inode: Option<Ino>,
    /// A path that leads to the inode.
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

    /// A block that belongs to an inode.
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

/// One thing that the check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding: one of [`crate::code::ALL`], the same in every version.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where it lies.
    pub place: Place,
    /// What was seen and what should have been, in words.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, severity, place, message } = self;
        write!(f, "{}: {place}: {message} [{code}]", severity.name())
    }
}
