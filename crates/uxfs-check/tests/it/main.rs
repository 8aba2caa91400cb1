//! Tests of the check against xfs_repair and against undamaged volumes.
//!
//! They need `xfsprogs`, `coreutils` and the kernels of `tools/setup-uml`, and fail without
//! them. Random tests print their seed when they fail:
//!
//! - `UXFS_SEED` changes all seeds.
//! - `UXFS_DAMAGE=2000` is the number of damaged images ([`damage`]).
//! - `UXFS_IMAGES=DIR` adds a directory of undamaged images.
//! - `UXFS_AGED=500` is the number of operations for images that kernels age ([`clean`]).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ascii_ci;
mod bases;
mod beyond_repair;
mod clean;
mod copies;
mod damage;
mod exercise;
mod fields;
mod hostile;
mod incomplete_attrs;
mod logs;
mod reasons;
mod rich;
mod structures;
mod volume;
