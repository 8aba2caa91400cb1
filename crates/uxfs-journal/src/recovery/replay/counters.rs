//! Recomputes the superblock's counters, which a log does not keep exact, and collects the unlinked
//! lists.

use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::verify::{self, BufKind};
use uxfs_format::{AgIno, AgNo, Check, Corrupt, Daddr, Place, Problem, agf, agi, crc};

use super::Replayer;
use crate::recovery::error::Result;

/// Counters of the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Free blocks.
    pub fdblocks: u64,
    /// Allocated inodes.
    pub icount: u64,
    /// Free inodes among the allocated ones.
    pub ifree: u64,
}

/// Unlinked lists that are not empty: group, bucket, first inode.
type Unlinked = Vec<(AgNo, u32, AgIno)>;

impl Replayer<'_> {
    fn header(&self, ag: AgNo, sector: u32, kind: BufKind) -> Result<Vec<u8>> {
        let daddr = self.geo.ag_sector_daddr(ag, sector);
        let mut bytes = vec![0; self.geo.sector_size as usize];
        self.read(daddr, &mut bytes)?;
        let failed = if BufKind::identify(&bytes, &[kind]).is_none() {
            Some(Check::Magic.failed("another magic number"))
        } else if !verify::checksum_matches(&bytes, kind) {
            Some(Check::Checksum.failed("checksum does not match"))
        } else {
            None
        };
        if let Some(Problem { check, detail }) = failed {
            return Err(Corrupt::new(kind.name(), Place::Device(daddr), check, detail).into());
        }
        verify::check(&bytes, kind, daddr, &self.geo)?;
        Ok(bytes)
    }

    /// The counters and unlinked lists of all group headers.
    pub(super) fn read_groups(&self) -> Result<(Counters, Unlinked)> {
        let mut counters = Counters::default();
        let mut unlinked = Vec::new();
        for ag in (0..self.geo.ag_count).map(AgNo) {
            let bytes = self.header(ag, agf::SECTOR, BufKind::Agf)?;
            let agf = Agf::view(&bytes);
            let free = [agf.freeblks.get(), agf.flcount.get(), agf.btreeblks.get()];
            counters.fdblocks += free.map(u64::from).iter().sum::<u64>();
            let bytes = self.header(ag, agi::SECTOR, BufKind::Agi)?;
            let agi = Agi::view(&bytes);
            counters.icount += u64::from(agi.count.get());
            counters.ifree += u64::from(agi.freecount.get());
            for (bucket, head) in (0..).zip(&agi.unlinked) {
                let head = AgIno(head.get());
                if !head.is_null() {
                    unlinked.push((ag, bucket, head));
                }
            }
        }
        Ok((counters, unlinked))
    }

    /// Stores the counters in the superblock. Returns the old and the new ones if they differ.
    pub(super) fn set_counters(&mut self, new: Counters) -> Result<Option<(Counters, Counters)>> {
        let mut sector = vec![0; self.geo.sector_size as usize];
        self.read(Daddr(0), &mut sector)?;
        Superblock::verify(&sector)?;
        let Some(sb) = Superblock::view_mut(&mut sector) else { return Ok(None) };
        let old = Counters {
            fdblocks: sb.fdblocks.get(),
            icount: sb.icount.get(),
            ifree: sb.ifree.get(),
        };
        if old == new {
            return Ok(None);
        }
        sb.fdblocks.set(new.fdblocks);
        sb.icount.set(new.icount);
        sb.ifree.set(new.ifree);
        crc::stamp(&mut sector, superblock::CRC_OFFSET);
        self.write(Daddr(0), &sector)?;
        Ok(Some((old, new)))
    }
}
