//! Tests of this crate against real programs (GNU tar, bsdtar, Python), in both directions.
//!
//! They need `tar`, `bsdtar`, `python3`, `setfacl`, `xz`, `gzip`, `zstd`. Tests that need root are
//! in [`privileged`]; `cargo test` skips them, and `./test` runs them as root. On systems other than
//! Linux, which have neither these programs nor such files, there are only the unit tests.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that can not go on panics")]

mod directory;
mod formats;
mod halves;
mod hostile;
mod privileged;
mod protofile;
mod read_ahead;
mod tree;
mod writer;
mod xfsdump;
