//! The file systems that uxfs is compared with in real time.

use core::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use uxfs_bench::{Kind, has, is_root};

use crate::{LabError, Result};

/// A file system that uxfs is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A file system of the kernel, on a loop device over a file.
    Kernel(Kind),
    /// A directory on any file system.
    Dir(PathBuf),
}

impl FromStr for Peer {
    type Err = LabError;

    fn from_str(word: &str) -> Result<Self> {
        match word.split_once(':') {
            Some(("kernel", "xfs")) => Ok(Self::Kernel(Kind::Xfs)),
            Some(("kernel", "ext4")) => Ok(Self::Kernel(Kind::Ext4)),
            Some(("kernel", "btrfs")) => Ok(Self::Kernel(Kind::Btrfs)),
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Dir(path.into())),
            _ => Err(LabError::new(
                word,
                "not a peer; there are kernel:xfs, kernel:ext4, kernel:btrfs and dir:PATH",
            )),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(kind) => write!(f, "kernel:{}", kind.name()),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

impl Peer {
    /// Can it be used here?
    pub(super) fn ready(&self) -> Result<()> {
        let refuse = |why: String| Err(LabError::new(self.to_string(), why));
        match self {
            Self::Dir(path) if !path.is_dir() => refuse("not a directory".into()),
            Self::Dir(_) => Ok(()),
            Self::Kernel(_) if !is_root() => refuse(
                "mounting needs root; dir:PATH needs a directory on such a file system".into(),
            ),
            Self::Kernel(kind) => {
                let tools = [format!("mkfs.{}", kind.name()), "mount".into(), "findmnt".into()];
                match tools.iter().find(|tool| !has(tool)) {
                    Some(tool) => refuse(format!("needs {tool}, which is not installed")),
                    None => Ok(()),
                }
            }
        }
    }
}
