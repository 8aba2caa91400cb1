//! What a transaction owes: the deferred steps that are not done yet.

use std::collections::VecDeque;

use crate::deferred::Deferred;

/// A step that is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) step: Deferred,
    /// Number of the intent that announces it.
    pub(super) intent: Option<u64>,
}

/// What a transaction owes.
#[derive(Default)]
pub(super) struct Rolling {
    pub(super) owed: VecDeque<Owed>,
    /// Announced steps that this link did.
    pub(super) done: Vec<(Deferred, u64)>,
    /// The last checkpoint that may gather while what is owed is announced well enough: its intents
    /// hold the log's tail, and little lies between them and the head.
    pub(super) fresh: u64,
}

impl Rolling {
    /// Is there anything to tell the journal?
    pub(super) fn is_told(&self) -> bool {
        self.done.is_empty() && self.owed.iter().all(|owed| owed.intent.is_some())
    }
}
