//! Makes FAT16 and FAT32 volumes with their files, for EFI system partitions.
//!
//! 1. The tree is known before the first byte is written. Each file and directory gets its clusters in
//!    one piece, in the order of the tree, so the same tree gives the same bytes.
//! 2. Times are in UTC, as firmware and Linux (`tz=UTC`) read them; a time later than the given limit
//!    becomes that limit.
//! 3. What FAT cannot hold is refused by name: links, devices, names that differ only in case.
//!
//! The crate `fatfs` was examined: its last release is of 2023, it takes its clock as a `'static`
//! reference, does not record where the partition starts, and allocates cluster by cluster, which a
//! volume that is written once does not need.

mod layout;
mod name;
mod tree;
mod write;

pub use layout::{FatError, Layout, Options};
pub use tree::Tree;
pub use write::write;
