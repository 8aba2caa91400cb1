//! The volumes made here against those of `mkfs.xfs`, byte for byte, with `xfs_repair` as judge.
//!
//! Both tools, and `xfs_db`, must be installed: without them the tests fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod cases;
mod pair;
mod random;
mod refusals;
mod writing;
