//! The superblock: sector 0 of every allocation group; the one in AG 0 is the primary.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::Field;
use crate::error::{Check, Corrupt, Place};
use crate::features::{Features2, Incompat, LogIncompat, RoCompat, Version};
use crate::types::Uuid;

/// "XFSB".
pub const MAGIC: u32 = 0x5846_5342;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 224;

/// `struct xfs_dsb`, a view over a buffer.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "field names are the format's own, without sb_")]
pub struct Superblock {
    pub magicnum: U32,
    pub blocksize: U32,
    pub dblocks: U64,
    pub rblocks: U64,
    pub rextents: U64,
    pub uuid: [u8; 16],
    pub logstart: U64,
    pub rootino: U64,
    pub rbmino: U64,
    pub rsumino: U64,
    pub rextsize: U32,
    pub agblocks: U32,
    pub agcount: U32,
    pub rbmblocks: U32,
    pub logblocks: U32,
    pub versionnum: U16,
    pub sectsize: U16,
    pub inodesize: U16,
    pub inopblock: U16,
    pub fname: [u8; 12],
    pub blocklog: u8,
    pub sectlog: u8,
    pub inodelog: u8,
    pub inopblog: u8,
    pub agblklog: u8,
    pub rextslog: u8,
    pub inprogress: u8,
    pub imax_pct: u8,
    pub icount: U64,
    pub ifree: U64,
    pub fdblocks: U64,
    pub frextents: U64,
    pub uquotino: U64,
    pub gquotino: U64,
    pub qflags: U16,
    pub flags: u8,
    pub shared_vn: u8,
    pub inoalignmt: U32,
    pub unit: U32,
    pub width: U32,
    pub dirblklog: u8,
    pub logsectlog: u8,
    pub logsectsize: U16,
    pub logsunit: U32,
    pub features2: U32,
    pub bad_features2: U32,
    pub features_compat: U32,
    pub features_ro_compat: U32,
    pub features_incompat: U32,
    pub features_log_incompat: U32,
    pub crc: [u8; 4],
    pub spino_align: U32,
    pub pquotino: U64,
    pub lsn: U64,
    pub meta_uuid: [u8; 16],
    pub metadirino: U64,
    pub rgcount: U32,
    pub rgextents: U32,
    pub rgblklog: u8,
    pub pad: [u8; 7],
    pub rtstart: U64,
    pub rtreserved: U64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Superblock>() == 304);
    assert!(offset_of!(Superblock, uuid) == 32);
    assert!(offset_of!(Superblock, versionnum) == 100);
    assert!(offset_of!(Superblock, fname) == 108);
    assert!(offset_of!(Superblock, icount) == 128);
    assert!(offset_of!(Superblock, inoalignmt) == 180);
    assert!(offset_of!(Superblock, features2) == 200);
    assert!(offset_of!(Superblock, crc) == CRC_OFFSET);
    assert!(offset_of!(Superblock, meta_uuid) == 248);
    assert!(offset_of!(Superblock, metadirino) == 264);
    assert!(offset_of!(Superblock, rtstart) == 288);
};

/// Bytes of the sector that a superblock with these features uses; the rest must be zero (rule of
/// xfs_repair).
pub fn used_len(incompat: Incompat) -> usize {
    if incompat.contains(Incompat::ZONED) {
        304
    } else if incompat.contains(Incompat::METADIR) {
        288
    } else if incompat.contains(Incompat::META_UUID) {
        264
    } else {
        248
    }
}

/// Does a superblock start here? The magic number is all that this tells.
pub fn has_magic(sector: &[u8]) -> bool {
    Field::at(0).try_get(sector) == Some(MAGIC)
}

impl Superblock {
    /// The superblock at the head of `sector`, if the sector is long enough.
    pub fn view(sector: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(sector).ok().map(|(sb, _)| sb)
    }

    /// A mutable view of the superblock at the head of `sector`, if the sector is long enough.
    pub fn view_mut(sector: &mut [u8]) -> Option<&mut Self> {
        Self::mut_from_prefix(sector).ok().map(|(sb, _)| sb)
    }

    /// `sb_versionnum`'s low four bits.
    pub fn version(&self) -> u16 {
        self.versionnum.get() & 0xf
    }

    /// Is the volume of version 4, which is supported read-only?
    pub fn is_v4(&self) -> bool {
        self.version() == 4
    }

    /// `sb_versionnum`'s flag bits.
    pub fn version_flags(&self) -> Version {
        Version::from_bits_retain(self.versionnum.get() & !0xf)
    }

    /// `sb_features2`. On a version 4 volume the next word may hold some of the bits, too.
    pub fn features2(&self) -> Features2 {
        let misplaced = if self.is_v4() { self.bad_features2.get() } else { 0 };
        Features2::from_bits_retain(self.features2.get() | misplaced)
    }

    /// A feature word that exists in version 5 only; 0 in version 4.
    fn word(&self, word: U32) -> u32 {
        if self.is_v4() { 0 } else { word.get() }
    }

    /// `sb_features_ro_compat`; version 4 has none.
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.word(self.features_ro_compat))
    }

    /// `sb_features_incompat`; version 4 has none.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.word(self.features_incompat))
    }

    /// `sb_features_log_incompat`; version 4 has none.
    pub fn log_incompat(&self) -> LogIncompat {
        LogIncompat::from_bits_retain(self.word(self.features_log_incompat))
    }

    /// The UUID that metadata carries.
    pub fn metadata_uuid(&self) -> Uuid {
        if self.incompat().contains(Incompat::META_UUID) {
            Uuid(self.meta_uuid)
        } else {
            Uuid(self.uuid)
        }
    }

    /// The label without its padding.
    pub fn label(&self) -> &[u8] {
        let end = self.fname.iter().position(|b| *b == 0).unwrap_or(self.fname.len());
        &self.fname[..end]
    }

    /// Do directory entries store the type of their file?
    pub fn has_ftype(&self) -> bool {
        match self.is_v4() {
            false => self.incompat().contains(Incompat::FTYPE),
            true => {
                self.version_flags().contains(Version::MOREBITS)
                    && self.features2().contains(Features2::FTYPE)
            }
        }
    }

    /// Checks all rules that one version 5 or version 4 superblock can violate without reference to
    /// other structures, including the checksum of version 5.
    ///
    /// `sector` must hold at least `sectsize` bytes, starting with the superblock. The checks that
    /// precede the checksum need only the first 512 bytes.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn verify(sector: &[u8]) -> Result<&Self, Corrupt> {
        let bad =
            |check: Check, detail: String| Corrupt::new("superblock", Place::Volume, check, detail);
        let sb =
            Self::view(sector).ok_or_else(|| bad(Check::Size, "shorter than 304 bytes".into()))?;
        if sb.magicnum.get() != MAGIC {
            return Err(bad(
                Check::Magic,
                format!("magic {:#010x} is not XFSB", sb.magicnum.get()),
            ));
        }
        let v5 = sb.version() == 5;
        if !v5 && sb.version() != 4 {
            return Err(bad(
                Check::Version,
                format!("version {} is neither 5 nor 4", sb.version()),
            ));
        }
        let sectsize = usize::from(sb.sectsize.get());
        if !power(sb.sectsize.get().into(), sb.sectlog) || !(512..=32768).contains(&sectsize) {
            return Err(bad(Check::Geometry, format!("sector size {sectsize}")));
        }
        let Some(object) = sector.get(..sectsize) else {
            return Err(bad(
                Check::Size,
                format!("sector size {sectsize} is beyond what was read"),
            ));
        };
        if v5 && !crate::crc::matches(object, CRC_OFFSET) {
            return Err(bad(Check::Checksum, "checksum does not match".into()));
        }
        let block = sb.blocksize.get();
        let (block_min, inode_min) = if v5 { (1024, 512) } else { (512, 256) };
        if !power(block.into(), sb.blocklog) || !(block_min..=65536).contains(&block) {
            return Err(bad(Check::Geometry, format!("block size {block}")));
        }
        if (block as usize) < sectsize {
            return Err(bad(
                Check::Geometry,
                format!("block size {block} is below the sector size {sectsize}"),
            ));
        }
        let isize = u32::from(sb.inodesize.get());
        if !power(isize.into(), sb.inodelog)
            || !(inode_min..=2048).contains(&isize)
            || isize > block
        {
            return Err(bad(Check::Geometry, format!("inode size {isize}")));
        }
        let inopblock = block / isize;
        if u32::from(sb.inopblock.get()) != inopblock || !power(inopblock.into(), sb.inopblog) {
            return Err(bad(Check::Geometry, format!("{} inodes in a block", sb.inopblock.get())));
        }
        let agblocks = u64::from(sb.agblocks.get());
        let agcount = u64::from(sb.agcount.get());
        let dblocks = sb.dblocks.get();
        if agblocks < 64 || agblocks > (1 << 40) / u64::from(block) {
            return Err(bad(Check::Geometry, format!("AG size of {agblocks} blocks")));
        }
        if u32::from(sb.agblklog) != agblocks.next_power_of_two().trailing_zeros() {
            return Err(bad(
                Check::Geometry,
                format!("agblklog {} for {agblocks} blocks", sb.agblklog),
            ));
        }
        if agcount == 0 || dblocks == 0 || dblocks.div_ceil(agblocks) != agcount {
            return Err(bad(
                Check::Geometry,
                format!("{dblocks} blocks in {agcount} AGs of {agblocks}"),
            ));
        }
        if u32::from(sb.dirblklog) + u32::from(sb.blocklog) > 16 {
            return Err(bad(Check::Geometry, format!("dirblklog {}", sb.dirblklog)));
        }
        if sb.imax_pct > 100 {
            return Err(bad(Check::Geometry, format!("imax_pct {}", sb.imax_pct)));
        }
        if (sb.unit.get() != 0) != sb.version_flags().contains(Version::DALIGN) {
            return Err(bad(
                Check::Geometry,
                format!("stripe unit {} against DALIGN", sb.unit.get()),
            ));
        }
        if !sb.version_flags().contains(Version::DIRV2) {
            return Err(bad(Check::Version, "not a version 2 directory volume".into()));
        }
        let align = sb.inoalignmt.get();
        if sb.incompat().contains(Incompat::SPINODES) {
            // Both are 0 where a block is larger than a chunk or than a cluster.
            let (chunk, part) = (64 * isize / block, 8192 * (isize / 256) / block);
            if align != chunk {
                return Err(bad(
                    Check::Geometry,
                    format!("inode alignment {align} with sparse inodes must be {chunk}"),
                ));
            }
            if sb.spino_align.get() != part {
                let seen = sb.spino_align.get();
                return Err(bad(
                    Check::Geometry,
                    format!("sparse inode alignment {seen} must be {part}"),
                ));
            }
        }
        let cluster = cluster_blocks(block, isize, align);
        if v5 && !align.max(1).is_multiple_of(cluster) {
            return Err(bad(
                Check::Geometry,
                format!("inode alignment {align} with clusters of {cluster} blocks"),
            ));
        }
        let sunit = sb.logsunit.get();
        if sunit > 1 && (!sunit.is_multiple_of(block) || sunit > 256 << 10) {
            return Err(bad(Check::Geometry, format!("log stripe unit {sunit}")));
        }
        if u64::from(sb.logblocks.get()) > agblocks && sb.logstart.get() != 0 {
            return Err(bad(Check::Geometry, format!("log of {} blocks", sb.logblocks.get())));
        }
        Ok(sb)
    }
}

/// Blocks of an inode cluster: 8 KiB for each 256 bytes of inode size, if chunks are aligned to
/// that size. Otherwise (volumes made before clusters grew with the inode size) 8 KiB.
pub(crate) fn cluster_blocks(block_size: u32, inode_size: u32, inode_align: u32) -> u32 {
    let grown = 8192 * (inode_size / 256) / block_size;
    if inode_align >= grown { grown.max(1) } else { (8192 / block_size).max(1) }
}

fn power(value: u64, log: u8) -> bool {
    log < 64 && value == 1 << log
}
