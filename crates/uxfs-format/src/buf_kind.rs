//! Kinds of metadata buffer: how to recognise each kind, and the offsets of the common fields.

use crate::btree::TreeKind;
use crate::bytes::{Field, be16, be32};
use crate::dquot::{self, QuotaType};
use crate::types::{AgNo, Daddr, Ino, Lsn, Uuid};
use crate::{agf, agfl, agi, inode, superblock, symlink};

/// Kinds of metadata buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum BufKind {
    Superblock,
    Agf,
    Agi,
    Agfl,
    Btree(TreeKind),
    InodeCluster,
    Symlink,
    /// The one block of a directory in block form.
    DirBlock,
    /// A data block of a larger directory.
    DirData,
    /// The one leaf of a directory in leaf form.
    DirLeaf1,
    /// A leaf of a directory in node form.
    DirLeafN,
    /// A block of a directory's free index.
    DirFree,
    /// A node above directory or attribute leaves.
    DaNode,
    AttrLeaf,
    AttrRemote,
    /// A block of quota records.
    Dquot(QuotaType),
}

/// Offsets of the fields that all kinds have in common.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Checksum.
    pub crc: usize,
    /// Own address; `None` if this kind does not store its address.
    pub blkno: Option<usize>,
    /// Log sequence number.
    pub lsn: usize,
    /// UUID.
    pub uuid: usize,
    /// Owner.
    pub owner: OwnerField,
}

/// The field that names a buffer's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerField {
    /// This kind does not store its owner.
    None,
    /// AG number at this offset.
    Ag(usize),
    /// Inode number at this offset.
    Inode(usize),
}

impl Layout {
    /// The LSN of a buffer; 0 if it is too short for one.
    pub fn lsn(&self, buffer: &[u8]) -> Lsn {
        Field::at(self.lsn).get(buffer)
    }

    /// Stores the LSN.
    ///
    /// # Panics
    /// If `buffer` is too short for one.
    pub fn set_lsn(&self, buffer: &mut [u8], lsn: Lsn) {
        Field::at(self.lsn).set(buffer, lsn);
    }

    /// Does the address field name `daddr`? True for kinds that do not store their address.
    pub fn is_at(&self, buffer: &[u8], daddr: Daddr) -> bool {
        self.blkno.is_none_or(|at| Field::at(at).try_get(buffer) == Some(daddr))
    }

    /// Stores address, UUID and owner, as far as the kind has them. `owner` is an inode number or an
    /// AG number.
    ///
    /// # Panics
    /// If `buffer` is shorter than the header.
    pub fn label(&self, buffer: &mut [u8], daddr: Daddr, uuid: &Uuid, owner: u64) {
        buffer[self.uuid..self.uuid + 16].copy_from_slice(&uuid.0);
        if let Some(at) = self.blkno {
            Field::at(at).set(buffer, daddr);
        }
        match self.owner {
            OwnerField::Inode(at) => Field::at(at).set(buffer, Ino(owner)),
            OwnerField::Ag(at) => Field::at(at).set(buffer, AgNo(owner as u32)),
            OwnerField::None => {}
        }
    }
}

impl BufKind {
    /// XFS' name of the structure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Agf => "AGF",
            Self::Agi => "AGI",
            Self::Agfl => "AGFL",
            Self::Btree(tree) => tree.block_name(),
            Self::InodeCluster => "inode cluster",
            Self::Symlink => "remote symlink",
            Self::DirBlock => "directory block",
            Self::DirData => "directory data block",
            Self::DirLeaf1 | Self::DirLeafN => "directory leaf block",
            Self::DirFree => "directory free block",
            Self::DaNode => "da node block",
            Self::AttrLeaf => "attribute leaf block",
            Self::AttrRemote => "remote attribute block",
            Self::Dquot(_) => "dquot block",
        }
    }

    /// Offsets of checksum, address, owner and the other common fields. `None` for inode clusters
    /// and blocks of quota records, because each inode or record in them has its own.
    pub const fn layout(self) -> Option<Layout> {
        let da =
            Layout { crc: 12, blkno: Some(16), lsn: 24, uuid: 32, owner: OwnerField::Inode(48) };
        let dir =
            Layout { crc: 4, blkno: Some(8), lsn: 16, uuid: 24, owner: OwnerField::Inode(40) };
        let remote =
            Layout { crc: 12, blkno: Some(40), lsn: 48, uuid: 16, owner: OwnerField::Inode(32) };
        Some(match self {
            Self::Superblock => Layout {
                crc: superblock::CRC_OFFSET,
                blkno: None,
                lsn: 240,
                uuid: 32,
                owner: OwnerField::None,
            },
            Self::Agf => Layout {
                crc: agf::CRC_OFFSET,
                blkno: None,
                lsn: 208,
                uuid: 64,
                owner: OwnerField::Ag(8),
            },
            Self::Agi => Layout {
                crc: agi::CRC_OFFSET,
                blkno: None,
                lsn: 320,
                uuid: 296,
                owner: OwnerField::Ag(8),
            },
            Self::Agfl => Layout {
                crc: agfl::CRC_OFFSET,
                blkno: None,
                lsn: 24,
                uuid: 8,
                owner: OwnerField::Ag(4),
            },
            Self::Btree(tree) => {
                let h = tree.header();
                let owner = match tree {
                    TreeKind::Bmap => OwnerField::Inode(h.owner),
                    _ => OwnerField::Ag(h.owner),
                };
                Layout { crc: h.crc, blkno: Some(h.blkno), lsn: h.lsn, uuid: h.uuid, owner }
            }
            Self::InodeCluster | Self::Dquot(_) => return None,
            Self::Symlink | Self::AttrRemote => remote,
            Self::DirBlock | Self::DirData | Self::DirFree => dir,
            Self::DirLeaf1 | Self::DirLeafN | Self::DaNode | Self::AttrLeaf => da,
        })
    }

    pub(crate) fn has_magic(self, b: &[u8]) -> bool {
        match self {
            Self::Superblock => be32(b, 0) == superblock::MAGIC,
            Self::Agf => be32(b, 0) == agf::MAGIC,
            Self::Agi => be32(b, 0) == agi::MAGIC,
            Self::Agfl => be32(b, 0) == agfl::MAGIC,
            Self::Btree(tree) => be32(b, 0) == tree.magic(),
            Self::InodeCluster => be16(b, 0) == inode::MAGIC,
            Self::Symlink => be32(b, 0) == symlink::MAGIC,
            Self::DirBlock => be32(b, 0) == 0x5844_4233,
            Self::DirData => be32(b, 0) == 0x5844_4433,
            Self::DirFree => be32(b, 0) == 0x5844_4633,
            Self::DirLeaf1 => be16(b, 8) == 0x3df1,
            Self::DirLeafN => be16(b, 8) == 0x3dff,
            Self::DaNode => be16(b, 8) == 0x3ebe,
            Self::AttrLeaf => be16(b, 8) == 0x3bee,
            Self::AttrRemote => be32(b, 0) == 0x5841_524d,
            Self::Dquot(kind) => dquot::has_magic(b, kind),
        }
    }

    /// The kind among `candidates` that matches the buffer's magic number.
    pub fn identify(buffer: &[u8], candidates: &[Self]) -> Option<Self> {
        candidates.iter().copied().find(|kind| kind.has_magic(buffer))
    }
}
