//! Directories: entries, and the blocks that larger ones are made of.
//!
//! A directory is in one of four forms, by size: in the inode ([`sf`]); one block with everything
//! ([`block`]); data blocks ([`data`]) and one leaf block ([`leaf`]) with an index by hash and the
//! room in each data block; data blocks, leaves under a tree of nodes ([`crate::da`]), and a free
//! index ([`free`]) that tells the room.
//!
//! 1. An entry keeps its place in the data space as long as it lives, through all forms; its
//!    *address* is that place divided by 8. An address is what a leaf holds, and what a reader of
//!    the directory may come back to.
//! 2. Address 0 in a leaf marks an entry that is stale: still counted, and free to be used.

pub mod block;
pub mod data;
mod entry;
pub mod free;
#[cfg(test)]
mod fuzz;
pub mod leaf;
pub mod sf;

pub use entry::{
    DATA_START, DOT, DOTDOT, FIRST, FileType, MAX_NAME, Shape, address, entry_len, name_problem,
    offset,
};
