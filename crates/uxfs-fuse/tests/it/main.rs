//! Compares the mount with the kernel's XFS, here and in virtual machines, runs real programs on it, and
//! kills it.
//!
//! All tests need FUSE, and root: for loop mounts of volumes that mkfs.xfs and the kernel made, and to
//! act as several users. Without these the tests fail and say so.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ascii_ci;
mod cached;
mod calls;
mod clients;
mod counts;
mod defrag;
mod engine;
mod faults;
mod freeze;
mod growth;
mod guests;
mod kill;
mod mixed_fsyncs;
mod ordered;
mod ordered_calls;
mod posix;
mod power;
mod programs;
mod random;
mod reading;
mod rig;
mod rings;
mod scrub;
