//! What every policy sees, is told and decides: see the rules of [`crate::policy`].

use crate::time::Time;

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
    pub in_flight: u32,
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
    /// Somebody came; `view` counts them. `caller` tells callers apart.
    fn arrived(&mut self, view: &View, caller: u64);

    /// A flush begins for all who wait, because the policy wanted it or for another reason; `view` is
    /// as it was before.
    fn begun(&mut self, view: &View);

    /// Somebody who came is told, by the end of a flush or of something else.
    fn completed(&mut self, now: Time, caller: u64);

    /// A flush has ended; whom it served is told next.
    fn ended(&mut self, view: &View, flush: Ended);

    /// What is to be done now. After [`Decision::Flush`] it is asked again.
    fn decide(&mut self, view: &View) -> Decision;
}
