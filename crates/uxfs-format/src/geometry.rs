//! The geometry of a volume: the values that do not change while the volume is open, and the
//! conversions between XFS' kinds of number.

use crate::features::{Incompat, RoCompat};
use crate::naming::Naming;
use crate::superblock::{self, Superblock};
use crate::types::{AgBlock, AgIno, AgNo, Daddr, FileBlock, FsBlock, Ino, Uuid};
use crate::{agf, agfl, agi, dir};

/// Inodes in a chunk, the unit in which inodes are allocated.
pub const CHUNK_INODES: u32 = 64;
/// Byte offset in a directory's data space at which the leaf part starts.
pub const DIR_LEAF_OFFSET: u64 = 32 << 30;
/// Byte offset in a directory's data space at which the free index starts.
pub const DIR_FREE_OFFSET: u64 = 64 << 30;

/// Address at which the device of an external log is joined to that of the data: behind the end of any volume,
/// which has fewer than 2^62 bytes.
pub const EXTERNAL_LOG: Daddr = Daddr(1 << 53);

/// Geometry and features of one volume, taken from a verified superblock.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Version of the format: 5, or 4. Version 4 metadata has no checksums, addresses or owners.
    pub version: u8,
    /// How entries of directories are laid out.
    pub dir: dir::Shape,
    /// How names of directory entries are hashed and compared.
    pub naming: Naming,
    /// Bytes in a block, a power of two.
    pub block_size: u32,
    /// Base-2 logarithm of `block_size`.
    pub block_log: u32,
    /// Bytes in a sector.
    pub sector_size: u32,
    /// Bytes in an inode.
    pub inode_size: u32,
    /// Base-2 logarithm of `inode_size`.
    pub inode_log: u32,
    /// Base-2 logarithm of the inodes in a block.
    pub inopb_log: u32,
    /// Blocks on the data device.
    pub dblocks: u64,
    /// Blocks in each allocation group but the last.
    pub ag_blocks: u32,
    /// Bits of a block number inside an AG.
    pub ag_blklog: u32,
    /// Number of allocation groups.
    pub ag_count: u32,
    /// First block of the internal log; 0 if the log is external.
    pub log_start: FsBlock,
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Log stripe unit in bytes, 1 if none.
    pub log_sunit: u32,
    /// Base-2 logarithm of the blocks in a directory block.
    pub dir_blklog: u32,
    /// Alignment of inode chunks in blocks.
    pub inode_align: u32,
    /// Alignment and unit of sparse chunk parts in blocks; 0 without sparse inodes.
    pub sparse_align: u32,
    /// Data stripe unit in blocks, 0 if none.
    pub stripe_unit: u32,
    /// Data stripe width in blocks, 0 if none.
    pub stripe_width: u32,
    /// Percentage of the volume that inodes may take, 0 for no limit.
    pub imax_pct: u8,
    /// UUID in metadata.
    pub meta_uuid: Uuid,
    /// Read-only-compatible features.
    pub ro_compat: RoCompat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// The root directory.
    pub root_ino: Ino,
    /// Blocks of the realtime device, 0 if there is none.
    pub rt_blocks: u64,
    /// Realtime bitmap and summary inodes, which exist on every volume without metadir.
    pub rt_inos: [Ino; 2],
    /// Blocks of an inode cluster.
    cluster: u32,
}

impl Geometry {
    /// Derives the geometry from a superblock that passed [`Superblock::verify`].
    pub fn new(sb: &Superblock) -> Self {
        let v5 = !sb.is_v4();
        let (block, inode, align) =
            (sb.blocksize.get(), sb.inodesize.get().into(), sb.inoalignmt.get());
        Self {
            version: if v5 { 5 } else { 4 },
            dir: if v5 { dir::Shape::V5 } else { dir::Shape::v4(sb.has_ftype()) },
            naming: Naming::of(sb.version_flags()),
            block_size: block,
            block_log: sb.blocklog.into(),
            sector_size: sb.sectsize.get().into(),
            inode_size: sb.inodesize.get().into(),
            inode_log: sb.inodelog.into(),
            inopb_log: sb.inopblog.into(),
            dblocks: sb.dblocks.get(),
            ag_blocks: sb.agblocks.get(),
            ag_blklog: sb.agblklog.into(),
            ag_count: sb.agcount.get(),
            log_start: FsBlock(sb.logstart.get()),
            log_blocks: sb.logblocks.get(),
            log_sunit: sb.logsunit.get(),
            dir_blklog: sb.dirblklog.into(),
            inode_align: sb.inoalignmt.get().max(1),
            sparse_align: if sb.incompat().contains(Incompat::SPINODES) {
                sb.spino_align.get()
            } else {
                0
            },
            stripe_unit: sb.unit.get(),
            stripe_width: sb.width.get(),
            imax_pct: sb.imax_pct,
            meta_uuid: sb.metadata_uuid(),
            ro_compat: sb.ro_compat(),
            incompat: sb.incompat(),
            root_ino: Ino(sb.rootino.get()),
            rt_blocks: sb.rblocks.get(),
            rt_inos: [Ino(sb.rbmino.get()), Ino(sb.rsumino.get())],
            cluster: match v5 {
                true => superblock::cluster_blocks(block, inode, align.max(1)),
                false => v4_cluster_blocks(block, align),
            },
        }
    }

    /// Does the volume have a reverse-mapping btree?
    pub fn has_rmap(&self) -> bool {
        self.ro_compat.contains(RoCompat::RMAPBT)
    }

    /// Does the volume have a reference-count btree?
    pub fn has_reflink(&self) -> bool {
        self.ro_compat.contains(RoCompat::REFLINK)
    }

    /// Does the volume have a free-inode btree?
    pub fn has_finobt(&self) -> bool {
        self.ro_compat.contains(RoCompat::FINOBT)
    }

    /// Does the AGI count the blocks of the inode btrees?
    pub fn has_inobtcnt(&self) -> bool {
        self.ro_compat.contains(RoCompat::INOBTCNT)
    }

    /// May inode chunks have holes?
    pub fn has_sparse(&self) -> bool {
        self.incompat.contains(Incompat::SPINODES)
    }

    /// Do new inodes get 64-bit timestamps?
    pub fn has_bigtime(&self) -> bool {
        self.incompat.contains(Incompat::BIGTIME)
    }

    /// Do new inodes get wide extent counters?
    pub fn has_nrext64(&self) -> bool {
        self.incompat.contains(Incompat::NREXT64)
    }

    /// Does every directory entry have a parent pointer?
    pub fn has_parent(&self) -> bool {
        self.incompat.contains(Incompat::PARENT)
    }

    /// Blocks in allocation group `ag`; the last one may be short. 0 if there is no such group.
    pub fn ag_len(&self, ag: AgNo) -> u32 {
        let before = u64::from(ag.0) * u64::from(self.ag_blocks);
        self.dblocks.saturating_sub(before).min(self.ag_blocks.into()) as u32
    }

    /// Blocks at the head of every AG that hold its four headers.
    pub fn ag_header_blocks(&self) -> u32 {
        (4 * self.sector_size).div_ceil(self.block_size)
    }

    /// Converts a block of an AG to a block of the volume.
    pub fn fsb(&self, ag: AgNo, block: AgBlock) -> FsBlock {
        FsBlock(u64::from(ag.0) << self.ag_blklog | u64::from(block.0))
    }

    /// The AG a block lies in.
    pub fn fsb_ag(&self, fsb: FsBlock) -> AgNo {
        AgNo((fsb.0 >> self.ag_blklog) as u32)
    }

    /// A block's number inside its AG.
    pub fn fsb_agblock(&self, fsb: FsBlock) -> AgBlock {
        AgBlock((fsb.0 & ((1 << self.ag_blklog) - 1)) as u32)
    }

    /// Do `len` blocks from `fsb` lie inside one AG of this volume, behind its headers?
    pub fn fsb_valid(&self, fsb: FsBlock, len: u64) -> bool {
        if fsb.0 >> self.ag_blklog >= u64::from(self.ag_count) {
            return false;
        }
        let block = u64::from(self.fsb_agblock(fsb).0);
        let end = u64::from(self.ag_len(self.fsb_ag(fsb)));
        block >= u64::from(self.ag_header_blocks()) && len <= end && block <= end - len
    }

    /// Does the block exist in this AG, behind its headers?
    pub fn agblock_valid(&self, ag: AgNo, block: AgBlock) -> bool {
        block.0 >= self.ag_header_blocks() && block.0 < self.ag_len(ag)
    }

    /// Device address of a block.
    pub fn fsb_daddr(&self, fsb: FsBlock) -> Daddr {
        self.ag_daddr(self.fsb_ag(fsb), self.fsb_agblock(fsb))
    }

    /// Is the log on a device of its own?
    pub fn has_external_log(&self) -> bool {
        self.log_start.0 == 0
    }

    /// Does a device of this length hold the log? One that an external log is joined to does.
    pub fn log_is_within(&self, device_bytes: u64) -> bool {
        !self.has_external_log() || device_bytes > EXTERNAL_LOG.bytes()
    }

    /// Device address of the log; of an external one where its device is joined to that of the data.
    pub fn log_daddr(&self) -> Daddr {
        if self.has_external_log() { EXTERNAL_LOG } else { self.fsb_daddr(self.log_start) }
    }

    /// The AG that an internal log lies in.
    pub fn log_ag(&self) -> Option<AgNo> {
        (!self.has_external_log()).then(|| self.fsb_ag(self.log_start))
    }

    /// Length of the log in bytes.
    pub fn log_bytes(&self) -> u64 {
        u64::from(self.log_blocks) << self.block_log
    }

    /// Device address of an AG's block.
    pub fn ag_daddr(&self, ag: AgNo, block: AgBlock) -> Daddr {
        let linear = u64::from(ag.0) * u64::from(self.ag_blocks) + u64::from(block.0);
        Daddr(linear << (self.block_log - 9))
    }

    /// The AG and the block in it that contain a device address.
    pub fn daddr_ag(&self, daddr: Daddr) -> (AgNo, AgBlock) {
        let linear = daddr.0 >> (self.block_log - 9);
        let ag = u64::from(self.ag_blocks);
        (AgNo((linear / ag) as u32), AgBlock((linear % ag) as u32))
    }

    /// Device address of sector `sector` of an AG: 0 superblock, 1 AGF, 2 AGI, 3 AGFL.
    pub fn ag_sector_daddr(&self, ag: AgNo, sector: u32) -> Daddr {
        let start = self.ag_daddr(ag, AgBlock(0));
        Daddr(start.0 + u64::from(sector * (self.sector_size >> 9)))
    }

    /// Device address of an AG's AGF.
    pub fn agf_daddr(&self, ag: AgNo) -> Daddr {
        self.ag_sector_daddr(ag, agf::SECTOR)
    }

    /// Device address of an AG's AGI.
    pub fn agi_daddr(&self, ag: AgNo) -> Daddr {
        self.ag_sector_daddr(ag, agi::SECTOR)
    }

    /// Device address of an AG's AGFL.
    pub fn agfl_daddr(&self, ag: AgNo) -> Daddr {
        self.ag_sector_daddr(ag, agfl::SECTOR)
    }

    /// Number of low bits of an inode number that are the number inside the AG.
    pub fn agino_bits(&self) -> u32 {
        self.ag_blklog + self.inopb_log
    }

    /// Converts an AG's inode number to an inode number of the volume.
    pub fn ino(&self, ag: AgNo, agino: AgIno) -> Ino {
        Ino(u64::from(ag.0) << self.agino_bits() | u64::from(agino.0))
    }

    /// The AG an inode lies in.
    pub fn ino_ag(&self, ino: Ino) -> AgNo {
        AgNo((ino.0 >> self.agino_bits()).min(u64::from(u32::MAX)) as u32)
    }

    /// An inode's number inside its AG.
    pub fn ino_agino(&self, ino: Ino) -> AgIno {
        AgIno((ino.0 & ((1 << self.agino_bits()) - 1)) as u32)
    }

    /// Block of the AG that holds an inode.
    pub fn agino_block(&self, agino: AgIno) -> AgBlock {
        AgBlock(agino.0 >> self.inopb_log)
    }

    /// Is the number in the range of inode numbers of this volume?
    pub fn ino_valid(&self, ino: Ino) -> bool {
        let ag = self.ino_ag(ino);
        ag.0 < self.ag_count && self.agblock_valid(ag, self.agino_block(self.ino_agino(ino)))
    }

    /// Inodes in a block.
    pub fn inodes_per_block(&self) -> u32 {
        1 << self.inopb_log
    }

    /// Blocks of a whole inode chunk.
    pub fn chunk_blocks(&self) -> u32 {
        (CHUNK_INODES >> self.inopb_log).max(1)
    }

    /// Blocks of an inode cluster, the unit in which inodes are read and written.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster
    }

    /// The cluster that holds an inode: first block of the cluster, byte offset of the inode in it.
    pub fn cluster_of(&self, agino: AgIno) -> (AgBlock, usize) {
        let block = self.agino_block(agino);
        // Chunks start at multiples of the inode alignment, a multiple of the cluster size.
        let first = block.0 / self.cluster_blocks() * self.cluster_blocks();
        let in_block = agino.0 & (self.inodes_per_block() - 1);
        let at = ((block.0 - first) << self.block_log) + (in_block << self.inode_log);
        (AgBlock(first), at as usize)
    }

    /// Bytes of a directory block.
    pub fn dir_block_size(&self) -> u32 {
        self.block_size << self.dir_blklog
    }

    /// File system blocks of a directory block.
    pub fn dir_block_fsbs(&self) -> u64 {
        1 << self.dir_blklog
    }

    /// First block of a directory's leaf part.
    pub fn dir_leaf_start(&self) -> FileBlock {
        FileBlock(DIR_LEAF_OFFSET >> self.block_log)
    }

    /// First block of a directory's free index.
    pub fn dir_free_start(&self) -> FileBlock {
        FileBlock(DIR_FREE_OFFSET >> self.block_log)
    }

    /// Is the volume of version 5, whose metadata has checksums, addresses, owners and UUIDs?
    pub fn has_crc(&self) -> bool {
        self.version == 5
    }

    /// Bytes of an inode's core.
    pub fn inode_core_len(&self) -> usize {
        if self.has_crc() { crate::inode::CORE_LEN } else { crate::inode::V4_CORE_LEN }
    }

    /// Bytes of an inode's literal area, which follows the core.
    pub fn literal_len(&self) -> usize {
        self.inode_size as usize - self.inode_core_len()
    }

    /// Blocks needed for `bytes`, rounded up.
    pub fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_size.into())
    }
}

/// Blocks of an inode cluster in version 4: 8 KiB, or one block where chunks are not aligned to
/// 8 KiB. `align` is the superblock's inode alignment in blocks, 0 for none.
fn v4_cluster_blocks(block_size: u32, align: u32) -> u32 {
    let cluster = (8192 / block_size).max(1);
    if align > 0 && align.is_multiple_of(cluster) { cluster } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_aligned_or_single_blocks() {
        assert_eq!([512, 1024, 4096, 65536].map(|b| v4_cluster_blocks(b, 16)), [16, 8, 2, 1]);
        assert_eq!((v4_cluster_blocks(4096, 0), v4_cluster_blocks(4096, 1)), (1, 1));
    }
}
