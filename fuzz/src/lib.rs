//! The functions that the fuzzers call, one per target. `tools/fuzz` runs them; `docs/FUZZING.md`
//! describes them.
//!
//! 1. A target takes any bytes, and must not panic, run for long or take much memory.
//! 2. Each also checks its results: a structure that is parsed and rebuilt is the same, and an imported
//!    or edited volume passes the check.
//! 3. Nothing depends on the time or on the host, so an input has the same effect everywhere.

#[path = "../../crates/uxfs-cli/src/address/end.rs"]
#[allow(dead_code)]
mod address;
mod base;
mod blocks;
mod cli;
mod disks;
mod dumps;
mod guests;
mod image;
mod inodes;
mod layers;
mod replay;
mod resize;
mod streams;
mod words;

/// Code of the check's tests: how structures are found, which fields they have, and everything that
/// commands do to an image.
#[path = "../../crates/uxfs-check/tests/it/exercise.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod exercise;
#[path = "../../crates/uxfs-check/tests/it/fields.rs"]
#[allow(dead_code)]
mod fields;
#[path = "../../crates/uxfs-check/tests/it/rich.rs"]
mod rich;
#[path = "../../crates/uxfs-check/tests/it/structures.rs"]
#[allow(dead_code)]
mod structures;

pub use base::write_seeds;
pub use blocks::{
    agf, agfl, agi, attr_leaf, attr_remote, bmbt, btree, da_node, dir_block, dir_data, dir_free,
    dir_leaf1, dir_leafn, log, superblock, symlink,
};
pub use disks::{partition, qcow2, vhd};
pub use dumps::{mdrestore, metadump};
pub use guests::{chain, guest};
pub use image::image;
pub use inodes::{acl, attr_short, dir_short, inode, xattr};
pub use layers::{manifest, oci, protofile};
pub use replay::replay;
pub use resize::resize;
pub use streams::{compressed, import, tar, xfsdump};
pub use words::{cli, mkfs};

/// Takes pieces off the front of an input; zeroes when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let len = N.min(self.0.len());
        let (head, tail) = self.0.split_at(len);
        out[..len].copy_from_slice(head);
        self.0 = tail;
        out
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn number(&mut self) -> usize {
        u16::from_le_bytes(self.take()).into()
    }
}
