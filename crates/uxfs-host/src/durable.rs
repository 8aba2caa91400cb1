//! Files and names made durable by path.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Makes the content of a file durable.
///
/// # Errors
/// The host's.
pub fn sync(path: &Path) -> io::Result<()> {
    // Windows syncs only what is open for writing.
    OpenOptions::new().read(true).write(cfg!(windows)).open(path)?.sync_all()
}

/// Makes the names in a directory durable. Windows has no call for that; its file system keeps a
/// journal of names.
///
/// # Errors
/// The host's.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    if cfg!(windows) { Ok(()) } else { std::fs::File::open(path)?.sync_all() }
}
