//! Mounts an XFS volume through FUSE, for every program on the machine.
//!
//! [`mount()`] takes an open volume and a directory. [`Mounted::wait`] returns when the mount has
//! ended, the volume is closed and its log is clean. [`Ender::end`] ends the mount from another
//! thread, for example on a signal. [`serve()`] serves a volume to a virtual machine instead, by
//! virtiofs: there the guest's kernel is the one that mounts.
//!
//! 1. A volume has one mount, and the mount is its only user. So the kernel may cache what it reads
//!    without limit.
//! 2. Data acknowledged as durable (`fsync`, `O_SYNC`) survives any crash. Other
//!    changes are in the log within seconds. `sync(2)` and `syncfs(2)` never reach an ordinary FUSE
//!    server, and succeed all the same (a guest's do); `fsync` of the mount's root directory makes
//!    everything durable.
//! 3. No thread waits for the durability of a request: its reply is parked.
//!
//! The commands `uxfs mount` and `uxfs serve` call this crate.

mod attr;
pub mod awake;
mod blk;
pub mod control;
mod current_options;
pub mod defrag;
mod durability;
mod freeze;
pub mod growth;
mod handles;
pub mod holders;
pub mod mounts;
mod options;
pub mod record;
mod remount;
pub mod scrub;
mod scrubs;
mod server;
mod serving;
mod session;
pub mod settings;
mod syslog;
mod volume;
pub mod watcher;
mod worker;

pub use options::{Hold, Options, Ship};
pub use serving::{MemoryGuest, Serving, Until, serve};
pub use session::{Detached, Ender, Mounted, mount, mount_watched};
pub use uxfs_virtiofs as virtiofs;
pub use volume::{Backing, Trimming};

/// Is it the error of a mount whose server has ended: ENOTCONN, or ECONNABORTED for a request that was
/// under way?
pub fn is_disconnected(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let ended = [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| ended.contains(&code))
}

/// Is a mount there whose server has died? With io_uring the kernel ends the connection only some
/// time after the process, so its record counts too.
pub fn server_has_died(dir: &std::path::Path) -> bool {
    if std::fs::metadata(dir).is_err_and(|error| is_disconnected(&error)) {
        return true;
    }
    let mount = mounts::on(dir).ok().flatten();
    mount.is_some_and(|mount| record::of_dir(&mount.dir).is_some_and(|record| record.died()))
}
