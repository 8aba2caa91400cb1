//! Computes all numbers of a volume, as `mkfs.xfs` would, before anything is written.

use uxfs_format::features::{Features2, Incompat, RoCompat, Version};
use uxfs_format::superblock::{MAGIC, Superblock};
use uxfs_format::{AgBlock, AgNo, FsBlock, Ino, Uuid};
use zerocopy::FromZeros;

use crate::error::{MkfsError, geometry, usage};
use crate::groups::Groups;
use crate::log::LogPlace;
use crate::options::{self, Autofsck, Options};
use crate::stripe::{self, Stripe};
use crate::units::Units;

/// Minimum size of a volume in bytes without [`Options::unsupported`].
pub const MIN_VOLUME_BYTES: u64 = 300 << 20;
/// Minimum size of a log in bytes without [`Options::unsupported`].
pub const MIN_LOG_BYTES: u64 = 64 << 20;

/// A volume's computed geometry.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) units: Units,
    pub(crate) stripe: Stripe,
    pub(crate) groups: Groups,
    pub(crate) log: LogPlace,
    pub(crate) imax_pct: u8,
    pub(crate) uuid: Uuid,
    pub(crate) label: [u8; 12],
    pub(crate) hints: Hints,
    /// Name of the device of an external log.
    pub(crate) log_device: Option<String>,
}

/// Flags and hints of the first inodes, which new files inherit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    pub(crate) rtinherit: bool,
    pub(crate) daxinherit: bool,
    pub(crate) projid: u32,
    pub(crate) extsize: u32,
    pub(crate) cowextsize: u32,
    pub(crate) autofsck: Option<Autofsck>,
}

impl Layout {
    /// Computes the geometry for a device of `device_bytes` bytes.
    ///
    /// `device_bytes` is the maximum size of the volume: the length of the device, or `u64::MAX`
    /// for a file that will get the length [`Layout::size_bytes`]; the options must then give the
    /// size.
    ///
    /// # Errors
    /// [`MkfsError::Usage`] if the options contradict each other, [`MkfsError::Geometry`] if they
    /// do not allow a volume.
    pub fn new(options: &Options, device_bytes: u64) -> Result<Self, MkfsError> {
        let units = Units::new(options)?;
        let stripe = Stripe::new(options, &units)?;
        let groups = Groups::new(options, &units, stripe, device_bytes)?;
        let log_unit = stripe::log_unit(options, &units, stripe)?;
        let hints = Hints::new(options, &units, &groups)?;
        let log = LogPlace::new(options, &units, groups, log_unit, stripe)?;
        let list = units.free_list_blocks(groups.blocks);
        log.check_root(&units, list, inode_align(&units, stripe), chunk_blocks(&units))?;
        if !options.unsupported {
            supported(&units, groups, log.blocks)?;
        }
        let mut name = [0; 12];
        let text = options::label(&options.label)?;
        name[..text.len()].copy_from_slice(text.as_bytes());
        let uuid = match options.uuid {
            Some(uuid) => uuid,
            None => random_uuid()?,
        };
        let layout = Self {
            units,
            stripe,
            groups,
            log,
            imax_pct: imax_pct(options, &units, groups),
            uuid,
            label: name,
            hints,
            log_device: options.log.device.clone(),
        };
        if layout.root_block().0 + layout.chunk_blocks() > layout.ag_len(AgNo(0)) {
            return geometry(format!(
                "a stripe unit of {} blocks leaves no aligned block for the root inode in AG 0",
                stripe.unit
            ));
        }
        Ok(layout)
    }

    /// Size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.groups.dblocks * u64::from(self.units.block)
    }

    /// Bytes that the volume takes on the device of an external log; `None` if the log is inside.
    pub fn log_device_bytes(&self) -> Option<u64> {
        let bytes = u64::from(self.log.blocks) * u64::from(self.units.block);
        self.log.inside.is_none().then_some(bytes)
    }

    /// The volume's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> u32 {
        self.units.block
    }

    /// Bytes in a sector.
    pub fn sector_size(&self) -> u32 {
        self.units.sector
    }

    /// Alignment of inode chunks in blocks; 0 if a block is larger.
    fn inode_align(&self) -> u32 {
        chunk_align(&self.units)
    }

    /// Alignment of sparse chunk parts in blocks; 0 without sparse chunks.
    fn sparse_align(&self) -> u32 {
        if self.units.incompat.contains(Incompat::SPINODES) {
            cluster_bytes(&self.units) / self.units.block
        } else {
            0
        }
    }

    /// Blocks in the free list of a new AG. A short last AG has as many as the others.
    pub(crate) fn free_list_blocks(&self) -> u32 {
        self.units.free_list_blocks(self.groups.blocks)
    }

    /// Blocks of the first inode chunk.
    pub(crate) fn chunk_blocks(&self) -> u32 {
        chunk_blocks(&self.units)
    }

    /// Blocks in allocation group `ag`.
    pub(crate) fn ag_len(&self, ag: AgNo) -> u32 {
        self.groups.len(ag)
    }

    /// Converts a block of an AG to a block of the volume.
    pub(crate) fn fsb(&self, ag: AgNo, block: AgBlock) -> FsBlock {
        FsBlock(u64::from(ag.0) << self.groups.blklog() | u64::from(block.0))
    }

    /// Base-2 logarithm of the inodes in a block.
    pub(crate) fn inopblog(&self) -> u32 {
        (self.units.block / self.units.inode).trailing_zeros()
    }

    /// First block of the root inode's chunk in AG 0.
    pub(crate) fn root_block(&self) -> AgBlock {
        let log = self.log.within(AgNo(0)).map_or(0, |(_, blocks)| blocks);
        let free = self.units.fixed_blocks() + self.free_list_blocks() + log;
        AgBlock(free.next_multiple_of(inode_align(&self.units, self.stripe)))
    }

    /// Inode number of the root directory; the next two are the realtime bitmap and summary.
    pub(crate) fn root_ino(&self) -> Ino {
        Ino(u64::from(self.root_block().0) << self.inopblog())
    }

    /// Free blocks of the volume before the first inode chunk is allocated, free lists included.
    pub(crate) fn free_blocks(&self) -> u64 {
        let fixed = u64::from(self.units.fixed_blocks()) * u64::from(self.groups.count);
        self.groups.dblocks - fixed - u64::from(self.log.blocks_inside())
    }

    /// The primary superblock of a finished volume.
    pub(crate) fn superblock(&self) -> Superblock {
        let mut sb = Superblock::new_zeroed();
        let units = &self.units;
        sb.magicnum = MAGIC.into();
        sb.blocksize = units.block.into();
        sb.dblocks = self.groups.dblocks.into();
        sb.uuid = self.uuid.0;
        sb.logstart = self.log.inside.map_or(0, |(ag, start)| self.fsb(ag, start).0).into();
        let root = self.root_ino().0;
        sb.rootino = root.into();
        sb.rbmino = (root + 1).into();
        sb.rsumino = (root + 2).into();
        sb.rextsize = self.rtext_blocks().into();
        sb.agblocks = self.groups.blocks.into();
        sb.agcount = self.groups.count.into();
        sb.logblocks = self.log.blocks.into();
        // Both fit 16 bits: the largest sector has 32768 bytes, the largest inode 2048.
        sb.sectsize = (units.sector as u16).into();
        sb.inodesize = (units.inode as u16).into();
        sb.inopblock = ((units.block / units.inode) as u16).into();
        sb.fname = self.label;
        sb.blocklog = log2(units.block);
        sb.sectlog = log2(units.sector);
        sb.inodelog = log2(units.inode);
        sb.inopblog = log2(units.block / units.inode);
        sb.agblklog = self.groups.blklog() as u8;
        sb.imax_pct = self.imax_pct;
        let inodes = u64::from(units.new_inodes());
        sb.icount = inodes.into();
        sb.ifree = (inodes - 3).into();
        sb.fdblocks = (self.free_blocks() - u64::from(self.chunk_blocks())).into();
        sb.inoalignmt = self.inode_align().into();
        sb.spino_align = self.sparse_align().into();
        sb.unit = self.stripe.unit.into();
        sb.width = self.stripe.width.into();
        sb.dirblklog = log2(units.dir_block / units.block);
        self.set_features(&mut sb);
        sb
    }

    fn set_features(&self, sb: &mut Superblock) {
        let mut version = Version::NLINK
            | Version::ALIGN
            | Version::LOGV2
            | Version::EXTFLG
            | Version::DIRV2
            | Version::MOREBITS;
        version.set(Version::BORG, self.units.naming.folds());
        version.set(Version::DALIGN, self.stripe.is_set());
        let attributes = self.hints.autofsck.is_some();
        version.set(Version::ATTR, attributes || self.units.incompat.contains(Incompat::PARENT));
        if self.units.sector > 512 {
            version |= Version::SECTOR;
            sb.logsectlog = log2(self.units.sector);
            sb.logsectsize = (self.units.sector as u16).into();
        }
        sb.versionnum = (version.bits() | 5).into();
        sb.logsunit = (self.log.unit * self.units.block).max(1).into();
        let features2 =
            Features2::LAZYSBCOUNT | Features2::ATTR2 | Features2::PROJID32 | Features2::CRC;
        sb.features2 = features2.bits().into();
        sb.bad_features2 = sb.features2;
        sb.features_ro_compat = self.units.ro_compat.bits().into();
        sb.features_incompat = self.units.incompat.bits().into();
    }

    /// Blocks of a realtime extent: 4 KiB, although there is no realtime device.
    fn rtext_blocks(&self) -> u32 {
        (4096 / self.units.block).max(1)
    }

    pub(crate) fn has(&self, feature: RoCompat) -> bool {
        self.units.has(feature)
    }
}

impl Hints {
    fn new(options: &Options, units: &Units, groups: &Groups) -> Result<Self, MkfsError> {
        let data = &options.data;
        // As in mkfs.xfs 7: volumes that support online repair get autofsck=repair.
        let repairable = units.has(RoCompat::RMAPBT) && units.incompat.contains(Incompat::PARENT);
        let hints = Self {
            rtinherit: data.rtinherit == Some(true),
            daxinherit: data.daxinherit == Some(true),
            projid: data.projinherit.unwrap_or(0),
            extsize: data.extszinherit.unwrap_or(0),
            cowextsize: data.cowextsize.unwrap_or(0),
            autofsck: options.meta.autofsck.or(repairable.then_some(Autofsck::Repair)),
        };
        let most = u64::from(groups.blocks / 2).min(uxfs_format::extent::MAX_EXTENT_LEN);
        for (what, hint) in [("extent", hints.extsize), ("CoW extent", hints.cowextsize)] {
            if u64::from(hint) > most {
                return usage(format!(
                    "illegal {what} size hint {hint}, must be less than {most}."
                ));
            }
        }
        Ok(hints)
    }
}

fn cluster_bytes(units: &Units) -> u32 {
    8192 * (units.inode / 256)
}

/// Alignment of inode chunks in blocks; 0 if a block is larger.
fn chunk_align(units: &Units) -> u32 {
    let sparse = units.incompat.contains(Incompat::SPINODES);
    let bytes = if sparse { 64 * units.inode } else { cluster_bytes(units) };
    bytes / units.block
}

/// Alignment of the first chunk in blocks: the stripe unit, if it is a multiple of the chunk
/// alignment.
fn inode_align(units: &Units, stripe: Stripe) -> u32 {
    let align = chunk_align(units).max(1);
    let whole = stripe.is_set() && align > 1 && stripe.unit.is_multiple_of(align);
    if whole { stripe.unit } else { align }
}

fn chunk_blocks(units: &Units) -> u32 {
    units.new_inodes() * units.inode / units.block
}

/// Refuses volumes that would work but are too small to be useful.
fn supported(units: &Units, groups: Groups, log_blocks: u32) -> Result<(), MkfsError> {
    let block = u64::from(units.block);
    if groups.dblocks * block < MIN_VOLUME_BYTES {
        return geometry("Filesystem must be larger than 300MB.");
    }
    if u64::from(log_blocks) * block < MIN_LOG_BYTES {
        return geometry("Log size must be at least 64MB.");
    }
    if groups.count < 2 {
        return geometry("Filesystem must have at least 2 superblocks for redundancy!");
    }
    Ok(())
}

fn imax_pct(options: &Options, units: &Units, groups: Groups) -> u8 {
    const TIB: u64 = 1 << 40;
    match options.inode.maxpct {
        // As in mkfs.xfs, 0 means the default.
        Some(percent) if percent != 0 => percent,
        _ => match groups.dblocks * u64::from(units.block) {
            bytes if bytes < TIB => 25,
            bytes if bytes < 50 * TIB => 5,
            _ => 1,
        },
    }
}

/// Makes a random UUID of version 4.
///
/// # Errors
/// If the host has no source of randomness.
pub fn random_uuid() -> Result<Uuid, MkfsError> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)
        .map_err(|source| MkfsError::Io { what: "UUID: no source of randomness", source })?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

#[cfg(target_os = "linux")]
fn fill_random(bytes: &mut [u8; 16]) -> std::io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    // A request of at most 256 bytes is not interrupted half-way.
    match getrandom(bytes, GetRandomFlags::empty())? {
        16 => Ok(()),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn fill_random(bytes: &mut [u8; 16]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|error| std::io::Error::other(error.to_string()))
}

fn log2(power: u32) -> u8 {
    power.trailing_zeros() as u8
}
