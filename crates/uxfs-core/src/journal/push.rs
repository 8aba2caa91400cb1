//! AIL push: writing active objects in place, so that the log's tail can move on.
//!
//! 1. Only objects all of whose changes are durable are written, in their present state. An object that a
//!    transaction is changing, or that is in the open checkpoint again, is left for a later push.
//! 2. An object is written with the LSN of the checkpoint that logged it last.
//! 3. An object that the host has no room for stays active ([`crate::full`]); any other failure stops the
//!    volume.
//! 4. An object leaves the AIL only after a flush, and only if it has not changed since it was written.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Lsn, inode as disk_inode};
use uxfs_journal::{Generation, Need, Seq};

use super::item::Handle;
use super::state::Journal;
use crate::buf::{BufRef, Run};
use crate::cause::Cause;
use crate::device_io::SERVED;
use crate::error::Result;
use crate::full::Stuck;
use crate::inode::{InodeState, locate, read_cluster};
use crate::mount::Mount;

/// Most bytes of buffers held in memory by one push.
const KEPT_MAX: usize = 4 << 20;

/// An object being written: its position, and its last checkpoint.
struct Going {
    position: u64,
    changed: u64,
    handle: Handle,
}

/// A buffer to write, and the inodes written with it.
struct Target {
    buf: BufRef,
    /// The buffer's own position in the AIL, if it has one.
    own: Option<u64>,
    going: Vec<Going>,
}

impl Mount {
    /// Writes active objects below the log position `until` in place, in ascending order, and moves
    /// the tail.
    pub(crate) fn push_ail(&self, journal: &Journal, until: u64) -> Result<()> {
        let _one = journal.push_lock.lock();
        self.check_running()?;
        let mut targets = journal.ail.lock().below(until);
        // Intents are not written in place. They leave the AIL with their done item.
        targets.retain(|(_, handle)| !matches!(handle, Handle::Intent(_)));
        if targets.is_empty() {
            // What found no room may be no more.
            if until == u64::MAX {
                self.unstick(Stuck::Metadata);
            }
            return Ok(());
        }
        self.counts.push_ail.one();
        journal.batches_begun.fetch_add(1, Ordering::AcqRel);
        let done = self.tried(Stuck::Metadata, self.push_batch(journal, targets));
        journal.batches_ended.fetch_add(1, Ordering::AcqRel);
        let going = match done {
            Ok(going) => going,
            // All of it is still in the log, so the push can be repeated.
            Err(error) if error.is_host_full() => return Err(error),
            Err(error) => return Err(journal.fail(self, Cause::of("writing back", &error))),
        };
        let mut data = journal.state.lock().pipeline.metadata_written();
        if planted(Fault::HomeUnflushed) {
            data = Generation(0);
        }
        self.wait_for(journal, Need { seq: Seq(0), data })?;
        self.arrived(journal, &going);
        // Nothing else holds them now.
        drop(going);
        self.bufs.shrink();
        self.inodes.shrink();
        Ok(())
    }

    fn push_batch(&self, journal: &Journal, targets: Vec<(u64, Handle)>) -> Result<Vec<Going>> {
        let mut durable = journal.durable.load(Ordering::Acquire);
        if planted(Fault::HomeEarly) {
            durable = u64::MAX;
        }
        let mut places: BTreeMap<u64, Vec<(u64, Handle)>> = BTreeMap::new();
        let mut all = Vec::new();
        for (position, handle) in targets {
            match &handle {
                Handle::Buf(buf) => {
                    places.entry(buf.daddr().0).or_default().push((position, handle));
                }
                Handle::Inode(ino, _) => {
                    let cluster = locate(&self.geo, *ino).0;
                    places.entry(cluster.0).or_default().push((position, handle));
                }
                Handle::Intent(_) => {}
                Handle::Superblock => {
                    let changed = 0;
                    self.write_superblock_in_place()?;
                    all.push(Going { position, changed, handle });
                }
            }
        }
        let mut run = Run::default();
        // The buffers in `run` are not on the device yet. If one were evicted, the next read would
        // find old content.
        let mut kept = Vec::new();
        let mut bytes = 0;
        for objects in places.into_values() {
            let Some(target) = self.target(journal, objects, durable)? else { continue };
            kept.push(target.buf.clone());
            bytes += target.buf.len();
            self.write_target(journal, target, durable, &mut run, &mut all)?;
            if bytes >= KEPT_MAX {
                run.put(&*self.meta_dev)?;
                kept.clear();
                bytes = 0;
            }
        }
        run.put(&*self.meta_dev)?;
        Ok(all)
    }

    /// The buffer of a handle, with the inodes in it brought up to date.
    fn target(
        &self,
        journal: &Journal,
        objects: Vec<(u64, Handle)>,
        durable: u64,
    ) -> Result<Option<Target>> {
        let mut target: Option<Target> = None;
        for (position, handle) in objects {
            match &handle {
                Handle::Buf(buf) => {
                    let target = target.get_or_insert_with(|| Target::new(buf));
                    // A buffer that replaced another one is followed by a key of its own.
                    if std::sync::Arc::ptr_eq(&target.buf, buf) {
                        target.own = Some(position);
                    }
                }
                _ => self.to_cluster(journal, position, handle, durable, &mut target)?,
            }
        }
        Ok(target)
    }

    /// Copies an inode into its cluster's buffer.
    fn to_cluster(
        &self,
        journal: &Journal,
        position: u64,
        handle: Handle,
        durable: u64,
        target: &mut Option<Target>,
    ) -> Result<()> {
        let Handle::Inode(ino, cell) = &handle else { return Ok(()) };
        let state = match cell.try_read() {
            Some(state) => Seen::Free(state),
            None => match journal.rolled_inodes.get(*ino, cell) {
                Some(state) => Seen::Rolled(state),
                None => {
                    self.counts.push_ail_pinned.one();
                    return Ok(());
                }
            },
        };
        if state.log.changed > durable || journal.freed_inodes.contains(cell) {
            self.counts.push_ail_pinned.one();
            return Ok(());
        }
        let (buf, offset) = read_cluster(self, *ino)?;
        let mut content = buf.content.write();
        let size = self.geo.inode_size as usize;
        let raw = &mut content.bytes[offset..offset + size];
        raw[disk_inode::CORE_LEN..].copy_from_slice(&state.literal);
        let mut core = state.logged_core();
        core.lsn = journal.geometry.lsn(position);
        core.encode(raw, *ino, &self.geo.meta_uuid);
        drop(content);
        let changed = state.log.changed;
        drop(state);
        let target = target.get_or_insert_with(|| Target::new(&buf));
        target.going.push(Going { position, changed, handle });
        Ok(())
    }

    fn write_target(
        &self,
        journal: &Journal,
        target: Target,
        durable: u64,
        run: &mut Run,
        all: &mut Vec<Going>,
    ) -> Result<()> {
        let Target { buf, own, going } = target;
        let mut content = buf.content.write();
        let held = buf.holder.load(Ordering::Acquire) != 0;
        if held || content.log.died != 0 || content.log.changed > durable {
            self.counts.push_ail_pinned.one();
            return Ok(());
        }
        let kind = content.kind;
        verify::check(&content.bytes, kind, buf.daddr(), &self.geo)?;
        if let Some(position) = own {
            stamp_lsn(&mut content.bytes, kind, journal.geometry.lsn(position));
            let changed = content.log.changed;
            all.push(Going { position, changed, handle: Handle::Buf(buf.clone()) });
        }
        verify::stamp_checksum(&mut content.bytes, kind);
        let mut at = 0;
        for piece in buf.pieces() {
            let end = at + piece.len as usize;
            run.add(&*self.meta_dev, piece.daddr, &content.bytes[at..end])?;
            at = end;
        }
        all.extend(going);
        Ok(())
    }

    /// Removes written and flushed objects from the AIL.
    fn arrived(&self, journal: &Journal, going: &[Going]) {
        for Going { position, changed, handle } in going {
            let same = match handle {
                Handle::Buf(buf) => {
                    let mut content = buf.content.write();
                    let same = content.log.changed == *changed;
                    if same {
                        content.log.chunks.iter_mut().for_each(|word| *word = 0);
                    }
                    same
                }
                Handle::Inode(ino, cell) => match cell.try_write() {
                    Some(mut state) if state.log.changed == *changed => {
                        super::rolled_inodes::mark_clean(self, &mut state);
                        true
                    }
                    Some(_) => false,
                    None => journal.rolled_inodes.written_back(*ino, cell, *changed),
                },
                Handle::Superblock => true,
                Handle::Intent(_) => false,
            };
            let mut ail = journal.ail.lock();
            if same && ail.position(handle) == Some(*position) {
                ail.remove(handle);
                self.counts.push_ail_success.one();
                if let Handle::Buf(buf) = handle {
                    self.bufs.clean(buf);
                }
            }
        }
        let ail = journal.ail.lock();
        let mut state = journal.state.lock();
        // Records in flight lie after everything in the AIL and before the head. A checkpoint is in
        // flight until its objects are in the AIL; the pipeline counts it as durable before that.
        let nothing_in_flight = journal.is_durable(state.pipeline.open_seq().0 - 1);
        if let Some(lowest) = ail.lowest() {
            self.move_tail(&mut state, lowest);
        } else if nothing_in_flight {
            let head = state.space.head();
            self.move_tail(&mut state, head);
        }
        journal.note_event(&mut state);
    }

    /// Pushes the whole AIL.
    pub(crate) fn push_ail_below(&self, journal: &Journal) -> Result<()> {
        self.push_ail(journal, u64::MAX)
    }

    /// Pushes about half of the AIL, so that memory becomes free. Forces the open checkpoint first
    /// if most of it is there. Returns whether that helped.
    pub(crate) fn lighten(&self, journal: &Journal) -> Result<bool> {
        let blocks = self.bufs.dirty_bytes() / self.geo.block_size as usize;
        let dirty = self.inodes.dirty_count() + blocks;
        let (last, active, lowest, until) = {
            let ail = journal.ail.lock();
            let state = journal.state.lock();
            let head = state.space.head();
            let lowest = ail.lowest();
            let from = lowest.unwrap_or(head);
            (state.pipeline.last(), ail.len(), lowest, from + (head - from).div_ceil(2))
        };
        if active < dirty / 2 {
            self.wait_for(journal, Need { seq: last, data: Generation(0) })?;
            return Ok(journal.load().1 > active);
        }
        self.push_ail(journal, until)?;
        Ok(journal.ail.lock().lowest() != lowest)
    }

    /// Is so much metadata waiting to be written that no more may be changed while it cannot be
    /// written?
    pub(crate) fn has_too_much_dirty_metadata(&self, journal: &Journal) -> bool {
        journal.load().0 > journal.geometry().length / 2 || self.much_dirty(SERVED)
    }

    /// Fails before a change begins if much metadata cannot be written.
    pub(crate) fn refuse_if_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Metadata) && self.has_too_much_dirty_metadata(journal) {
            return self.push_ail_below(journal);
        }
        Ok(())
    }

    /// Waits until the AIL is empty but for the work of new transactions.
    pub(crate) fn push_whole_ail(&self, journal: &Journal) -> Result<()> {
        let last = journal.state.lock().pipeline.last();
        self.wait_for(journal, Need { seq: last, data: Generation(0) })?;
        self.push_ail(journal, u64::MAX)
    }
}

/// An inode in its present state: unlocked, or that of a rolling transaction.
enum Seen<'a> {
    Free(parking_lot::RwLockReadGuard<'a, InodeState>),
    Rolled(Box<InodeState>),
}

impl core::ops::Deref for Seen<'_> {
    type Target = InodeState;

    fn deref(&self) -> &InodeState {
        match self {
            Self::Free(state) => state,
            Self::Rolled(state) => state,
        }
    }
}

impl Target {
    fn new(buf: &BufRef) -> Self {
        Self { buf: buf.clone(), own: None, going: Vec::new() }
    }
}

/// Sets a buffer's LSN, where its kind has one that means something.
fn stamp_lsn(bytes: &mut [u8], kind: BufKind, lsn: Lsn) {
    if kind == BufKind::AttrRemote {
        return;
    }
    let lsn = if planted(Fault::WrongLsn) { Lsn(lsn.0 + 64) } else { lsn };
    if let Some(layout) = kind.layout() {
        bytes[layout.lsn..layout.lsn + 8].copy_from_slice(&lsn.0.to_be_bytes());
    }
}
