//! The inode: a core of 176 bytes (100 in version 4), then the literal area with the data fork
//! and, behind it, the attribute fork.

use crate::bytes::{Field, be16, be32, be64};
use crate::crc;
use crate::error::{Check, Problem};
use crate::error::{Corrupt, Place};
use crate::timestamp::Timestamp;
use crate::types::{AgIno, Ino, Lsn, Uuid};

/// "IN".
pub const MAGIC: u16 = 0x494e;
/// Length of a version 3 core.
pub const CORE_LEN: usize = 176;
/// Length of an inode's core in version 4 of the format.
pub const V4_CORE_LEN: usize = 100;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 100;
/// Byte offset of `di_next_unlinked`.
pub const NEXT_UNLINKED_OFFSET: usize = 96;
/// Place of `di_mode`.
pub const MODE: Field<u16> = Field::at(2);
/// Place of `di_lsn`.
pub const LSN: Field<Lsn> = Field::at(112);
/// Place of `di_ino`, the inode's own number.
pub const INO: Field<Ino> = Field::at(152);
/// Place of a device number in a fork of format [`ForkFormat::Dev`].
pub const DEV: Field<u32> = Field::at(0);

/// File type bits of a mode.
pub const S_IFMT: u16 = 0o170_000;
/// Fifo.
pub const S_IFIFO: u16 = 0o010_000;
/// Character device.
pub const S_IFCHR: u16 = 0o020_000;
/// Directory.
pub const S_IFDIR: u16 = 0o040_000;
/// Block device.
pub const S_IFBLK: u16 = 0o060_000;
/// Regular file.
pub const S_IFREG: u16 = 0o100_000;
/// Symbolic link.
pub const S_IFLNK: u16 = 0o120_000;
/// Socket.
pub const S_IFSOCK: u16 = 0o140_000;

bitflags::bitflags! {
    /// `di_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Flags: u16 {
        /// Data lies on the realtime device.
        const REALTIME = 0x1;
        /// Blocks were preallocated.
        const PREALLOC = 0x2;
        /// The realtime bitmap uses the new layout.
        const NEWRTBM = 0x4;
        /// May not be changed.
        const IMMUTABLE = 0x8;
        /// May only grow at its end.
        const APPEND = 0x10;
        /// Writes are synchronous.
        const SYNC = 0x20;
        /// Access time is not kept.
        const NOATIME = 0x40;
        /// Backups leave it out.
        const NODUMP = 0x80;
        /// New files inherit REALTIME.
        const RTINHERIT = 0x100;
        /// New files inherit the project.
        const PROJINHERIT = 0x200;
        /// No symbolic links may be made here.
        const NOSYMLINKS = 0x400;
        /// `di_extsize` is a hint for this file.
        const EXTSIZE = 0x800;
        /// New files inherit the extent size hint.
        const EXTSZINHERIT = 0x1000;
        /// Defragmentation leaves it alone.
        const NODEFRAG = 0x2000;
        /// Files of this directory are allocated as streams.
        const FILESTREAM = 0x4000;
    }

    /// `di_flags2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Flags2: u64 {
        /// Direct access to persistent memory.
        const DAX = 0x1;
        /// May share blocks with other files.
        const REFLINK = 0x2;
        /// `di_cowextsize` is a hint for this file.
        const COWEXTSIZE = 0x4;
        /// Timestamps are 64-bit nanoseconds.
        const BIGTIME = 0x8;
        /// Extent counters are wide.
        const NREXT64 = 0x10;
        /// Belongs to the metadata directory tree.
        const METADATA = 0x20;
    }
}

/// What a fork holds (`di_format`, `di_aformat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ForkFormat {
    /// A device number.
    Dev = 0,
    /// The data itself.
    Local = 1,
    /// Extent records.
    #[default]
    Extents = 2,
    /// The root of a btree of extent records.
    Btree = 3,
}

impl ForkFormat {
    /// From the byte on disk.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Dev),
            1 => Some(Self::Local),
            2 => Some(Self::Extents),
            3 => Some(Self::Btree),
            _ => None,
        }
    }
}

/// Does an inode start here? The magic number is all that this tells.
pub fn has_magic(raw: &[u8]) -> bool {
    Field::at(0).try_get(raw) == Some(MAGIC)
}

/// Which fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fork {
    /// The file's data.
    Data,
    /// Its extended attributes.
    Attr,
}

/// The core of an inode, decoded. Field names are the format's own, without `di_`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "field names are the format's own, without di_")]
pub struct InodeCore {
    pub mode: u16,
    pub format: ForkFormat,
    pub metatype: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub projid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of both forks, their btree blocks included.
    pub nblocks: u64,
    /// Extent size hint in blocks.
    pub extsize: u32,
    pub nextents: u64,
    pub anextents: u32,
    /// Start of the attribute fork in the literal area, in units of 8 bytes; 0 if there is none.
    pub forkoff: u8,
    pub aformat: ForkFormat,
    pub dmevmask: u32,
    pub dmstate: u16,
    pub flags: Flags,
    pub generation: u32,
    pub next_unlinked: AgIno,
    pub changecount: u64,
    pub lsn: Lsn,
    pub flags2: Flags2,
    /// Copy-on-write extent size hint in blocks.
    pub cowextsize: u32,
    pub crtime: Timestamp,
}

/// Converts a version 1 or 2 inode core to the version 5 layout; `None` for other inode versions.
fn lift_v4(raw: &[u8]) -> Option<[u8; CORE_LEN]> {
    let mut core = [0; CORE_LEN];
    core[..V4_CORE_LEN].copy_from_slice(raw.get(..V4_CORE_LEN)?);
    match raw[4] {
        // Version 1 has a 16-bit link count and no project id.
        1 => {
            core[16..24].fill(0);
            core[18..20].copy_from_slice(&raw[6..8]);
        }
        2 => {}
        _ => return None,
    }
    core[6..8].fill(0);
    // Clear padding and the flush counter (`di_flushiter`).
    core[24..32].fill(0);
    Some(core)
}

impl InodeCore {
    /// File type bits of the mode.
    pub fn file_type(&self) -> u16 {
        self.mode & S_IFMT
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.file_type() == S_IFDIR
    }

    /// Is it a regular file?
    pub fn is_reg(&self) -> bool {
        self.file_type() == S_IFREG
    }

    /// Is it a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.file_type() == S_IFLNK
    }

    /// Does its data lie on the realtime device?
    pub fn is_realtime(&self) -> bool {
        self.is_reg() && self.flags.contains(Flags::REALTIME)
    }

    /// Does it have an attribute fork?
    pub fn has_attr_fork(&self) -> bool {
        self.forkoff != 0
    }

    /// Format of a fork.
    pub fn fork_format(&self, fork: Fork) -> ForkFormat {
        match fork {
            Fork::Data => self.format,
            Fork::Attr => self.aformat,
        }
    }

    /// Sets the format of a fork.
    pub fn set_fork_format(&mut self, fork: Fork, format: ForkFormat) {
        match fork {
            Fork::Data => self.format = format,
            Fork::Attr => self.aformat = format,
        }
    }

    /// Number of extents of a fork.
    pub fn fork_extents(&self, fork: Fork) -> u64 {
        match fork {
            Fork::Data => self.nextents,
            Fork::Attr => self.anextents.into(),
        }
    }

    /// Sets the number of extents of a fork.
    pub fn set_fork_extents(&mut self, fork: Fork, count: u64) {
        match fork {
            Fork::Data => self.nextents = count,
            Fork::Attr => self.anextents = count as u32,
        }
    }

    /// Maximum number of extents that a fork's counter can hold.
    pub fn max_extents(&self, fork: Fork) -> u64 {
        match (fork, self.flags2.contains(Flags2::NREXT64)) {
            (Fork::Data, false) => (1 << 31) - 1,
            (Fork::Data, true) => (1 << 48) - 1,
            (Fork::Attr, false) => (1 << 15) - 1,
            (Fork::Attr, true) => (1 << 32) - 1,
        }
    }

    /// Byte range of a fork in a literal area of `literal` bytes.
    pub fn fork_range(&self, fork: Fork, literal: usize) -> core::ops::Range<usize> {
        let split = usize::from(self.forkoff) * 8;
        match (fork, self.forkoff) {
            (Fork::Data, 0) => 0..literal,
            (Fork::Attr, 0) => literal..literal,
            (Fork::Data, _) => 0..split.min(literal),
            (Fork::Attr, _) => split.min(literal)..literal,
        }
    }

    /// Decodes the core from the head of `raw`, which holds a whole inode as on disk.
    ///
    /// # Errors
    /// If magic number, checksum, UUID, inode number or a rule of [`InodeCore::check`] is violated.
    pub fn decode(raw: &[u8], ino: Ino, uuid: &Uuid) -> Result<Self, Corrupt> {
        let bad = |check: Check, detail: String| {
            Err(Corrupt::new("inode", Place::Inode(ino), check, detail))
        };
        if raw.len() < CORE_LEN {
            return bad(Check::Size, format!("only {} bytes", raw.len()));
        }
        if be16(raw, 0) != MAGIC {
            return bad(Check::Magic, format!("magic {:#06x} is not IN", be16(raw, 0)));
        }
        if raw[4] != 3 {
            return bad(Check::Version, format!("version {} is not 3", raw[4]));
        }
        if !crc::matches(raw, CRC_OFFSET) {
            return bad(Check::Checksum, "checksum does not match".into());
        }
        if INO.get(raw) != ino {
            return bad(Check::Address, format!("holds inode number {}", INO.get(raw)));
        }
        if raw[160..176] != uuid.0 {
            return bad(Check::Uuid, "UUID is another volume's".into());
        }
        Self::decode_unchecked(raw, ino)
    }

    /// Decodes the core of an inode whose identity (magic, checksum, number) is already known.
    ///
    /// # Errors
    /// If a rule of [`InodeCore::check`] is violated.
    pub fn decode_unchecked(raw: &[u8], ino: Ino) -> Result<Self, Corrupt> {
        Self::fields(raw, raw.len() - CORE_LEN, ino)
    }

    /// Decodes the core of an inode of a version 4 volume from the head of `raw`, which holds a
    /// whole inode as on disk. Fields that version 4 does not have are 0.
    ///
    /// # Errors
    /// If magic number, version or a rule of [`InodeCore::check`] is violated.
    pub fn decode_v4(raw: &[u8], ino: Ino) -> Result<Self, Corrupt> {
        let bad = |check: Check, detail: String| {
            Err(Corrupt::new("inode", Place::Inode(ino), check, detail))
        };
        if raw.len() < 2 * V4_CORE_LEN {
            return bad(Check::Size, format!("only {} bytes", raw.len()));
        }
        if be16(raw, 0) != MAGIC {
            return bad(Check::Magic, format!("magic {:#06x} is not IN", be16(raw, 0)));
        }
        let Some(core) = lift_v4(raw) else {
            return bad(Check::Version, format!("version {} is neither 1 nor 2", raw[4]));
        };
        Self::fields(&core, raw.len() - V4_CORE_LEN, ino)
    }

    /// Decodes a core in the version 5 layout; the literal area behind it has `literal` bytes.
    fn fields(raw: &[u8], literal: usize, ino: Ino) -> Result<Self, Corrupt> {
        let bad = |check: Check, detail: String| {
            Err(Corrupt::new("inode", Place::Inode(ino), check, detail))
        };
        let mode = be16(raw, 2);
        let flags2 = Flags2::from_bits_retain(be64(raw, 120));
        let time = |at: usize| {
            let raw = be64(raw, at);
            if flags2.contains(Flags2::BIGTIME) {
                Timestamp::from_bigtime(raw)
            } else {
                Timestamp::from_legacy(raw)
            }
        };
        let (nextents, anextents) = if flags2.contains(Flags2::NREXT64) {
            (be64(raw, 24), be32(raw, 76))
        } else {
            (be32(raw, 76).into(), be16(raw, 80).into())
        };
        let Some(format) = ForkFormat::from_raw(raw[5]) else {
            return bad(Check::Format, format!("data fork format {}", raw[5]));
        };
        let Some(aformat) = ForkFormat::from_raw(raw[83]) else {
            return bad(Check::Format, format!("attribute fork format {}", raw[83]));
        };
        let core = Self {
            mode,
            format,
            metatype: be16(raw, 6),
            uid: be32(raw, 8),
            gid: be32(raw, 12),
            nlink: be32(raw, 16),
            projid: u32::from(be16(raw, 22)) << 16 | u32::from(be16(raw, 20)),
            atime: time(32),
            mtime: time(40),
            ctime: time(48),
            size: be64(raw, 56),
            nblocks: be64(raw, 64),
            extsize: be32(raw, 72),
            nextents,
            anextents,
            forkoff: raw[82],
            aformat,
            dmevmask: be32(raw, 84),
            dmstate: be16(raw, 88),
            flags: Flags::from_bits_retain(be16(raw, 90)),
            generation: be32(raw, 92),
            next_unlinked: AgIno(be32(raw, NEXT_UNLINKED_OFFSET)),
            changecount: be64(raw, 104),
            lsn: LSN.get(raw),
            flags2,
            cowextsize: be32(raw, 128),
            crtime: time(144),
        };
        match core.check(literal) {
            Ok(()) => Ok(core),
            Err(problem) => Err(problem.of("inode", Place::Inode(ino))),
        }
    }

    /// Checks the rules that hold inside the core of an inode whose literal area has `literal`
    /// bytes.
    ///
    /// # Errors
    /// A description of the first violated rule.
    pub fn check(&self, literal: usize) -> Result<(), Problem> {
        if self.size >> 63 != 0 {
            return Err(Check::Size.failed(format!("size {:#x} is negative", self.size)));
        }
        if self.mode == 0 {
            return Ok(());
        }
        let forkoff = usize::from(self.forkoff) * 8;
        if self.forkoff != 0 && forkoff >= literal {
            return Err(
                Check::Format.failed(format!("attribute fork at {forkoff} of {literal} bytes"))
            );
        }
        if self.forkoff == 0 && self.anextents != 0 {
            return Err(Check::Format
                .failed(format!("{} attribute extents without a fork", self.anextents)));
        }
        if self.forkoff == 0 && !matches!(self.aformat, ForkFormat::Extents | ForkFormat::Dev) {
            return Err(Check::Format
                .failed(format!("attribute fork format {:?} without a fork", self.aformat)));
        }
        if self.forkoff != 0 && self.aformat == ForkFormat::Dev {
            return Err(Check::Format.failed("attribute fork of format dev"));
        }
        let data = self.fork_range(Fork::Data, literal).len();
        match (self.file_type(), self.format) {
            (S_IFREG, ForkFormat::Extents | ForkFormat::Btree) => {}
            (S_IFDIR | S_IFLNK, ForkFormat::Local) => {
                if self.size == 0 || self.size > data as u64 {
                    return Err(
                        Check::Size.failed(format!("{} bytes in a data fork of {data}", self.size))
                    );
                }
            }
            (S_IFDIR | S_IFLNK, ForkFormat::Extents | ForkFormat::Btree) => {
                if self.size == 0 && self.nlink != 0 {
                    return Err(Check::Size.failed("directory or link of size 0"));
                }
            }
            (S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK, ForkFormat::Dev) => {}
            (kind, format) => {
                return Err(Check::Format
                    .failed(format!("mode {kind:#o} with data fork format {format:?}")));
            }
        }
        for fork in [Fork::Data, Fork::Attr] {
            let (count, room) = (self.fork_extents(fork), self.fork_range(fork, literal).len());
            match self.fork_format(fork) {
                ForkFormat::Extents if count > (room / 16) as u64 => {
                    return Err(Check::Count
                        .failed(format!("{count} extents in a {fork:?} fork of {room} bytes")));
                }
                ForkFormat::Btree if count <= (room / 16) as u64 => {
                    return Err(
                        Check::Format.failed(format!("btree {fork:?} fork for {count} extents"))
                    );
                }
                ForkFormat::Local | ForkFormat::Dev if count != 0 => {
                    return Err(
                        Check::Format.failed(format!("{count} extents in a local {fork:?} fork"))
                    );
                }
                _ => {}
            }
        }
        if self.nextents.saturating_add(self.anextents.into()) > self.nblocks {
            return Err(Check::Count.failed(format!(
                "{} + {} extents in {} blocks",
                self.nextents, self.anextents, self.nblocks
            )));
        }
        Ok(())
    }

    /// Encodes the core into the head of `raw`, which holds the whole inode. The literal area must
    /// already be in place, because the checksum covers it.
    ///
    /// # Panics
    /// If `raw` is shorter than a core.
    pub fn encode(&self, raw: &mut [u8], ino: Ino, uuid: &Uuid) {
        self.encode_core(&mut raw[..CORE_LEN], ino, uuid);
        crc::stamp(raw, CRC_OFFSET);
    }

    /// Replaces times that the inode cannot hold by the nearest that it can.
    pub fn limit_times(&mut self) {
        let bigtime = self.flags2.contains(Flags2::BIGTIME);
        for time in [&mut self.atime, &mut self.mtime, &mut self.ctime, &mut self.crtime] {
            *time = time.nearest(bigtime);
        }
    }

    /// Encodes the core like [`InodeCore::encode`], but without the checksum.
    pub fn encode_core(&self, raw: &mut [u8], ino: Ino, uuid: &Uuid) {
        let bigtime = self.flags2.contains(Flags2::BIGTIME);
        let time = |t: Timestamp| if bigtime { t.to_bigtime() } else { t.to_legacy() };
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_be_bytes());
        put(2, &self.mode.to_be_bytes());
        put(4, &[3, self.format as u8]);
        put(6, &self.metatype.to_be_bytes());
        put(8, &self.uid.to_be_bytes());
        put(12, &self.gid.to_be_bytes());
        put(16, &self.nlink.to_be_bytes());
        put(20, &(self.projid as u16).to_be_bytes());
        put(22, &((self.projid >> 16) as u16).to_be_bytes());
        put(32, &time(self.atime).to_be_bytes());
        put(40, &time(self.mtime).to_be_bytes());
        put(48, &time(self.ctime).to_be_bytes());
        put(56, &self.size.to_be_bytes());
        put(64, &self.nblocks.to_be_bytes());
        put(72, &self.extsize.to_be_bytes());
        if self.flags2.contains(Flags2::NREXT64) {
            put(24, &self.nextents.to_be_bytes());
            put(76, &self.anextents.to_be_bytes());
            put(80, &[0; 2]);
        } else {
            put(24, &[0; 8]);
            put(76, &(self.nextents as u32).to_be_bytes());
            put(80, &(self.anextents as u16).to_be_bytes());
        }
        put(82, &[self.forkoff, self.aformat as u8]);
        put(84, &self.dmevmask.to_be_bytes());
        put(88, &self.dmstate.to_be_bytes());
        put(90, &self.flags.bits().to_be_bytes());
        put(92, &self.generation.to_be_bytes());
        put(NEXT_UNLINKED_OFFSET, &self.next_unlinked.0.to_be_bytes());
        put(104, &self.changecount.to_be_bytes());
        put(LSN.offset(), &self.lsn.0.to_be_bytes());
        put(120, &self.flags2.bits().to_be_bytes());
        put(128, &self.cowextsize.to_be_bytes());
        put(132, &[0; 12]);
        put(144, &time(self.crtime).to_be_bytes());
        put(152, &ino.0.to_be_bytes());
        put(160, &uuid.0);
    }

    /// Encodes a free inode of a new chunk: only identity and generation are set.
    pub fn encode_free(raw: &mut [u8], ino: Ino, uuid: &Uuid, generation: u32) {
        raw.fill(0);
        raw[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        raw[4] = 3;
        raw[92..96].copy_from_slice(&generation.to_be_bytes());
        raw[NEXT_UNLINKED_OFFSET..100].fill(0xff);
        raw[152..160].copy_from_slice(&ino.0.to_be_bytes());
        raw[160..176].copy_from_slice(&uuid.0);
        crc::stamp(raw, CRC_OFFSET);
    }
}

/// A device number as XFS stores it: 14 bits of major over 18 of minor.
pub const fn encode_dev(major: u32, minor: u32) -> u32 {
    (major & 0x3fff) << 18 | (minor & 0x3_ffff)
}

/// Major and minor of a stored device number.
pub const fn decode_dev(raw: u32) -> (u32, u32) {
    (raw >> 18, raw & 0x3_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_round_trip_in_both_counter_forms() {
        for flags2 in [Flags2::empty(), Flags2::BIGTIME | Flags2::NREXT64] {
            let core = InodeCore {
                mode: S_IFREG | 0o644,
                uid: 7,
                projid: 0x1_0002,
                nlink: 1,
                size: 12345,
                nblocks: 9,
                nextents: 3,
                anextents: 2,
                forkoff: 24,
                generation: 99,
                next_unlinked: AgIno::NULL,
                flags2,
                mtime: Timestamp { sec: 1_700_000_000, nsec: 5 },
                ..InodeCore::default()
            };
            let mut raw = [0u8; 512];
            core.encode(&mut raw, Ino(131), &Uuid([3; 16]));
            assert_eq!(InodeCore::decode(&raw, Ino(131), &Uuid([3; 16])).unwrap(), core);
            assert!(InodeCore::decode(&raw, Ino(132), &Uuid([3; 16])).is_err());
            raw[300] ^= 1;
            assert!(InodeCore::decode(&raw, Ino(131), &Uuid([3; 16])).is_err());
        }
    }

    #[test]
    fn device_numbers() {
        assert_eq!(encode_dev(5, 1), 0x0014_0001);
        assert_eq!(encode_dev(259, 70000), 0x040d_1170);
        assert_eq!(decode_dev(0x040d_1170), (259, 70000));
    }
}
