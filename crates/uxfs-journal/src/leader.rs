//! Leader election: one of several waiting threads carries out the work that all of them wait for.
//!
//! A thread that has to wait and finds no driver drives itself, until its own result exists. The
//! others sleep. When the driver leaves, one of them takes over.
//!
//! 1. A thread tries to become the driver while it holds the state's lock. A driver that leaves
//!    first releases the driver's lock, and then wakes others under the state's lock. So a thread
//!    that failed to become the driver is woken when the driver leaves.
//! 2. The driver wakes the threads whose results exist. When it leaves, it wakes one thread for
//!    each kind of sleep ([`LeaderElection::wake_one`]), not all. A thread that was woken, finds
//!    its result and does not drive wakes another one if work is left. So some thread is always
//!    about to drive or to hand that on, and no thread is woken without need.
//! 3. A thread that wakes up checks its own result first, then tries to drive.
//! 4. No lock but the driver's is held while driving.
//!
//! Locks and sleeping belong to the implementation of [`LeaderElection`]: the engine's in
//! production, and a scheduler that explores interleavings in this module's tests.

use core::ops::{Deref, DerefMut};

/// The state and the locks that the driver and the waiting threads share.
pub trait LeaderElection {
    /// The state from which results are read.
    type State;
    /// The driver's own state.
    type Driver;
    /// A guard of the state.
    type StateGuard<'a>: Deref<Target = Self::State>
    where
        Self: 'a;
    /// A guard of the driver's state.
    type DriverGuard<'a>: DerefMut<Target = Self::Driver>
    where
        Self: 'a;

    /// Locks the state.
    fn state(&self) -> Self::StateGuard<'_>;
    /// Becomes the driver, unless there is one.
    fn try_drive(&self) -> Option<Self::DriverGuard<'_>>;
    /// Unlocks the state and sleeps until woken, in one step, and locks the state again.
    fn sleep<'a>(&'a self, state: Self::StateGuard<'a>) -> Self::StateGuard<'a>;
    /// Wakes at least one sleeping thread of each kind, if there is one.
    fn wake_one(&self);
    /// Is there work for a driver, or an event for it to await, but no driver?
    fn has_work(&self, state: &Self::State) -> bool;
}

/// Waits until `done` returns a result, and drives if no other thread does. `drive` returns when
/// the result may exist or no work is left.
///
/// # Errors
/// Those of `drive`.
pub fn wait_for<R: LeaderElection, T, E>(
    election: &R,
    done: impl Fn(&R::State) -> Option<T>,
    mut drive: impl FnMut(&mut R::Driver) -> Result<(), E>,
) -> Result<T, E> {
    let mut state = election.state();
    let mut slept = false;
    loop {
        if let Some(outcome) = done(&state) {
            if slept && election.has_work(&state) {
                election.wake_one();
            }
            return Ok(outcome);
        }
        let Some(mut driver) = election.try_drive() else {
            state = election.sleep(state);
            slept = true;
            continue;
        };
        drop(state);
        let driven = drive(&mut driver);
        drop(driver);
        state = election.state();
        election.wake_one();
        slept = false;
        driven?;
    }
}

/// Drives once, unless another thread drives.
///
/// # Errors
/// Those of `drive`.
pub fn drive_on<R: LeaderElection, E>(
    election: &R,
    drive: impl FnOnce(&mut R::Driver) -> Result<(), E>,
) -> Result<(), E> {
    let Some(mut driver) = election.try_drive() else { return Ok(()) };
    let driven = drive(&mut driver);
    drop(driver);
    let _state = election.state();
    election.wake_one();
    driven
}

#[cfg(test)]
mod tests;
