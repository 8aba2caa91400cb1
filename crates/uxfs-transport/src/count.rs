//! Requests counted by kind.
//!
//! 1. Each thread that takes the host's requests counts in a [`Tally`] of its own, in cache lines of
//!    its own: counting never makes two processors wait for each other. The threads of a guest's
//!    connection share one.
//! 2. A request is counted before it is answered, whatever its answer. The first one, `INIT`, is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::abi::{OPCODES, kind};

/// The kind of requests that this crate has no name for.
const OTHER: &str = "OTHER";

/// The requests of a connection, counted by kind.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<Arc<Tally>>>>);

impl Requests {
    /// A tally for one more thread.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        let tally = Arc::<Tally>::default();
        self.0.lock().push(Arc::clone(&tally));
        tally
    }

    /// The kinds that came so far, named as in the protocol (`LOOKUP`, `BATCH_FORGET`), and how many
    /// of each.
    pub fn by_kind(&self) -> Vec<(&'static str, u64)> {
        let tallies = self.0.lock();
        let sum = |at: usize| tallies.iter().map(|tally| tally.0[at].load(Ordering::Relaxed)).sum();
        let counts = (0..OPCODES).map(|at| (name(at), sum(at)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

fn name(at: usize) -> &'static str {
    u32::try_from(at).ok().and_then(kind).unwrap_or(OTHER)
}

/// What one thread has counted, by operation code. No operation has code 0, where those without a
/// name are.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Tally([AtomicU64; OPCODES]);

impl Default for Tally {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; OPCODES])
    }
}

impl Tally {
    fn of(&self, opcode: u32) -> &AtomicU64 {
        let at = usize::try_from(opcode).ok().filter(|at| *at < OPCODES && kind(opcode).is_some());
        &self.0[at.unwrap_or(0)]
    }

    /// Counts a request, of several threads that share the tally.
    pub(crate) fn count_shared(&self, opcode: u32) {
        self.of(opcode).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request. Only the tally's own thread may: an increment is then no locked operation.
    pub(crate) fn count(&self, opcode: u32) {
        let count = self.of(opcode);
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::op;

    #[test]
    fn threads_are_summed_by_the_names_of_the_protocol() {
        let requests = Requests::default();
        assert!(requests.by_kind().is_empty());
        let (one, other) = (requests.tally(), requests.tally());
        for opcode in [op::LOOKUP, op::STATX, op::LOOKUP, 7, 0, 4096, u32::MAX] {
            one.count(opcode);
        }
        other.count_shared(op::LOOKUP);
        assert_eq!(requests.by_kind(), [(OTHER, 4), ("LOOKUP", 3), ("STATX", 1)]);
    }
}
