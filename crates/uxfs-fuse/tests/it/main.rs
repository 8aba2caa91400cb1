//! The mount beside the kernel's XFS, under real programs, and killed.
//!
//! All of it needs root, for loop mounts of what mkfs.xfs and the kernel made, and for acting as
//! several users; and FUSE. Where these are missing the tests fail and say so.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cached;
mod calls;
mod clients;
mod engine;
mod faults;
mod kill;
mod posix;
mod power;
mod programs;
mod random;
mod rig;
