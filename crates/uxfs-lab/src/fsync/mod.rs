//! Coordinating fsync: any policy, any number of callers, any disk, in virtual time.
//!
//! [`grid`] plays every policy of `fsync_policy=` against every combination of disk, callers and
//! think time, and says how `auto` did beside the best of them in hindsight.

mod clients;
mod grid;
mod rng;
mod sim;

pub use clients::{Load, Think};
pub use grid::{Case, POLICIES, Row, Score, cases, grid};
pub use sim::{Device, Outcome, Stage, run};
