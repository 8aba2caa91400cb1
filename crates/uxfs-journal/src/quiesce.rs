//! Quiescing the log: every object written in place, and an unmount record at the head. At the close, and
//! on a volume in use for readers that do not replay the log (boot loaders).
//!
//! 1. The unmount record is written when the open checkpoint is empty, none is in flight, and the AIL is
//!    empty, with transactions shut out. Everything before the record is in place and flushed.
//! 2. Transactions that would begin meanwhile wait before they lock anything. So those that have begun can
//!    end, and quiescing can too.
//! 3. What is logged afterwards follows the unmount record.

use crate::checkpoint::Driver;
use crate::journal::Journal;
use crate::pipeline::{Generation, Need, Seq};
use crate::records::Records;
use crate::volume::Volume;

/// Holds back new transactions until it is dropped.
struct HeldBack<'a, V: Volume>(&'a Journal<V>);

impl<'a, V: Volume> HeldBack<'a, V> {
    fn new(journal: &'a Journal<V>) -> Self {
        journal.state.lock().held_back += 1;
        Self(journal)
    }
}

impl<V: Volume> Drop for HeldBack<'_, V> {
    fn drop(&mut self) {
        self.0.state.lock().held_back -= 1;
        self.0.released.notify_all();
    }
}

impl<V: Volume> Journal<V> {
    /// Waits while new transactions are held back.
    pub(crate) fn await_release(&self) {
        let mut state = self.state.lock();
        while state.held_back > 0 && state.pipeline.failure().is_none() {
            self.released.wait(&mut state);
        }
    }

    /// Was nothing changed since the mount?
    pub fn is_untouched(&self) -> bool {
        let state = self.state.lock();
        state.pipeline.last() == Seq(0) && state.pipeline.data_written() == Generation(0)
    }

    /// Is the open checkpoint empty, nothing in flight, and the AIL empty?
    fn is_idle(&self) -> bool {
        let active = self.ail.lock().len();
        active == 0 && self.state.lock().pipeline.is_quiet()
    }

    /// Writes everything in place and writes an unmount record. `cut` cuts an epoch, if the volume has
    /// epochs.
    ///
    /// # Errors
    /// [`Volume::stopped`]; temporary errors of writes; those of `cut`.
    pub fn quiesce(
        &self,
        volume: &V,
        cut: &dyn Fn() -> Result<(), V::Error>,
    ) -> Result<(), V::Error> {
        let _held_back = HeldBack::new(self);
        loop {
            volume.check_running()?;
            self.push_all(volume, cut)?;
            let _alone = volume.exclude_transactions();
            if let Some(mut driver) = self.driver.try_lock()
                && self.is_idle()
            {
                let ended = self.end_log(volume, &mut driver);
                return ended.map_err(|error| match V::is_temporary(&error) {
                    true => error,
                    false => self.fail(volume, V::cause("ending the log", &error)),
                });
            }
            drop(_alone);
            uxfs_sync::yield_now();
        }
    }

    /// Forces the open checkpoint and pushes the AIL, until it is empty. Transactions that began before may
    /// have logged objects again since the last epoch was cut, so each round cuts one.
    fn push_all(&self, volume: &V, cut: &dyn Fn() -> Result<(), V::Error>) -> Result<(), V::Error> {
        loop {
            cut()?;
            let last = {
                let state = self.state.lock();
                Need { seq: self.last_forced(&state), data: state.pipeline.data_written() }
            };
            self.wait_for(volume, last)?;
            if self.load().1 > 0 {
                self.push_whole_ail(volume)?;
            }
            // Before the next cut, which takes in what others wrote meanwhile: the AIL would never be empty.
            if self.load().1 == 0 {
                // The thread woken last may have left actions for others.
                return self.drive_on(volume);
            }
            uxfs_sync::yield_now();
        }
    }

    /// Writes the unmount record.
    fn end_log(&self, volume: &V, driver: &mut Driver<V::Item>) -> Result<(), V::Error> {
        volume.write_superblock(driver.last.map(|last| self.geometry.lsn(last)))?;
        let head = self.state.lock().space.head();
        let mut records = Records::new(self.geometry, Vec::new());
        records.unmount(self.tid());
        let sealed = records.seal(head, head, driver.last);
        self.write_log(volume, head, &sealed.bytes, false)?;
        driver.last = Some(sealed.last);
        {
            let mut state = self.state.lock();
            state.space.move_tail(head);
            state.space.finish(sealed.bytes.len() as u64);
        }
        volume.flush_at_end(&self.options)
    }
}
