//! Extended attributes: their three forms (short form in the inode, leaf blocks, remote values)
//! and the parts that all forms have in common.
//!
//! Namespace and name identify an attribute. A parent pointer is identified by its value, too,
//! because links of the same name in two directories differ only in the value.

mod entry;
pub mod leaf;
pub mod remote;
pub mod sf;

pub use entry::{AttrFlags, MAX_NAME, MAX_VALUE, PARENT_VALUE_LEN, hash, parent_of, parent_value};
