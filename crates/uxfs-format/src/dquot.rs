//! Quota records (`struct xfs_disk_dquot`): what a user, a group or a project uses, its limits and its timers.
//!
//! 1. Block `id / records(block size)` of a quota inode's data holds the record of `id`. All records of a
//!    block are valid from the moment when the block is allocated.
//! 2. Each record has a checksum, an LSN and a UUID of its own.
//! 3. The record of id 0 holds the defaults of its type: limits for ids that have none, and in place of
//!    timers the grace periods.

use crate::bytes::Field;
use crate::crc;
use crate::error::{Check, Problem};
use crate::features::Version;
use crate::geometry::Geometry;
use crate::inode::InodeCore;
use crate::superblock::Superblock;
use crate::types::{Ino, Lsn};

/// "DQ".
pub const MAGIC: u16 = 0x4451;
/// Bytes of a record in its block (`struct xfs_dqblk`).
pub const LEN: usize = 136;
/// Bytes of a record that are logged.
pub const LOGGED_LEN: usize = 104;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 108;
/// Place of the LSN.
pub const LSN: Field<Lsn> = Field::at(112);
/// Seconds of a grace period, unless the record of id 0 says otherwise.
pub const GRACE: u64 = 7 * 24 * 60 * 60;

const MAGIC_AT: Field<u16> = Field::at(0);
const VERSION: u8 = 1;
const TYPE: usize = 3;
/// Place of the id.
pub const ID: Field<u32> = Field::at(4);
const UUID: usize = 120;
/// Flag in the type: timers count units of four seconds.
const BIGTIME: u8 = 0x80;
const TYPES: u8 = 0x7;

/// Places of the numbers of a resource.
struct Places {
    hard: Field<u64>,
    soft: Field<u64>,
    used: Field<u64>,
    timer: Field<u32>,
    warnings: Field<u16>,
}

const BLOCKS: Places = Places {
    hard: Field::at(8),
    soft: Field::at(16),
    used: Field::at(40),
    timer: Field::at(60),
    warnings: Field::at(66),
};
const INODES: Places = Places {
    hard: Field::at(24),
    soft: Field::at(32),
    used: Field::at(48),
    timer: Field::at(56),
    warnings: Field::at(64),
};
const RT_BLOCKS: Places = Places {
    hard: Field::at(72),
    soft: Field::at(80),
    used: Field::at(88),
    timer: Field::at(96),
    warnings: Field::at(100),
};

bitflags::bitflags! {
    /// `sb_qflags`: which quotas are accounted, enforced, and counted completely.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct QuotaFlags: u16 {
        /// Usage of users is accounted.
        const USER_ACCT = 0x1;
        /// Limits of users are enforced.
        const USER_ENFD = 0x2;
        /// Usage of users was counted.
        const USER_CHKD = 0x4;
        /// Usage of projects is accounted.
        const PROJECT_ACCT = 0x8;
        /// Usage of groups is accounted.
        const GROUP_ACCT = 0x40;
        /// Limits of groups are enforced.
        const GROUP_ENFD = 0x80;
        /// Usage of groups was counted.
        const GROUP_CHKD = 0x100;
        /// Limits of projects are enforced.
        const PROJECT_ENFD = 0x200;
        /// Usage of projects was counted.
        const PROJECT_CHKD = 0x400;
    }
}

impl QuotaFlags {
    /// The flags of all types that say that usage was counted.
    pub const CHKD: Self = Self::USER_CHKD.union(Self::GROUP_CHKD).union(Self::PROJECT_CHKD);
    /// The flags of all types that say that usage is accounted.
    pub const ACCT: Self = Self::USER_ACCT.union(Self::GROUP_ACCT).union(Self::PROJECT_ACCT);
    /// The flags of all types that say that limits are enforced.
    pub const ENFD: Self = Self::USER_ENFD.union(Self::GROUP_ENFD).union(Self::PROJECT_ENFD);
}

/// The kinds of subject that quotas exist for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaType {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl QuotaType {
    /// All types, in the order in which limits are tested.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    /// The number in a record's type.
    pub const fn raw(self) -> u8 {
        match self {
            Self::User => 1,
            Self::Project => 2,
            Self::Group => 4,
        }
    }

    /// The flag that says that usage is accounted.
    pub const fn acct(self) -> QuotaFlags {
        match self {
            Self::User => QuotaFlags::USER_ACCT,
            Self::Group => QuotaFlags::GROUP_ACCT,
            Self::Project => QuotaFlags::PROJECT_ACCT,
        }
    }

    /// The flag that says that limits are enforced.
    pub const fn enfd(self) -> QuotaFlags {
        match self {
            Self::User => QuotaFlags::USER_ENFD,
            Self::Group => QuotaFlags::GROUP_ENFD,
            Self::Project => QuotaFlags::PROJECT_ENFD,
        }
    }

    /// The flag that says that usage was counted.
    pub const fn chkd(self) -> QuotaFlags {
        match self {
            Self::User => QuotaFlags::USER_CHKD,
            Self::Group => QuotaFlags::GROUP_CHKD,
            Self::Project => QuotaFlags::PROJECT_CHKD,
        }
    }

    /// The id of the subject that an inode counts for.
    pub const fn id_of(self, core: &InodeCore) -> u32 {
        match self {
            Self::User => core.uid,
            Self::Group => core.gid,
            Self::Project => core.projid,
        }
    }

    /// The quota inode of this type; `None` if there is none.
    pub fn inode_of(self, sb: &Superblock) -> Option<Ino> {
        let ino = match self {
            Self::User => sb.uquotino,
            Self::Group => sb.gquotino,
            Self::Project => sb.pquotino,
        };
        let exists = sb.version_flags().contains(Version::QUOTA);
        Some(Ino(ino.get())).filter(|ino| exists && ino.0 != 0 && !ino.is_null())
    }

    /// Names the quota inode of this type in the superblock, which from then on knows quotas.
    pub fn set_inode(self, sb: &mut Superblock, ino: Ino) {
        let field = match self {
            Self::User => &mut sb.uquotino,
            Self::Group => &mut sb.gquotino,
            Self::Project => &mut sb.pquotino,
        };
        field.set(ino.0);
        sb.versionnum.set(sb.versionnum.get() | Version::QUOTA.bits());
    }
}

/// What is used of a resource, and how much may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// What is used.
    pub used: u64,
    /// The limit that is never passed; 0 for none.
    pub hard: u64,
    /// The limit that may be passed for the grace period; 0 for none.
    pub soft: u64,
    /// When the grace period ends, in seconds since 1970; 0 while no limit is passed. For id 0 the grace
    /// period itself, in seconds; 0 for [`GRACE`].
    pub timer: u64,
    /// Warnings, which nothing issues any more.
    pub warnings: u16,
}

/// A quota record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dquot {
    /// Whose it is: a user's, a group's, a project's.
    pub kind: QuotaType,
    /// The id of the user, group or project.
    pub id: u32,
    /// Blocks of the data device.
    pub blocks: Resource,
    /// Inodes.
    pub inodes: Resource,
    /// Blocks of the realtime device.
    pub rt_blocks: Resource,
}

/// Number of records in a block of `block_size` bytes.
pub const fn records(block_size: u32) -> u32 {
    block_size / LEN as u32
}

impl Dquot {
    /// A record of an id that uses nothing and has no limits.
    pub fn new(kind: QuotaType, id: u32) -> Self {
        let none = Resource::default();
        Self { kind, id, blocks: none, inodes: none, rt_blocks: none }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is not a record of this type and id, or breaks a rule. The checksum is not looked at.
    pub fn decode(raw: &[u8], kind: QuotaType, id: u32) -> Result<Self, Problem> {
        if raw.len() < LOGGED_LEN || MAGIC_AT.get(raw) != MAGIC {
            return Err(Check::Magic.failed("wrong magic number"));
        }
        if raw[2] != VERSION {
            return Err(Check::Version.failed(format!("version {}", raw[2])));
        }
        if raw[TYPE] & TYPES != kind.raw() || raw[TYPE] & !(TYPES | BIGTIME) != 0 {
            return Err(Check::Flags.failed(format!(
                "type {:#x} in a {} quota",
                raw[TYPE],
                kind.name()
            )));
        }
        if ID.get(raw) != id {
            return Err(Check::Address.failed(format!("id {} in the place of {id}", ID.get(raw))));
        }
        let bigtime = raw[TYPE] & BIGTIME != 0;
        let resource = |at: &Places| {
            let timer = u64::from(at.timer.get(raw));
            Resource {
                used: at.used.get(raw),
                hard: at.hard.get(raw),
                soft: at.soft.get(raw),
                timer: if bigtime { timer << 2 } else { timer },
                warnings: at.warnings.get(raw),
            }
        };
        let [blocks, inodes, rt_blocks] = [&BLOCKS, &INODES, &RT_BLOCKS].map(resource);
        Ok(Self { kind, id, blocks, inodes, rt_blocks })
    }

    /// Stores what is logged of the record in the first [`LOGGED_LEN`] bytes of `raw`.
    ///
    /// # Panics
    /// If `raw` is shorter.
    pub fn encode(&self, raw: &mut [u8], geo: &Geometry) {
        let bigtime = geo.has_bigtime() && self.id != 0;
        raw[..LOGGED_LEN].fill(0);
        MAGIC_AT.set(raw, MAGIC);
        raw[2] = VERSION;
        raw[TYPE] = self.kind.raw() | if bigtime { BIGTIME } else { 0 };
        ID.set(raw, self.id);
        let all = [(&BLOCKS, self.blocks), (&INODES, self.inodes), (&RT_BLOCKS, self.rt_blocks)];
        for (at, resource) in all {
            at.used.set(raw, resource.used);
            at.hard.set(raw, resource.hard);
            at.soft.set(raw, resource.soft);
            // Units of four seconds are rounded up: a grace period is not cut short.
            let timer = if bigtime { resource.timer.div_ceil(4) } else { resource.timer };
            at.timer.set(raw, u32::try_from(timer).unwrap_or(u32::MAX));
            at.warnings.set(raw, resource.warnings);
        }
    }

    /// Does the record say nothing?
    pub fn is_empty(&self) -> bool {
        *self == Self::new(self.kind, self.id)
    }
}

/// The id of a record in a block that begins with id `first`. The last block of a quota inode has places
/// for more ids than there are; their numbers begin again at 0.
fn id_at(first: u32, index: usize) -> u32 {
    first.wrapping_add(index as u32)
}

/// Fills a new block with the records of consecutive ids from `first` on, checksums included.
pub fn fill_block(block: &mut [u8], kind: QuotaType, first: u32, geo: &Geometry) {
    for (index, raw) in block.chunks_exact_mut(LEN).enumerate() {
        Dquot::new(kind, id_at(first, index)).encode(raw, geo);
        raw[UUID..LEN].copy_from_slice(&geo.meta_uuid.0);
        crc::stamp(raw, CRC_OFFSET);
    }
}

/// Checks a block of records: type, consecutive ids, UUID.
///
/// # Errors
/// The first broken rule.
pub fn check_block(block: &[u8], kind: QuotaType, geo: &Geometry) -> Result<(), Problem> {
    let first = ID.get(block);
    for (index, raw) in block.chunks_exact(LEN).enumerate() {
        let id = id_at(first, index);
        Dquot::decode(raw, kind, id).map_err(|problem| {
            let detail = format!("record of {} {id}: {}", kind.name(), problem.detail);
            problem.check.failed(detail)
        })?;
        if geo.has_crc() && raw[UUID..LEN] != geo.meta_uuid.0 {
            return Err(Check::Uuid
                .failed(format!("record of {} {id}: UUID is another volume's", kind.name())));
        }
    }
    if !first.is_multiple_of(records(geo.block_size)) {
        return Err(
            Check::Address.failed(format!("begins with the record of {} {first}", kind.name()))
        );
    }
    Ok(())
}

/// Is this a block of records of this type?
pub(crate) fn has_magic(block: &[u8], kind: QuotaType) -> bool {
    let is_type = block.get(TYPE).is_some_and(|raw| raw & TYPES == kind.raw());
    MAGIC_AT.get(block) == MAGIC && is_type
}

/// Does the checksum of each record match?
pub(crate) fn checksums_match(block: &[u8]) -> bool {
    block.chunks_exact(LEN).all(|raw| crc::matches(raw, CRC_OFFSET))
}

/// Stores the checksum of each record.
pub(crate) fn stamp_checksums(block: &mut [u8]) {
    block.chunks_exact_mut(LEN).for_each(|raw| crc::stamp(raw, CRC_OFFSET));
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::features::Incompat;

    fn geometry(incompat: Incompat) -> Geometry {
        let mut sb = Superblock::new_zeroed();
        sb.versionnum.set(5);
        sb.blocksize.set(4096);
        sb.blocklog = 12;
        sb.features_incompat.set(incompat.bits());
        sb.uuid = [7; 16];
        Geometry::new(&sb)
    }

    #[test]
    fn records_come_back_as_they_were_stored() {
        for incompat in [Incompat::empty(), Incompat::BIGTIME] {
            let geo = geometry(incompat);
            for (kind, id) in
                [(QuotaType::User, 0), (QuotaType::Group, 1), (QuotaType::Project, u32::MAX)]
            {
                let of = |n: u64| Resource {
                    used: n,
                    hard: n + 1,
                    soft: n + 2,
                    timer: 4 * n,
                    warnings: n as u16,
                };
                let record = Dquot { kind, id, blocks: of(11), inodes: of(22), rt_blocks: of(33) };
                let mut raw = [0xee; LEN];
                record.encode(&mut raw, &geo);
                assert_eq!(Dquot::decode(&raw, kind, id), Ok(record));
                assert_eq!(raw[LOGGED_LEN..], [0xee; LEN - LOGGED_LEN]);
                assert_eq!(raw[TYPE] & BIGTIME != 0, id != 0 && geo.has_bigtime());
                for (at, byte) in [(0, 1), (2, 2), (TYPE, 3), (ID.offset(), 0x55)] {
                    let mut wrong = raw;
                    wrong[at] ^= byte;
                    assert!(Dquot::decode(&wrong, kind, id).is_err(), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn grace_periods_are_not_cut_short() {
        let geo = geometry(Incompat::BIGTIME);
        let mut record = Dquot::new(QuotaType::User, 5);
        record.inodes.timer = 1_800_000_001;
        let mut raw = [0; LEN];
        record.encode(&mut raw, &geo);
        let read = Dquot::decode(&raw, QuotaType::User, 5).unwrap();
        assert_eq!(read.inodes.timer, 1_800_000_004);
    }

    #[test]
    fn a_new_block_passes_its_check_until_a_byte_changes() {
        let geo = geometry(Incompat::BIGTIME);
        let mut block = vec![0; 4096];
        fill_block(&mut block, QuotaType::Group, 60, &geo);
        assert!(checksums_match(&block) && has_magic(&block, QuotaType::Group));
        assert!(!has_magic(&block, QuotaType::User));
        assert_eq!(check_block(&block, QuotaType::Group, &geo), Ok(()));
        for at in [0, 2, TYPE, ID.offset(), UUID] {
            let mut wrong = block.clone();
            wrong[3 * LEN + at] ^= 0x21;
            assert!(
                !checksums_match(&wrong) && check_block(&wrong, QuotaType::Group, &geo).is_err(),
                "byte {at}"
            );
            stamp_checksums(&mut wrong);
            assert!(checksums_match(&wrong));
        }
        let mut last = vec![0; 4096];
        let first = u32::MAX / records(4096) * records(4096);
        fill_block(&mut last, QuotaType::User, first, &geo);
        assert_eq!(check_block(&last, QuotaType::User, &geo), Ok(()));
    }
}
