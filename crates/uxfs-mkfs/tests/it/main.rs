//! Compares volumes of this crate with those of `mkfs.xfs`, byte for byte, and runs `xfs_repair`.
//!
//! Both tools and `xfs_db` must be installed, and newer releases must be in the cache
//! (`tools/setup-xfsprogs`); otherwise the tests fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bytes;
mod cases;
mod external;
mod pair;
mod presets;
mod random;
mod refusals;
mod writing;
