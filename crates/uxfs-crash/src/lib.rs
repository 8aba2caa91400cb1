//! Explores power cuts: a workload runs on a device that records every write and flush. Then the
//! device is put into states that a power cut may have left, and each is recovered and judged.
//!
//! A cut may fall before any event. Of the writes since the last flush any subset may have reached
//! the disk, each whole or some of its sectors. A state passes if
//!
//! 1. recovery succeeds, and the checker finds nothing afterwards;
//! 2. the tree is that of some moment of the history, not before the last moment that was
//!    acknowledged as durable;
//! 3. a file holds what it held then, or what was written into it in place since: never another
//!    file's bytes;
//! 4. the same holds when recovery itself is interrupted and started again.
//!
//! Every run must also obey the trace rules ([`RuledDev`]), and devices that fail
//! ([`FaultDev`](uxfs_testkit::FaultDev)) test the handling of errors.
//!
//! Everything follows from a seed: [`explore`] reports the seed and number of a failed state, and
//! [`repeat`] repeats it.

mod content;
mod cut;
mod explore;
#[cfg(test)]
mod fail;
mod history;
mod judge;
mod rules;
mod volumes;
mod workload;

pub use cut::{Cut, Event, Mark, RecordDev, Recording, rng};
pub use explore::{Explored, Failed, Plan, explore, repeat};
pub use judge::State;
pub use rules::{Rule, RuledDev, Violation};
pub use volumes::VOLUMES;
