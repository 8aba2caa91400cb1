//! Dumps and copies against the real tools: what they write is restored by both, and what is restored of
//! their dumps is the same.
//!
//! They need `xfsprogs`, the newer release of `tools/setup-xfsprogs` and the kernels of `tools/setup-uml`,
//! and fail without them. Random tests print their seed; `UXFS_SEED` changes it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aged;
mod copies;
mod damage;
mod fixture;
mod hostile;
mod privacy;
#[path = "../../../uxfs-check/tests/it/rich.rs"]
mod rich;
mod round;
mod theirs;
#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../../../uxfs-check/tests/it/volume.rs"]
mod volume;
