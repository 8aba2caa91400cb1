//! What a policy sees, learns and decides, under the rules of [`crate::policy`].

use uxfs_sync::Time;

/// The state that a policy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The current time.
    pub now: Time,
    /// Number of callers that wait for a flush that has not begun.
    pub waiting: u32,
    /// Arrival of the first of them; the current time if there is none.
    pub since: Time,
    /// Flushes in flight.
    pub in_flight: u32,
}

/// A policy's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start a flush now, for all callers that wait.
    Flush,
    /// Ask again at this time, or when something happens.
    Until(Time),
    /// Ask again when something happens.
    Rest,
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number. Flushes are counted from 0 in the order in which they begin.
    pub number: u64,
    /// When it began, or when the work that it had to wait for ended. Its duration counts from
    /// here.
    pub begun: Time,
}

/// A policy.
pub trait Policy: Send + core::fmt::Debug {
    /// Reports an arrival, which `view` includes. `caller` identifies the caller.
    fn arrived(&mut self, view: &View, caller: u64);

    /// Reports that a flush begins for `view.waiting` callers, by the policy's decision or for another
    /// reason. `view` is the state before.
    fn begun(&mut self, view: &View);

    /// Reports that a caller's request completed, by the end of a flush or otherwise.
    fn completed(&mut self, now: Time, caller: u64);

    /// Reports that a flush ended. The completions of its callers are reported next.
    fn ended(&mut self, view: &View, flush: Ended);

    /// Decides what to do now. Called again after [`Decision::Flush`].
    fn decide(&mut self, view: &View) -> Decision;
}
