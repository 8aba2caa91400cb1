//! Logged objects written in place, for the AIL push.
//!
//! 1. An object is written with the LSN of the checkpoint that logged it last.
//! 2. Inodes are copied into the buffer of their cluster, dquots into that of their block, and written
//!    with it.
//! 3. Objects that are locked, or that changed after the last durable checkpoint, are left out.
//!
//! Called through [`super::volume`].

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Lsn, inode as disk_inode};
use uxfs_journal::{LogGeometry, LogPos, WrittenItem};

use super::Journal;
use super::item::Handle;
use crate::buf::{BufRef, Run};
use crate::device_io::SERVED;
use crate::error::Result;
use crate::full::Stuck;
use crate::inode::{InodeState, locate, read_cluster};
use crate::mount::Mount;

/// Most bytes of buffers held in memory by one push.
const KEPT_MAX: usize = 4 << 20;

type Written = WrittenItem<Handle>;

/// A buffer to write, and the inodes or dquots written with it.
struct Target {
    buf: BufRef,
    /// The buffer's own position in the AIL, if it has one.
    own: Option<LogPos>,
    inside: Vec<Written>,
}

/// Writes objects in place, given by their positions in the AIL, in the order of their addresses.
/// Returns those that it wrote.
pub(super) fn write(
    fs: &Mount,
    geometry: &LogGeometry,
    items: Vec<(LogPos, Handle)>,
    durable: u64,
) -> Result<Vec<Written>> {
    let mut places: BTreeMap<u64, Vec<(LogPos, Handle)>> = BTreeMap::new();
    let mut all = Vec::new();
    for (position, item) in items {
        match &item {
            Handle::Buf(buf) => {
                places.entry(buf.daddr().0).or_default().push((position, item));
            }
            Handle::Inode(ino, _) => {
                let cluster = locate(&fs.geo, *ino).0;
                places.entry(cluster.0).or_default().push((position, item));
            }
            Handle::Dquot(dquot) => {
                places.entry(dquot.buf.daddr().0).or_default().push((position, item));
            }
            Handle::Intent(_) => {}
            Handle::Superblock => match fs.logged_superblock(durable) {
                Some(sector) => {
                    fs.write_superblock(&sector)?;
                    all.push(Written { position, changed: 0, item });
                }
                None => fs.counts.push_ail_pinned.one(),
            },
        }
    }
    let batch = Batch { fs, geometry, durable };
    let mut run = Run::default();
    // The buffers in `run` are not on the device yet. If one were evicted, the next read would
    // find old content.
    let mut kept = Vec::new();
    let mut bytes = 0;
    for objects in places.into_values() {
        let Some(target) = batch.target(objects)? else { continue };
        kept.push(target.buf.clone());
        bytes += target.buf.len();
        batch.write_target(target, &mut run, &mut all)?;
        if bytes >= KEPT_MAX {
            run.put(&*fs.meta_dev)?;
            kept.clear();
            bytes = 0;
        }
    }
    run.put(&*fs.meta_dev)?;
    Ok(all)
}

/// Objects that are written together.
struct Batch<'a> {
    fs: &'a Mount,
    geometry: &'a LogGeometry,
    /// The last durable checkpoint.
    durable: u64,
}

impl Batch<'_> {
    /// The buffer of a handle, with the inodes or dquots in it brought up to date.
    fn target(&self, objects: Vec<(LogPos, Handle)>) -> Result<Option<Target>> {
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
                Handle::Dquot(_) => self.to_block(position, handle, &mut target),
                _ => self.to_cluster(position, handle, &mut target)?,
            }
        }
        Ok(target)
    }

    /// Copies an inode into its cluster's buffer.
    fn to_cluster(
        &self,
        position: LogPos,
        item: Handle,
        target: &mut Option<Target>,
    ) -> Result<()> {
        let Handle::Inode(ino, cell) = &item else { return Ok(()) };
        let state = match cell.try_read() {
            Some(state) => Seen::Free(state),
            None => match self.fs.rolled_inodes.get(*ino, cell) {
                Some(state) => Seen::Rolled(state),
                None => {
                    self.fs.counts.push_ail_pinned.one();
                    return Ok(());
                }
            },
        };
        if state.log.changed > self.durable || self.fs.freed_inodes.contains(cell) {
            self.fs.counts.push_ail_pinned.one();
            return Ok(());
        }
        let (buf, offset) = read_cluster(self.fs, *ino)?;
        let mut content = buf.content.write();
        let size = self.fs.geo.inode_size as usize;
        let raw = &mut content.bytes[offset..offset + size];
        raw[disk_inode::CORE_LEN..].copy_from_slice(&state.literal);
        let mut core = state.logged_core();
        core.lsn = self.geometry.lsn(position);
        core.encode(raw, *ino, &self.fs.geo.meta_uuid);
        drop(content);
        let changed = state.log.changed;
        drop(state);
        let target = target.get_or_insert_with(|| Target::new(&buf));
        target.inside.push(Written { position, changed, item });
        Ok(())
    }

    /// Copies a dquot into its block's buffer.
    fn to_block(&self, position: LogPos, item: Handle, target: &mut Option<Target>) {
        let Handle::Dquot(dquot) = &item else { return };
        let (record, changed) = {
            let state = dquot.state.lock();
            (state.record, state.changed)
        };
        if changed > self.durable {
            self.fs.counts.push_ail_pinned.one();
            return;
        }
        dquot.put(&record, Some(self.geometry.lsn(position)), &self.fs.geo);
        let target = target.get_or_insert_with(|| Target::new(&dquot.buf));
        target.inside.push(Written { position, changed, item });
    }

    /// Writes a buffer, unless it is locked or changed.
    fn write_target(&self, target: Target, run: &mut Run, all: &mut Vec<Written>) -> Result<()> {
        let Target { buf, own, inside } = target;
        let mut content = buf.content.write();
        let held = buf.holder.load(Ordering::Acquire) != 0;
        if held || content.log.died != 0 || content.log.changed > self.durable {
            self.fs.counts.push_ail_pinned.one();
            return Ok(());
        }
        let kind = content.kind;
        verify::check(&content.bytes, kind, buf.daddr(), &self.fs.geo)?;
        if let Some(position) = own {
            stamp_lsn(&mut content.bytes, kind, self.geometry.lsn(position));
            let changed = content.log.changed;
            all.push(Written { position, changed, item: Handle::Buf(buf.clone()) });
        }
        verify::stamp_checksum(&mut content.bytes, kind);
        let mut at = 0;
        for piece in buf.pieces() {
            let end = at + piece.len as usize;
            run.add(&*self.fs.meta_dev, piece.daddr, &content.bytes[at..end])?;
            at = end;
        }
        all.extend(inside);
        Ok(())
    }
}

/// Notes that an object is on stable storage as it was written. Returns `false` if it has changed
/// since.
pub(super) fn write_completed(fs: &Mount, written: &Written) -> bool {
    match &written.item {
        Handle::Buf(buf) => {
            let mut content = buf.content.write();
            let same = content.log.changed == written.changed;
            if same {
                content.log.chunks.iter_mut().for_each(|word| *word = 0);
            }
            same
        }
        Handle::Inode(ino, cell) => match cell.try_write() {
            Some(mut state) if state.log.changed == written.changed => {
                fs.inodes.mark_clean(&mut state);
                true
            }
            Some(_) => false,
            None => fs
                .rolled_inodes
                .written_back(*ino, cell, |state| state.log.changed == written.changed),
        },
        Handle::Dquot(dquot) => {
            let mut state = dquot.state.lock();
            let same = state.changed == written.changed;
            state.dirty &= !same;
            same
        }
        Handle::Superblock => true,
        Handle::Intent(_) => false,
    }
}

impl Mount {
    /// Pushes about half of the AIL, so that memory becomes free. Forces the open checkpoint instead
    /// if most of what is dirty is there. Returns whether that helped.
    pub(crate) fn lighten(&self, journal: &Journal) -> Result<bool> {
        let blocks = self.bufs.dirty_bytes() / self.geo.block_size as usize;
        let dirty = self.inodes.dirty_count() + blocks;
        journal.push_half(self, dirty / 2)
    }

    /// Is so much metadata waiting to be written that no more may be changed while it cannot be
    /// written?
    pub(crate) fn has_too_much_dirty_metadata(&self, journal: &Journal) -> bool {
        journal.load().0 > journal.geometry().length / 2 || self.much_dirty(SERVED)
    }

    /// Fails before a change begins if much metadata cannot be written.
    pub(crate) fn refuse_if_stuck(&self, journal: &Journal) -> Result<()> {
        if self.is_stuck(Stuck::Metadata) && self.has_too_much_dirty_metadata(journal) {
            return journal.push_whole_ail(self);
        }
        Ok(())
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
        Self { buf: buf.clone(), own: None, inside: Vec::new() }
    }
}

/// Sets a buffer's LSN, where its kind has one that means something.
fn stamp_lsn(bytes: &mut [u8], kind: BufKind, lsn: Lsn) {
    if kind == BufKind::AttrRemote {
        return;
    }
    let lsn = if planted(Fault::WrongLsn) { Lsn(lsn.0 + 64) } else { lsn };
    if let Some(layout) = kind.layout() {
        layout.set_lsn(bytes, lsn);
    }
}
