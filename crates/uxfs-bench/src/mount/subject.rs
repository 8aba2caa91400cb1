//! What is measured in turns: the mount, the pass-through server, the kernel's XFS, each fresh.

use std::path::Path;

use super::options::Options;
use super::requests::Requests;
use super::served::Served;
use crate::host::Scratch;
use crate::kernel::{Kind, Mounted};
use crate::traffic::{Durability, Traffic};
use crate::{BenchError, Result};

pub(super) use crate::settings::KERNEL;
pub(super) const MOUNT: &str = "uxfs mount";
pub(super) const THROUGH: &str = "FUSE pass-through server";

pub(super) enum Subject {
    Mount(Served),
    Through(Served),
    Kernel(Mounted),
}

/// Mounts the named one, works on it, and unmounts and removes it, also if the work fails.
pub(super) fn with<R>(
    name: &str,
    options: &Options,
    scratch: &Scratch,
    work: impl FnOnce(&Subject) -> Result<R>,
) -> Result<R> {
    let subject = match name {
        MOUNT => {
            Subject::Mount(Served::volume(&options.uxfs, scratch, options.size, &options.options)?)
        }
        THROUGH => Subject::Through(Served::through(&options.uxfs, scratch)?),
        KERNEL => Subject::Kernel(Mounted::new(Kind::Xfs, scratch, options.size)?),
        other => return Err(BenchError::new(other, "is no system to measure")),
    };
    let result = work(&subject);
    let ended = match subject {
        Subject::Mount(served) | Subject::Through(served) => served.done(),
        Subject::Kernel(mounted) => mounted.done(),
    };
    // The first error is reported.
    let value = result?;
    ended.map(|()| value)
}

impl Subject {
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Mount(served) | Self::Through(served) => &served.dir,
            Self::Kernel(mounted) => &mounted.dir,
        }
    }

    /// The traffic to its device so far; zero for a server without one.
    pub(super) fn traffic(&self) -> Result<Traffic> {
        match self {
            Self::Mount(served) | Self::Through(served) => served.traffic(),
            Self::Kernel(mounted) => mounted.traffic(),
        }
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Self::Mount(served) | Self::Through(served) => served.sync(),
            Self::Kernel(mounted) => mounted.sync(),
        }
    }

    /// Largest resident memory of its server so far, in KiB.
    pub(super) fn memory_kib(&self) -> Option<u64> {
        match self {
            Self::Mount(served) | Self::Through(served) => served.memory_kib(),
            Self::Kernel(_) => None,
        }
    }

    /// The requests of the kernel so far, if a mount counts them.
    pub(super) fn requests(&self) -> Result<Option<Requests>> {
        match self {
            Self::Mount(served) => served.requests().map(Some),
            Self::Through(_) | Self::Kernel(_) => Ok(None),
        }
    }

    /// The durability of what no program has synced; `mount` is that of the mount.
    pub(super) fn durability(&self, mount: Durability) -> Durability {
        match self {
            Self::Mount(_) => mount,
            Self::Through(_) => Durability::Host,
            Self::Kernel(mounted) => Durability::Within(mounted.age()),
        }
    }
}
