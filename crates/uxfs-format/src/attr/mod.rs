//! Extended attributes: their three shapes (short form in the inode, leaf blocks, remote values)
//! and what all have in common.
//!
//! An attribute is found by its namespace and its name; a parent pointer also by its value, since
//! two links of one name in two directories differ in the value alone.

mod entry;
pub mod leaf;
pub mod remote;
pub mod sf;

pub use entry::{AttrFlags, MAX_NAME, MAX_VALUE, PARENT_VALUE_LEN, hash};
