//! The volumes made here against those of `mkfs.xfs`, byte for byte, with `xfs_repair` as judge.
//!
//! Both tools, and `xfs_db`, must be installed, and newer ones in the cache (`tools/setup-xfsprogs`):
//! without them the tests fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod cases;
mod pair;
mod presets;
mod random;
mod refusals;
mod writing;
