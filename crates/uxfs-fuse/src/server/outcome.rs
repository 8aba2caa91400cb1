//! The outcomes of requests.

use uxfs_transport::Errno;

pub(super) type Result<T> = std::result::Result<T, Errno>;
