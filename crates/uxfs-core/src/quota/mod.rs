//! The quotas that a volume accounts: turned on and off when it is opened, counted when the counts cannot be
//! trusted, records made for new owners.
//!
//! 1. The superblock says that a type was counted (`CHKD`) only while every change is accounted: the flag is
//!    cleared in the log before the first change that is not, and set after the last corrected record.
//! 2. Every owner of a file has a record: an operation that gives a file a new owner makes the record first, in a
//!    transaction of its own ([`provide`]).
//! 3. Quota inodes count for no one.
//!
//! Usage changes in [`crate::tx`]; what is in memory is in [`crate::dquot`]. Called when a volume is opened, and
//! by operations that change owners.

mod count;
mod records;
mod start;

pub(crate) use records::{make, places, provide};
pub(crate) use start::start;
