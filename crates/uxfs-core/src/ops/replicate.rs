//! Copying a file from one volume to another unchanged. Rebuilding a volume in another size uses this
//! for every file.
//!
//! 1. Kept: type, mode, owners, all four times, project ID, flags, hints, attributes of every
//!    namespace, and link targets; for data, which ranges are written, allocated but unwritten, or
//!    holes.
//! 2. Not kept: inode number, generation, block sharing between files, and blocks past the end of a
//!    file unless they were preallocated on purpose.
//! 3. The caller moves the data itself, before it closes the new volume.

use core::ops::ControlFlow;

use uxfs_format::inode::{Flags, Flags2, Fork, S_IFMT};
use uxfs_format::{Check, FileBlock, Ino};

use super::batches::Batches;
use super::create::{NewInode, Times};
use crate::alloc::Goal;
use crate::attr::{self, Namespace};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::InodeState;
use crate::journal::Op;
use crate::tx::{InodeSlot, Tx};
use crate::{bmap, symlink};

/// Whole blocks of a file's data to be copied from the old device to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte on the old device.
    pub from: u64,
    /// First byte on the new device.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// Flags about location or storage, which the new volume decides.
const PLACED: Flags = Flags::REALTIME.union(Flags::NEWRTBM).union(Flags::RTINHERIT);
/// Second flags that are copied.
const OWN2: Flags2 = Flags2::DAX.union(Flags2::COWEXTSIZE);

/// An attribute of the source file.
struct Attr {
    namespace: Namespace,
    name: Vec<u8>,
    /// Length of its value.
    len: usize,
}

impl Fs {
    /// Copies inode `from` of volume `source` to a new file `name` in `parent`. A directory is
    /// created empty. It gets its flags and times from [`Fs::replicate_traits`] once it is full,
    /// and a file of several names once it has all its names. Both volumes must have the same block
    /// size.
    ///
    /// # Errors
    /// As [`Fs::build`], and errors of reading `source`.
    pub fn replicate(
        &self,
        source: &Fs,
        from: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Ino, Vec<Move>)> {
        let _inside = self.changes();
        source.write_back_file(from)?;
        let original = source.with_inode(from, |inode| Ok(inode.clone()))?;
        let core = &original.core;
        let listed = attributes(source, &original)?;
        let set = |tx: &mut Tx<'_>, slot: InodeSlot, at: usize| {
            copy_attribute(tx, slot, source, &original, &listed[at])
        };
        let attrs = Batches { lens: lengths(&listed), set: &set };
        let extents = if core.is_reg() { extents(source, &original)? } else { Vec::new() };
        let target = core.is_symlink().then(|| symlink::read(source, &original)).transpose()?;
        let data = extents.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.len + 1));
        let mut new = NewInode::new(core.mode);
        (new.uid, new.gid, new.rdev) = (core.uid, core.gid, original.stat().rdev);
        new.times = Some(times(&original));
        new.attr_bytes = listed.iter().map(|attr| attr.name.len() + attr.len).sum();
        let at_once = || {
            let more = target.as_ref().map_or(0, |_| symlink::blocks(&self.geo));
            let blocks = attrs.blocks(&self.geo) + more;
            let (mut tx, slot) = self.begin_create(parent, name, &new, blocks, data)?;
            attrs.set_all(&mut tx, slot)?;
            if let Some(target) = &target {
                symlink::write(&mut tx, slot, target)?;
            }
            self.finish_replica(tx, slot, source, &original, &extents)
        };
        let in_steps = || {
            let ino = self.create_unlinked(parent, name, &new, target.as_deref())?;
            let named = attrs.set_apart(self, ino).and_then(|()| {
                let (tx, slot) = self.begin_link(parent, name, ino, data, |_, _| Ok(()))?;
                self.finish_replica(tx, slot, source, &original, &extents)
            });
            named.inspect_err(|_| self.abandon(ino))
        };
        let made = match attrs.are_few(&self.geo) {
            true => match at_once() {
                // Without its attributes the file needs a smaller reservation.
                Err(Error::NoSpace) if attrs.lens.len() > 1 => in_steps(),
                other => other,
            },
            false => in_steps(),
        }?;
        self.balance()?;
        Ok(made)
    }

    /// Allocates the blocks that the source's data takes, and commits.
    fn finish_replica(
        &self,
        mut tx: Tx<'_>,
        slot: InodeSlot,
        source: &Fs,
        original: &InodeState,
        extents: &[uxfs_format::Extent],
    ) -> Result<(Ino, Vec<Move>)> {
        let core = &original.core;
        let mut moves = Vec::new();
        for extent in extents {
            self.allocate_like(&mut tx, slot, source, extent, &mut moves)?;
        }
        if core.is_reg() {
            tx.core_mut(slot).size = core.size;
        }
        // Flags may forbid further names, and further entries of a directory.
        if !core.is_dir() && core.nlink == 1 {
            set_traits(&mut tx, slot, original);
        }
        let ino = tx.inode(slot).ino;
        tx.commit()?;
        Ok((ino, moves))
    }

    /// Copies mode, owners and times of inode `from` of `source` to inode `to`. With
    /// `with_attributes` it also copies the attributes; otherwise it copies project ID, flags and
    /// hints. These can forbid later changes, so they are set last.
    ///
    /// # Errors
    /// As [`Fs::set_attr`] and [`Fs::set_xattr`], and errors of reading `source`.
    pub fn replicate_traits(
        &self,
        source: &Fs,
        from: Ino,
        to: Ino,
        with_attributes: bool,
    ) -> Result<()> {
        let _inside = self.changes();
        let original = source.with_inode(from, |inode| Ok(inode.clone()))?;
        if with_attributes {
            let listed = attributes(source, &original)?;
            let set = |tx: &mut Tx<'_>, slot: InodeSlot, at: usize| {
                copy_attribute(tx, slot, source, &original, &listed[at])
            };
            Batches { lens: lengths(&listed), set: &set }.set_apart(self, to)?;
        }
        let mut tx = self.begin_tx_for(Op::Inode, 0)?;
        let slot = tx.lock_inode(to)?;
        let core = tx.core_mut(slot);
        core.mode = core.mode & S_IFMT | original.core.mode & !S_IFMT;
        (core.uid, core.gid) = (original.core.uid, original.core.gid);
        let times = times(&original);
        (core.atime, core.mtime, core.ctime) = (times.atime, times.mtime, times.ctime);
        core.crtime = times.crtime;
        if !with_attributes {
            set_traits(&mut tx, slot, &original);
        }
        tx.commit()?;
        self.balance()
    }

    /// Allocates blocks for an extent of the source, and records the data to be copied into them.
    fn allocate_like(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        source: &Fs,
        extent: &uxfs_format::Extent,
        moves: &mut Vec<Move>,
    ) -> Result<()> {
        let goal = Goal::Stream(self.geo.ino_ag(tx.inode(slot).ino));
        let mut at = extent.offset;
        while at < extent.end() {
            let want = extent.end().0 - at.0;
            let new = bmap::alloc_some(tx, slot, Fork::Data, at, want, extent.unwritten, goal)?;
            if !extent.unwritten {
                let from = extent.start.plus(at.0 - extent.offset.0);
                moves.push(Move {
                    from: source.geo.fsb_daddr(from).bytes(),
                    to: self.geo.fsb_daddr(new.start).bytes(),
                    len: new.len << self.geo.block_log,
                });
            }
            at = new.end();
        }
        Ok(())
    }
}

fn times(original: &InodeState) -> Times {
    let core = &original.core;
    Times { atime: core.atime, mtime: core.mtime, ctime: core.ctime, crtime: core.crtime }
}

fn set_traits(tx: &mut Tx<'_>, slot: InodeSlot, original: &InodeState) {
    let core = tx.core_mut(slot);
    core.projid = original.core.projid;
    core.flags = original.core.flags - PLACED;
    core.flags2 = (core.flags2 - OWN2) | (original.core.flags2 & OWN2);
    core.extsize = original.core.extsize;
    core.cowextsize = original.core.cowextsize;
}

/// All attributes but parent pointers, which the new volume creates itself.
fn attributes(fs: &Fs, inode: &InodeState) -> Result<Vec<Attr>> {
    let mut all = Vec::new();
    attr::list(fs, inode, &mut |namespace, name, len| {
        if namespace != Namespace::Parent {
            all.push(Attr { namespace, name: name.to_vec(), len });
        }
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

fn lengths(attrs: &[Attr]) -> Vec<usize> {
    attrs.iter().map(|attr| attr.len).collect()
}

/// Copies an attribute of the source to the new inode.
fn copy_attribute(
    tx: &mut Tx<'_>,
    slot: InodeSlot,
    source: &Fs,
    original: &InodeState,
    wanted: &Attr,
) -> Result<()> {
    let Attr { namespace, name, .. } = wanted;
    let value = attr::get(source, original, *namespace, name)?
        .ok_or_else(|| original.corrupt(Check::Missing, "an attribute is listed but not found"))?;
    attr::set(tx, slot, *namespace, name, &value)
}

/// The extents of a file's data that are copied.
fn extents(fs: &Fs, inode: &InodeState) -> Result<Vec<uxfs_format::Extent>> {
    let end = FileBlock(fs.geo.blocks_for(inode.core.size));
    let wanted = inode.core.flags.contains(Flags::PREALLOC);
    let mut all = Vec::new();
    let mut at = FileBlock(0);
    while let Some(extent) = bmap::at_or_after(fs, inode, Fork::Data, at)? {
        at = extent.end();
        let inside = end.0.saturating_sub(extent.offset.0).min(extent.len);
        let len = if wanted && extent.unwritten { extent.len } else { inside };
        if len > 0 {
            all.push(uxfs_format::Extent { len, ..extent });
        }
    }
    Ok(all)
}
