//! Tools that the tests of several crates, the power-cut exploration, the lab and the benchmarks
//! share. Product crates use this crate in tests only.
//!
//! | tool | use |
//! |---|---|
//! | [`FaultDev`] | fails, shortens, loses or delays the calls that its rules select |
//! | [`RecordDev`] | logs all writes and flushes with their bytes |
//! | [`Recording`] | the states that a power cut may leave after a recorded run |
//! | [`CountDev`] | counts calls and bytes |
//! | [`Rng`] | random numbers from a seed |
//!
//! Stores are those of `uxfs-disk`: `MemDev` is sparse and its copies share
//! pages, `Overlay` keeps changes over a device that does not change.
//!
//! The devices need the feature `devices`.
//!
//! 1. Nothing here reads a clock or the host's random numbers: equal calls have equal results.
//! 2. No device holds a lock while it calls the device below or a closure of a rule.

#[cfg(feature = "devices")]
mod count;
#[cfg(feature = "devices")]
mod cut;
#[cfg(feature = "devices")]
mod fault;
#[cfg(feature = "devices")]
mod record;
mod rng;

#[cfg(feature = "devices")]
pub use count::{CountDev, Counts};
#[cfg(feature = "devices")]
pub use cut::{Recording, Survivor};
#[cfg(feature = "devices")]
pub use fault::{Answer, Call, FaultDev, Op, Rule, RuleId};
#[cfg(feature = "devices")]
pub use record::{Event, RecordDev};
pub use rng::Rng;

/// Errno of an I/O error.
pub const EIO: i32 = 5;
/// Errno of a full host.
pub const ENOSPC: i32 = 28;
/// Errno of a device that did not answer.
pub const ETIMEDOUT: i32 = 110;
