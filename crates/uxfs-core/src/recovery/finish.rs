//! Completing what log replay leaves undone: pending intents, CoW staging blocks, unlinked inodes.
//!
//! 1. All pending intents come first, together, in log order: the volume is inconsistent between them.
//! 2. Staging blocks come next, then unlinked inodes, in rounds. A round ends when it has changed as much as
//!    the log has room for, also in the midst of a large file: the file stays on its list until it is empty.

use std::collections::VecDeque;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::log::IntentItem;
use uxfs_format::{AgIno, AgNo, Lsn};

use super::report::Recovery;
use super::steps;
use crate::alloc;
use crate::error::Result;
use crate::fs::Fs;

/// Inodes freed before the changes are made durable.
const INODES_A_ROUND: u64 = 256;

/// The work that is left.
pub(super) struct Finish {
    intents: Option<Vec<(Lsn, IntentItem)>>,
    /// The group whose staging blocks are freed next; `None` when all are free.
    staged: Option<AgNo>,
    unlinked: VecDeque<(AgNo, u32)>,
    /// Bytes of metadata that a round may change.
    most: usize,
}

/// Has a round changed more than `most` bytes of metadata?
fn is_full(fs: &Fs, most: usize) -> bool {
    let inodes = fs.inodes.dirty_count().saturating_mul(fs.geo.inode_size as usize);
    fs.bufs.dirty_bytes().saturating_add(inodes) > most
}

impl Finish {
    /// The work in rounds of at most about `most` bytes of changed metadata.
    pub(super) fn new(
        intents: Vec<(Lsn, IntentItem)>,
        unlinked: Vec<(AgNo, u32, AgIno)>,
        most: usize,
    ) -> Self {
        let unlinked = unlinked.into_iter().filter(|_| !planted(Fault::UnlinkedIgnored));
        let unlinked = unlinked.map(|(ag, bucket, _)| (ag, bucket)).collect();
        Self { intents: Some(intents), staged: Some(AgNo(0)), unlinked, most }
    }

    pub(super) fn is_done(&self) -> bool {
        self.intents.is_none() && self.staged.is_none() && self.unlinked.is_empty()
    }

    /// Completes a part of the work: a round. The volume is consistent afterwards.
    pub(super) fn some(&mut self, fs: &Fs, recovery: &mut Recovery) -> Result<()> {
        if let Some(intents) = self.intents.take() {
            for (_, item) in intents.iter().skip(usize::from(planted(Fault::IntentDropped))) {
                steps::finish(fs, &item.intent, item.kind)?;
                recovery.intents += 1;
            }
            clear_log_features(fs)?;
        }
        if let Some(ag) = self.staged {
            self.staged = free_staged(fs, ag, self.most, recovery)?;
            return Ok(());
        }
        let mut left = INODES_A_ROUND;
        while let Some((ag, bucket)) = self.unlinked.front().copied() {
            if left == 0 {
                break;
            }
            let first = head(fs, ag, bucket)?;
            if !first.is_null() {
                let more = || !is_full(fs, self.most);
                if !fs.inactivate_while(fs.geo.ino(ag, first), more)? {
                    break;
                }
                left -= 1;
            }
            // An inode that still has a name stays on the list.
            if first.is_null() || head(fs, ag, bucket)? == first {
                self.unlinked.pop_front();
            } else {
                recovery.unlinked += 1;
            }
        }
        Ok(())
    }
}

/// The first inode of an unlinked list.
fn head(fs: &Fs, ag: AgNo, bucket: u32) -> Result<AgIno> {
    let mut tx = fs.begin_tx(0)?;
    tx.lock_ag(ag)?;
    let heads = tx.agi(ag).unlinked;
    Ok(heads.get(bucket as usize).map_or(AgIno::NULL, |head| AgIno(head.get())))
}

/// Frees the CoW staging blocks of the groups from `first` on. Returns the group with which the next round
/// goes on, if there is more to do.
fn free_staged(fs: &Fs, first: AgNo, most: usize, recovery: &mut Recovery) -> Result<Option<AgNo>> {
    if !fs.geo.has_reflink() {
        return Ok(None);
    }
    for ag in (first.0..fs.geo.ag_count).map(AgNo) {
        loop {
            if is_full(fs, most) {
                return Ok(Some(ag));
            }
            let mut tx = fs.begin_freeing_tx(8)?;
            tx.lock_ag(ag)?;
            let Some(len) = alloc::staging::free_staged(&mut tx, ag)? else { break };
            tx.commit()?;
            recovery.staged += u64::from(len);
        }
    }
    Ok(None)
}

/// Clears the log feature flags, which nothing in the log needs any more.
fn clear_log_features(fs: &Fs) -> Result<()> {
    if fs.superblock().features_log_incompat.get() == 0 {
        return Ok(());
    }
    let sector = fs.edit_superblock(|sb| sb.features_log_incompat.set(0));
    let daddr = uxfs_format::Daddr(0);
    let io = |source| crate::Error::Io { what: "writing", daddr, source };
    fs.meta_dev.write_at(0, &sector).map_err(io)
}
