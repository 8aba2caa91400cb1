//! How this crate talks with the kernel: what a server asks for, and with how many threads.
//!
//! The mount uses these, and benchmarks do with which a mount is compared: an empty server with the
//! same settings is the most that can be reached.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use fuser::{Config, InitFlags, KernelConfig};

use crate::mounts;

/// How long the kernel may believe what it was told: nobody else changes the volume.
pub const TTL: Duration = Duration::from_secs(24 * 3600);

/// Most bytes of one read or write.
pub const MAX_WRITE: u32 = 1 << 20;

/// Requests that the kernel sends ahead without a caller that waits: reading ahead, and writing
/// what was mapped.
const BACKGROUND: u16 = 64;

/// Asks the kernel for what it can do. What it does not know is done without, but for access
/// lists: they would be stored, and not obeyed.
///
/// # Errors
/// If it cannot keep access lists.
pub fn ask(config: &mut KernelConfig) -> io::Result<()> {
    let needed = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
    config.add_capabilities(needed).map_err(|missing| {
        io::Error::other(format!("the kernel's FUSE is too old: it lacks {missing:?}"))
    })?;
    // Not `FUSE_ASYNC_DIO`: when an asynchronous direct write ends, the kernel drops neither the pages that
    // were read into its cache meanwhile nor the attributes. Nor can the server have them dropped before
    // it replies: a direct write and a buffered one that took its place look alike, and the buffered one
    // holds the pages until it is answered.
    let wanted = [
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        InitFlags::FUSE_EXPORT_SUPPORT,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_HAS_IOCTL_DIR,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
    ];
    for flag in wanted {
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_background(BACKGROUND);
    Ok(())
}

/// Has the kernel read files ahead in requests as large as a write may be, for which it needs root;
/// otherwise they have 128 KiB, and a stream takes eight times as many.
pub fn read_ahead(dir: &Path) {
    let mounted = mounts::list().unwrap_or_default().into_iter().rev();
    if let Some(mount) = mounted.into_iter().find(|mount| mount.dir == dir) {
        let file = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
        // Who may not does without.
        let _ = std::fs::write(file, (MAX_WRITE >> 10).to_string());
    }
}

/// Number of threads that answer requests: `wanted`, or as many as there are processors, two at
/// least.
pub fn threads(wanted: Option<usize>) -> usize {
    wanted
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16)))
}

/// Sets the threads that answer requests ([`threads`]).
pub fn set_threads(config: &mut Config, wanted: Option<usize>) {
    let threads = threads(wanted);
    config.n_threads = Some(threads);
    // A descriptor of its own for each thread; where the device may not be opened, all share one.
    let may_open = || OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    config.clone_fd = threads > 1 && may_open();
}
