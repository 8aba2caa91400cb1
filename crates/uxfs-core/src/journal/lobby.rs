//! Where threads sleep until something is durable: apart by what they wait for, so that who is told
//! is told of what it waits for.
//!
//! 1. A thread sleeps at the place that it gave the pipeline when it began to wait.

use uxfs_journal::{Need, Seq};

use crate::turns::Condvar;

/// Checkpoints that threads wait for at one time: the one on its way, the one behind it, and the one
/// that gathers; a power of two.
const CHECKPOINTS: usize = 4;

/// A place to sleep at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u8);

impl Place {
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
pub(super) struct Places(u8);

impl Places {
    /// One more.
    pub(super) fn add(&mut self, place: Place) {
        self.0 |= 1 << place.0;
    }
}

/// All the places.
#[derive(Debug, Default)]
pub(super) struct Lobby([Condvar; CHECKPOINTS + 1]);

impl Lobby {
    /// A place.
    pub(super) fn at(&self, place: Place) -> &Condvar {
        &self.0[usize::from(place.0)]
    }

    /// Wakes all who sleep at some places, and leaves none to be told.
    pub(super) fn tell(&self, places: &mut Places) {
        let told = core::mem::take(places).0;
        let those = self.0.iter().enumerate().filter(|(at, _)| told >> at & 1 != 0);
        those.for_each(|(_, place)| place.notify_all());
    }

    /// Wakes one at each place.
    pub(super) fn tell_some(&self) {
        self.0.iter().for_each(Condvar::notify_one);
    }

    /// Wakes all.
    pub(super) fn tell_all(&self) {
        self.0.iter().for_each(Condvar::notify_all);
    }
}
