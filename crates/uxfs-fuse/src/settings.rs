//! The settings of the FUSE connection: capabilities, sizes, and the number of threads.
//!
//! Benchmarks use the same settings for an empty server, which is the upper bound of a mount's
//! speed.

use std::io;
use std::path::Path;
use std::time::Duration;

use uxfs_transport::{Capabilities, Negotiation, Settings};

use crate::mounts;

/// How long the kernel may cache entries and attributes. Only the mount changes the volume.
pub const TTL: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of one read or write.
pub const MAX_WRITE: u32 = 1 << 20;

/// Requests that the kernel sends without a waiting caller: read-ahead, and write-back of mapped
/// pages.
const BACKGROUND: u16 = 64;

/// Requests the kernel's capabilities. Missing ones are not used, except for access lists, which
/// are required: they would be stored but not enforced.
///
/// # Errors
/// If the kernel cannot enforce access lists.
pub fn ask(kernel: &mut Negotiation) -> io::Result<()> {
    let missing = kernel.take(Capabilities::POSIX_ACL | Capabilities::DONT_MASK);
    if !missing.is_empty() {
        let why = format!("the kernel's FUSE is too old: it lacks {missing:?}");
        return Err(io::Error::other(why));
    }
    // Without `FUSE_ASYNC_DIO`: when an asynchronous direct write ends, the kernel drops neither
    // the pages that were read into its cache meanwhile nor the attributes. The server cannot
    // invalidate them before it replies, because a direct write and a buffered one in its place
    // look alike, and the buffered one holds the pages until it is answered.
    kernel.take(
        Capabilities::CACHE_SYMLINKS
            | Capabilities::DO_READDIRPLUS
            | Capabilities::EXPLICIT_INVAL_DATA
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::HAS_IOCTL_DIR
            | Capabilities::PARALLEL_DIROPS
            | Capabilities::READDIRPLUS_AUTO,
    );
    kernel.max_write = MAX_WRITE;
    kernel.max_background = BACKGROUND;
    Ok(())
}

/// Sets the kernel's read-ahead to the size of the largest write, which needs root. Otherwise
/// requests have 128 KiB, and a stream needs eight times as many.
pub fn read_ahead(dir: &Path) {
    let mounted = mounts::list().unwrap_or_default().into_iter().rev();
    if let Some(mount) = mounted.into_iter().find(|mount| mount.dir == dir) {
        let file = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
        // Without permission the default stays.
        let _ = std::fs::write(file, (MAX_WRITE >> 10).to_string());
    }
}

/// Number of threads that answer requests: `wanted`, or one per processor, at least two.
pub fn threads(wanted: Option<usize>) -> usize {
    wanted
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16)))
}

/// The settings of a session: threads as [`threads`] says, and whether io_uring may be used.
pub fn session(wanted: Option<usize>, ring: bool) -> Settings {
    Settings { threads: threads(wanted), ring, can_stop: false }
}
