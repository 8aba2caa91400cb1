//! Tests of repairs: damaged volumes come out clean by the check and by both releases of xfs_repair, keep
//! at least the files that xfs_repair keeps, and can be undone to the byte.
//!
//! They need `xfsprogs` and the newer one of `tools/setup-xfsprogs`, and fail without them. Random tests
//! print their seed when they fail:
//!
//! - `UXFS_SEED` changes all seeds.
//! - `UXFS_REPAIRS=10000` is the number of damaged images ([`campaign`]).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod campaign;
mod cuts;
mod damage;
mod external_log;
#[path = "../../../uxfs-check/tests/it/fields.rs"]
mod fields;
mod files;
mod kinds;
mod planted;
#[path = "../../../uxfs-check/tests/it/rich.rs"]
mod rich;
mod shapes;
#[path = "../../../uxfs-check/tests/it/structures.rs"]
mod structures;
mod undo_file;
#[allow(dead_code, reason = "not all that the tests of the check need")]
#[path = "../../../uxfs-check/tests/it/volume.rs"]
mod volume;
