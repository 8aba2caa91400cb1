//! Checkpoints: cut from the CIL into log records, and moved to the AIL once they are durable.
//!
//! 1. A checkpoint is cut between two commits, so it holds whole transactions.
//! 2. File data and unlogged values that it shows are written before its records.
//! 3. Its objects are in the AIL before its waiters are woken.
//!
//! Called by [`crate::driver`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};

use crate::cil::Cil;
use crate::iclog::Iclog;
use crate::journal::{Journal, State};
use crate::log_item::LogItem;
use crate::log_pos::LogPos;
use crate::pipeline::Seq;
use crate::records::{Records, Sealed};
use crate::volume::{Counter, Volume, VolumeCil};

/// Most bytes of the log written without a flush. Recovery finds holes only within the last 2 MiB
/// before the head.
const PART_MAX: usize = 1 << 20;

/// Most slabs kept for the copies of later checkpoints.
const SLABS_MAX: usize = 64;

/// The state of the driver.
pub(crate) struct Driver<I> {
    /// The checkpoint being written, and the next one if it is cut already.
    pub(crate) checkpoints: VecDeque<CutCheckpoint<I>>,
    /// Record buffers for later checkpoints.
    pub(crate) spares: Vec<Vec<u8>>,
    /// Slabs for the copies of later checkpoints.
    pub(crate) slabs: Vec<Vec<u8>>,
    /// Position of the last record written.
    pub(crate) last: Option<LogPos>,
}

impl<I> Default for Driver<I> {
    fn default() -> Self {
        Self { checkpoints: VecDeque::new(), spares: Vec::new(), slabs: Vec::new(), last: None }
    }
}

/// A checkpoint that is cut.
pub(crate) struct CutCheckpoint<I> {
    pub(crate) seq: Seq,
    pub(crate) objects: Vec<I>,
    pub(crate) gone: Vec<I>,
    /// Ids of its intents, and of the intents whose done items it holds.
    pub(crate) intents: Vec<u64>,
    pub(crate) dones: Vec<u64>,
    pub(crate) sealed: Option<Sealed>,
    pub(crate) parts: Vec<Range<usize>>,
    /// Position of its first record.
    pub(crate) head: LogPos,
}

impl<V: Volume> Journal<V> {
    /// Takes the open checkpoint and builds its log records.
    pub(crate) fn cut(
        &self,
        volume: &V,
        driver: &mut Driver<V::Item>,
        seq: Seq,
    ) -> Result<(), V::Error> {
        let (cil, records) = self.take(driver, seq)?;
        let mut data = !cil.values.is_empty() && !planted(Fault::ValueUnflushed);
        volume.retry_write(&self.options, &mut || volume.write_values(&cil, self.immediate()))?;
        data |= volume.await_data()? && !planted(Fault::DataUnflushed);
        let (head, tail) = {
            let state = self.state.lock();
            (state.space.head(), state.space.tail())
        };
        let sealed = records.seal(head, tail, driver.last);
        let single = u64::from(sealed.count() > 0);
        let (count, items) = match &cil.iclog {
            Some(iclog) => (iclog.count, iclog.items),
            None => (single, cil.objects.len() as u64),
        };
        volume.count(Counter::Checkpoints, count);
        volume.count(Counter::Items, items);
        volume.count(Counter::ItemsRelogged, cil.relogged.0);
        volume.count(Counter::BytesRelogged, cil.relogged.1);
        let parts = sealed.parts(self.options.buffers, PART_MAX);
        driver.last = (sealed.count() > 0).then_some(sealed.last).or(driver.last);
        let mut state = self.state.lock();
        state.space.write(sealed.bytes.len() as u64, cil.granted);
        if data {
            state.pipeline.data();
        }
        state.pipeline.cut(self.now(), parts.len() as u32);
        drop(state);
        let Cil { objects, gone, intents, dones, logged_intents, logged_dones, .. } = cil;
        let intents = logged_intents.into_iter().chain(intents.into_keys()).collect();
        let dones = logged_dones.into_iter().chain(dones.into_iter().map(|done| done.id)).collect();
        let sealed = Some(sealed);
        let checkpoint = CutCheckpoint { seq, objects, gone, intents, dones, sealed, parts, head };
        driver.checkpoints.push_back(checkpoint);
        Ok(())
    }

    /// Takes the open checkpoint and its records.
    fn take(
        &self,
        driver: &mut Driver<V::Item>,
        seq: Seq,
    ) -> Result<(VolumeCil<V>, Records), V::Error> {
        let mut spare = driver.spares.pop().unwrap_or_default();
        let epoch = self.epochs.lock().pop_front();
        let mut cil = epoch.unwrap_or_else(|| {
            let mut iclog = || Iclog::new(self.geometry, core::mem::take(&mut spare));
            let iclog = self.immediate().then(&mut iclog);
            let next = Cil::new(Seq(seq.0 + 1), iclog, core::mem::take(&mut driver.slabs));
            core::mem::replace(&mut *self.cil.lock(), next)
        });
        debug_assert_eq!(cil.seq, seq, "the pipeline and the CIL count alike");
        if let Some(error) = cil.failed.take() {
            return Err(error);
        }
        let mut records = Records::new(self.geometry, spare);
        if let Some(iclog) = &mut cil.iclog {
            core::mem::swap(&mut iclog.records, &mut records);
        } else if !cil.is_empty() {
            cil.write(&mut records, self.tid());
        }
        driver.slabs = cil.take_slabs();
        driver.slabs.truncate(SLABS_MAX);
        Ok((cil, records))
    }

    /// Moves the objects of a durable checkpoint to the AIL.
    pub(crate) fn activate(&self, volume: &V, driver: &mut Driver<V::Item>, seq: Seq) {
        let Some(mut checkpoint) = driver.checkpoints.pop_front() else { return };
        debug_assert_eq!(checkpoint.seq, seq);
        if let Some(sealed) = checkpoint.sealed.take() {
            driver.spares.push(sealed.bytes);
        }
        let mut ail = self.ail.lock();
        // Freed objects are removed. A new object in the same place came after them.
        for object in checkpoint.objects {
            ail.insert(checkpoint.head, object);
        }
        for object in &checkpoint.gone {
            ail.remove(object);
        }
        for id in checkpoint.intents {
            ail.insert(checkpoint.head, V::Item::intent(id));
        }
        for id in checkpoint.dones {
            ail.remove(&V::Item::intent(id));
        }
        let lowest = ail.lowest().filter(|_| !planted(Fault::TailEarly));
        let next = driver.checkpoints.front().map(|checkpoint| checkpoint.head);
        let mut state = self.state.lock();
        let tail = lowest.or(next).unwrap_or(state.space.head());
        self.move_tail(volume, &mut state, tail);
        // Under both locks, so that a thread that finds an empty AIL knows from this whether
        // anything is in flight.
        self.durable.store(seq.0, Ordering::Release);
        self.note_event(&mut state);
    }

    /// Moves the tail: everything before `position` is written in place.
    pub(crate) fn move_tail(&self, volume: &V, state: &mut State, position: LogPos) {
        let moved = u64::from(position > state.space.tail());
        volume.count(Counter::TailPushes, moved);
        state.space.move_tail(position);
    }
}
