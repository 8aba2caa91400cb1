//! Condition variables of threads that wait for durability: one per checkpoint, so that a wake-up
//! reaches only its waiters.
//!
//! 1. A thread sleeps in the slot that it gave to the pipeline when it began to wait.

use crate::pipeline::{Need, Seq};
use uxfs_sync::Condvar;

/// Number of checkpoints that threads can wait for at one time: the one being written, the one
/// after it, and the open one; a power of two.
const CHECKPOINTS: usize = 4;

/// A slot to sleep in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitSlot(u8);

impl WaitSlot {
    /// The slot of threads that wait for data only.
    pub(crate) const DATA: Self = Self(CHECKPOINTS as u8);

    /// The slot of threads that wait for `need`, after checkpoint `durable`.
    pub(crate) fn of(need: Need, durable: Seq) -> Self {
        match need.seq > durable {
            true => Self((need.seq.0 % CHECKPOINTS as u64) as u8),
            false => Self::DATA,
        }
    }
}

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitSlots(u8);

impl WaitSlots {
    /// Adds a slot.
    pub(crate) fn add(&mut self, slot: WaitSlot) {
        self.0 |= 1 << slot.0;
    }
}

/// The condition variables of all slots.
#[derive(Debug, Default)]
pub(crate) struct Waiters([Condvar; CHECKPOINTS + 1]);

impl Waiters {
    /// The condition variable of a slot.
    pub(crate) fn at(&self, slot: WaitSlot) -> &Condvar {
        &self.0[usize::from(slot.0)]
    }

    /// Wakes all threads in a set of slots, and empties the set.
    pub(crate) fn wake(&self, slots: &mut WaitSlots) {
        let woken = core::mem::take(slots).0;
        let conditions = self.0.iter().enumerate().filter(|(at, _)| woken >> at & 1 != 0);
        conditions.for_each(|(_, condition)| condition.notify_all());
    }

    /// Wakes one thread in each slot.
    pub(crate) fn wake_one_each(&self) {
        self.0.iter().for_each(Condvar::notify_one);
    }

    /// Wakes all threads.
    pub(crate) fn wake_all(&self) {
        self.0.iter().for_each(Condvar::notify_all);
    }
}
