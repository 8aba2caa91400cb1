//! Archives of real programs (GNU tar, bsdtar, Python) read, and ours read by them.
//!
//! Needs `tar`, `bsdtar`, `python3`, `setfacl`, `xz`, `gzip`, `zstd`; what needs root (devices, owners,
//! `trusted.*`, capabilities) is in the trees when the tests run as root.

#![expect(clippy::unwrap_used, reason = "a test that can not go on panics")]

mod directory;
mod formats;
mod hostile;
mod tree;
mod writer;
