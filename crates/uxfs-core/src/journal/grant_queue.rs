//! The queue for log space ([`super::grant`] serves it).

use std::collections::VecDeque;

/// Who waits for log space.
#[derive(Default)]
pub(super) struct GrantQueue {
    /// Chains, in the order in which they came.
    pub(super) rolling: VecDeque<u64>,
    pub(super) next: u64,
    /// Threads that sleep until something happens.
    pub(super) asleep: usize,
    /// Counts whatever may have made room, or may let it be made.
    pub(super) events: u64,
}

/// A chain's place in the queue.
pub(crate) struct GrantTicket(pub(super) u64);

/// How an attempt to get log space ended.
pub(crate) enum Grant {
    /// It was promised.
    Granted,
    /// It is not there yet. The number of events so far.
    Wait(u64),
}
