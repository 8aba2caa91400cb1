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
//! 6. A freeze is ended by what began it: [`Fs::thaw`] ends those of [`Fs::freeze`], and a freeze for a
//!    moment ([`Frozen`]) ends by itself, also after an error or a panic.

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::Lsn;
use uxfs_journal::recovery::{Log, State};

use crate::error::{Error, Result};
use crate::freeze::{FreezeState, Inside};
use crate::fs::Fs;
use crate::log_worker::cover;
use crate::point_in_time::PointInTime;

/// A volume is frozen until this is dropped, also by a panic.
#[must_use = "the volume is thawed when this is dropped"]
pub(crate) struct Frozen<'a>(&'a Fs);

impl Frozen<'_> {
    /// Leaves the end to [`Fs::thaw`].
    fn keep(self) {
        *self.0.freeze_levels.state.lock() = FreezeState::Frozen;
        std::mem::forget(self);
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.open_levels();
    }
}

impl Fs {
    /// Freezes the volume: writes everything in place, and holds back every change until [`Fs::thaw`].
    ///
    /// # Errors
    /// [`Error::Busy`] if it is frozen already; as [`Fs::quiesce`], and it is not frozen then.
    pub fn freeze(&self) -> Result<()> {
        self.close_levels(FreezeState::Freezing)?.keep();
        Ok(())
    }

    /// As [`Fs::freeze`], until the result is dropped: no thaw ends it.
    pub(crate) fn freeze_for_now(&self) -> Result<Frozen<'_>> {
        self.close_levels(FreezeState::Internal)
    }

    fn close_levels(&self, state: FreezeState) -> Result<Frozen<'_>> {
        let levels = &self.freeze_levels;
        self.check_running()?;
        {
            let mut now = levels.state.lock();
            if *now != FreezeState::Open {
                return Err(Error::Busy);
            }
            *now = state;
        }
        let frozen = Frozen(self);
        let _closed_once = levels.changes.close();
        if planted(Fault::FreezeWithoutWait) {
            return Ok(frozen);
        }
        levels.changes.drain();
        self.settle()?;
        Ok(frozen)
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
    /// [`Error::Invalid`] if no [`Fs::freeze`] has frozen the volume.
    pub fn thaw(&self) -> Result<()> {
        {
            let mut state = self.freeze_levels.state.lock();
            if *state != FreezeState::Frozen {
                return Err(Error::Invalid("the volume is not frozen"));
            }
            *state = FreezeState::Internal;
        }
        self.open_levels();
        Ok(())
    }

    /// Returns a device that shows the volume's metadata as it is now, while the volume changes. Freezes
    /// the volume for a moment. Old content takes at most `kept_limit` bytes of memory.
    ///
    /// # Errors
    /// [`Error::Busy`] if there is one already, or the volume is frozen; [`Error::Unsupported`] if its log
    /// holds changes that were not replayed; as [`Fs::freeze`].
    pub fn point_in_time(&self, kept_limit: u64) -> Result<PointInTime> {
        self.check_replayed()?;
        let _frozen = self.freeze_for_now()?;
        let head = self.log_head()?;
        PointInTime::begin(&self.keeper, kept_limit, head).ok_or(Error::Busy)
    }

    /// Fails if the volume was opened without the changes that its log holds.
    fn check_replayed(&self) -> Result<()> {
        if self.journal.is_some() || self.recovery.is_some() {
            return Ok(());
        }
        if !self.geo.log_is_within(self.bare_dev.len()) {
            return Err(Error::Unsupported(
                "a moment of a volume whose log is on a device that was not given".into(),
            ));
        }
        match Log::of_volume(&self.superblock())?.state(&*self.bare_dev)? {
            State::Clean => Ok(()),
            State::Dirty => Err(Error::Unsupported(
                "a moment of a volume whose log was not replayed (norecovery): what the log holds is \
                 missing in its metadata"
                    .into(),
            )),
        }
    }

    /// Where the next record of a log that is not written to meanwhile begins.
    fn log_head(&self) -> Result<Option<Lsn>> {
        let sb = self.superblock();
        if sb.is_v4() || !self.geo.log_is_within(self.bare_dev.len()) {
            return Ok(None);
        }
        Ok(Some(Log::of_volume(&sb)?.find(&*self.bare_dev)?.head))
    }

    fn open_levels(&self) {
        let levels = &self.freeze_levels;
        levels.background.open();
        levels.changes.open();
        *levels.state.lock() = FreezeState::Open;
        if let Some(journal) = &self.journal {
            journal.nudge_worker();
        }
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
