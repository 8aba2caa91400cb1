//! The queue of transactions that wait for log space ([`crate::grant`]).

use std::collections::VecDeque;

/// The transactions that wait for log space.
#[derive(Debug, Default)]
pub(crate) struct GrantQueue {
    /// Rolling transactions, in order of arrival.
    pub(crate) rolling: VecDeque<u64>,
    pub(crate) next: u64,
    /// Number of threads that sleep until an event.
    pub(crate) asleep: usize,
    /// Number of events that may have freed log space, or may allow it to be freed.
    pub(crate) events: u64,
}

/// A rolling transaction's place in the queue.
#[derive(Debug)]
pub struct GrantTicket(pub(crate) u64);

/// The result of an attempt to get log space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The space is granted.
    Granted,
    /// There is no space yet. Holds the number of events so far.
    Wait(u64),
}
