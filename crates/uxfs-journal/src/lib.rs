//! When checkpoints are cut, written, flushed and acknowledged.
//!
//! This crate holds what of the journal needs neither threads, nor a clock, nor I/O:
//!
//! - [`Pipeline`] decides who waits for what, when the gathering checkpoint is cut, when the device
//!   is flushed, and who is woken. The engine drives it with threads and real devices; its tests,
//!   and the lab, with a simulated clock and simulated devices, where a run is a function of its
//!   seed.
//! - [`LogSpace`] keeps account of the log: how much of it is live, promised, and free.
//! - [`LogWorkPlanner`] decides what is done though nobody asks: old commits, a full log, an idle one.
//! - [`policy`] says whether those who ask for durability are let wait for others who do.
//! - [`leader`] says who of those that wait drives the pipeline.
//! - [`Records`] cuts regions into log records.
//!
//! Nothing here knows what a checkpoint holds.

mod group_commit;
pub mod leader;
mod log_work;
mod pipeline;
pub mod policy;
mod records;
mod space;
mod time;

pub use log_work::{LogView, LogWork, LogWorkOptions, LogWorkPlanner};
pub use pipeline::{Action, Failure, FlushId, Generation, Need, Options, Pipeline, Seq};
pub use records::{LogGeometry, Records, Sealed};
pub use space::LogSpace;
pub use time::Time;
