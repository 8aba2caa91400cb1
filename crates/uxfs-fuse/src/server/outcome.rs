//! The outcomes of requests.

use fuser::{Errno, FileAttr};

/// The result of a request.
pub(super) type Result<T> = std::result::Result<T, Errno>;
/// An entry: attributes and generation.
pub(super) type Entry = (FileAttr, u32);
