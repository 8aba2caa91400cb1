//! The outcomes of requests.

use uxfs_transport::{Attr, Errno};

pub(super) type Result<T> = std::result::Result<T, Errno>;
/// An entry: attributes and generation.
pub(super) type Entry = (Attr, u32);
