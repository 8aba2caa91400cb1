//! Room on the host's file systems, and hints to its page cache.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::Path;

/// Free bytes of the file system that holds the directory; `None` if the host does not say, as
/// Windows does not without calls that the standard library lacks.
#[cfg(unix)]
pub fn free_room(dir: &Path) -> Option<u64> {
    // The types of the fields differ between systems.
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Free bytes of the file system that holds the directory: unknown on this system.
#[cfg(not(unix))]
pub fn free_room(_: &Path) -> Option<u64> {
    None
}

/// Says that a range of the file will not be used soon. Linux begins to write what is not written yet, and
/// drops what is from its page cache: called again later, it drops all. A hint, as [`will_need`].
pub fn wont_need(file: &File, offset: u64, len: NonZeroU64) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

/// Says that a range of the file will be read soon. A hint: if the host ignores it, or has no such
/// hint, reading is only slower.
pub fn will_need(file: &File, offset: u64, len: NonZeroU64) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::WillNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}
