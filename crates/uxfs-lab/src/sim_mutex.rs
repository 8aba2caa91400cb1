//! A lock in simulated time: it may be held across waits, by one client at a time, in the order of
//! requests.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_sync::{Scheduler, WaitKey};

use crate::sim::Sim;

#[derive(Default)]
struct State {
    held: bool,
    /// Numbers of the waiting clients, and the next number.
    waiting: VecDeque<u64>,
    next: u64,
}

#[derive(Default)]
pub(crate) struct SimMutex(Arc<Mutex<State>>);

pub(crate) struct Held {
    state: Arc<Mutex<State>>,
    sim: Arc<Sim>,
}

fn wait_key(state: &Arc<Mutex<State>>) -> WaitKey {
    WaitKey(Arc::as_ptr(state).addr())
}

impl SimMutex {
    pub(crate) fn take(&self, sim: &Arc<Sim>) -> Held {
        let number = {
            let mut state = self.0.lock();
            let number = state.next;
            state.next += 1;
            state.waiting.push_back(number);
            number
        };
        loop {
            {
                let mut state = self.0.lock();
                if !state.held && state.waiting.front() == Some(&number) {
                    state.held = true;
                    state.waiting.pop_front();
                    return Held { state: Arc::clone(&self.0), sim: Arc::clone(sim) };
                }
            }
            sim.sleep(wait_key(&self.0), None);
        }
    }

    /// Waits until the lock is free.
    pub(crate) fn wait_free(&self, sim: &Arc<Sim>) {
        while self.0.lock().held {
            sim.sleep(wait_key(&self.0), None);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.state.lock().held = false;
        self.sim.wake(wait_key(&self.state), true);
    }
}
