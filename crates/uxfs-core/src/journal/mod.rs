//! The journal: XFS' log, written so that every committed change survives.
//!
//! A commit adds the objects that it changed to the open checkpoint ([`uxfs_journal::Cil`]), with copies of
//! what is logged of them ([`buf_item`], [`inode_item`], [`superblock_item`]). When the checkpoint is cut, the
//! copies become log records. Once the records are on stable storage, the objects are *active*
//! ([`uxfs_journal::Ail`]): they may be written in place ([`push`]), and as long as one of them is not, the
//! log's tail stays before its record.
//! [`uxfs_journal::Pipeline`] decides when each step is due; the threads that wait for something carry it
//! out ([`drive`]).
//!
//! 1. An object is written in place only when all its changes are in durable checkpoints, and with the LSN
//!    of the last of them.
//! 2. A checkpoint holds whole transactions. Nothing in it changes between its last commit and its write,
//!    because it holds copies. If it is cut between two transactions of a rolling one, it holds an intent
//!    for every step that is still owed ([`intents`]).
//! 3. File data and remote attribute values are written before the checkpoint that shows them, into blocks
//!    whose previous owner has lost them durably ([`crate::busy`]).
//! 4. Log space is granted before a transaction enters the gate, and again before a rolling transaction
//!    re-enters it ([`grant`]). Inside the gate nothing waits for log space.
//! 5. Inside the gate nothing waits for an inode's lock. Outside the gate only rolling transactions keep
//!    inodes locked, and they leave copies of them ([`rolled_inodes`]). So closing the gate never waits for
//!    a thread that waits for an inode.
//!
//! [`uxfs_sync::Rank`] gives the order of locks. `driver` and `push_lock` are held across I/O.
//!
//! Called by [`crate::engine::Engine`], transactions, and the log worker.

pub(crate) mod buf_item;
mod caller;
mod checkpoint;
mod drive;
mod freed_inodes;
mod grant;
mod grant_queue;
mod immediate;
pub(crate) mod inode_item;
mod item;
mod options;
mod push;
mod quiesce;
pub(crate) mod reserve;
mod rolled_inodes;
mod state;
pub(crate) mod superblock_item;
#[cfg(test)]
mod tests;
mod waiters;
mod worker;

pub(crate) use caller::caller;
pub(crate) use grant_queue::{Grant, GrantTicket};
pub(crate) use immediate::ImmediateWriter;
pub(crate) use item::{Cil, Handle};
pub use options::{JournalOptions, LogMode, RollPolicy};
pub(crate) use reserve::Op;
pub(crate) use state::{Journal, LogPlace};
pub use state::{LogLoad, Ticket};
pub use uxfs_journal::{Failure, LogWorkOptions, Options as PipelineOptions};
