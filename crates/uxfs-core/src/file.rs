//! The content of regular files: reading, writing, and changing the length.
//!
//! 1. Data reaches the device before the transaction that makes it visible commits, so old content of
//!    the blocks never becomes readable.
//! 2. The part of a file's last block past its end is zero.
//! 3. Blocks shared with other files are never overwritten ([`crate::cow`]).
//! 4. An operation that changes content holds the file's iolock ([`crate::iolock`]) from start to end.

use smallvec::SmallVec;
use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{Flags, Fork};
use uxfs_format::{Extent, FileBlock, Ino};

use crate::alloc::Goal;
use crate::bmap::{self, Run};
use crate::cow::{AllocUnit, Place};
use crate::devices::Device;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::InodeState;
use crate::limits::TREE_BLOCKS;
use crate::tx::{InodeSlot, Tx};

/// Most segments whose reading is announced to the device at a time.
const SEGMENTS_AHEAD: usize = 128;
/// Maximum length of a file in bytes: the largest signed offset.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes written in one transaction.
const WRITE_STEP: u64 = 64 << 20;
/// Most bytes zeroed or copied around a write at a time.
const FILL_STEP: usize = 1 << 20;

/// A range of a file: data or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Device address of the data in bytes; `None` for a range that reads as zeroes.
    pub device: Option<u64>,
    /// The address is on the realtime device, not on the data device.
    pub realtime: bool,
}

impl Fs {
    fn with_file<R>(&self, ino: Ino, f: impl FnOnce(&InodeState) -> Result<R>) -> Result<R> {
        self.with_inode(ino, |inode| {
            check_file(inode)?;
            if inode.core.is_realtime() && self.realtime.is_none() {
                return Err(no_realtime());
            }
            f(inode)
        })
    }

    /// Reads up to `buf.len()` bytes of a file from `offset` on, and returns their number. It is
    /// smaller only at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsDir`], [`Error::Invalid`] for other files without content, or a damaged structure
    /// or a read error on the way.
    pub fn read_at(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _content = self.iolocks.read(ino);
        self.with_file(ino, |inode| {
            let delayed = self.delayed(ino);
            let size = delayed.as_ref().map_or(inode.core.size, |f| f.size(inode.core.size));
            let end = offset.saturating_add(buf.len() as u64).min(size);
            let len = end.saturating_sub(offset) as usize;
            self.read_ahead(inode, offset, end, size);
            match &delayed {
                Some(file) => self.read_delayed(inode, file, offset, &mut buf[..len])?,
                None => self.read_mapped(inode, offset, &mut buf[..len])?,
            }
            Ok(len)
        })
    }

    /// Reads bytes of a file from the device. Where they lie in several places, the device can begin with
    /// all of these before the first one is waited for.
    pub(crate) fn read_mapped(
        &self,
        inode: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (mut at, end) = (offset, offset + buf.len() as u64);
        while at < end {
            let mut segments = SmallVec::<[Segment; 8]>::new();
            while at < end && segments.len() < SEGMENTS_AHEAD {
                let segment = self.segment(inode, at, end)?;
                at += segment.len;
                segments.push(segment);
            }
            for segment in segments.iter().skip(1) {
                if let Some(device) = segment.device {
                    self.device_of(segment).will_read(device, segment.len);
                }
            }
            for segment in segments {
                let from = (segment.offset - offset) as usize;
                let part = &mut buf[from..from + segment.len as usize];
                match segment.device {
                    Some(device) if segment.realtime => self.read_realtime(device, part)?,
                    Some(device) => self.read_device(device, part)?,
                    None => part.fill(0),
                }
            }
        }
        Ok(())
    }

    fn read_realtime(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let Some(device) = &self.realtime else { return Err(no_realtime()) };
        let daddr = uxfs_format::Daddr(at >> 9);
        let read = device.read_at(at, buf);
        let what = "reading data of the realtime device";
        read.map_err(|source| Error::Io { what, daddr, source })
    }

    /// Returns the device that holds the data of a segment.
    pub fn device_of(&self, segment: &Segment) -> &Device {
        self.realtime.as_ref().filter(|_| segment.realtime).unwrap_or(&self.dev)
    }

    /// Returns the segment of a file that starts at byte `at`, cut off at `end`.
    pub(crate) fn segment(&self, inode: &InodeState, at: u64, end: u64) -> Result<Segment> {
        let block = FileBlock(at >> self.geo.block_log);
        let found = bmap::at_or_after(self, inode, Fork::Data, block)?;
        // A corrupt extent may have offsets that do not fit a byte count.
        let bytes = |b: FileBlock| b.0.saturating_mul(self.geo.block_size.into());
        let realtime = inode.core.is_realtime();
        let Some(extent) = found else {
            return Ok(Segment { offset: at, len: end - at, device: None, realtime });
        };
        if extent.offset > block {
            let stop = bytes(extent.offset).min(end);
            return Ok(Segment { offset: at, len: stop - at, device: None, realtime });
        }
        let stop = bytes(extent.end()).min(end);
        let start = match realtime {
            true => extent.start.0 << self.geo.block_log,
            false => self.geo.fsb_daddr(extent.start).bytes(),
        };
        let device = (!extent.unwritten).then(|| start + (at - bytes(extent.offset)));
        Ok(Segment { offset: at, len: stop - at, device, realtime })
    }

    /// Returns the data and holes of a file, in order, up to its end. Segments of the same kind may
    /// be adjacent. Writes delayed data back first.
    ///
    /// # Errors
    /// As [`Fs::read_at`].
    pub fn segments(&self, ino: Ino) -> Result<Vec<Segment>> {
        let _content = self.iolocks.read(ino);
        self.write_back_file(ino)?;
        self.with_file(ino, |inode| {
            let mut all: Vec<Segment> = Vec::new();
            let mut at = 0;
            while at < inode.core.size {
                let next = self.segment(inode, at, inode.core.size)?;
                at += next.len;
                match all.last_mut() {
                    Some(last) if last.device.is_none() && next.device.is_none() => {
                        last.len += next.len;
                    }
                    _ => all.push(next),
                }
            }
            Ok(all)
        })
    }

    /// Writes `data` to a file at `offset`. The file grows if needed.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::FileTooBig`], [`Error::NotPermitted`] for immutable files and,
    /// except at the end, for append-only files; otherwise as [`Fs::read_at`]. A failed call may
    /// have written a part of the data.
    pub fn write_at(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let _inside = self.changes();
        let end = offset.checked_add(data.len() as u64).ok_or(Error::FileTooBig)?;
        if end > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        if let Some(dirty) = &self.delalloc {
            self.write_delayed(dirty, ino, offset, data)?;
            return self.balance();
        }
        let _content = self.iolocks.change(ino);
        self.check_sharing(&self.inodes.get(self, ino)?)?;
        self.free_shared_behind(ino, offset)?;
        let mut done = 0;
        while done < data.len() as u64 {
            let step = (data.len() as u64 - done).min(WRITE_STEP);
            let part = &data[done as usize..(done + step) as usize];
            done += self.retry_enospc(|| self.write_some(ino, offset + done, part))?;
        }
        self.balance()
    }

    /// Writes the start of `data`, up to the end of one extent, in one transaction.
    pub(crate) fn write_some(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<u64> {
        let block_size = u64::from(self.geo.block_size);
        let first = FileBlock(offset >> self.geo.block_log);
        let want = self.geo.blocks_for(offset % block_size + data.len() as u64);
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        check_write(tx.inode(slot), offset, tx.inode(slot).core.size)?;
        let next = bmap::at_or_after(self, tx.inode(slot), Fork::Data, first)?;
        let core = &tx.inode(slot).core;
        let old_size = core.size;
        let in_place =
            next.is_some_and(|e| e.offset <= first && !e.unwritten) && !self.moves_overwrites(core);
        // Overwriting needs no new blocks and works on a full volume.
        let mut unit = AllocUnit::of(&self.geo, core);
        if !in_place
            && (unit == AllocUnit::ANY
                || tx.reserve_more(want + unit.more() + TREE_BLOCKS).is_err())
        {
            // If space is short, ignore the allocation hints.
            unit = AllocUnit::ANY;
            tx.reserve_more(want + TREE_BLOCKS)?;
        }
        if offset > old_size {
            self.zero_behind(tx.inode(slot), old_size, offset)?;
        }
        let place = self.place(&mut tx, slot, (first, want), next, unit)?;
        let start = self.geo.fsb_daddr(place.extent.start).bytes();
        let skip = (first.0 - place.extent.offset.0) * block_size;
        let room = place.extent.len * block_size - skip - offset % block_size;
        let len = room.min(data.len() as u64);
        let at = start + skip + offset % block_size;
        if place.fresh {
            self.fill_around(&tx, slot, &place, offset, len, old_size)?;
        }
        self.write_device(at, &data[..len as usize])?;
        if place.extent.unwritten {
            let blocks = self.geo.blocks_for(offset % block_size + len);
            bmap::mark_written(&mut tx, slot, first, blocks)?;
        }
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = core.size.max(offset + len);
        (core.mtime, core.ctime) = (now, now);
        tx.commit()?;
        Ok(len)
    }

    /// Finds or allocates the blocks for a write that starts at block `first`. `next` is the first
    /// extent that ends after it.
    fn place(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        (first, want): (FileBlock, u64),
        next: Option<Extent>,
        unit: AllocUnit,
    ) -> Result<Place> {
        let goal = Goal::Stream(self.geo.ino_ag(tx.inode(slot).ino));
        match next {
            Some(extent) if extent.offset <= first => {
                let skip = first.0 - extent.offset.0;
                let extent = Extent {
                    offset: first,
                    start: extent.start.plus(skip),
                    len: (extent.len - skip).min(want),
                    unwritten: extent.unwritten,
                };
                self.own(tx, slot, extent, unit, goal)
            }
            _ if unit.fresh > 1 => self.place_in_hole(tx, slot, (first, want), unit, goal),
            _ => {
                let hole = next.map_or(u64::MAX, |e| e.offset.0 - first.0);
                let len = want.min(hole);
                let extent = bmap::alloc_some(tx, slot, Fork::Data, first, len, false, goal)?;
                Ok(Place { extent, fresh: true, old: None })
            }
        }
    }

    /// As [`Fs::place`], in a hole, for blocks allocated in units. They are unwritten.
    pub(crate) fn place_in_hole(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        (first, want): (FileBlock, u64),
        unit: AllocUnit,
        goal: Goal,
    ) -> Result<Place> {
        let hole = self.grains(tx.inode(slot), (first, first.plus(want)), unit)?;
        let mut at = hole.start;
        loop {
            let run = Run { at, min: unit.fresh, want: hole.end.0 - at.0, unwritten: true };
            let new = bmap::alloc_run(tx, slot, Fork::Data, &run, goal)?;
            if new.end() > first {
                let extent = bmap::slice(&new, first, new.end());
                return Ok(Place { extent, fresh: true, old: None });
            }
            at = new.end();
        }
    }

    /// The range to allocate for the blocks `from..to`, whose first block is in a hole: whole
    /// allocation units, as far as the hole goes.
    pub(crate) fn grains(
        &self,
        inode: &InodeState,
        (from, to): (FileBlock, FileBlock),
        unit: AllocUnit,
    ) -> Result<core::ops::Range<FileBlock>> {
        let left = bmap::last_before(self, inode, Fork::Data, from)?;
        let right = bmap::at_or_after(self, inode, Fork::Data, from)?;
        let start = FileBlock(from.0 - from.0 % unit.fresh).max(left);
        let end = FileBlock(to.0.next_multiple_of(unit.fresh));
        Ok(start..right.map_or(end, |right| end.min(right.offset)))
    }

    /// Fills the parts of new blocks that a write leaves out, with zeroes or with the old content.
    fn fill_around(
        &self,
        tx: &Tx<'_>,
        slot: InodeSlot,
        place: &Place,
        offset: u64,
        len: u64,
        old_size: u64,
    ) -> Result<()> {
        debug_assert!(tx.inode(slot).core.is_reg());
        let block_size = u64::from(self.geo.block_size);
        let start = self.geo.fsb_daddr(place.extent.start).bytes();
        let first = place.extent.offset.0 << self.geo.block_log;
        // Only the blocks that the write touches. Later blocks stay unwritten or get their content
        // when they are written.
        let touched_end = (offset + len).next_multiple_of(block_size);
        let whole_end = first + (place.extent.len << self.geo.block_log);
        let stop = if place.extent.unwritten { touched_end } else { whole_end };
        for (from, to) in [(first, offset), (offset + len, stop)] {
            for from in (from..to).step_by(FILL_STEP) {
                let to = to.min(from + FILL_STEP as u64);
                let mut bytes = vec![0; (to - from) as usize];
                if let Some(old) = place.old {
                    let old_start = self.geo.fsb_daddr(old.start).bytes();
                    self.read_device(old_start + (from - first), &mut bytes)?;
                    let live = old_size.clamp(from, to) - from;
                    bytes[live as usize..].fill(0);
                }
                self.write_device(start + (from - first), &bytes)?;
            }
        }
        Ok(())
    }

    /// Zeroes the blocks of a file from byte `size`, its end, to the end of the block that contains
    /// byte `to`. Whole blocks past the end exist if the kernel allocated ahead. None of these is shared
    /// ([`Fs::free_shared_behind`]).
    pub(crate) fn zero_behind(&self, inode: &InodeState, size: u64, to: u64) -> Result<()> {
        let stop = to.next_multiple_of(self.geo.block_size.into());
        let mut at = size;
        while at < stop {
            let segment = self.segment(inode, at, stop)?;
            let len = segment.len.min(1 << 20);
            match segment.device {
                Some(device) => {
                    self.write_device(device, &vec![0; len as usize])?;
                    at += len;
                }
                None => at += segment.len,
            }
        }
        Ok(())
    }

    /// Sets the length of a file: truncates it, or extends it with a hole.
    ///
    /// # Errors
    /// As [`Fs::write_at`].
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let _inside = self.changes();
        if size > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let _content = self.iolocks.change(ino);
        self.check_writable()?;
        self.with_inode(ino, |inode| check_file(inode).and_then(|()| check_mutable(inode)))?;
        if size > 0 {
            self.check_sharing(&self.inodes.get(self, ino)?)?;
        }
        let _blocked = self.block_for_cut(ino, size)?;
        self.free_shared_behind(ino, size)?;
        let on_disk = self.retry_enospc(|| self.set_length(ino, size))?;
        let old = self.cut_delayed(ino, size).max(on_disk);
        if size < old {
            self.free_beyond(ino, size)?;
        }
        self.balance()
    }

    /// Sets the length on disk in one transaction, which changes nothing if it fails. Returns the old one.
    fn set_length(&self, ino: Ino, size: u64) -> Result<u64> {
        let mut tx = self.begin_freeing_tx(TREE_BLOCKS + 1)?;
        let slot = tx.lock_inode(ino)?;
        check_file(tx.inode(slot))?;
        check_mutable(tx.inode(slot))?;
        let old = tx.inode(slot).core.size;
        if size < old {
            self.own_tail(&mut tx, slot, size)?;
        }
        self.zero_behind(tx.inode(slot), size.min(old), size)?;
        let now = self.now();
        let core = tx.core_mut(slot);
        core.size = size;
        (core.mtime, core.ctime) = (now, now);
        tx.commit()?;
        Ok(old)
    }

    /// If the last block after truncation is shared, gives the file its own copy before the block's
    /// tail is zeroed.
    pub(crate) fn own_tail(&self, tx: &mut Tx<'_>, slot: InodeSlot, size: u64) -> Result<()> {
        let block = FileBlock(size >> self.geo.block_log);
        if size.is_multiple_of(self.geo.block_size.into()) || planted(Fault::TailInPlace) {
            return Ok(());
        }
        let Some(extent) = bmap::lookup(self, tx.inode(slot), Fork::Data, block)? else {
            return Ok(());
        };
        let one = Extent {
            offset: block,
            start: extent.start.plus(block.0 - extent.offset.0),
            len: 1,
            unwritten: extent.unwritten,
        };
        let goal = Goal::Stream(self.geo.ino_ag(tx.inode(slot).ino));
        let place = self.own(tx, slot, one, AllocUnit::ANY, goal)?;
        match place.old {
            Some(old) => self.copy_blocks(old.start, place.extent.start, 1),
            None => Ok(()),
        }
    }

    /// Frees the blocks of a file behind its end and behind byte `size`.
    pub(crate) fn free_beyond(&self, ino: Ino, size: u64) -> Result<()> {
        let end = self.with_inode(ino, |inode| Ok(inode.core.size.max(size)))?;
        let first = FileBlock(self.geo.blocks_for(end));
        let mut left = (1 << 54) - first.0;
        while left > 0 {
            left = self.retry_enospc(|| self.unmap_some(ino, first, left))?;
        }
        Ok(())
    }

    /// Allocates blocks for the holes in the `len` bytes from `offset` on, and extends the file to
    /// include them.
    pub(crate) fn allocate_in(
        &self,
        tx: &mut Tx<'_>,
        slot: InodeSlot,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Segment>> {
        let goal = Goal::Stream(self.geo.ino_ag(tx.inode(slot).ino));
        let block_size = u64::from(self.geo.block_size);
        let mut segments = Vec::with_capacity(1);
        let mut at = FileBlock(offset / block_size);
        let end = FileBlock(self.geo.blocks_for(offset + len));
        while at < end {
            let want = end.0 - at.0;
            let extent = bmap::alloc_some(tx, slot, Fork::Data, at, want, false, goal)?;
            at = extent.end();
            let first = extent.offset.0 * block_size;
            let (from, to) = (first.max(offset), (at.0 * block_size).min(offset + len));
            let start = self.geo.fsb_daddr(extent.start).bytes();
            segments.push(Segment {
                offset: from,
                len: to - from,
                device: Some(start + (from - first)),
                realtime: false,
            });
        }
        let core = tx.core_mut(slot);
        core.size = core.size.max(offset + len);
        Ok(segments)
    }
}

pub(crate) fn check_file(inode: &InodeState) -> Result<()> {
    if inode.core.is_dir() {
        return Err(Error::IsDir);
    }
    if !inode.core.is_reg() {
        return Err(Error::Invalid("not a regular file"));
    }
    Ok(())
}

fn no_realtime() -> Error {
    let why = "the file's data is on the volume's realtime device, which was not given (rtdev)";
    Error::Unsupported(why.into())
}

/// Fails for a file on the realtime device, which is supported for reading only.
pub(crate) fn refuse_realtime(inode: &InodeState) -> Result<()> {
    if inode.core.is_realtime() {
        return Err(Error::Unsupported("writing realtime files is not supported".into()));
    }
    Ok(())
}

/// Fails if the file, of this length, may not be written at `offset`.
pub(crate) fn check_write(inode: &InodeState, offset: u64, size: u64) -> Result<()> {
    check_file(inode)?;
    refuse_realtime(inode)?;
    let append = inode.core.flags.contains(Flags::APPEND) && offset != size;
    match append || inode.core.flags.contains(Flags::IMMUTABLE) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// Fails if the file's flags forbid changes other than at its end.
pub(crate) fn check_mutable(inode: &InodeState) -> Result<()> {
    if inode.core.flags.intersects(Flags::IMMUTABLE | Flags::APPEND) {
        return Err(Error::NotPermitted);
    }
    refuse_realtime(inode)
}
