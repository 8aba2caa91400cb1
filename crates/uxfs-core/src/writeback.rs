//! Sync, close, and write-back of dirty metadata: by a call, and when too much is dirty.
//!
//! 1. The state between two operations is written: the gate is closed meanwhile.
//! 2. Without a journal, an interrupted write-back leaves a mixture of old and new blocks. So a
//!    consistent volume is marked as needing repair before its first block is overwritten, also by
//!    new data in a block that is freed in memory only, and unmarked when everything is written and
//!    flushed. A volume that is being made is marked unfinished all the time.
//! 3. After a failed write or flush the state of the device is unknown: the volume is shut down and
//!    keeps its mark.

use uxfs_format::Check;

use crate::device_io::SERVED;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::full::Stuck;
use crate::journal::{Journal, Ticket};
use crate::unwritten::{NAMED, Unwritten};

impl Fs {
    /// Runs `call`, and returns a ticket for its changes with its result.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn ticketed<R>(&self, call: impl FnOnce(&Self) -> Result<R>) -> Result<(R, Ticket)> {
        let result = call(self)?;
        Ok((result, self.ticket()))
    }

    /// Makes all changes durable: in the log, or in place if there is no journal. The volume on the
    /// device is then consistent. In ordered mode their order is kept without that, and this returns at
    /// once: see [`Fs::durable`].
    ///
    /// # Errors
    /// Those of the device, or of a structure that fails its check before it is written.
    pub fn sync(&self) -> Result<()> {
        self.check_running()?;
        if self.options.read_only {
            return Ok(());
        }
        self.check_device()?;
        if self.ordered {
            return Ok(());
        }
        if self.journal.is_some() {
            let written = self.write_back_all();
            return self.wait(self.ticket()).and(written);
        }
        let _alone = self.gate.write();
        self.sync_alone()
    }

    /// As [`Fs::sync`], with the gate closed already.
    pub(crate) fn sync_alone(&self) -> Result<()> {
        let wrote = self.write_all()?;
        if !wrote && !*self.marked.lock() {
            return Ok(());
        }
        self.flush()?;
        self.put_superblock(false)?;
        self.flush()
    }

    /// Syncs, and on a volume that is being made removes the mark that it is unfinished.
    ///
    /// # Errors
    /// As [`Fs::sync`]; [`Error::Unwritten`] tells what is not written, if that is known.
    pub fn close(self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.finish().map_err(|source| {
            let unwritten = self.unwritten();
            if unwritten.is_empty() && !source.is_host_full() {
                return source;
            }
            Error::Unwritten { unwritten: Box::new(unwritten), source: Box::new(source) }
        })
    }

    /// Writes everything in place and leaves a clean log, while the volume stays in use. A reader
    /// that does not replay the log finds everything done before this call.
    ///
    /// # Errors
    /// As [`Mount::sync`].
    pub fn quiesce(&self) -> Result<()> {
        let Some(journal) = &self.journal else { return self.sync() };
        self.check_device()?;
        // Data that could not be written must not keep its metadata from being written.
        let written = self.write_back_all();
        journal.quiesce(self, &|| self.cut_epoch_if_ordered()).and(written)
    }

    fn finish(&self) -> Result<()> {
        self.check_device()?;
        if let Err(error) = self.release_all() {
            // Recovery frees unlinked files. So the log stays dirty, with everything in it.
            return self.sync().and(Err(error));
        }
        if let Some(journal) = &self.journal {
            let written = self.write_back_all();
            // A volume that was not changed is not written to.
            return if journal.is_untouched() { written } else { self.quiesce().and(written) };
        }
        self.sync()?;
        if self.options.unfinished {
            let _alone = self.gate.write();
            let sector = self.edit_superblock(|sb| sb.inprogress = 0);
            self.write_superblock(&sector)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Writes changes if too much is dirty in memory. Called after each operation, without locks.
    pub(crate) fn balance(&self) -> Result<()> {
        if let Some(journal) = &self.journal {
            return self.balance_journal(journal);
        }
        if !self.much_dirty(1) {
            return Ok(());
        }
        let _alone = self.gate.write();
        // Another thread may have done it while this one waited.
        if !self.much_dirty(1) {
            return Ok(());
        }
        self.write_all().map(|_| ())
    }

    /// Drives the journal if work is due, and pushes the AIL if too much is in it. Leaves both to
    /// the log worker while there is one that keeps up.
    fn balance_journal(&self, journal: &Journal) -> Result<()> {
        if self.ordered {
            return self.balance_epochs(journal);
        }
        if journal.wsync() {
            self.wait(self.ticket())?;
        }
        let load = journal.look(self.much_dirty(1));
        if load.due && !load.served {
            journal.drive_on(self)?;
        }
        if self.stuck_lately(Stuck::Metadata) {
            return Ok(());
        }
        let much = match load.served {
            true => self.much_dirty(SERVED) || load.live > journal.comfortable() / 4 * 7,
            false => self.much_dirty(1) || load.live > journal.comfortable(),
        };
        match if much { journal.force_and_push(self) } else { Ok(()) } {
            // The operation is done. New ones are refused (`refuse_if_stuck`).
            Err(error) if error.is_host_full() => Ok(()),
            done => done,
        }
    }

    /// Sets the volume's label, of at most 12 bytes, in all copies of the superblock.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is too long, and those of the device.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let _inside = self.changes();
        if label.len() > 12 || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 12 bytes"));
        }
        self.check_writable()?;
        let mut fname = [0; 12];
        fname[..label.len()].copy_from_slice(label);
        if self.journal.is_some() {
            // Through the log, because a replay would restore an earlier logged superblock.
            self.change_superblock(|sb| sb.fname = fname);
            self.begin_tx(0)?.commit()?;
            self.wait(self.ticket())?;
            let _alone = self.gate.write();
            self.edit_copies(|sb| sb.fname = fname)?;
            return self.flush();
        }
        let _alone = self.gate.write();
        // The superblock's counters are written with the label, so all that they count is written
        // first.
        self.sync_alone()?;
        self.edit_copies(|sb| sb.fname = fname)?;
        let sector = self.edit_superblock(|sb| sb.fname = fname);
        self.write_superblock(&sector)?;
        self.flush()
    }

    fn edit_copies(&self, change: impl Fn(&mut uxfs_format::superblock::Superblock)) -> Result<()> {
        use uxfs_format::superblock::{CRC_OFFSET, Superblock};
        for ag in 1..self.geo.ag_count {
            let daddr = self.geo.ag_sector_daddr(uxfs_format::AgNo(ag), 0);
            let mut sector = vec![0; self.geo.sector_size as usize];
            let io = |what| move |source| Error::Io { what, daddr, source };
            self.dev.read_at(daddr.bytes(), &mut sector).map_err(io("reading"))?;
            let Some(sb) = Superblock::view_mut(&mut sector) else { continue };
            if sb.magicnum.get() != uxfs_format::superblock::MAGIC {
                let place = uxfs_format::Place::Device(daddr);
                return Err(Error::corrupt(
                    "superblock copy",
                    place,
                    Check::Magic,
                    "wrong magic number",
                ));
            }
            change(sb);
            uxfs_format::crc::stamp(&mut sector, CRC_OFFSET);
            self.meta_dev.write_at(daddr.bytes(), &sector).map_err(io("writing"))?;
        }
        Ok(())
    }
}

impl Fs {
    /// Tries failed writes again, which were not tried for a while.
    pub(crate) fn retry_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Metadata) && !self.stuck_lately(Stuck::Metadata) {
            journal.push_whole_ail(self)?;
        }
        if self.is_stuck(Stuck::Data)
            && !self.stuck_lately(Stuck::Data)
            && let Some(dirty) = &self.delalloc
        {
            self.retry_data(dirty)?;
        }
        Ok(())
    }

    /// What is not written now: on a volume in use, what waits to be written; after a failed
    /// [`Fs::quiesce`], or on a volume that stopped, what could not be written.
    pub fn unwritten(&self) -> Unwritten {
        let mut sum = Unwritten {
            logged: self.journal.as_ref().map_or(0, |journal| journal.load().1 as u64),
            ..Unwritten::default()
        };
        for (ino, blocks) in self.delalloc.iter().flat_map(|dirty| dirty.by_file()) {
            sum.files += 1;
            sum.bytes += blocks << self.geo.block_log;
            if sum.first.len() < NAMED {
                sum.first.push(ino);
            }
        }
        sum
    }
}
