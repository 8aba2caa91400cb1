//! The journal of an XFS volume.
//!
//! The first part decides when checkpoints are cut, written, flushed and acknowledged. It needs neither
//! threads, nor a clock, nor I/O, and it does not know what a checkpoint holds:
//!
//! | noun | task |
//! |---|---|
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

mod group_commit;
pub mod leader;
mod log_work;
mod pipeline;
pub mod policy;
mod records;
pub mod recovery;
mod space;
mod time;

pub use log_work::{LogView, LogWork, LogWorkOptions, LogWorkPlanner};
pub use pipeline::{Action, Failure, FlushId, Generation, Need, Options, Pipeline, Seq};
pub use records::{LogGeometry, Records, Sealed};
pub use space::LogSpace;
pub use time::Time;
