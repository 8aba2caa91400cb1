//! Computes the basic sizes (sector, block, inode, directory block) and the features.

use uxfs_format::Naming;
use uxfs_format::btree::TreeKind;
use uxfs_format::features::{Incompat, RoCompat};
use uxfs_format::geometry::CHUNK_INODES;

use crate::error::{MkfsError, usage};
use crate::options::Options;

/// Sizes in bytes, and features; they depend only on the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) block: u32,
    pub(crate) sector: u32,
    pub(crate) inode: u32,
    pub(crate) dir_block: u32,
    pub(crate) ro_compat: RoCompat,
    pub(crate) incompat: Incompat,
    pub(crate) naming: Naming,
}

const DEFAULT_BLOCK: u32 = 4096;
const MIN_DIR_BLOCK: u32 = 4096;
const MAX_DIR_BLOCK: u64 = 65536;

impl Units {
    pub(crate) fn new(options: &Options) -> Result<Self, MkfsError> {
        let block = options.block_size.unwrap_or(DEFAULT_BLOCK);
        if !block.is_power_of_two() || !(1024..=65536).contains(&block) {
            return usage(format!(
                "block size {block}: version 5 volumes have a power of two from 1024 to 65536"
            ));
        }
        let sector = sector(options, block)?;
        always_on(options)?;
        let inode = inode(options, block)?;
        let dir_block = dir_block(options, block, sector)?;
        Ok(Self {
            block,
            sector,
            inode,
            dir_block,
            ro_compat: ro_compat(options)?,
            incompat: incompat(options),
            naming: options.naming.version.unwrap_or_default(),
        })
    }

    pub(crate) fn has(&self, feature: RoCompat) -> bool {
        self.ro_compat.contains(feature)
    }

    /// Blocks that the four headers occupy.
    pub(crate) fn header_blocks(&self) -> u32 {
        (4 * self.sector).div_ceil(self.block)
    }

    /// Blocks at the head of every AG: headers and btree roots.
    pub(crate) fn fixed_blocks(&self) -> u32 {
        let optional = [RoCompat::FINOBT, RoCompat::RMAPBT, RoCompat::REFLINK];
        let roots = 3 + optional.iter().filter(|f| self.has(**f)).count();
        self.header_blocks() + roots as u32
    }

    /// Number of inodes allocated at a time: a chunk, or all inodes of a block if that is more.
    pub(crate) fn new_inodes(&self) -> u32 {
        CHUNK_INODES.max(self.block / self.inode)
    }

    /// Blocks in the free list of a new AG of `ag_blocks` blocks: for each btree that the free list
    /// supplies, one more than its height, limited by its maximum height.
    pub(crate) fn free_list_blocks(&self, ag_blocks: u32) -> u32 {
        let size = self.block as usize;
        let fresh = |tree: TreeKind, records: u32| tree.max_height(size, records.into()).min(2);
        let rmap = match self.has(RoCompat::RMAPBT) {
            true if self.has(RoCompat::REFLINK) => 2,
            true => fresh(TreeKind::Rmap, ag_blocks),
            false => 0,
        };
        2 * fresh(TreeKind::Bno, ag_blocks.div_ceil(2)) + rmap
    }
}

fn sector(options: &Options, block: u32) -> Result<u32, MkfsError> {
    let sector = options.sector_size.unwrap_or(512);
    if !sector.is_power_of_two() || !(512..=32768).contains(&sector) {
        return usage(format!("sector size {sector}: must be a power of two from 512 to 32768"));
    }
    if sector > block {
        return usage(format!("block size {block} cannot be smaller than sector size {sector}"));
    }
    match options.log.sector_size {
        Some(log) if log != sector && options.log.device.is_some() => Err(MkfsError::Unsupported {
            what: "-l sectsize",
            why: "the log has the sectors of the data: give their size as -s size",
        }),
        Some(log) if log != sector => usage("Can't change sector size on internal log!"),
        _ => Ok(sector),
    }
}

/// Refuses to switch off features that version 5 volumes always have.
fn always_on(options: &Options) -> Result<(), MkfsError> {
    let always = "always enabled on CRC enabled filesystems";
    if options.meta.crc == Some(false) {
        return Err(MkfsError::Unsupported {
            what: "-m crc=0",
            why: "version 4 volumes are deprecated; only version 5 (crc=1) is made",
        });
    }
    if options.meta.metadir == Some(true) {
        return Err(MkfsError::Unsupported {
            what: "-m metadir=1",
            why: "volumes are made without a tree of metadata files",
        });
    }
    if options.log.internal == Some(false) {
        return usage("No device name specified: an external log needs -l logdev");
    }
    let log = &options.log;
    if log.file == Some(true) && log.device.is_some() && log.size.is_none() {
        return usage("if -l file then -l name and -l size are required");
    }
    if options.inode.align == Some(false) {
        return usage("Inodes always aligned for CRC enabled filesystems");
    }
    if options.inode.projid32bit == Some(false) {
        return usage(format!("32 bit Project IDs {always}"));
    }
    if options.inode.attr.is_some_and(|attr| attr != 2) {
        return usage(format!("V2 attribute format {always}"));
    }
    if options.naming.ftype == Some(false) {
        return usage(format!("Directory ftype field {always}"));
    }
    if options.log.lazy_count == Some(false) {
        return usage(format!("Lazy superblock counters {always}"));
    }
    if options.log.version.is_some_and(|version| version != 2) {
        return usage(format!("V2 logs {always}"));
    }
    Ok(())
}

fn inode(options: &Options, block: u32) -> Result<u32, MkfsError> {
    let size = match (options.inode.size, options.inode.perblock) {
        (Some(size), _) => size,
        (None, Some(perblock)) => block / perblock.max(1),
        (None, None) => 512,
    };
    if size < 512 {
        return usage("Minimum inode size for CRCs is 512 bytes");
    }
    if size > 2048 || size > block / 2 || !size.is_power_of_two() {
        return usage(format!(
            "illegal inode size {size}: with {block} byte blocks, 512 to {} bytes",
            (block / 2).min(2048)
        ));
    }
    Ok(size)
}

fn dir_block(options: &Options, block: u32, sector: u32) -> Result<u32, MkfsError> {
    let Some(size) = options.naming.size else { return Ok(block.max(MIN_DIR_BLOCK)) };
    let bytes = size.bytes(block, sector)?;
    let range = u64::from(MIN_DIR_BLOCK)..=MAX_DIR_BLOCK;
    match u32::try_from(bytes) {
        Ok(n) if range.contains(&bytes) && n.is_power_of_two() && n >= block => Ok(n),
        _ => usage(format!(
            "Invalid value {size} for -n size option: a power of two from the block size \
             ({block}) and {MIN_DIR_BLOCK} to {MAX_DIR_BLOCK}"
        )),
    }
}

fn ro_compat(options: &Options) -> Result<RoCompat, MkfsError> {
    let meta = &options.meta;
    let finobt = meta.finobt.unwrap_or(true);
    if !finobt && meta.inobtcount == Some(true) {
        return usage("inode btree counters not supported without finobt support");
    }
    let mut features = RoCompat::empty();
    features.set(RoCompat::FINOBT, finobt);
    features.set(RoCompat::INOBTCNT, finobt && meta.inobtcount.unwrap_or(true));
    features.set(RoCompat::RMAPBT, meta.rmapbt.unwrap_or(false));
    features.set(RoCompat::REFLINK, meta.reflink.unwrap_or(true));
    if options.data.cowextsize.is_some_and(|hint| hint != 0)
        && !features.contains(RoCompat::REFLINK)
    {
        return usage("cowextsize not supported without reflink support");
    }
    Ok(features)
}

fn incompat(options: &Options) -> Incompat {
    let mut features = Incompat::FTYPE;
    features.set(Incompat::SPINODES, options.inode.sparse.unwrap_or(true));
    features.set(Incompat::BIGTIME, options.meta.bigtime.unwrap_or(true));
    features.set(Incompat::NREXT64, options.inode.nrext64.unwrap_or(false));
    features.set(Incompat::EXCHRANGE, options.inode.exchange.unwrap_or(false));
    features.set(Incompat::PARENT, options.naming.parent.unwrap_or(false));
    features
}
