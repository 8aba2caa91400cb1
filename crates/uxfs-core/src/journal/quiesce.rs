//! Quiescing the log: every object written in place, and an unmount record at the head. At the close, and
//! on a volume in use for readers that do not replay the log (boot loaders).
//!
//! 1. The unmount record is written when the open checkpoint is empty, none is in flight, and the AIL is
//!    empty, with transactions shut out. Everything before the record is in place and flushed.
//! 2. Transactions that would begin meanwhile wait before they lock anything. So those that have begun can
//!    end, and quiescing can too.
//! 3. What is logged afterwards follows the unmount record.

use uxfs_journal::{Generation, Need, Records, Seq};

use super::checkpoint::Driver;
use super::immediate::ImmediateWriter;
use super::reserve::Op;
use super::state::Journal;
use super::superblock_item;
use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::mount::Mount;

/// Holds back new transactions until it is dropped.
struct HeldBack<'a>(&'a Journal);

impl<'a> HeldBack<'a> {
    fn new(journal: &'a Journal) -> Self {
        journal.state.lock().held_back += 1;
        Self(journal)
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.state.lock().held_back -= 1;
        self.0.released.notify_all();
    }
}

impl Journal {
    /// Waits while new transactions are held back.
    pub(super) fn await_release(&self) {
        let mut state = self.state.lock();
        while state.held_back > 0 && state.pipeline.failure().is_none() {
            self.released.wait(&mut state);
        }
    }

    /// Was nothing changed since the mount?
    pub(crate) fn is_untouched(&self) -> bool {
        let state = self.state.lock();
        state.pipeline.last() == Seq(0) && state.pipeline.data_written() == Generation(0)
    }

    /// Is the open checkpoint empty, nothing in flight, and the AIL empty?
    fn is_idle(&self) -> bool {
        let active = self.ail.lock().len();
        active == 0 && self.state.lock().pipeline.is_quiet()
    }
}

impl Mount {
    /// Writes everything in place and writes an unmount record.
    pub(crate) fn quiesce_log(&self, journal: &Journal) -> Result<()> {
        let _held_back = HeldBack::new(journal);
        loop {
            self.check_running()?;
            self.push_all(journal)?;
            let _alone = self.gate.write();
            if let Some(mut driver) = journal.driver.try_lock()
                && journal.is_idle()
            {
                let ended = self.end_log(journal, &mut driver);
                return ended.map_err(|error| match error.is_host_full() {
                    true => error,
                    false => journal.fail(self, Cause::of("ending the log", &error)),
                });
            }
            drop(_alone);
            uxfs_sync::yield_now();
        }
    }

    /// Forces the open checkpoint and pushes the AIL.
    fn push_all(&self, journal: &Journal) -> Result<()> {
        loop {
            let last = {
                let state = journal.state.lock();
                Need { seq: state.pipeline.last(), data: state.pipeline.data_written() }
            };
            self.wait_for(journal, last)?;
            if journal.load().1 == 0 {
                // The thread woken last may have left actions for others.
                return self.drive_on(journal);
            }
            self.push_ail(journal, u64::MAX)?;
            uxfs_sync::yield_now();
        }
    }

    /// Writes the unmount record.
    fn end_log(&self, journal: &Journal, driver: &mut Driver) -> Result<()> {
        self.write_superblock_in_place()?;
        self.flush_device()?;
        let head = journal.state.lock().space.head();
        let mut records = Records::new(journal.geometry, Vec::new());
        records.unmount(journal.tid());
        let sealed = records.seal(head, head, driver.last());
        self.write_log(journal, head, &sealed.bytes, false)?;
        driver.wrote(sealed.last);
        {
            let mut state = journal.state.lock();
            state.space.move_tail(head);
            state.space.finish(sealed.bytes.len() as u64);
        }
        self.flush_device()?;
        if journal.options.barrier {
            return Ok(());
        }
        // Without barriers this is the only flush.
        self.bare_dev.flush().map_err(|source| Error::Io {
            what: "flushing",
            daddr: uxfs_format::Daddr(0),
            source,
        })
    }

    /// Covers an idle log: writes a dummy transaction, so that the last record names itself as the
    /// tail, and writes it in place.
    pub(crate) fn cover(&self, journal: &Journal) -> Result<()> {
        let mut granted = self.reserve_log_bytes(journal, journal.reserve.link(Op::Inode))?;
        {
            let _open = self.gate.read();
            let mut cil = journal.cil();
            superblock_item::add(&mut cil, self);
            if let Some(single) = ImmediateWriter::begin(self, journal, &mut cil) {
                single.end();
            }
            let added = journal.taken_in(&mut cil, &mut granted);
            drop(cil);
            if !journal.committed(added, granted) {
                self.counts.logspace_overruns.one();
            }
        }
        let last = journal.state.lock().pipeline.last();
        self.wait_for(journal, Need { seq: last, data: Generation(0) })?;
        self.push_ail(journal, u64::MAX)?;
        self.counts.covers.one();
        Ok(())
    }
}
