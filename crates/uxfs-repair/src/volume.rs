//! The volume under repair: an overlay in memory over the image, and the steps so far.
//!
//! 1. Nothing is written to the image. Every write belongs to a step.
//! 2. The superblock here is the one that repair trusts, not the one on the device.
//!
//! Used by all phases.

use std::sync::Arc;

use uxfs_check::Place;
use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgBlock, AgNo, Daddr, FsBlock, Geometry, Ino, Lsn};

use crate::error::{RepairError, Result};
use crate::plan::{Change, Plan, SECTOR, Step};

/// Most bytes of changes held in memory.
const MEMORY: usize = 2 << 30;

/// Identifies a step of [`Volume::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepId(usize);

/// The volume under repair.
pub(crate) struct Volume {
    /// The image.
    pub(crate) base: Arc<dyn BlockDev>,
    /// The image with all changes so far.
    pub(crate) dev: Arc<Overlay>,
    /// The trusted superblock.
    pub(crate) sb: Superblock,
    /// Its geometry.
    pub(crate) geo: Geometry,
    /// What was done.
    pub(crate) steps: Vec<Step>,
    /// The highest LSN seen in metadata.
    pub(crate) highest_lsn: Lsn,
    /// The next LSN of the log, where that is known: no structure may have a later one.
    pub(crate) log_head: Option<Lsn>,
}

impl Volume {
    /// A volume without changes.
    pub(crate) fn new(base: Arc<dyn BlockDev>, sb: Superblock) -> Self {
        let dev = Arc::new(Overlay::new(Arc::clone(&base), MEMORY));
        let geo = Geometry::new(&sb);
        let (steps, highest_lsn) = (Vec::new(), Lsn(0));
        Self { base, dev, sb, geo, steps, highest_lsn, log_head: None }
    }

    /// Begins a step.
    pub(crate) fn step(
        &mut self,
        structure: &str,
        place: Place,
        wrong: impl Into<String>,
        becomes: impl Into<String>,
    ) -> StepId {
        self.steps.push(Step {
            structure: structure.into(),
            place,
            wrong: wrong.into(),
            becomes: becomes.into(),
            ..Step::default()
        });
        StepId(self.steps.len() - 1)
    }

    /// Records what a step loses.
    pub(crate) fn lose(&mut self, step: StepId, what: impl Into<String>) {
        self.steps[step.0].lost.push(what.into());
    }

    /// Writes to the overlay as part of a step.
    pub(crate) fn write(&mut self, step: StepId, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed = |source| RepairError::Io { what: "keeping in memory", offset, source };
        self.dev.write_at(offset, bytes).map_err(failed)?;
        let writes = &mut self.steps[step.0].writes;
        match writes.last_mut() {
            Some((at, len)) if *at + *len == offset => *len += bytes.len() as u64,
            _ => writes.push((offset, bytes.len() as u64)),
        }
        Ok(())
    }

    /// Records that a step covers a range which was written to the overlay by other means.
    pub(crate) fn covers(&mut self, step: StepId, offset: u64, len: u64) {
        self.steps[step.0].writes.push((offset, len));
    }

    /// Stamps and writes a metadata buffer. Its LSN becomes 0: older than all log records.
    pub(crate) fn write_buffer(
        &mut self,
        step: StepId,
        daddr: Daddr,
        bytes: &mut [u8],
        kind: BufKind,
    ) -> Result<()> {
        if let Some(layout) = kind.layout()
            && kind != BufKind::AttrRemote
        {
            layout.set_lsn(bytes, Lsn(0));
        }
        verify::stamp_checksum(bytes, kind);
        self.write(step, daddr.bytes(), bytes)
    }

    /// Reads from the overlay.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = |source| RepairError::Io { what: "reading", offset, source };
        self.dev.read_at(offset, bytes).map_err(failed)
    }

    /// Reads blocks of the volume.
    pub(crate) fn blocks(&self, fsb: FsBlock, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (count as usize) << self.geo.block_log];
        self.read(self.geo.fsb_daddr(fsb).bytes(), &mut bytes)?;
        Ok(bytes)
    }

    /// Reads one block of a group.
    pub(crate) fn block(&self, ag: AgNo, block: AgBlock) -> Result<Vec<u8>> {
        self.blocks(self.geo.fsb(ag, block), 1)
    }

    /// Reads one of a group's header sectors.
    pub(crate) fn sector(&self, daddr: Daddr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geo.sector_size as usize];
        self.read(daddr.bytes(), &mut bytes)?;
        Ok(bytes)
    }

    /// Offset on the device of an inode.
    pub(crate) fn inode_at(&self, ino: Ino) -> u64 {
        let geo = &self.geo;
        let agino = geo.ino_agino(ino);
        let block = geo.ag_daddr(geo.ino_ag(ino), geo.agino_block(agino)).bytes();
        let inside = agino.0 & (geo.inodes_per_block() - 1);
        block + (u64::from(inside) << geo.inode_log)
    }

    /// Reads an inode.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut raw = vec![0; self.geo.inode_size as usize];
        self.read(self.inode_at(ino), &mut raw)?;
        Ok(raw)
    }

    /// Is the LSN ahead of the log?
    pub(crate) fn is_ahead(&self, lsn: Lsn) -> bool {
        self.log_head.is_some_and(|head| !lsn.is_null() && lsn > head)
    }

    /// Groups of the volume.
    pub(crate) fn groups(&self) -> impl Iterator<Item = AgNo> + use<> {
        (0..self.geo.ag_count).map(AgNo)
    }

    /// Location of a block, for steps.
    pub(crate) fn place(&self, fsb: FsBlock) -> Place {
        Place::block(self.geo.fsb_ag(fsb), self.geo.fsb_agblock(fsb))
    }

    /// The plan that makes the image equal to the overlay. Steps whose writes changed nothing in the
    /// end are left out, unless something is lost by them.
    pub(crate) fn into_plan(self) -> Result<Plan> {
        let mut plan =
            Plan { uuid: uxfs_format::Uuid(self.sb.uuid), len: self.base.len(), ..Plan::default() };
        let failed = |source| RepairError::Io { what: "comparing", offset: 0, source };
        self.dev
            .for_changes(|offset, old, new| {
                let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR));
                for ((old, new), at) in sectors.zip((offset..).step_by(SECTOR)) {
                    if old != new {
                        let (before, after) = (old.to_vec(), new.to_vec());
                        plan.changes.push(Change { offset: at, before, after });
                    }
                }
                Ok::<_, std::io::Error>(())
            })
            .map_err(failed)?;
        let changed = |(at, len): &(u64, u64)| {
            let first = plan.changes.partition_point(|c| c.offset + c.before.len() as u64 <= *at);
            plan.changes.get(first).is_some_and(|change| change.offset < at + len)
        };
        let keep = |step: &Step| !step.lost.is_empty() || step.writes.iter().any(changed);
        plan.steps = self.steps.into_iter().filter(keep).collect();
        Ok(plan)
    }
}
