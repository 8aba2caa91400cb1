//! An XFS volume mounted through FUSE: what the engine does, for every program there is.
//!
//! [`mount()`] takes an open volume and a directory; [`Mounted::wait`] returns when the mount has
//! ended, with the volume closed and its log clean. [`Ender::end`] ends it from elsewhere, as a
//! signal would have it.
//!
//! 1. One volume has one mount, and the mount is the volume's only user: the kernel may remember
//!    what it was told for as long as it likes.
//! 2. What a program was told is on stable storage (`fsync`, `O_SYNC`) survives anything; what
//!    else it did is in the log within seconds. `sync(2)` and `syncfs(2)` never reach an ordinary FUSE
//!    server, and succeed all the same; `fsync` of the mount's root directory brings everything down.
//! 3. A request never waits for durability in a thread: its reply is parked.
//!
//! Used by the command (`uxfs mount`).

mod attr;
pub mod awake;
mod blk;
pub mod control;
mod handles;
pub mod holders;
mod live;
pub mod mounts;
mod options;
pub mod record;
mod remount;
mod server;
mod session;
pub mod settings;
mod syslog;
mod volume;
mod worker;

pub use options::Options;
pub use session::{Ender, Mounted, mount};
pub use volume::Trimming;

/// Is this what the kernel says of a mount whose server is gone?
pub fn dead(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}
