//! Judges for the tests of the other crates: the real tools, and real kernels in throw-away
//! machines. For `[dev-dependencies]` only.
//!
//! 1. A judge that is missing panics and says what to install; it never counts as "no finding".
//! 2. The complaints of a judge are a [`Finding`]: the judge, the image, and the judge's output.
//! 3. The host's kernel never mounts anything here. A machine ([`vm`]) does, without root, and it
//!    leaves an image untouched unless the function says that it writes.
//! 4. One program lists a tree everywhere ([`lister`]), as a canonical [`Listing`]: of a directory
//!    on the host, and of an image that a kernel mounted. A test makes a listing of what the code
//!    under test reads.
//!
//! A test of another crate, in which a kernel and the code under test take turns:
//!
//! ```no_run
//! use uxfs_oracle::{Fields, Kernel, both, mkfs, vm};
//!
//! # fn edit_and_list(_image: &std::path::Path) -> uxfs_oracle::Listing { unimplemented!() }
//! let dir = tempfile::tempdir().unwrap();
//! let image = dir.path().join("turns.img");
//! mkfs(&image, 512 << 20, &["-m", "rmapbt=1"]);
//! for seed in 0..3 {
//!     // The kernel fills and ages the image …
//!     let aged = vm::age(Kernel::Stable, &image, seed, 500).unwrap_or_else(|f| panic!("{f}"));
//!     println!("{} entries", aged.entries.len());
//!     // … the code under test edits it, and lists what it sees …
//!     let ours = edit_and_list(&image);
//!     // … and xfsprogs and two kernels must agree.
//!     both(&image).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
//!     for kernel in Kernel::ALL {
//!         let listings = vm::list(kernel, &[&image]).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
//!         ours.assert_same(&listings[0], Fields::TREE | Fields::HOLES);
//!     }
//! }
//! ```
//!
//! `UXFS_KEEP=DIR` keeps a copy of the image that a finding is about. `UXFS_CACHE` names the
//! directory of the kernels and the newer xfsprogs (`~/.cache/uxfs/vm`), which `tools/setup-uml`,
//! `tools/setup-vm` and `tools/setup-xfsprogs` fill.

pub mod ager;
mod cache;
mod escape;
mod finding;
mod hang;
pub mod lister;
mod listing;
pub mod storm;
mod tools;
pub mod vm;

use cache::cache;

pub use finding::Finding;
pub use hang::{Hang, HangLimits, Watch};
pub use listing::{ContentSum, Entry, Fields, Kind, Listing, Space, Time, Value, checksum};
pub use tools::{
    Xfsprogs, both, both_after_old_kernel, db, db_check, db_value, db_write, mkfs, program, repair,
    systemd_repart,
};
pub use uxfs_testkit::Rng;
pub use vm::Kernel;
