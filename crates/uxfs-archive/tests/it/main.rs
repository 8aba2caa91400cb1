//! Archives of real programs (GNU tar, bsdtar, Python) read, and ours read by them.
//!
//! Needs `tar`, `bsdtar`, `python3`, `setfacl`, `xz`, `gzip`, `zstd`. What needs root is in
//! [`privileged`], which `cargo test` leaves out and `./test` runs for root.

#![expect(clippy::unwrap_used, reason = "a test that can not go on panics")]

mod directory;
mod formats;
mod hostile;
mod privileged;
mod tree;
mod writer;
