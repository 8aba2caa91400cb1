//! Epochs: checkpoints that the owner of the volume cuts, with all file data of that moment written.
//!
//! 1. The caller of [`Journal::cut_epoch`] keeps transactions and writers of file data out from before it
//!    writes the data until the cut. So the checkpoint is the volume at one moment.
//! 2. In this mode nothing else cuts a checkpoint, and no thread inside the journal waits for the open one.
//!    Log space comes from AIL pushes alone, up to the last checkpoint that is cut.
//! 3. That suffices because the open checkpoint is bounded: it is due at an eighth of the log, and callers of
//!    [`Journal::is_epoch_due`] cut it between two operations, without locks that an epoch needs.
//!
//! Called by the engine in ordered mode.

use uxfs_disk::fault::{Fault, planted};

use crate::cil::Cil;
use crate::journal::{Journal, State};
use crate::pipeline::{Generation, Need, Seq};
use crate::volume::Volume;

/// AIL pushes that may free log space for an epoch: each writes what the one before found locked.
const PUSHES: usize = 1000;

impl<V: Volume> Journal<V> {
    /// Are checkpoints cut by [`Journal::cut_epoch`] only?
    pub fn has_epochs(&self) -> bool {
        self.options.pipeline.epochs
    }

    /// Should an epoch be cut: because of its size or age, or for a waiter?
    pub fn is_epoch_due(&self) -> bool {
        self.has_epochs() && self.sees_epoch_due(&self.state.lock())
    }

    /// The same, with the state locked. Costs no look at the clock without epochs.
    pub(crate) fn sees_epoch_due(&self, state: &State) -> bool {
        self.has_epochs() && state.pipeline.is_epoch_due(self.now())
    }

    /// Upper bound of the bytes of the open checkpoint.
    pub fn open_bytes(&self) -> u64 {
        self.state.lock().pipeline.open_bytes()
    }

    /// Waits until there is room for a further checkpoint that is cut.
    ///
    /// # Errors
    /// [`Volume::stopped`].
    pub fn await_room_for_cut(&self, volume: &V) -> Result<(), V::Error> {
        loop {
            let oldest = {
                let state = self.state.lock();
                if state.pipeline.has_room_for_cut() {
                    return Ok(());
                }
                Seq(state.pipeline.durable().0 + 1)
            };
            self.wait_for(volume, Need { seq: oldest, data: Generation(0) })?;
        }
    }

    /// Cuts the open checkpoint. The caller keeps transactions out, and has waited for room. Returns the
    /// number of the last checkpoint that is cut.
    pub fn cut_epoch(&self) -> Seq {
        let mut cil = self.cil.lock();
        let mut state = self.state.lock();
        if planted(Fault::CutByItself) && cil.seq != state.pipeline.open_seq() {
            // It has just done so, and its driver has not taken the CIL yet.
            return Seq(state.pipeline.open_seq().0 - 1);
        }
        if let Some(seq) = state.pipeline.cut_epoch(self.now()) {
            debug_assert_eq!(cil.seq, seq, "the pipeline and the CIL count alike");
            let next = Cil::new(Seq(seq.0 + 1), None, Vec::new());
            self.epochs.lock().push_back(core::mem::replace(&mut *cil, next));
        }
        Seq(state.pipeline.open_seq().0 - 1)
    }

    /// Grants `bytes` of log space out of turn, to the thread that cuts an epoch. Pushes the AIL if they
    /// are not free.
    ///
    /// # Errors
    /// [`Volume::stopped`]. If pushes free too little, nothing that changed since the last epoch can become
    /// durable, and that stops the journal.
    pub fn reserve_in_epoch(&self, volume: &V, bytes: u64) -> Result<u64, V::Error> {
        for _ in 0..PUSHES {
            let events = self.state.lock().queue.events;
            if self.grant_small(bytes) {
                return Ok(bytes);
            }
            self.await_log_room(volume, events)?;
        }
        let why = "the log has no room for what changed since the last epoch";
        Err(self.fail(volume, why.to_owned().into()))
    }

    /// The last checkpoint that a thread inside the journal may wait for.
    pub(crate) fn last_forced(&self, state: &State) -> Seq {
        match self.has_epochs() {
            true => Seq(state.pipeline.open_seq().0 - 1),
            false => state.pipeline.last(),
        }
    }
}
