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
mod disk;
mod dream;
mod fixed;
#[cfg(test)]
mod tests;
mod word;

use crate::time::Time;

pub use auto::Auto;
pub use fixed::Fixed;
pub use word::{FSYNC_POLICIES, FsyncPolicy, UnknownPolicy};

/// What a policy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Now.
    pub now: Time,
    /// How many wait for a flush that has not begun.
    pub waiting: u32,
    /// When the first of them came; now, if nobody waits.
    pub since: Time,
    /// Flushes under way.
    pub flying: u32,
}

/// What a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A flush begins now, for all who wait.
    Flush,
    /// Ask again when this moment has come, or something happens.
    Until(Time),
    /// Ask again when something happens.
    Rest,
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number: flushes are counted from 0, as they begin.
    pub number: u64,
    /// When it began, or when what it had to wait for had ended: it is measured from here on.
    pub begun: Time,
}

/// A way to coordinate.
pub trait Policy: Send + core::fmt::Debug {
    /// Somebody came; `view` counts them. `who` tells callers apart.
    fn came(&mut self, view: &View, who: u64);

    /// A flush begins for all who wait, because the policy wanted it or for another reason; `view` is
    /// as it was before.
    fn begun(&mut self, view: &View);

    /// Somebody who came is told, by the end of a flush or of something else.
    fn told(&mut self, now: Time, who: u64);

    /// A flush has ended; whom it served is told next.
    fn ended(&mut self, view: &View, flush: Ended);

    /// What is to be done now. After [`Decision::Flush`] it is asked again.
    fn decide(&mut self, view: &View) -> Decision;
}
