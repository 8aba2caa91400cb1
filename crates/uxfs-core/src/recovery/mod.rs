//! Recovery: opening a volume whose log is dirty.
//!
//! `uxfs_journal::recovery` replays what was committed, into memory. The engine does the rest: it
//! is opened on the replayed volume, still in memory, and finishes by its own operations the steps
//! that intents announced, and frees the unlinked inodes.
//!
//! 1. Nothing is written before the whole log was read, replayed in memory and verified.
//! 2. For writing: the replayed blocks are written in place first and flushed; the log still holds what they
//!    came from, and replaying it again changes nothing. What the engine then changes is written to the log
//!    as one transaction ([`checkpoint`]) before it is written in place. So a cut at any moment leaves a log
//!    from which recovery starts again and comes to the same end. A log that is rather full is emptied before
//!    ([`empty_log`]), and no round changes more than a part of the log holds: a sound volume is not refused
//!    for lack of log space.
//! 3. The log is left clean only when everything is in place.
//! 4. For reading only, everything stays in memory, and the device does not change.
//! 5. A reader that looks at the device itself, such as a checker, gets a device that shows the volume as
//!    recovery would leave it ([`replay_in_memory`]). If the engine cannot finish, that device shows what the
//!    log alone makes of the volume: nothing is half finished.
//!
//! Called by [`Fs::open`], and by programs that read the device directly.

mod checkpoint;
mod finish;
mod lsn_ahead;
mod report;
mod steps;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;

use std::sync::Arc;

use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::log::IntentItem;
use uxfs_format::superblock::Superblock;
use uxfs_format::{BASIC_BLOCK, Daddr, Geometry, Lsn};
use uxfs_journal::recovery::{Bounds, Limits, Log, Replay, State, mark_clean};

use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::options::OpenOptions;
use crate::sb;
use finish::Finish;
pub use report::Recovery;

/// Most bytes of changes held in memory.
const MEMORY: usize = 1 << 30;
/// Most bytes of metadata that are changed in a round, however long the log.
const ROUND: usize = 64 << 20;

impl From<uxfs_journal::recovery::Error> for Error {
    fn from(error: uxfs_journal::recovery::Error) -> Self {
        match error {
            uxfs_journal::recovery::Error::Io { what, daddr, source } => {
                Self::Io { what, daddr, source }
            }
            other => Self::DirtyLog(format!(
                "{other}; mount the volume once with the kernel, or open it read-only with \
                 norecovery"
            )),
        }
    }
}

/// Recovers a volume whose log is dirty, and returns the devices on which to open it. `sb` is its
/// verified superblock.
///
/// # Errors
/// If the log cannot be replayed, or a pending operation cannot be completed.
pub(crate) fn recover(
    devices: &Devices,
    sb: &Superblock,
    options: &OpenOptions,
    log: &Log,
    bounds: Bounds,
) -> Result<(Devices, Recovery)> {
    let dev = &devices.data;
    let replay = uxfs_journal::recovery::replay(dev, log, &bounds, sb, Limits { bytes: MEMORY })?;
    if bounds.torn.is_some() {
        match engine(&replay.overlay) {
            // Volumes that the engine cannot write are not checked either.
            Err(Error::Unsupported(_)) => {}
            other => lsn_ahead::refuse(&other?, bounds.head)?,
        }
    }
    let mut recovery = Recovery::of_replay(bounds, &replay.report, options.read_only);
    let dev = match options.read_only {
        true => in_memory(replay, &mut recovery)?,
        false => complete(dev, log, replay, &mut recovery, ROUND)?,
    };
    Ok((Devices { data: dev, ..devices.clone() }, recovery))
}

/// Recovers a log with remains of an incomplete record after the record of a clean unmount.
///
/// # Errors
/// If the device fails.
pub(crate) fn torn_at_start(
    devices: &Devices,
    log: &Log,
    bounds: Bounds,
    options: &OpenOptions,
) -> Result<Recovery> {
    if !options.read_only {
        let dev = &*devices.data;
        mark_clean::clear_stale(log, dev, &bounds)?;
        mark_clean::write_unmount(log, dev, &bounds)?;
    }
    Ok(Recovery {
        bounds,
        replay: uxfs_journal::recovery::Report::default(),
        intents: 0,
        unlinked: 0,
        staged: 0,
        in_memory: options.read_only,
    })
}

/// Opens the engine on a replayed volume. Its writes stay in memory until recovery is complete.
fn engine(overlay: &Arc<Overlay>) -> Result<Fs> {
    let options = OpenOptions {
        unfinished: true,
        // The cache keeps all changed blocks, from which log items are made in the end.
        cache_bytes: usize::MAX / 4,
        ..OpenOptions::default()
    };
    let dev: Arc<dyn BlockDev> = Arc::<Overlay>::clone(overlay);
    Fs::open_unfinished(dev, options)
}

fn in_memory(replay: Replay, recovery: &mut Recovery) -> Result<Arc<dyn BlockDev>> {
    let overlay = Arc::clone(&replay.overlay);
    finish_on(&overlay, replay, recovery)?;
    Ok(overlay)
}

/// Completes the work that `replay` left, on a device in memory that shows the replayed volume.
fn finish_on(overlay: &Arc<Overlay>, replay: Replay, recovery: &mut Recovery) -> Result<()> {
    let fs = match engine(overlay) {
        // A volume that the engine cannot write can still be read if no intent is pending.
        Err(Error::Unsupported(_)) if replay.intents.is_empty() => return Ok(()),
        other => other?,
    };
    let mut finish = Finish::new(replay.intents, replay.unlinked, usize::MAX);
    while !finish.is_done() {
        finish.some(&fs, recovery)?;
    }
    fs.sync()
}

/// A volume whose log was replayed in memory.
#[non_exhaustive]
pub struct Replayed {
    /// Shows the volume after the replay. The log on the device is unchanged.
    pub device: Arc<dyn BlockDev>,
    /// What `device` shows over the device below, from the bottom up.
    pub layers: Vec<Arc<Overlay>>,
    /// Position of the next log record.
    pub head: Lsn,
    /// What recovery did.
    pub recovery: Recovery,
    /// The error that prevented completing the pending intents. `device` is then without them.
    pub unfinished: Option<Error>,
}

/// Replays the log of the volume on `dev` in memory. Returns `None` if the log is clean, or on another
/// device that is not joined to this one ([`Devices::whole`]).
///
/// # Errors
/// [`Error::DirtyLog`] if the log is damaged or cannot be replayed; other errors if the device does
/// not hold a volume, or fails.
pub fn replay_in_memory(dev: &Arc<dyn BlockDev>) -> Result<Option<Replayed>> {
    let sector = sb::read(&**dev)?;
    let sb = Superblock::verify(&sector)?;
    if sb.is_v4() || !Geometry::new(sb).log_is_within(dev.len()) {
        return Ok(None);
    }
    let log = Log::of_volume(sb)?;
    let bounds = log.find(&**dev)?;
    if bounds.state != State::Dirty {
        return Ok(None);
    }
    let replay = uxfs_journal::recovery::replay(dev, &log, &bounds, sb, Limits { bytes: MEMORY })?;
    let torn = bounds.torn.is_some();
    let replayed = Arc::clone(&replay.overlay);
    let mut recovery = Recovery::of_replay(bounds, &replay.report, true);
    let finished = || {
        let below: Arc<dyn BlockDev> = Arc::<Overlay>::clone(&replayed);
        let overlay = Arc::new(Overlay::new(below, MEMORY));
        if torn {
            match engine(&overlay) {
                Err(Error::Unsupported(_)) => {}
                other => lsn_ahead::refuse(&other?, recovery.bounds.head)?,
            }
        }
        finish_on(&overlay, replay, &mut recovery)?;
        Ok(overlay)
    };
    let mut layers = vec![Arc::clone(&replayed)];
    let unfinished = match finished() {
        Ok(overlay) => {
            layers.push(overlay);
            None
        }
        Err(error @ Error::DirtyLog(_)) => return Err(error),
        Err(error) => Some(error),
    };
    let device: Arc<dyn BlockDev> = match layers.last() {
        Some(highest) => Arc::<Overlay>::clone(highest),
        None => replayed,
    };
    Ok(Some(Replayed { device, layers, head: recovery.bounds.head, recovery, unfinished }))
}

/// Moves the tail of a log to its head, once what was replayed is in place: of what the log holds, only the
/// pending intents are still needed, and they are logged again. Where not even they fit, the log stays as it
/// is.
fn empty_log(
    dev: &Arc<dyn BlockDev>,
    log: &Log,
    bounds: &Bounds,
    intents: &[(Lsn, IntentItem)],
) -> Result<Bounds> {
    let sector = sb::read(&**dev)?;
    let mut items = vec![checkpoint::superblock(&sector)];
    items.extend(intents.iter().map(|(_, item)| item.encode()));
    match mark_clean::write_redo(log, &**dev, bounds, &items) {
        Err(uxfs_journal::recovery::Error::TooBig(_)) => Ok(*bounds),
        other => Ok(other?),
    }
}

/// Completes recovery on the device: replayed blocks in place, pending work done through the log in rounds
/// of about `round` bytes of metadata or less, an unmount record.
fn complete(
    dev: &Arc<dyn BlockDev>,
    log: &Log,
    replay: Replay,
    recovery: &mut Recovery,
    round: usize,
) -> Result<Arc<dyn BlockDev>> {
    let io_error = |source| Error::Io { what: "writing", daddr: Daddr(0), source };
    let mut bounds = recovery.bounds;
    mark_clean::clear_stale(log, &**dev, &bounds)?;
    replay.overlay.write_back().map_err(io_error)?;
    drop(replay.overlay);
    if bounds.live_blocks(log) > log.blocks() / 4 {
        bounds = empty_log(dev, log, &bounds, &replay.intents)?;
    }
    // The log holds two rounds at a time: each is needed until the next is complete.
    let quarter = usize::try_from(log.blocks() / 4 * BASIC_BLOCK as u64).unwrap_or(usize::MAX);
    let mut finish = Finish::new(replay.intents, replay.unlinked, round.min(quarter));
    while !finish.is_done() {
        let overlay = Arc::new(Overlay::new(Arc::clone(dev), MEMORY));
        let fs = engine(&overlay)?;
        finish.some(&fs, recovery)?;
        fs.sync()?;
        let changes = checkpoint::collect(&fs, &overlay, bounds.head)?;
        // These blocks become part of a file only by the transaction that follows.
        changes.write_data(dev)?;
        if !changes.items.is_empty() {
            bounds = mark_clean::write_redo(log, &**dev, &bounds, &changes.items)?;
        }
        overlay.write_back().map_err(io_error)?;
    }
    mark_clean::write_unmount(log, &**dev, &bounds)?;
    Ok(Arc::clone(dev))
}
