//! The queue of transactions that wait for log space ([`super::grant`]).

use std::collections::VecDeque;

/// The transactions that wait for log space.
#[derive(Default)]
pub(super) struct GrantQueue {
    /// Rolling transactions, in order of arrival.
    pub(super) rolling: VecDeque<u64>,
    pub(super) next: u64,
    /// Number of threads that sleep until an event.
    pub(super) asleep: usize,
    /// Number of events that may have freed log space, or may allow it to be freed.
    pub(super) events: u64,
}

/// A rolling transaction's place in the queue.
pub(crate) struct GrantTicket(pub(super) u64);

/// The result of an attempt to get log space.
pub(crate) enum Grant {
    /// The space is granted.
    Granted,
    /// There is no space yet. Holds the number of events so far.
    Wait(u64),
}
