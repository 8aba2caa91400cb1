//! Judges for the tests of the other crates: the real tools, and the real kernel in a throw-away
//! virtual machine. For `[dev-dependencies]` only.
//!
//! 1. A judge that is missing panics and says what to install; it is never taken for "no finding".
//! 2. What a judge complains of is a [`Finding`]: which judge, which image, its own words.
//! 3. The host's kernel never mounts anything here. The [`vm`] does, without root, and an image
//!    is left untouched unless the call says that it writes.
//! 4. A tree is told by one program everywhere ([`lister`]), as a canonical [`Listing`]: of a
//!    directory on the host, of an image that a kernel mounted, or put together by a test from
//!    what the code under test reads.
//!
//! A test of another crate, in which kernel and code take turns:
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
//!     // … the code under test edits it, and says what it believes is there …
//!     let ours = edit_and_list(&image);
//!     // … and xfsprogs and two kernels have to agree.
//!     both(&image).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
//!     for kernel in Kernel::ALL {
//!         let listings = vm::list(kernel, &[&image]).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
//!         ours.assert_same(&listings[0], Fields::TREE | Fields::HOLES);
//!     }
//! }
//! ```
//!
//! `UXFS_KEEP=DIR` keeps a copy of the image that a finding is about; `UXFS_CACHE` says where the
//! virtual machine's kernels and the newer xfsprogs are (`~/.cache/uxfs/vm`), which `tools/setup-uml`,
//! `tools/setup-vm` and `tools/setup-xfsprogs` put there.

pub mod ager;
mod cache;
mod escape;
mod finding;
pub mod lister;
mod listing;
mod patience;
pub mod storm;
mod tools;
pub mod vm;

use cache::cache;

pub use finding::Finding;
pub use listing::{ContentSum, Entry, Fields, Kind, Listing, Space, Time, Value, checksum};
pub use patience::{Hang, Patience, Watch};
pub use tools::{
    Xfsprogs, both, both_after_old_kernel, db, db_check, db_value, db_write, mkfs, program, repair,
};
pub use uxfs_testkit::Rng;
pub use vm::Kernel;
