//! The deferred operations that a transaction still has to run.

use std::collections::VecDeque;

use crate::deferred::Deferred;

/// A pending operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) step: Deferred,
    /// Id of the intent that announces it, if there is one.
    pub(super) intent: Option<u64>,
}

/// The pending operations of a transaction.
#[derive(Default)]
pub(super) struct Rolling {
    pub(super) owed: VecDeque<Owed>,
    /// Announced operations that ran since the last roll, with their intents.
    pub(super) done: Vec<(Deferred, u64)>,
    /// The last checkpoint that may be open while the intents need not be logged again: they hold
    /// the log's tail, and little lies between them and the head.
    pub(super) fresh: u64,
}

impl Rolling {
    /// Does the journal know all that is pending and done?
    pub(super) fn is_logged(&self) -> bool {
        self.done.is_empty() && self.owed.iter().all(|owed| owed.intent.is_some())
    }
}
