//! Version 4 of the format, which is supported read-only: the differences from version 5.
//!
//! Version 4 metadata has no checksums, addresses, owners or UUIDs, so its headers are shorter. A
//! block is converted to the version 5 layout when it is read; the rest of the code handles one
//! layout only.
//!
//! 1. In nodes, directory leaves and extent btree blocks, no offset refers to the block's start.
//!    These blocks get the longer header inserted before their content and are [`GROWTH`] bytes
//!    longer in memory than on disk ([`lift`]).
//! 2. Directory data blocks and attribute leaves contain offsets from the block's start. These
//!    blocks stay as they are; their readers use [`crate::dir::Shape`] or the magic number.
//! 3. Remote attribute values and remote link targets have no header and are not metadata buffers.
//! 4. Fields that version 4 does not have read as 0, for example change count and creation time.

use crate::btree::{self, TreeKind};
use crate::buf_kind::BufKind;
use crate::bytes::{be16, be32};
use crate::da;

/// Magic number of an attribute leaf.
pub const ATTR_LEAF_MAGIC: u16 = 0xfbee;
/// Length of an attribute leaf's header.
pub const ATTR_HEADER_LEN: usize = 32;
/// Byte offset of the content fields in an attribute leaf's header.
pub const ATTR_CONTENT: usize = 12;
/// Difference in length between a version 5 and a version 4 header, except for inodes.
pub const GROWTH: usize = 48;

const DA_NODE_MAGIC: u16 = 0xfebe;
const DIR_LEAF1_MAGIC: u16 = 0xd2f1;
const DIR_LEAFN_MAGIC: u16 = 0xd2ff;
const DIR_BLOCK_MAGIC: u32 = 0x5844_3242;
const DIR_DATA_MAGIC: u32 = 0x5844_3244;
const DIR_FREE_MAGIC: u32 = 0x5844_3246;
const BMAP_MAGIC: u32 = 0x424d_4150;
/// Links, magic number and padding at the head of nodes and leaves.
const DA_INFO_LEN: usize = 12;
/// The fields above and the two counts that follow.
const DA_HEADER_LEN: usize = 16;
/// Header of an extent tree's block: magic number, level, count, both siblings.
const BMAP_HEADER_LEN: usize = 24;

/// The kind among `candidates` that matches the magic number of a version 4 block. Attribute values
/// and link targets have no magic number and cannot be identified.
pub fn identify(block: &[u8], candidates: &[BufKind]) -> Option<BufKind> {
    candidates.iter().copied().find(|kind| has_magic(block, *kind))
}

fn has_magic(block: &[u8], kind: BufKind) -> bool {
    let (start, middle) = (be32(block, 0), da::magic(block));
    match kind {
        BufKind::DirBlock => start == DIR_BLOCK_MAGIC,
        BufKind::DirData => start == DIR_DATA_MAGIC,
        BufKind::DirFree => start == DIR_FREE_MAGIC,
        BufKind::Btree(TreeKind::Bmap) => start == BMAP_MAGIC,
        BufKind::DirLeaf1 => middle == DIR_LEAF1_MAGIC,
        BufKind::DirLeafN => middle == DIR_LEAFN_MAGIC,
        BufKind::DaNode => middle == DA_NODE_MAGIC,
        BufKind::AttrLeaf => middle == ATTR_LEAF_MAGIC,
        BufKind::InodeCluster => be16(block, 0) == crate::inode::MAGIC,
        BufKind::Dquot(kind) => crate::dquot::has_magic(block, kind),
        // Needed only for writing.
        _ => false,
    }
}

/// Converts a block of the kind that [`identify`] returned to the layout that the rest of this
/// crate expects.
pub fn lift(block: Box<[u8]>, kind: BufKind) -> Box<[u8]> {
    let (magic, body) = match kind {
        BufKind::DaNode => (da::NODE_MAGIC, DA_HEADER_LEN),
        BufKind::DirLeaf1 => (da::DIR_LEAF1_MAGIC, DA_HEADER_LEN),
        BufKind::DirLeafN => (da::DIR_LEAFN_MAGIC, DA_HEADER_LEN),
        BufKind::Btree(TreeKind::Bmap) => (0, BMAP_HEADER_LEN),
        _ => return block,
    };
    let Some(content) = block.get(body..) else { return block };
    let mut lifted = vec![0; block.len() + GROWTH].into_boxed_slice();
    lifted[body + GROWTH..].copy_from_slice(content);
    if magic == 0 {
        lifted[..BMAP_HEADER_LEN].copy_from_slice(&block[..BMAP_HEADER_LEN]);
        btree::MAGIC.set(&mut lifted, TreeKind::Bmap.magic());
    } else {
        lifted[..DA_INFO_LEN].copy_from_slice(&block[..DA_INFO_LEN]);
        da::MAGIC.set(&mut lifted, magic);
        // The entry count, then the level or the count of stale entries.
        lifted[da::INFO_LEN..da::INFO_LEN + 4].copy_from_slice(&block[DA_INFO_LEN..DA_HEADER_LEN]);
    }
    lifted
}

const _: () = {
    assert!(DA_HEADER_LEN + GROWTH == da::ENTRIES);
    assert!(BMAP_HEADER_LEN + GROWTH == btree::LONG.len);
    assert!(btree::LONG.rightsib + 8 == BMAP_HEADER_LEN);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_leaves_get_the_longer_header() {
        let mut block = vec![0xaa; 512].into_boxed_slice();
        block[..16].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 9, 0xfe, 0xbe, 0, 0, 0, 62, 0, 1]);
        let kinds = [BufKind::AttrLeaf, BufKind::DaNode];
        assert_eq!(identify(&block, &kinds), Some(BufKind::DaNode));
        let lifted = lift(block, BufKind::DaNode);
        assert_eq!(lifted.len(), 560);
        assert_eq!((da::forw(&lifted), da::back(&lifted)), (7, 9));
        assert_eq!((da::count(&lifted), da::level(&lifted)), (62, 1));
        assert_eq!(da::capacity(lifted.len()), (512 - 16) / 8);
        assert_eq!(da::hash(&lifted, 61), 0xaaaa_aaaa);
        assert_eq!(BufKind::identify(&lifted, &kinds), Some(BufKind::DaNode));
    }

    #[test]
    fn extent_tree_blocks_keep_their_capacity() {
        let mut block = vec![0x11; 512].into_boxed_slice();
        block[..8].copy_from_slice(b"BMAP\0\x02\0\x05");
        let kind = BufKind::Btree(TreeKind::Bmap);
        assert_eq!(identify(&block, &[kind]), Some(kind));
        let lifted = lift(block, kind);
        assert_eq!(TreeKind::Bmap.max_leaf(lifted.len()), (512 - 24) / 16);
        assert_eq!(lifted[4..8], [0, 2, 0, 5]);
        assert_eq!(lifted[8..24], [0x11; 16]);
        assert_eq!(BufKind::identify(&lifted, &[kind]), Some(kind));
    }

    #[test]
    fn inodes_of_both_versions() {
        use crate::inode::{InodeCore, S_IFREG};
        use crate::types::Ino;
        let mut raw = [0x55; 256];
        raw[..100].fill(0);
        raw[..6].copy_from_slice(&[b'I', b'N', 0x81, 0xa4, 2, 2]);
        raw[16..24].copy_from_slice(&[0, 1, 0, 2, 0, 7, 0, 1]);
        raw[83] = 2;
        let core = InodeCore::decode_v4(&raw, Ino(128)).unwrap();
        assert_eq!((core.nlink, core.projid, core.mode), (0x1_0002, 0x1_0007, S_IFREG | 0o644));
        assert_eq!((core.changecount, core.crtime.sec, core.flags2.bits()), (0, 0, 0));
        raw[4] = 1;
        raw[6..8].copy_from_slice(&[0, 3]);
        let core = InodeCore::decode_v4(&raw, Ino(128)).unwrap();
        assert_eq!((core.nlink, core.projid), (3, 0));
        raw[4] = 3;
        assert!(InodeCore::decode_v4(&raw, Ino(128)).is_err());
        for len in 0..200 {
            assert!(InodeCore::decode_v4(&raw[..len], Ino(128)).is_err());
        }
    }

    #[test]
    fn short_tree_blocks_are_unchanged() {
        for len in 0..24 {
            for kind in [BufKind::DaNode, BufKind::Btree(TreeKind::Bmap)] {
                let block = vec![1; len].into_boxed_slice();
                assert!(identify(&block, &[kind]).is_none());
                let _ = lift(block, kind);
            }
        }
    }
}
