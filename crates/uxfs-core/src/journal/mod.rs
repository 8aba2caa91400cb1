//! What the engine adds to [`uxfs_journal`]: the objects that are logged, and how they are written in place.
//!
//! A commit adds the objects that it changed to the open checkpoint, with copies of what is logged of them
//! ([`buf_item`], [`inode_item`], [`dquot_item`], [`superblock_item`]). The AIL push writes them in place ([`in_place`]).
//! [`reserve`] gives the log space of an operation.
//!
//! 1. Inside the gate nothing waits for an inode's lock. Outside the gate only rolling transactions keep
//!    inodes locked, and they leave copies of them ([`crate::rolled_inodes`]). So closing the gate never
//!    waits for a thread that waits for an inode.
//!
//! Called by [`crate::engine::Engine`], transactions, and the log worker.

pub(crate) mod buf_item;
pub(crate) mod dquot_item;
mod in_place;
pub(crate) mod inode_item;
mod item;
pub(crate) mod reserve;
pub(crate) mod superblock_item;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod volume;

pub(crate) use item::{Cil, Handle};
pub(crate) use reserve::Op;
pub use uxfs_journal::{
    Failure, JournalOptions, LogLoad, LogMode, LogWorkOptions, Options as PipelineOptions,
    RollPolicy, Ticket,
};

/// The journal of a mount.
pub(crate) type Journal = uxfs_journal::Journal<crate::mount::Mount>;
/// Writes a transaction with immediate logging.
pub(crate) type ImmediateWriter<'c> = uxfs_journal::ImmediateWriter<'c, crate::mount::Mount>;
