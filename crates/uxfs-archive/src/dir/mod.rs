//! Directory trees of the host as a [`Source`](crate::Source).
//!
//! Linux is read with calls of its own, which nothing that happens to the tree meanwhile can mislead.
//! Other systems are read with what they all have.

#[cfg(target_os = "linux")]
mod linux;
// Tested here too, as it is all that other systems have.
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(unreachable_pub, reason = "on Linux only the tests use it"))]
mod portable;

#[cfg(target_os = "linux")]
pub use linux::DirSource;
#[cfg(not(target_os = "linux"))]
pub use portable::DirSource;

/// Options of a directory walk.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DirOptions {
    /// Skip the content of file systems mounted below the root; the mount points are included.
    pub one_file_system: bool,
}
