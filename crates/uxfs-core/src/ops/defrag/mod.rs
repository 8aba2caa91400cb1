//! Moving a file's data into fewer and longer extents, with the file in use: the work of xfs_fsr.
//!
//! 1. Content is copied to new blocks before the transaction that maps them in place of the old ones commits,
//!    and its checkpoint flushes them first. A power cut leaves the old blocks or the new ones, with equal
//!    bytes. The old ones are busy until that checkpoint is durable.
//! 2. One transaction moves one run ([`run::FileRun`]) into one place, if that saves at least half as many
//!    places as the run lies in ([`is_worth`]). So a file is never worse than before, wherever the work ends.
//! 3. Length, times, holes, blocks past the end and what is unwritten stay as they are. So do shared blocks,
//!    unless the caller asks for them.
//! 4. The file's iolock is held for one run at a time.
//! 5. Space comes from what anyone may reserve, not from what is kept for overwrites.
//!
//! Called by `uxfs defrag`, by the ioctl of a mount, and by the background pass.

mod run;
// xfsprogs judges these tests, and it is not on other systems than Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests;

use core::fmt;

use uxfs_disk::fault::{Fault, planted};
use uxfs_format::inode::{Flags, Flags2, Fork, InodeCore};
use uxfs_format::{AgNo, Extent, FileBlock, FsBlock, Ino};

use crate::alloc::{self, Goal, room};
use crate::bmap::{self, Run};
use crate::error::{Error, Result};
use crate::file::check_file;
use crate::fs::Fs;
use crate::limits::{EXTENTS_A_STEP, TREE_BLOCKS};
use crate::tx::{InodeSlot, Tx};
use run::{FileRun, places};

/// Most runs looked at in one call of [`Fs::defrag_part`].
const RUNS: u32 = 1024;

/// What [`Fs::defrag`] moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Also blocks shared with other files. This file then has its own copies.
    pub shared: bool,
}

/// Why a file was left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is flagged as not to be defragmented.
    NoDefrag,
    /// It is flagged as immutable or append-only.
    Immutable,
    /// Its data is on the realtime device.
    Realtime,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDefrag => "flagged as not to be defragmented",
            Self::Immutable => "immutable or append-only",
            Self::Realtime => "on the realtime device",
        })
    }
}

/// How badly a file is split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Extents up to the end of the file.
    pub extents: u64,
    /// Extents that would do, with the same holes and the same unwritten blocks.
    pub possible: u64,
}

/// What one call of [`Fs::defrag_part`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragPart {
    /// Byte offset from which to go on; `None` at the end of the file.
    pub next: Option<u64>,
    /// Bytes of the ranges that were moved.
    pub moved: u64,
    /// Why the file was left alone, if it was.
    pub kept: Option<Kept>,
}

/// A run and the place that was found for it.
struct Plan {
    run: FileRun,
    goal: FsBlock,
}

/// What there is to do from some offset on.
enum Next {
    Move(Plan),
    /// Nothing before this block.
    From(FileBlock),
    End,
    Kept(Kept),
}

impl Fs {
    /// Counts the extents of a file. Writes delayed data back first.
    ///
    /// # Errors
    /// As [`Fs::read_at`].
    pub fn fragmentation(&self, ino: Ino) -> Result<Fragmentation> {
        let all = self.extents(ino)?;
        let end = FileBlock(self.geo.blocks_for(self.stat(ino)?.size));
        let inside = all.partition_point(|extent| extent.offset < end);
        let goes_on = |pair: &&[Extent]| {
            pair[0].end() == pair[1].offset && pair[0].unwritten == pair[1].unwritten
        };
        let joined = all[..inside].windows(2).filter(goes_on).count();
        Ok(Fragmentation { extents: inside as u64, possible: (inside - joined) as u64 })
    }

    /// Moves all data of a badly split file to fewer and longer extents. Returns how many bytes, and why
    /// the file was left alone, if it was.
    ///
    /// # Errors
    /// As [`Fs::read_at`]; [`Error::NoSpace`]. What was moved before stays moved.
    pub fn defrag(&self, ino: Ino, options: DefragOptions) -> Result<DefragPart> {
        let mut all = DefragPart { next: Some(0), ..DefragPart::default() };
        while let Some(from) = all.next {
            let part = self.defrag_part(ino, options, from, u64::MAX)?;
            all = DefragPart { moved: all.moved + part.moved, ..part };
        }
        Ok(all)
    }

    /// As [`Fs::defrag`] from byte `from` on, until about `most` bytes are moved.
    ///
    /// # Errors
    /// As [`Fs::defrag`].
    pub fn defrag_part(
        &self,
        ino: Ino,
        options: DefragOptions,
        from: u64,
        most: u64,
    ) -> Result<DefragPart> {
        let _inside = self.changes();
        self.defrag_runs((ino, options), from, most, true)
    }

    /// Moves about `most` bytes of the files that write-back has split ([`crate::OpenOptions::defrag`]). Waits
    /// for no space. Returns how many bytes were moved; 0 when there is nothing to do now.
    ///
    /// # Errors
    /// Device errors, and damaged structures on the way.
    pub fn defrag_pass(&self, most: u64) -> Result<u64> {
        let _inside = self.changes();
        let Some(split) = &self.split_files else { return Ok(0) };
        let measure = |ino| {
            let counted = self.with_inode(ino, |inode| {
                Ok((inode.core.fork_extents(Fork::Data), inode.core.nblocks))
            });
            counted.ok().map(|(extents, blocks)| (extents, blocks << self.geo.block_log))
        };
        let mut moved = 0;
        while moved < most
            && let Some((ino, from)) = split.next(measure)
        {
            let file = (ino, DefragOptions::default());
            match self.defrag_runs(file, from, most - moved, false) {
                Ok(DefragPart { kept: Some(_), .. })
                | Err(Error::NoSpace | Error::NotFound | Error::IsDir | Error::Invalid(_)) => {
                    split.forget(ino);
                }
                Ok(part) => {
                    moved += part.moved;
                    let left = measure(ino).map_or(0, |(extents, _)| extents);
                    split.done(ino, part.next, left);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// As [`Fs::defrag_part`]; waits for blocks that are busy if `patient`.
    fn defrag_runs(
        &self,
        (ino, options): (Ino, DefragOptions),
        from: u64,
        most: u64,
        patient: bool,
    ) -> Result<DefragPart> {
        self.check_writable()?;
        let mut part = DefragPart::default();
        let mut at = FileBlock(from >> self.geo.block_log);
        for _ in 0..RUNS {
            let run = || self.defrag_run(ino, options, at);
            let (next, moved) =
                if patient { self.retry_enospc(run)? } else { self.retry_groups(run)? };
            part.moved += moved << self.geo.block_log;
            self.balance()?;
            at = match next {
                Next::From(next) => next,
                Next::Kept(kept) => {
                    part.kept = Some(kept);
                    return Ok(part);
                }
                _ => return Ok(part),
            };
            if part.moved >= most {
                break;
            }
        }
        part.next = Some(at.0 << self.geo.block_log);
        Ok(part)
    }

    /// Moves the first run from block `from` on, if that is worth it. Returns what is next, and how many
    /// blocks were moved.
    fn defrag_run(&self, ino: Ino, options: DefragOptions, from: FileBlock) -> Result<(Next, u64)> {
        let _content = self.iolocks.change(ino);
        let _blocked = self.flush_and_block(ino)?;
        let Plan { run, goal } = match self.plan_run(ino, options, from)? {
            Next::Move(plan) => plan,
            other => return Ok((other, 0)),
        };
        // With no group locked: this may take many seeks.
        let content = self.read_run(&run)?;
        let moved = if self.move_run(ino, &run, goal, &content)? { run.blocks() } else { 0 };
        Ok((Next::From(run.end()), moved))
    }

    /// Looks for a run from block `from` on, and for a place where it lies better.
    fn plan_run(&self, ino: Ino, options: DefragOptions, from: FileBlock) -> Result<Next> {
        let mut tx = self.begin_tx(0)?;
        let slot = tx.lock_inode(ino)?;
        check_file(tx.inode(slot))?;
        let core = &tx.inode(slot).core;
        if let Some(kept) = keeps(core) {
            return Ok(Next::Kept(kept));
        }
        let end = FileBlock(self.geo.blocks_for(core.size));
        let shares = core.flags2.contains(Flags2::REFLINK) && !options.shared;
        let Some(mut run) = FileRun::next(self, tx.inode(slot), from, end)? else {
            return Ok(Next::End);
        };
        if shares && let Some(next) = self.leave_shared(&mut tx, &mut run)? {
            return Ok(Next::From(next));
        }
        let (start, end) = (run.start(), run.end());
        let left = bmap::before(self, tx.inode(slot), Fork::Data, start)?;
        let left = left.filter(|left| left.end() == start);
        let goal = match left {
            Some(left) => self.room_behind(&mut tx, &left, run.blocks())?,
            None => None,
        };
        let goes_on = goal.is_some();
        let goal = match goal {
            Some(goal) => goal,
            None => {
                let first = run.extents.first().map_or(AgNo(0), |e| self.geo.fsb_ag(e.start));
                let Some((goal, len)) = self.room_for(&mut tx, first, run.ahead)? else {
                    return Ok(Next::From(end));
                };
                run.shorten(len);
                goal
            }
        };
        if run.extents.is_empty() {
            return Ok(Next::From(end));
        }
        let right = bmap::lookup(self, tx.inode(slot), Fork::Data, run.end())?.is_some();
        let after = 1 + u64::from(left.is_some() && !goes_on) + u64::from(right);
        let (alone, before) = self.places_of(&tx, slot, &run)?;
        match is_worth(alone, before, after) {
            true => Ok(Next::Move(Plan { run, goal })),
            false => Ok(Next::From(run.end())),
        }
    }

    /// In how many places a run lies, alone and with its neighbours.
    fn places_of(&self, tx: &Tx<'_>, slot: InodeSlot, run: &FileRun) -> Result<(u64, u64)> {
        let (start, end) = (run.start(), run.end());
        let around = FileBlock(start.0.saturating_sub(1));
        let inode = tx.inode(slot);
        Ok((places(self, inode, start, end)?, places(self, inode, around, end.plus(1))?))
    }

    /// Cuts the run off where its first extent with shared blocks begins. If that is its start, returns the
    /// end of the shared ones there.
    fn leave_shared(&self, tx: &mut Tx<'_>, run: &mut FileRun) -> Result<Option<FileBlock>> {
        let mut behind = None;
        for at in 0..run.extents.len() {
            let extent = run.extents[at];
            let shared = !extent.unwritten && self.is_shared(tx, &extent)?;
            match (shared, behind) {
                (true, _) if at == 0 || behind.is_some() => behind = Some(extent.end()),
                (true, _) => {
                    run.extents.truncate(at);
                    break;
                }
                (false, Some(_)) => break,
                (false, None) => {}
            }
        }
        Ok(behind)
    }

    /// Are blocks of the extent shared? The transaction holds no group.
    fn is_shared(&self, tx: &mut Tx<'_>, extent: &Extent) -> Result<bool> {
        let (ag, start) = (self.geo.fsb_ag(extent.start), self.geo.fsb_agblock(extent.start));
        tx.lock_ag(ag)?;
        let shared = alloc::shared_run(tx, ag, start, extent.len as u32)?;
        tx.unlock_ag(ag);
        Ok(shared.is_some())
    }

    /// The block behind an extent, if `blocks` are free there. The transaction holds no group.
    fn room_behind(&self, tx: &mut Tx<'_>, left: &Extent, blocks: u64) -> Result<Option<FsBlock>> {
        let goal = left.start.plus(left.len);
        if !self.geo.fsb_valid(goal, blocks) {
            return Ok(None);
        }
        let ag = self.geo.fsb_ag(goal);
        tx.lock_ag(ag)?;
        let free = room::blocks_from(tx, ag, self.geo.fsb_agblock(goal))?;
        tx.unlock_ag(ag);
        Ok((u64::from(free) >= blocks).then_some(goal))
    }

    /// A place for `blocks` blocks, in the group `first` or the next one that has it; else the longest free
    /// run. The transaction holds no group.
    fn room_for(
        &self,
        tx: &mut Tx<'_>,
        first: AgNo,
        blocks: u64,
    ) -> Result<Option<(FsBlock, u64)>> {
        let most = blocks.min(u64::from(self.geo.ag_blocks)) as u32;
        let mut best = None;
        for step in 0..self.geo.ag_count {
            let ag = AgNo((first.0 + step) % self.geo.ag_count);
            tx.lock_ag(ag)?;
            let found = room::run_for(tx, ag, most)?;
            tx.unlock_ag(ag);
            let Some((start, len)) = found else { continue };
            if best.is_none_or(|(_, longest)| u64::from(len) > longest) {
                best = Some((self.geo.fsb(ag, start), u64::from(len)));
            }
            if len == most {
                break;
            }
        }
        Ok(best)
    }

    /// The content of the written blocks of a run, one after the other.
    fn read_run(&self, run: &FileRun) -> Result<Vec<u8>> {
        let written = || run.extents.iter().filter(|extent| !extent.unwritten);
        let blocks: u64 = written().map(|extent| extent.len).sum();
        let mut content = vec![0; (blocks << self.geo.block_log) as usize];
        let mut rest = &mut content[..];
        for extent in written() {
            let (part, behind) = rest.split_at_mut((extent.len << self.geo.block_log) as usize);
            self.read_device(self.geo.fsb_daddr(extent.start).bytes(), part)?;
            rest = behind;
        }
        Ok(content)
    }

    /// Gives a run new blocks, at `goal` if they are still free there, and fills them with its content.
    /// Returns `false`, with nothing changed, if that is not worth it any more.
    fn move_run(&self, ino: Ino, run: &FileRun, goal: FsBlock, content: &[u8]) -> Result<bool> {
        let mut tx = self.begin_tx(run.blocks() + TREE_BLOCKS)?;
        let slot = tx.lock_inode(ino)?;
        if keeps(&tx.inode(slot).core).is_some() {
            return Ok(false);
        }
        let (alone, before) = self.places_of(&tx, slot, run)?;
        bmap::unmap(&mut tx, slot, Fork::Data, run.start(), run.blocks(), EXTENTS_A_STEP)?;
        let (mut goal, mut written) = (goal, Vec::new());
        for (at, blocks, unwritten) in run.parts() {
            let part = Run { at, min: blocks, want: blocks, unwritten };
            let new = bmap::alloc_at(&mut tx, slot, Fork::Data, &part, Goal::Near(goal))?;
            if new.len < blocks {
                return Ok(false);
            }
            if !unwritten {
                written.push(new);
            }
            let behind = new.start.plus(new.len);
            goal = if self.geo.fsb_valid(behind, 1) { behind } else { new.start };
        }
        let (_, after) = self.places_of(&tx, slot, run)?;
        if !is_worth(alone, before, after) {
            return Ok(false);
        }
        let mut rest = content;
        for new in written {
            let (part, behind) = rest.split_at((new.len << self.geo.block_log) as usize);
            self.write_moved(self.geo.fsb_daddr(new.start).bytes(), part)?;
            rest = behind;
        }
        tx.commit()?;
        self.counts.defrag_runs.one();
        self.counts.defrag_extents.add(before - after);
        self.counts.defrag_bytes.add(run.blocks() << self.geo.block_log);
        Ok(true)
    }

    fn write_moved(&self, at: u64, part: &[u8]) -> Result<()> {
        if planted(Fault::MovedUnflushed) {
            let daddr = uxfs_format::Daddr(at >> 9);
            let written = self.dev.write_at(at, part);
            return written.map_err(|source| Error::Io { what: "writing data", daddr, source });
        }
        self.write_device(at, part)
    }
}

/// Does a move from `before` to `after` places save half of the `alone` places that are moved?
fn is_worth(alone: u64, before: u64, after: u64) -> bool {
    let saved = before.saturating_sub(after);
    saved > 0 && 2 * saved >= alone
}

/// Why a file is left alone, if it is.
fn keeps(core: &InodeCore) -> Option<Kept> {
    if core.is_realtime() {
        return Some(Kept::Realtime);
    }
    if core.flags.intersects(Flags::IMMUTABLE | Flags::APPEND) {
        return Some(Kept::Immutable);
    }
    core.flags.contains(Flags::NODEFRAG).then_some(Kept::NoDefrag)
}
