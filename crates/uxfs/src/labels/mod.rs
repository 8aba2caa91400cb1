//! SELinux labels of a volume's files: the attribute `security.selinux`, by the rules of a policy.
//!
//! 1. The value is the label and a NUL byte, as `setfiles` writes it.
//! 2. A file for which no rule matches, or a rule says `<<none>>`, keeps what it has.
//! 3. A file with several names gets one label, by the name that comes first: in the order of an
//!    import's source, or in the order of the bytes when a volume is relabelled.
//!
//! Used by `uxfs import`, `uxfs cp`, `uxfs relabel`, `uxfs mkfs -p` and `uxfs disk build`.

mod labeller;
mod relabel;
mod roots;

use std::path::Path;
use std::sync::Arc;

use uxfs_core::Fs;
pub use uxfs_selinux::{ContextsError, FileContexts, FileKind, Lookup, PolicyRoot};

pub(crate) use labeller::Labeller;
pub use relabel::{LabelEvent, RelabelError, RelabelOptions, RelabelSummary, relabel};
pub use roots::{HostRoot, VolumeRoot};

/// Where the rules for labels come from.
#[derive(Clone, Debug)]
pub enum Labels {
    /// These rules.
    Rules(Arc<FileContexts>),
    /// The policy in the tree that gets the labels.
    Auto,
}

impl Labels {
    /// Reads rules from files, or takes them from the tree if the only name is `auto`.
    ///
    /// # Errors
    /// [`FileContexts::load`]'s.
    pub fn from_names<P: AsRef<Path>>(names: &[P]) -> Result<Self, ContextsError> {
        match names {
            [name] if name.as_ref() == Path::new("auto") => Ok(Self::Auto),
            files => Self::from_files(files),
        }
    }

    /// Reads rules from files, whatever their names.
    ///
    /// # Errors
    /// [`FileContexts::load`]'s.
    pub fn from_files<P: AsRef<Path>>(files: &[P]) -> Result<Self, ContextsError> {
        Ok(Self::Rules(Arc::new(FileContexts::load(files)?)))
    }

    /// The rules for the files of a directory of the host: with [`Labels::Auto`], those of the policy in it.
    ///
    /// # Errors
    /// The directory cannot be opened; [`FileContexts::auto`]'s.
    pub fn of_tree(&self, top: &Path) -> Result<Arc<FileContexts>, ContextsError> {
        match self {
            Self::Rules(rules) => Ok(Arc::clone(rules)),
            Self::Auto => {
                let root = HostRoot::open(top);
                let mut root =
                    root.map_err(|source| ContextsError::Io { file: top.to_owned(), source })?;
                Ok(Arc::new(FileContexts::auto(&mut root)?))
            }
        }
    }

    /// The rules for the files of a volume: with [`Labels::Auto`], those of the policy in it.
    ///
    /// # Errors
    /// [`FileContexts::auto`]'s.
    pub fn of_volume(&self, fs: &Fs) -> Result<Arc<FileContexts>, ContextsError> {
        match self {
            Self::Rules(rules) => Ok(Arc::clone(rules)),
            Self::Auto => Ok(Arc::new(FileContexts::auto(&mut VolumeRoot::new(fs))?)),
        }
    }
}
