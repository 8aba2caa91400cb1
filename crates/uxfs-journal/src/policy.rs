//! When the device is flushed for those who wait: ways to coordinate fsync.
//!
//! Someone who wants what they wrote to be durable needs a flush that *begins* after their write has
//! ended. If several want that at about the same time, one flush can serve them all; whether it pays
//! to wait for them is what policies differ about.
//!
//! A [`Policy`] is told who came, which flush began and which ended, and is asked what is to be done
//! now. [`Pipeline`](crate::Pipeline) asks it in the engine, where "a flush" is all it takes to make
//! durable what those wait for who are served together; a simulation asks it in the lab.
//!
//! 1. While anybody waits and no flush is under way, a policy begins one or names a moment.
//! 2. What a policy decides is when, never what durability is: whoever asks it may begin a flush
//!    without it, and completes none earlier because of it.
//! 3. A policy has no clock, no thread and no chance of its own, and allocates nothing after it was
//!    made: the same calls give the same answers.

mod auto;
mod callers;
mod contract;
mod disk;
mod fixed;
mod name;
mod simulation;
#[cfg(test)]
mod tests;

pub use auto::Auto;
pub use contract::{Decision, Ended, Policy, View};
pub use fixed::Fixed;
pub use name::{FSYNC_POLICIES, FsyncPolicy, UnknownPolicy};
