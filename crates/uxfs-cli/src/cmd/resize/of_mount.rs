//! Growth of a mounted volume, which its server does.

use std::io;
use std::path::Path;

use uxfs::resize::{Method, ResizeSummary, Target};
use uxfs_fuse::growth;

use crate::cmd::status;
use crate::session::{Failure, Result};

/// Grows the volume of a mount.
pub(super) fn grow(dir: &Path, target: Target) -> Result<ResizeSummary> {
    let grow = || {
        let block = u64::from(growth::show(dir)?.block_size.max(1));
        let blocks = match target {
            Target::Fill => None,
            Target::Bytes(bytes) => Some(bytes / block),
            Target::Minimize => return Err(io::Error::other("a volume in use can only grow")),
        };
        let done = growth::grow(dir, blocks)?;
        let method = if done.grown { Method::Grown } else { Method::Unchanged };
        let (before, after) = (done.before * block, done.blocks * block);
        Ok(ResizeSummary { before, after, method, reason: None })
    };
    grow().map_err(|error| cannot_grow(dir, &error))
}

/// Why the volume of a mount does not grow.
pub(crate) fn cannot_grow(dir: &Path, error: &io::Error) -> Failure {
    const EPERM: i32 = 1;
    let why = match error.raw_os_error() {
        Some(EPERM) => "only root and the user who mounted the volume can grow it".into(),
        _ if error.kind() == io::ErrorKind::Unsupported => {
            "it is a directory, and no volume is mounted here by uxfs".into()
        }
        _ => status::failure_cause(dir, error).0,
    };
    Failure::new(dir, why)
}
