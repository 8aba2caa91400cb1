//! Who drives: there is work that one thread at a time can carry out, and there are threads that wait
//! for what comes of it. Whoever has to wait and finds nobody driving drives itself, until it has what
//! it wants; the others sleep, and one of them takes over when it leaves.
//!
//! 1. Driving is tried for under the state's lock, and who leaves tells the others under it, after
//!    letting go of the driver's: so whoever failed to become the driver is told when that ends.
//! 2. The driver tells those whose outcome is there. Who leaves the place tells one of those who sleep
//!    for each thing that is slept for ([`LeaderElection::wake_one`]), not all of them; and who was told, finds its
//!    outcome there, and does not drive, does the same if there is something left to be driven. So there
//!    is always somebody on the way who drives or passes that on, and nobody is woken for nothing.
//! 3. Who sleeps looks again when told: at what it waits for first, then for the driver's place.
//! 4. No lock but the driver's is held while driving.
//!
//! What locks and sleeping are is the caller's affair ([`LeaderElection`]): the engine's in production, those of
//! a scheduler that tries interleavings in this module's tests.

use core::ops::{Deref, DerefMut};

/// What those who wait and the one who drives share.
pub trait LeaderElection {
    /// What tells how far things are.
    type State;
    /// What only the driver needs.
    type Driver;
    /// The state, locked.
    type StateGuard<'a>: Deref<Target = Self::State>
    where
        Self: 'a;
    /// The driver's place, taken.
    type DriverGuard<'a>: DerefMut<Target = Self::Driver>
    where
        Self: 'a;

    /// Locks the state.
    fn state(&self) -> Self::StateGuard<'_>;
    /// Takes the driver's place, if nobody has it.
    fn try_drive(&self) -> Option<Self::DriverGuard<'_>>;
    /// Lets go of the state and sleeps, in one step, until told; then locks it again.
    fn sleep<'a>(&'a self, state: Self::StateGuard<'a>) -> Self::StateGuard<'a>;
    /// Wakes somebody who sleeps, if anybody does: one at least of each kind.
    fn wake_one(&self);
    /// Is something left to be driven, or to be waited for by a driver, and nobody drives?
    fn has_work(&self, state: &Self::State) -> bool;
}

/// Waits until `done` has an outcome, driving if nobody else does. `drive` goes on until it may be
/// there, or nothing is left to do.
///
/// # Errors
/// What driving comes to.
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

/// Drives, if nobody else does.
///
/// # Errors
/// What driving comes to.
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
