//! What the journal needs of the volume that it belongs to: its devices, what the log does not hold, and the
//! writes in place.
//!
//! 1. The journal calls these functions without its own locks, except the driver's and the push's, which
//!    are held across I/O.
//! 2. An error of a write that [`Volume::is_temporary`] is tried again; any other one stops the volume.
//!
//! The engine's mount implements it. Used by [`crate::Journal`].

use std::fmt::Display;
use std::time::Duration;

use uxfs_format::{Daddr, Lsn};

use crate::cil::Cil;
use crate::journal::Journal;
use crate::log_item::LogItem;
use crate::log_pos::LogPos;
use crate::options::JournalOptions;

/// An event that a volume counts. The names are those of `/proc/fs/xfs/stat` where XFS has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Log forces.
    LogForce,
    /// Log forces that slept.
    LogForceSleep,
    /// Callers of fsync whose commit was deferred until their data was flushed.
    CommitsDeferred,
    /// Checkpoints written.
    Checkpoints,
    /// Objects in them.
    Items,
    /// Objects logged again before they were written in place.
    ItemsRelogged,
    /// Bytes of these in the log.
    BytesRelogged,
    /// Moves of the log's tail.
    TailPushes,
    /// AIL pushes.
    PushAil,
    /// Objects that left the AIL because they were written in place.
    PushAilSuccess,
    /// Requests for log space.
    TryLogspace,
    /// Waits for log space.
    SleepLogspace,
    /// Waits for a free log buffer, with immediate logging.
    LogNoiclogs,
}

/// An object that was written in place.
#[derive(Debug)]
pub struct WrittenItem<I> {
    /// Its position in the AIL.
    pub position: LogPos,
    /// The number of the last checkpoint that it changed in, as written.
    pub changed: u64,
    /// The object.
    pub item: I,
}

/// The open checkpoint of a volume's journal.
pub type VolumeCil<V> = Cil<<V as Volume>::Item, <V as Volume>::Error>;

/// The volume of a journal.
pub trait Volume: Sized {
    /// The objects that are logged.
    type Item: LogItem;
    /// The volume's errors.
    type Error;
    /// Why a volume stops; its text is what waiters get.
    type Cause: Clone + Display + From<String>;
    /// Keeps transactions out while it lives.
    type Exclusion<'a>
    where
        Self: 'a;

    /// Counts an event `times` times.
    fn count(&self, event: Counter, times: u64);
    /// Counts a log force that slept this long.
    fn count_force(&self, slept: Duration);

    /// The error of calls on a volume that stopped for this reason.
    fn stopped(reason: &str) -> Self::Error;
    /// The cause of a stop: `error` ended `what`.
    fn cause(what: &str, error: &Self::Error) -> Self::Cause;
    /// Stops the volume for good.
    fn shut_down(&self, cause: Self::Cause);
    /// Can a write that failed with this error succeed later, because the host was full?
    fn is_temporary(error: &Self::Error) -> bool;
    /// # Errors
    /// If the volume is stopped.
    fn check_running(&self) -> Result<(), Self::Error>;

    /// Writes a part of the log; with `fua`, returns when it is on stable storage.
    ///
    /// # Errors
    /// Those of the device.
    fn write_log(&self, daddr: Daddr, bytes: &[u8], fua: bool) -> Result<(), Self::Error>;
    /// Flushes the device.
    ///
    /// # Errors
    /// Why the volume must stop: after a failed flush the host no longer knows what it has lost.
    fn flush(&self) -> Result<(), Self::Cause>;
    /// Repeats `write` while it fails with a temporary error, for [`JournalOptions::host_full_timeout`].
    ///
    /// # Errors
    /// The last error of `write`.
    fn retry_write(
        &self,
        options: &JournalOptions,
        write: &mut dyn FnMut() -> Result<(), Self::Error>,
    ) -> Result<(), Self::Error>;

    /// Writes the values of a checkpoint that are not logged ([`Cil::values`]); with `dead_too`, also
    /// those that were freed in it.
    ///
    /// # Errors
    /// Those of the device.
    fn write_values(&self, cil: &VolumeCil<Self>, dead_too: bool) -> Result<(), Self::Error>;
    /// Waits for file data that a checkpoint shows and another thread writes. Returns whether there was
    /// any.
    ///
    /// # Errors
    /// Those of the device.
    fn await_data(&self) -> Result<bool, Self::Error>;

    /// Fails before a transaction begins, if the volume cannot take more changes at present.
    ///
    /// # Errors
    /// What keeps metadata from being written in place.
    fn check_room(&self, journal: &Journal<Self>) -> Result<(), Self::Error>;

    /// Writes objects in place, given by their positions in the AIL. It leaves out objects that
    /// changed after checkpoint `durable`, and objects that are locked. Returns those that it wrote.
    ///
    /// # Errors
    /// Those of the device.
    fn write_in_place(
        &self,
        journal: &Journal<Self>,
        items: Vec<(LogPos, Self::Item)>,
        durable: u64,
    ) -> Result<Vec<WrittenItem<Self::Item>>, Self::Error>;
    /// Notes that an object is on stable storage as it was written. Returns `false` if it has changed
    /// since, and stays in the AIL.
    fn write_completed(&self, written: &WrittenItem<Self::Item>) -> bool;
    /// Notes that an object has left the AIL.
    fn clean(&self, item: &Self::Item);
    /// Drops memory that clean objects use, if too much is in use.
    fn shrink(&self);
    /// Notes that the AIL holds nothing that a push could write.
    fn nothing_to_push(&self);

    /// Keeps transactions out. Waits for those that are open.
    fn exclude_transactions(&self) -> Self::Exclusion<'_>;
    /// Writes the superblock in place, with its counters, and flushes the device. All changes up to
    /// `last`, the last record, are in place.
    ///
    /// # Errors
    /// Those of the device.
    fn write_superblock(&self, last: Option<Lsn>) -> Result<(), Self::Error>;
    /// Flushes the device, also if [`JournalOptions::barrier`] is off.
    ///
    /// # Errors
    /// Those of the device.
    fn flush_at_end(&self, options: &JournalOptions) -> Result<(), Self::Error>;
}
