//! The journal: what makes every committed change survive, in XFS' own log.
//!
//! A committed transaction's objects go into the gathering checkpoint ([`cil`]), with copies of
//! what is to be logged of them ([`copies`], [`items`]). When it is cut, these become log records;
//! once these are on stable storage the objects are *active* ([`ail`]): they may be written in place
//! ([`push_lock`]), and while any is not, the log's tail stays before its record.
//! [`uxfs_journal::Pipeline`] decides when; threads that wait for something carry out what it decides
//! ([`drive`]).
//!
//! 1. An object is written in place only when all that it shows is in durable checkpoints, with the
//!    LSN of the last of them.
//! 2. A checkpoint holds whole transactions, of which nothing changes between its last commit and its
//!    being written: it holds copies. Of a chain that it cuts apart it holds an intent for every step
//!    still owed ([`intents`]).
//! 3. File data, and remote attribute values, are written before the checkpoint that shows them is,
//!    into blocks whose last owner's loss of them is durable ([`crate::busy`]).
//! 4. Log space is promised before a transaction enters the gate, and before a chain enters it again
//!    ([`room`]): inside, nobody waits for log space.
//! 5. Inside the gate nobody waits for an inode's lock; outside it only chains keep one, of which
//!    they leave a copy ([`rolled_inodes`]). So whoever shuts transactions out waits for none of them.
//!
//! Locks: the gate, the gathering checkpoint, an object, the active list, the journal's state; `driver`
//! and `push_lock` are held across I/O, and taken before all of these.

mod ail;
mod caller;
mod checkpoint;
mod cil;
mod copies;
mod drive;
mod freed_inodes;
mod grant;
mod grant_queue;
mod iclog;
mod immediate;
mod intents;
mod item;
mod items;
mod options;
mod push;
mod quiesce;
pub(crate) mod reserve;
mod rolled_inodes;
mod state;
#[cfg(test)]
mod tests;
mod waiters;
mod worker;

pub(crate) use caller::caller;
pub(crate) use cil::Cil;
pub(crate) use grant_queue::{Grant, GrantTicket};
pub(crate) use immediate::ImmediateWriter;
pub(crate) use intents::{done, intent};
pub use options::{JournalOptions, LogMode, RollPolicy};
pub(crate) use reserve::Op;
pub(crate) use state::{Journal, LogPlace};
pub use state::{LogLoad, Ticket};
pub use uxfs_journal::{Failure, LogWorkOptions, Options as PipelineOptions};
