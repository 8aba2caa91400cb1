//! The journal of an XFS volume.
//!
//! In the order in which a change passes through it:
//!
//! | noun | task |
//! |---|---|
//! | [`LogItem`] | what the journal needs to know of an object that is logged |
//! | [`Volume`] | what it needs of the volume: its devices, and the writes in place |
//! | [`Journal`] | the parts below with their locks; grants, tickets, forces, pushes, quiescing |
//! | [`LogSpace`] | how much of the log is live, granted and free |
//! | [`Cil`] | the open checkpoint: its objects, and copies of what is logged of them |
//! | [`Pipeline`] | what each waiter waits for, when the open checkpoint is cut, when the device is flushed, which waiters are woken |
//! | [`policy`] | whether a caller of fsync waits for others to share one flush |
//! | [`leader`] | which of the waiting threads drives the pipeline |
//! | [`Records`] | regions of transactions, cut into log records; the only builder of records |
//! | [`Ail`] | the objects that are logged and not yet written in place, by their position in the log |
//! | [`LogWorkPlanner`] | what background work is due: old commits, a full log, an idle one |
//! | [`recovery`] | the log of a dirty volume found, read and replayed into memory |
//!
//! It knows neither buffers nor inodes. A commit adds the objects that it changed to the CIL, with copies of
//! what is logged of them. When the checkpoint is cut, the copies become log records. Once the records are on
//! stable storage, the objects are *active*: they may be written in place, and as long as one of them is not,
//! the log's tail stays before its record.
//!
//! 1. An object is written in place only when all its changes are in durable checkpoints, and with the LSN
//!    of the last of them.
//! 2. A checkpoint holds whole transactions. Nothing in it changes between its last commit and its write,
//!    because it holds copies. If it is cut between two transactions of a rolling one, it holds an intent
//!    for every step that is still owed.
//! 3. File data and remote attribute values are written before the checkpoint that shows them, into blocks
//!    whose previous owner has lost them durably.
//! 4. Log space is granted before a transaction enters the gate, and again before a rolling transaction
//!    re-enters it (`grant.rs`). Inside the gate nothing waits for log space.
//! 5. The parts that decide ([`Cil`], [`Ail`], [`LogSpace`], [`Pipeline`], [`policy`], [`LogWorkPlanner`])
//!    have no threads, clock, locks or I/O. Their tests and the lab run them with simulated clocks and
//!    devices, where a run is a function of its seed.

#![warn(missing_docs)]

mod ail;
mod caller;
mod checkpoint;
mod cil;
mod copies;
mod deferred;
mod driver;
mod epoch;
mod force;
mod grant;
mod grant_queue;
mod group_commit;
mod iclog;
mod immediate;
mod journal;
pub mod leader;
mod log_item;
mod log_pos;
mod log_work;
mod options;
mod pipeline;
pub mod policy;
mod push;
mod quiesce;
mod records;
pub mod recovery;
mod space;
mod volume;
mod waiters;
mod worker;

pub use ail::Ail;
pub use caller::caller;
pub use cil::{Cil, DONE_BYTES, INTENT_BYTES};
pub use copies::{Logged, RegionsOf};
pub use deferred::Committing;
pub use grant_queue::{Grant, GrantTicket};
pub use iclog::{Iclog, iclog_half};
pub use immediate::ImmediateWriter;
pub use journal::{Added, Journal, LogLoad, LogPlace, Notify, Ticket};
pub use log_item::{LogItem, Regions};
pub use log_pos::LogPos;
pub use log_work::{LogView, LogWork, LogWorkOptions, LogWorkPlanner};
pub use options::{InvalidOption, JournalOptions, LogMode, RollPolicy};
pub use pipeline::{Action, Failure, FlushId, Generation, Need, Options, Pipeline, Seq};
pub use records::{LogGeometry, Records, Sealed};
pub use space::LogSpace;
pub use uxfs_sync::Time;
pub use volume::{Counter, Volume, VolumeCil, WrittenItem};
pub use worker::Load;
