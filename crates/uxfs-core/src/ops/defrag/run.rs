//! Choosing what is moved: runs of short extents, and the number of places that they lie in.

use uxfs_format::inode::Fork;
use uxfs_format::{Extent, FileBlock, Geometry};

use crate::bmap;
use crate::error::Result;
use crate::inode::InodeState;
use crate::limits::EXTENTS_A_STEP;
use crate::mount::Mount;

/// Bytes of an extent that is long enough to stay: a disk reads it in the time of several seeks.
const LONG: u64 = 8 << 20;
/// Most bytes of a run: two extents that are not long always make one.
const RUN: u64 = 2 * LONG;
/// Most changes between written and unwritten in a run: each takes an allocation of its own.
const CHANGES: usize = 3;
/// Extents looked at for the room that a run and what follows it take.
const AHEAD: usize = 512;

/// Extents that follow each other in a file without a hole, to be moved as one.
#[derive(Debug)]
pub(super) struct FileRun {
    pub(super) extents: Vec<Extent>,
    /// Blocks of this run and the short extents that follow it.
    pub(super) ahead: u64,
}

impl FileRun {
    /// The first run of short extents that begins from `from` on and before `end`.
    pub(super) fn next(
        fs: &Mount,
        inode: &InodeState,
        from: FileBlock,
        end: FileBlock,
    ) -> Result<Option<Self>> {
        let long = LONG >> fs.geo.block_log;
        let mut run = Self { extents: Vec::new(), ahead: 0 };
        let (mut at, mut ahead, mut open) = (from, 0, true);
        while let Some(extent) = bmap::at_or_after(fs, inode, Fork::Data, at)?
            && extent.offset < end
            && ahead < AHEAD
        {
            let extent = bmap::slice(&extent, at, extent.end());
            let follows = run.extents.is_empty() || extent.offset == at;
            at = extent.end();
            if extent.len >= long || !follows {
                if run.extents.is_empty() {
                    continue;
                }
                break;
            }
            ahead += 1;
            run.ahead += extent.len;
            open = open && run.takes(&fs.geo, &extent);
            if open {
                run.extents.push(extent);
            }
        }
        Ok(Some(run).filter(|run| !run.extents.is_empty()))
    }

    /// Has it room for one more extent?
    fn takes(&self, geo: &Geometry, extent: &Extent) -> bool {
        let states = self.extents.iter().chain([extent]).map(|e| e.unwritten);
        let changes = states.clone().zip(states.skip(1)).filter(|(one, next)| one != next).count();
        (self.extents.len() as u64) < EXTENTS_A_STEP
            && (self.blocks() + extent.len) << geo.block_log <= RUN
            && changes <= CHANGES
    }

    /// Drops the last extents until the others have at most `blocks` blocks.
    pub(super) fn shorten(&mut self, blocks: u64) {
        while self.blocks() > blocks {
            self.extents.pop();
        }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    pub(super) fn start(&self) -> FileBlock {
        self.extents.first().map_or(FileBlock(0), |extent| extent.offset)
    }

    pub(super) fn end(&self) -> FileBlock {
        self.extents.last().map_or(FileBlock(0), Extent::end)
    }

    /// Its parts that are alike, written or not: offset, blocks, and whether they are unwritten.
    pub(super) fn parts(&self) -> impl Iterator<Item = (FileBlock, u64, bool)> {
        self.extents.chunk_by(|one, next| one.unwritten == next.unwritten).map(|part| {
            let blocks = part.iter().map(|extent| extent.len).sum();
            (part[0].offset, blocks, part[0].unwritten)
        })
    }
}

/// In how many places on the device the blocks between two offsets of a file lie. A hole begins a new one.
pub(super) fn places(
    fs: &Mount,
    inode: &InodeState,
    from: FileBlock,
    to: FileBlock,
) -> Result<u64> {
    let (mut count, mut at) = (0, from);
    let mut last: Option<Extent> = None;
    while let Some(extent) = bmap::at_or_after(fs, inode, Fork::Data, at)?
        && extent.offset < to
    {
        let goes_on = last.is_some_and(|last| follows(&fs.geo, &last, &extent));
        count += u64::from(!goes_on);
        at = extent.end();
        last = Some(extent);
    }
    Ok(count)
}

/// Is the second extent right behind the first, in the file and on the device?
fn follows(geo: &Geometry, first: &Extent, second: &Extent) -> bool {
    first.end() == second.offset
        && first.start.plus(first.len) == second.start
        && geo.fsb_ag(first.start) == geo.fsb_ag(second.start)
}
