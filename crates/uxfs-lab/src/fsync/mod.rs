//! Simulates fsync policies in virtual time, with any number of callers and any disk.
//!
//! [`grid`] runs every policy of `fsync_policy=` on every combination of disk, callers and think
//! time, and compares `auto` with the best of them in hindsight.

mod clients;
mod grid;
mod sim;

pub use clients::{Load, Think};
pub use grid::{Case, POLICIES, Row, Score, cases, grid};
pub use sim::{Device, Outcome, Stage, run};
