//! The log: replayed into the overlay, or, where that is asked for, dropped and made anew.
//!
//! 1. A clean log is left alone.
//! 2. A dirty log is replayed as its next mount would replay it, and left clean. Changes that a replay cannot
//!    finish are listed as lost.
//! 3. A log that cannot be replayed is an error, unless the options say that it may be dropped. A new log
//!    begins with a cycle above that of every LSN seen, so that none is ahead of it.

use std::sync::Arc;

use uxfs_check::Place;
use uxfs_core::{Replayed, replay_in_memory};
use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::log::RecordHeader;
use uxfs_format::{BASIC_BLOCK, Lsn};
use uxfs_journal::recovery::{Bounds, Log, State, mark_clean};

use crate::error::{RepairError, Result};
use crate::volume::Volume;

/// Most bytes of a log that are written at once.
const PIECE: usize = 1 << 20;

/// Replays the log, if it is dirty.
pub(crate) fn replay(volume: &mut Volume, drop: bool) -> Result<()> {
    let dev: Arc<dyn BlockDev> = Arc::<Overlay>::clone(&volume.dev);
    let found = Log::of_volume(&volume.sb).and_then(|log| Ok((log.find(&*dev)?, log)));
    match found {
        Ok((bounds, _)) if bounds.state == State::Clean => {
            volume.log_head = Some(bounds.head);
            Ok(())
        }
        Ok((bounds, log)) => match replay_in_memory(&dev) {
            Ok(Some(replayed)) => take_over(volume, &log, bounds, &replayed),
            // Only what the superblock itself forbids.
            Ok(None) => Ok(()),
            Err(error) => lost(volume, &error.to_string(), drop),
        },
        Err(error) => lost(volume, &error.to_string(), drop),
    }
}

/// Takes the replayed blocks over, and leaves the log clean.
fn take_over(volume: &mut Volume, log: &Log, bounds: Bounds, replayed: &Replayed) -> Result<()> {
    let wrong = "it holds changes that are not on the volume yet";
    let step = volume.step("log", Place::VOLUME, wrong, "replayed, and left clean");
    let failed = |source| RepairError::Io { what: "reading", offset: 0, source };
    if let Some(error) = &replayed.unfinished {
        volume.lose(step, format!("what the last changes in it still had to do: {error}"));
    }
    for layer in &replayed.layers {
        let mut pages: Vec<(u64, Vec<u8>)> = Vec::new();
        layer
            .for_changes(|offset, _, new| {
                pages.push((offset, new.to_vec()));
                Ok::<_, std::io::Error>(())
            })
            .map_err(failed)?;
        for (offset, bytes) in pages {
            volume.write(step, offset, &bytes)?;
        }
    }
    let clean = |volume: &Volume| {
        mark_clean::clear_stale(log, &*volume.dev, &bounds)?;
        mark_clean::write_unmount(log, &*volume.dev, &bounds)
    };
    let bounds = clean(volume).map_err(|error| RepairError::Log(error.to_string()))?;
    volume.log_head = Some(bounds.head);
    note(volume, step);
    Ok(())
}

/// Records that a step writes the log.
fn note(volume: &mut Volume, step: crate::volume::StepId) {
    let start = volume.geo.log_daddr().bytes();
    volume.covers(step, start, volume.geo.log_bytes());
}

fn lost(volume: &mut Volume, problem: &str, drop: bool) -> Result<()> {
    if !drop {
        return Err(RepairError::Log(problem.to_owned()));
    }
    volume.log_head = None;
    let step = volume.step("log", Place::VOLUME, problem, "made anew, empty");
    volume.lose(step, "changes that were only in the log");
    Ok(())
}

/// Makes the log anew if [`replay`] gave it up. Called after the first pass, which knows the highest LSN.
pub(crate) fn make(volume: &mut Volume) -> Result<()> {
    if volume.log_head.is_some() {
        return Ok(());
    }
    let cycle = volume.highest_lsn.cycle().saturating_add(2).max(2);
    let step = volume.step("log", Place::VOLUME, "it was dropped", "an empty log");
    let log = Log::of_volume(&volume.sb).map_err(|error| RepairError::Beyond(error.to_string()))?;
    let start = volume.geo.log_daddr().bytes();
    let tail = Lsn::new(cycle - 1, 0);
    let mut bytes = Vec::with_capacity(PIECE);
    let mut at = start;
    for block in 0..log.blocks() {
        let mut header = RecordHeader::new(Lsn::new(cycle - 1, block as u32), tail, log.uuid(), 0);
        header.prev_block = 0;
        let mut raw = [0; BASIC_BLOCK];
        header.put(&mut raw);
        bytes.extend_from_slice(&raw);
        if bytes.len() == PIECE || block + 1 == log.blocks() {
            volume.write(step, at, &bytes)?;
            at += bytes.len() as u64;
            bytes.clear();
        }
    }
    let head = Lsn::new(cycle, 0);
    let bounds =
        Bounds { state: State::Dirty, head, tail: head, last: 0, record_size: 0, torn: None };
    let done = mark_clean::write_unmount(&log, &*volume.dev, &bounds)
        .map_err(|error| RepairError::Log(error.to_string()))?;
    volume.log_head = Some(done.head);
    Ok(())
}
