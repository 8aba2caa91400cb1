//! Freeze and thaw: a frozen volume's device is a sound image of one moment, and does not change.
//!
//! 1. Changes that began before are done and in place, file data too. Changes that begin later wait, with
//!    no lock held, and are made at the thaw.
//! 2. The log is clean: nothing has to be replayed. If files without a name are in use, the log ends in a
//!    checkpoint instead of an unmount record, so that a recovery of the image frees them.
//! 3. First the operations are kept out, then the background work (log worker, fsync, epochs): operations
//!    inside may need the background work to end. When that is kept out, nothing is dirty.
//! 4. fsync returns at once while the volume is frozen: everything is durable.
//! 5. Reads do not set access times meanwhile.

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Lsn;
use uxfs_journal::recovery::Log;

use crate::error::{Error, Result};
use crate::freeze::Inside;
use crate::fs::Fs;
use crate::log_worker::cover;
use crate::point_in_time::PointInTime;

impl Fs {
    /// Freezes the volume: writes everything in place, and holds back every change until [`Fs::thaw`].
    ///
    /// # Errors
    /// [`Error::Busy`] if it is frozen already; as [`Fs::quiesce`], and it is not frozen then.
    pub fn freeze(&self) -> Result<()> {
        let levels = &self.freeze_levels;
        self.check_running()?;
        if !levels.changes.close() {
            return Err(Error::Busy);
        }
        if planted(Fault::FreezeWithoutWait) {
            return Ok(());
        }
        levels.changes.drain();
        let settled = self.settle();
        if settled.is_err() {
            self.open_levels();
        }
        settled
    }

    /// Writes everything in place and keeps the background work out. The operations are kept out.
    pub(crate) fn settle(&self) -> Result<()> {
        let background = &self.freeze_levels.background;
        if self.options.read_only {
            return Ok(());
        }
        self.quiesce()?;
        let _closed_once = background.close();
        background.drain();
        self.quiesce()?;
        match &self.journal {
            Some(journal) if self.unlinked() > 0 => cover(self, journal),
            _ => Ok(()),
        }
    }

    /// Ends a freeze. The changes that waited are made.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the volume is not frozen.
    pub fn thaw(&self) -> Result<()> {
        match self.open_levels() {
            true => Ok(()),
            false => Err(Error::Invalid("the volume is not frozen")),
        }
    }

    /// Returns a device that shows the volume's metadata as it is now, while the volume changes. Freezes
    /// the volume for a moment. Old content takes at most `kept_limit` bytes of memory.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is one already, or the volume is frozen; as [`Fs::freeze`].
    pub fn point_in_time(&self, kept_limit: u64) -> Result<PointInTime> {
        self.freeze()?;
        let begun = self
            .log_head()
            .and_then(|head| PointInTime::begin(&self.keeper, kept_limit, head).ok_or(Error::Busy));
        self.open_levels();
        begun
    }

    /// Where the next record of a log that is not written to meanwhile begins.
    fn log_head(&self) -> Result<Option<Lsn>> {
        let sb = self.superblock();
        if sb.is_v4() || self.geo.log_start.0 == 0 {
            return Ok(None);
        }
        Ok(Some(Log::new(&sb)?.find(&*self.bare_dev)?.head))
    }

    fn open_levels(&self) -> bool {
        self.freeze_levels.background.open();
        let was = self.freeze_levels.changes.open();
        if let Some(journal) = &self.journal {
            journal.nudge_worker();
        }
        was
    }

    /// Is the volume frozen, or being frozen?
    pub fn is_frozen(&self) -> bool {
        self.freeze_levels.changes.is_closed()
    }

    /// Enters the protection of changes; waits while the volume is frozen.
    pub(crate) fn changes(&self) -> Inside<'_> {
        self.freeze_levels.changes.enter()
    }

    /// Enters the protection of background work; `None` if the volume is frozen, and nothing is dirty.
    pub(crate) fn background(&self) -> Option<Inside<'_>> {
        self.freeze_levels.background.try_enter()
    }
}
