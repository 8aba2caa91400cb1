//! AIL push: active objects are written in place, so that the log's tail can move on.
//!
//! 1. Only objects all of whose changes are durable are written, in their present state. An object that a
//!    transaction is changing, or that is in the open checkpoint again, is left for a later push.
//! 2. An object that the host has no room for stays active; any other failure stops the volume.
//! 3. An object leaves the AIL only after a flush, and only if it has not changed since it was written.
//!
//! [`Volume::write_in_place`] writes the objects. Called by the log worker, and by threads that need log
//! space or memory.

use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};

use crate::journal::Journal;
use crate::log_item::LogItem;
use crate::log_pos::LogPos;
use crate::pipeline::{Generation, Need, Seq};
use crate::volume::{Counter, Volume, WrittenItem};

impl<V: Volume> Journal<V> {
    /// Writes active objects below the log position `until` in place, in ascending order, and moves
    /// the tail.
    ///
    /// # Errors
    /// [`Volume::stopped`]; a temporary error of [`Volume::write_in_place`].
    pub fn push_ail(&self, volume: &V, until: LogPos) -> Result<(), V::Error> {
        let _one = self.push_lock.lock();
        volume.check_running()?;
        let mut items = self.ail.lock().below(until);
        // Intents are not written in place. They leave the AIL with their done item.
        items.retain(|(_, item)| !item.is_intent());
        if items.is_empty() {
            if until == LogPos::MAX {
                volume.nothing_to_push();
            }
            return Ok(());
        }
        volume.count(Counter::PushAil, 1);
        self.batches_begun.fetch_add(1, Ordering::AcqRel);
        let durable = match planted(Fault::InPlaceEarly) {
            true => u64::MAX,
            false => self.durable.load(Ordering::Acquire),
        };
        let done = volume.write_in_place(self, items, durable);
        self.batches_ended.fetch_add(1, Ordering::AcqRel);
        let written = match done {
            Ok(written) => written,
            // All of it is still in the log, so the push can be repeated.
            Err(error) if V::is_temporary(&error) => return Err(error),
            Err(error) => return Err(self.fail(volume, V::cause("writing back", &error))),
        };
        let mut data = self.state.lock().pipeline.independent_write();
        if planted(Fault::InPlaceUnflushed) {
            data = Generation(0);
        }
        self.wait_for(volume, Need { seq: Seq(0), data })?;
        self.remove_written(volume, &written);
        // Nothing else holds them now.
        drop(written);
        volume.shrink();
        Ok(())
    }

    /// Removes written and flushed objects from the AIL.
    fn remove_written(&self, volume: &V, written: &[WrittenItem<V::Item>]) {
        for object in written {
            let unchanged = volume.write_completed(object);
            let mut ail = self.ail.lock();
            if unchanged && ail.position(&object.item) == Some(object.position) {
                ail.remove(&object.item);
                volume.count(Counter::PushAilSuccess, 1);
                volume.clean(&object.item);
            }
        }
        let ail = self.ail.lock();
        let mut state = self.state.lock();
        // Records in flight lie after everything in the AIL and before the head. A checkpoint is in
        // flight until its objects are in the AIL; the pipeline counts it as durable before that.
        let nothing_in_flight = self.is_durable(state.pipeline.open_seq().0 - 1);
        if let Some(lowest) = ail.lowest() {
            self.move_tail(volume, &mut state, lowest);
        } else if nothing_in_flight {
            let head = state.space.head();
            self.move_tail(volume, &mut state, head);
        }
        self.note_event(&mut state);
    }

    /// Pushes the whole AIL.
    ///
    /// # Errors
    /// As [`Self::push_ail`].
    pub fn push_whole_ail(&self, volume: &V) -> Result<(), V::Error> {
        self.push_ail(volume, LogPos::MAX)
    }

    /// Forces the open checkpoint, and then pushes the whole AIL.
    ///
    /// # Errors
    /// As [`Self::push_ail`].
    pub fn force_and_push(&self, volume: &V) -> Result<(), V::Error> {
        let last = self.last_forced(&self.state.lock());
        self.wait_for(volume, Need { seq: last, data: Generation(0) })?;
        self.push_ail(volume, LogPos::MAX)
    }

    /// Pushes about half of the AIL, so that memory becomes free. If fewer than `enough` objects are
    /// active, forces the open checkpoint instead, which holds the others. Returns whether that
    /// helped.
    ///
    /// # Errors
    /// As [`Self::push_ail`].
    pub fn push_half(&self, volume: &V, enough: usize) -> Result<bool, V::Error> {
        let (last, active, lowest, until) = {
            let ail = self.ail.lock();
            let state = self.state.lock();
            let head = state.space.head();
            let lowest = ail.lowest();
            let from = lowest.unwrap_or(head);
            (self.last_forced(&state), ail.len(), lowest, from + (head - from).div_ceil(2))
        };
        if active < enough {
            self.wait_for(volume, Need { seq: last, data: Generation(0) })?;
            return Ok(self.load().1 > active);
        }
        self.push_ail(volume, until)?;
        Ok(self.ail.lock().lowest() != lowest)
    }
}
