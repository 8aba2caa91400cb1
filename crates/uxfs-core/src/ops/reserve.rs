//! Computing the free space that the kernel reserves when it mounts a volume.
//!
//! For each group the kernel reserves the largest size of the trees that grow with use (free inodes,
//! reference counts, reverse mappings), less their present size. With less free space it logs a
//! warning at mount, and a later change may run out of space half-way. A volume that is shrunk as far
//! as possible must keep that much space free.

use uxfs_format::AgNo;
use uxfs_format::btree::TreeKind;
use uxfs_format::geometry::CHUNK_INODES;

use crate::error::Result;
use crate::fs::Fs;
use crate::journal::Op;

/// Blocks of each group that cannot be reserved, for the free-space trees and the free list.
const GROUP_ASIDE: u64 = 12;

impl Fs {
    /// Free blocks that the kernel needs to mount the volume without a warning.
    ///
    /// # Errors
    /// A damaged structure on the way.
    pub fn kernel_reserve(&self) -> Result<u64> {
        let mut total = 0;
        for ag in (0..self.geo.ag_count).map(AgNo) {
            let mut tx = self.begin_freeing_tx_for(Op::Inode, 0)?;
            tx.lock_ag(ag)?;
            let (agf, agi) = (tx.agf(ag), tx.agi(ag));
            let mut ask = 0;
            let mut blocks = u64::from(self.geo.ag_len(ag));
            if self.geo.has_finobt() {
                let inodes = blocks << self.geo.inopb_log;
                let most = self.most_blocks(TreeKind::FreeIno, inodes / u64::from(CHUNK_INODES));
                ask += most.saturating_sub(agi.fblocks.get().into());
            }
            if self.geo.log_ag() == Some(ag) {
                blocks = blocks.saturating_sub(self.geo.log_blocks.into());
            }
            if self.geo.has_reflink() {
                let most = self.most_blocks(TreeKind::Refcount, blocks);
                ask += most.saturating_sub(agf.refcount_blocks.get().into());
            }
            if self.geo.has_rmap() {
                let most = self.most_blocks(TreeKind::Rmap, blocks).max(blocks / 100);
                ask += most.saturating_sub(agf.rmap_blocks.get().into());
            }
            total += ask + GROUP_ASIDE + u64::from(agf.btreeblks.get());
        }
        Ok(total)
    }

    /// Blocks of a tree of `records` records if each of its blocks is half full.
    fn most_blocks(&self, kind: TreeKind, records: u64) -> u64 {
        let block = self.geo.block_size as usize;
        let leaf = (kind.max_leaf(block) / 2).max(1) as u64;
        let node = (kind.max_node(block) / 2).max(2) as u64;
        let mut level = records.div_ceil(leaf).max(1);
        let mut total = level;
        while level > 1 {
            level = level.div_ceil(node);
            total += level;
        }
        total
    }
}
