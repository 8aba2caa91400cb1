//! Which blocks of a group are in use: all but those in its tree of free extents.
//!
//! The tree is followed in its order, and must be in order: a damaged one would leave out what is in use.

use uxfs_disk::BlockDev;
use uxfs_format::agf::Agf;
use uxfs_format::btree::{FreeExtent, LEVEL, NUMRECS, TreeKind, ptr};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgBlock, AgNo, Check, Corrupt, Daddr, Geometry, Place};

use crate::error::CopyError;

const KIND: TreeKind = TreeKind::Bno;

/// Reads the free extents of one volume.
pub(crate) struct Free<'a> {
    pub(crate) dev: &'a dyn BlockDev,
    pub(crate) geo: &'a Geometry,
}

impl Free<'_> {
    /// Calls `each` for every run of blocks of the group that is in use: first block and length.
    pub(crate) fn used(
        &self,
        ag: AgNo,
        each: &mut dyn FnMut(AgBlock, u32) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let sector = self.read(BufKind::Agf, ag, self.geo.agf_daddr(ag), self.geo.sector_size)?;
        let agf = Agf::view(&sector);
        let mut end = 0;
        let mut free = |extent: FreeExtent| {
            let FreeExtent { start, len } = extent;
            let fits = start.0.checked_add(len).is_some_and(|end| end <= self.geo.ag_len(ag));
            if start.0 < end || len == 0 || !fits {
                let problem = format!("{len} free blocks from {start} on, behind block {end}");
                let place = Place::Ag(ag, start);
                return Err(Corrupt::new(KIND.block_name(), place, Check::Order, problem).into());
            }
            if start.0 > end {
                each(AgBlock(end), start.0 - end)?;
            }
            end = start.0 + len;
            Ok(())
        };
        self.tree(ag, AgBlock(agf.bno_root.get()), agf.bno_level.get(), &mut free)?;
        let len = self.geo.ag_len(ag);
        if end < len { each(AgBlock(end), len - end) } else { Ok(()) }
    }

    fn tree(
        &self,
        ag: AgNo,
        block: AgBlock,
        levels: u32,
        each: &mut dyn FnMut(FreeExtent) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let bad = |check: Check, problem: String| {
            Corrupt::new(KIND.block_name(), Place::Ag(ag, block), check, problem)
        };
        if !self.geo.agblock_valid(ag, block) {
            return Err(bad(Check::Pointer, "it does not exist".into()).into());
        }
        let daddr = self.geo.ag_daddr(ag, block);
        let found = self.read(BufKind::Btree(KIND), ag, daddr, self.geo.block_size)?;
        let level = u32::from(LEVEL.get(&found));
        if level + 1 != levels {
            let problem = format!("level {level} where {levels} levels are left");
            return Err(bad(Check::Level, problem).into());
        }
        let (head, count) = (KIND.header().len, usize::from(NUMRECS.get(&found)));
        if level == 0 {
            let records = found[head..].chunks_exact(KIND.rec_len()).take(count);
            return records.map(FreeExtent::decode).try_for_each(each);
        }
        let pointers = head + KIND.max_node(found.len()) * KIND.key_len();
        for raw in found[pointers..].chunks_exact(KIND.header().ptr_len).take(count) {
            // Pointers inside a group have 32 bits.
            self.tree(ag, AgBlock(ptr(raw) as u32), level, each)?;
        }
        Ok(())
    }

    fn read(&self, kind: BufKind, ag: AgNo, daddr: Daddr, len: u32) -> Result<Vec<u8>, CopyError> {
        let mut block = vec![0; len as usize];
        let read = |source| CopyError::Read { daddr, source };
        self.dev.read_at(daddr.bytes(), &mut block).map_err(read)?;
        verify::check(&block, kind, daddr, self.geo)?;
        verify::check_owner(&block, kind, daddr, Owner::Ag(ag))?;
        if !verify::checksum_matches(&block, kind) {
            let (check, why) = (Check::Checksum, "checksum does not match");
            return Err(Corrupt::new(kind.name(), Place::Device(daddr), check, why).into());
        }
        Ok(block)
    }
}
