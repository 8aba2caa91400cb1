//! The host's file system as source and target of a copy.
//!
//! Linux has a side of its own, which nothing that happens to the trees meanwhile can mislead. Other
//! systems are read and written with what they all have.

#[cfg(target_os = "linux")]
mod dirs;
#[cfg(target_os = "linux")]
mod linux;
// Tested here too, as it is all that other systems have.
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(unreachable_pub, reason = "on Linux only the tests use it"))]
mod portable;

#[cfg(target_os = "linux")]
pub use linux::{HostDir, HostSource, HostTarget};
#[cfg(not(target_os = "linux"))]
pub use portable::{HostDir, HostSource, HostTarget};
