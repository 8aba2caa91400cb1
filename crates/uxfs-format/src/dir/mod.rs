//! Directories: entries, and the blocks of larger directories.
//!
//! A directory has one of four forms, by size:
//! * short form, in the inode ([`sf`]);
//! * block form, one block for everything ([`block`]);
//! * leaf form: data blocks ([`data`]) and one leaf block ([`leaf`]) with an index by hash and the
//!   longest free area of each data block;
//! * node form: data blocks, leaf blocks under a tree of nodes ([`crate::da`]), and a free index
//!   ([`free`]) with the longest free areas.
//!
//! 1. An entry keeps its offset in the data space until it is removed, even if the directory
//!    changes its form. The entry's *address* is this offset divided by 8. Leaves store addresses,
//!    and a reader of the directory may use one as a cookie to resume.
//! 2. Address 0 in a leaf marks a stale entry: it is still counted and may be reused.

pub mod block;
pub mod data;
mod entry;
pub mod free;
#[cfg(test)]
mod fuzz;
pub mod leaf;
pub mod sf;

use crate::bytes::Field;

pub use entry::{
    DATA_START, DOT, DOTDOT, FIRST, FileType, MAX_NAME, Shape, address, entry_len, name_problem,
    offset,
};

/// Place of the magic number in all blocks but leaves and nodes.
pub const MAGIC: Field<u32> = Field::at(0);
