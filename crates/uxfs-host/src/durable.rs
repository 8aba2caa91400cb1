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

/// The directory that the path's name is in: `.` if the path is a name alone.
///
/// ```
/// # use std::path::Path;
/// assert_eq!(uxfs_host::dir_of(Path::new("disk.img")), Path::new("."));
/// assert_eq!(uxfs_host::dir_of(Path::new("/srv/disk.img")), Path::new("/srv"));
/// ```
pub fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
