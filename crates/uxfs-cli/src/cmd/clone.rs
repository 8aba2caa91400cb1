//! `uxfs cp --reflink=always` without an image: clones files of a mounted volume, so that the copies
//! share blocks with the originals.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use uxfs_fuse::control;

use crate::session::{Failure, Result, Session};

/// Clones regular files to a name, or into a directory, of the same mount.
pub(crate) fn run(
    sources: &[OsString],
    target: &Path,
    always: bool,
    session: &Session,
) -> Result<()> {
    let into = target.is_dir();
    if !into && sources.len() > 1 {
        return Err(Failure::new(target, "is not a directory"));
    }
    for source in sources.iter().map(PathBuf::from) {
        let to = match source.file_name() {
            Some(name) if into => target.join(name),
            _ => target.to_owned(),
        };
        let cloned = control::clone(&source, &to, always);
        session.ok(cloned.map_err(|error| Failure::host(&source, &error)));
    }
    Ok(())
}
