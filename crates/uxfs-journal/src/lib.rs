//! The journal of an XFS volume.
//!
//! The first part holds checkpoints, and decides when they are cut, written, flushed and acknowledged. It
//! needs neither threads, nor a clock, nor I/O, and it knows neither buffers nor inodes, only log items:
//!
//! | noun | task |
//! |---|---|
//! | [`LogItem`] | what the journal needs to know of an object that is logged |
//! | [`Cil`] | the open checkpoint: its objects, and copies of what is logged of them |
//! | [`Ail`] | the objects that are logged and not yet written in place, by their position in the log |
//! | [`Pipeline`] | what each waiter waits for, when the open checkpoint is cut, when the device is flushed, which waiters are woken |
//! | [`LogSpace`] | how much of the log is live, reserved and free |
//! | [`LogWorkPlanner`] | what background work is due: old commits, a full log, an idle one |
//! | [`policy`] | whether a caller of fsync waits for others to share one flush |
//! | [`leader`] | which of the waiting threads drives the pipeline |
//! | [`Records`] | regions of transactions, cut into log records; the only builder of records |
//!
//! The engine drives it with threads and real devices. Its tests and the lab drive it with a simulated clock
//! and simulated devices, where a run is a function of its seed.
//!
//! The second part is [`recovery`]: the log of a dirty volume found, read and replayed into memory. It reads
//! and writes a device.

mod ail;
mod cil;
mod copies;
mod group_commit;
mod iclog;
pub mod leader;
mod log_item;
mod log_work;
mod pipeline;
pub mod policy;
mod records;
pub mod recovery;
mod space;

pub use ail::Ail;
pub use cil::{Cil, DONE_BYTES, INTENT_BYTES};
pub use copies::{Logged, RegionsOf};
pub use iclog::{Iclog, iclog_half};
pub use log_item::{LogItem, Regions};
pub use log_work::{LogView, LogWork, LogWorkOptions, LogWorkPlanner};
pub use pipeline::{Action, Failure, FlushId, Generation, Need, Options, Pipeline, Seq};
pub use records::{LogGeometry, Records, Sealed};
pub use space::LogSpace;
pub use uxfs_sync::Time;
