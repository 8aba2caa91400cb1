//! Fsync policies: when the device is flushed for the callers that wait.
//!
//! A caller of fsync needs a flush that *begins* after its writes have completed. If several
//! callers need one at about the same time, one flush can serve them all. Policies differ in
//! whether a caller waits for others.
//!
//! The [`Pipeline`](crate::Pipeline) reports arrivals, begun flushes and ended flushes to a
//! [`Policy`] and asks it for a decision. There, "a flush" means all the work that makes a group of
//! callers durable. The lab asks the same policies in a simulation.
//!
//! 1. While a caller waits and no flush is in flight, a policy starts a flush or names a time.
//! 2. A policy decides when, not what is durable. The pipeline may start a flush without asking,
//!    and a policy never completes a request earlier.
//! 3. A policy has no clock, no thread and no randomness, and allocates nothing after it was made:
//!    the same calls give the same decisions.

mod auto;
mod contract;
mod disk;
mod epochs;
mod fixed;
mod forecast;
mod name;
#[cfg(test)]
mod tests;

pub use auto::Auto;
pub use contract::{Decision, Ended, Policy, View};
pub use fixed::Fixed;
pub use name::{FSYNC_POLICIES, FsyncPolicy, UnknownPolicy};
