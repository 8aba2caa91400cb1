//! The check against xfs_repair and against volumes that are known to be sound.
//!
//! Needs `xfsprogs`, `coreutils` and the virtual machine of `tools/setup-vm`; without them the tests
//! fail. Random tests run from seeds that are printed when they fail:
//!
//! - `UXFS_SEED` moves them all.
//! - `UXFS_DAMAGE=2000` is the number of damaged images ([`damage`]).
//! - `UXFS_IMAGES=DIR` adds the sound images in a directory to those made here.
//! - `UXFS_AGED=500` is the number of operations for images that kernels age ([`clean`]).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bases;
mod beyond;
mod clean;
mod copies;
mod damage;
mod exercise;
mod fields;
mod half_set;
mod hostile;
mod logs;
mod overlay;
mod reasons;
mod rich;
mod structures;
mod volume;
