//! Where threads sleep until something is durable: one condition variable per checkpoint, so a wakeup
//! reaches only its waiters.
//!
//! 1. A thread sleeps at the slot that it gave the pipeline when it began to wait.

use uxfs_journal::{Need, Seq};

use crate::sync::Condvar;

/// Checkpoints that threads wait for at one time: the one on its way, the one behind it, and the one
/// that gathers; a power of two.
const CHECKPOINTS: usize = 4;

/// A place to sleep at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitSlot(u8);

impl WaitSlot {
    /// Those who wait for written data alone.
    pub(super) const DATA: Self = Self(CHECKPOINTS as u8);

    /// Where those wait who need this, after checkpoint `durable`.
    pub(super) fn of(need: Need, durable: Seq) -> Self {
        match need.seq > durable {
            true => Self((need.seq.0 % CHECKPOINTS as u64) as u8),
            false => Self::DATA,
        }
    }
}

/// Some of the places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitSlots(u8);

impl WaitSlots {
    /// One more.
    pub(super) fn add(&mut self, place: WaitSlot) {
        self.0 |= 1 << place.0;
    }
}

/// All the places.
#[derive(Debug, Default)]
pub(super) struct Waiters([Condvar; CHECKPOINTS + 1]);

impl Waiters {
    /// A place.
    pub(super) fn at(&self, place: WaitSlot) -> &Condvar {
        &self.0[usize::from(place.0)]
    }

    /// Wakes all who sleep at some places, and leaves none to be told.
    pub(super) fn wake(&self, places: &mut WaitSlots) {
        let told = core::mem::take(places).0;
        let those = self.0.iter().enumerate().filter(|(at, _)| told >> at & 1 != 0);
        those.for_each(|(_, place)| place.notify_all());
    }

    /// Wakes one at each place.
    pub(super) fn wake_one_each(&self) {
        self.0.iter().for_each(Condvar::notify_one);
    }

    /// Wakes all.
    pub(super) fn wake_all(&self) {
        self.0.iter().for_each(Condvar::notify_all);
    }
}
