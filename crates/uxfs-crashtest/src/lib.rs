//! Pulls the power on any program: what it acknowledged and a crash loses, and the call that is missing.
//!
//! A program runs on a volume whose disk records every write and flush, in one order with what the
//! program acknowledges ([`recorder`](Recorder)). Then the power is cut at every moment that matters,
//! the file system's own recovery runs, and the user's check judges what is left. A failure is made as
//! small as it can be and explained.
//!
//! 1. A [`Leg`] is a file system under test. Recording, cuts, shrinking, explaining and reports know
//!    nothing of it. [`UxfsLeg`] is uxfs, [`KernelLeg`] the file systems of a kernel in a virtual machine.
//! 2. A failed state is one that the disk and the file system allow: no alarm is false.
//! 3. The same run, seed and number of states give the same verdict. A time-out alone depends on the host: it
//!    is tried again.
//!
//! `uxfs crash-test` calls it. `uxfs-crash` explores uxfs itself; this crate explores programs.
#![cfg(target_os = "linux")]

mod agent;
mod chart;
mod cuts;
mod error;
mod explain;
mod failed;
mod html;
mod in_process;
mod job;
mod judge;
mod junit;
mod kept;
mod kernel;
mod left;
mod leg;
mod lines;
mod names;
mod operations;
mod outcome;
mod problem;
mod ready;
mod recorder;
mod saved;
mod shrink;
mod state;
mod stretch;
mod summary;
mod test;
mod timeline;
mod tree;
mod uxfs_leg;

pub use agent::serve_as_init;
pub use error::{Error, Result};
pub use explain::{Explanation, Missing};
pub use html::html;
pub use in_process::InProcess;
pub use job::{Ended, How, Job};
pub use junit::junit;
pub use kernel::{KernelFs, KernelLeg, Machine};
pub use leg::{Leg, Place, Places, Recovered, Recovery};
pub use operations::{Action, Name, Operation, Operations};
pub use outcome::{Failure, Outcome, RunSummary};
pub use problem::{Class, Problem};
pub use ready::{Prepared, READY, Ready};
pub use recorder::{Mark, Recorder, Run};
pub use state::State;
pub use stretch::Stretch;
pub use test::{Plan, Progress, run, save};
pub use timeline::{Moment, MomentKind, Timeline};
pub use tree::{Ino, Kind, Node, Tree};
pub use uxfs_leg::UxfsLeg;
