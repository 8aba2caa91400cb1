//! The outcomes of requests.

use fuser::{Errno, FileAttr};

pub(super) type Result<T> = std::result::Result<T, Errno>;
/// An entry: attributes and generation.
pub(super) type Entry = (FileAttr, u32);
