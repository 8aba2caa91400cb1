//! The codes of findings. A published code keeps its name and meaning.

use crate::Severity::{self, Error, Note, Warning};

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Name in findings.
    pub name: &'static str,
    /// Severity of findings with this code.
    pub severity: Severity,
    /// Meaning of the code, for users.
    pub about: &'static str,
}

macro_rules! codes {
    ($($ident:ident $name:literal $severity:ident $about:literal;)*) => {
        $(#[doc = $about]
        pub const $ident: Code = Code { name: $name, severity: $severity, about: $about };)*

        /// All codes.
        pub const ALL: &[Code] = &[$($ident),*];
    };
}

codes! {
    READ "read" Error "A part of the device could not be read.";
    LIMIT "limit" Note "The check reached its memory limit and skipped some comparisons.";
    SB "sb" Error "The primary superblock breaks a rule.";
    SB_COPY "sb-copy" Error "A copy of the superblock is damaged or differs from the primary.";
    SB_FIELD "sb-field" Error "A field of the superblock holds an invalid value.";
    SB_COUNTER "sb-counter" Error "A counter of the superblock differs from what was counted.";
    SB_SIZE "sb-size" Error "The device is shorter than the volume.";
    SB_REPAIR "sb-needsrepair" Error "The volume is marked as in need of a repair.";
    REALTIME "realtime" Note "The realtime device was not checked.";
    LOG_DIRTY "log-dirty" Warning "The log holds changes that are not on the volume; other findings may result from that.";
    LOG_REPLAYED "log-replayed" Note "The log holds changes that are not on the volume; the check replayed them in memory.";
    LOG_UNFINISHED "log-unfinished" Warning "A logged operation could not be finished; other findings may result from that.";
    LOG "log" Error "The log is damaged.";
    LOG_EXTERNAL "log-external" Note "The log is on another device, which was not given, and was not checked.";
    LSN "lsn-ahead" Error "A structure has an LSN ahead of the log's last record.";
    AGF "agf" Error "An AGF breaks a rule.";
    AGF_FREEBLKS "agf-freeblks" Error "agf_freeblks differs from the free blocks counted.";
    AGF_LONGEST "agf-longest" Error "agf_longest is not the length of the longest free extent.";
    AGF_BTREEBLKS "agf-btreeblks" Error "agf_btreeblks differs from the blocks counted.";
    AGF_BLOCKS "agf-tree-blocks" Error "The AGF's count of a tree's blocks differs from those counted.";
    AGF_FIELD "agf-field" Error "A field of the AGF holds an invalid value.";
    AGI "agi" Error "An AGI breaks a rule.";
    AGI_COUNT "agi-count" Error "agi_count or agi_freecount differs from the inodes counted.";
    AGI_BLOCKS "agi-tree-blocks" Error "The AGI's count of a tree's blocks differs from those counted.";
    AGI_FIELD "agi-field" Error "A field of the AGI holds an invalid value.";
    AGFL "agfl" Error "An AGFL breaks a rule.";
    AGFL_SLOT "agfl-slot" Error "A slot of the free list in use holds no valid block.";
    AGFL_DOUBLE "agfl-double" Error "A block is in the free list twice.";
    BTREE "btree-block" Error "A btree block breaks a rule.";
    BTREE_CRC "btree-crc" Error "A btree block's checksum does not match.";
    BTREE_OWNER "btree-owner" Error "A btree block belongs to another owner.";
    BTREE_LEVEL "btree-level" Error "The level in a btree block differs from its level in the tree.";
    BTREE_POINTER "btree-pointer" Error "A btree pointer leads outside the volume.";
    BTREE_LOOP "btree-loop" Error "A btree block is reached twice.";
    BTREE_SIBLING "btree-sibling" Error "Sibling pointers of btree blocks do not agree.";
    BTREE_MIN "btree-minrecs" Error "A btree block holds fewer records than the minimum.";
    BTREE_KEY "btree-key" Error "A btree key differs from its child's.";
    BTREE_ORDER "btree-order" Error "Btree records are out of order.";
    FREE_RECORD "free-record" Error "A free extent lies outside its AG, is empty, or touches another.";
    FREE_TREES "free-trees" Error "The two free-space btrees do not hold the same extents.";
    INOBT_RECORD "inobt-record" Error "An inode chunk's record breaks a rule.";
    FINOBT "finobt" Error "The free-inode btree does not agree with the inode btree.";
    REFCOUNT_RECORD "refcount-record" Error "A reference count record breaks a rule.";
    REFCOUNT "refcount" Error "Reference counts differ from the owners counted.";
    COW_LEFT "cow-leftover" Warning "Blocks are still staged for copy on write.";
    RMAP_RECORD "rmap-record" Error "A reverse mapping breaks a rule.";
    RMAP_MISSING "rmap-missing" Error "An owner's blocks have no reverse mapping.";
    RMAP_EXTRA "rmap-extra" Error "A reverse mapping names an owner that does not own the blocks.";
    BLOCK_OWNERS "block-owners" Error "Blocks have two owners that cannot share them, or are free and in use.";
    BLOCK_LEAK "block-leak" Error "Blocks are neither free nor owned.";
    REFLINK_FLAG "reflink-flag" Error "A file shares blocks without the reflink flag.";
    INODE "inode" Error "An inode breaks a rule.";
    INODE_CRC "inode-crc" Error "An inode's checksum does not match.";
    INODE_FREE "inode-free" Error "The inode btree and the inode disagree about whether the inode is free.";
    INODE_FLAGS "inode-flags" Error "An inode has invalid flags.";
    INODE_FIELD "inode-field" Error "A field of an inode holds an invalid value.";
    INODE_TIME "inode-time" Error "A timestamp of an inode is invalid.";
    INODE_HINT "inode-extsize" Error "An extent size hint breaks a rule.";
    INODE_NBLOCKS "inode-nblocks" Error "di_nblocks differs from the blocks counted.";
    INODE_NEXTENTS "inode-nextents" Error "A count of extents differs from those counted.";
    INODE_NLINK "inode-nlink" Error "The link count differs from the entries counted.";
    INODE_LOST "inode-lost" Error "No directory entry leads to an inode that is in use.";
    INODE_UNLINKED "inode-unlinked" Error "An inode without links is on no unlinked list, or one with links is.";
    UNLINKED_LIST "unlinked-list" Warning "Inodes are still on an unlinked list.";
    UNLINKED_CHAIN "unlinked-chain" Error "An unlinked list is damaged.";
    EXTENT "extent" Error "An extent breaks a rule.";
    EXTENT_OVERLAP "extent-overlap" Error "A fork maps the same blocks twice.";
    FORK "fork" Error "A fork breaks a rule.";
    META_INODE "meta-inode" Error "An inode that the superblock names is not of the required kind.";
    DIR "dir" Error "A directory in its inode breaks a rule.";
    DIR_BLOCK "dir-block" Error "A directory block breaks a rule.";
    DIR_SIZE "dir-size" Error "A directory's size differs from its blocks.";
    DIR_DOT "dir-dot" Error "\".\" or \"..\" is missing, misplaced or wrong.";
    DIR_DOUBLE "dir-name-twice" Error "A directory holds a name twice.";
    DIR_HASH "dir-hash" Error "A directory's hash index disagrees with its entries.";
    DIR_BESTS "dir-bests" Error "A directory's free index disagrees with its data blocks.";
    DIR_EXTRA "dir-stray-block" Error "A directory maps blocks that are not part of it.";
    DIR_ENTRY "dir-entry" Error "An entry leads to an inode that does not exist or is not in use.";
    DIR_FTYPE "dir-ftype" Error "The file type in an entry differs from the inode's.";
    DIR_PARENTS "dir-two-parents" Error "A directory has entries in two directories.";
    DIR_LOOP "dir-loop" Error "A directory cannot be reached from the root.";
    DA "da-block" Error "A block of a directory's or attribute fork's tree breaks a rule.";
    DA_CHAIN "da-chain" Error "Sibling pointers in a directory's or attribute fork's tree are wrong.";
    DA_HASH "da-hash" Error "A node's hash is not the highest of its child.";
    ATTR "attr" Error "Attributes in an inode break a rule.";
    ATTR_BLOCK "attr-block" Error "An attribute block breaks a rule.";
    ATTR_HASH "attr-hash" Error "An attribute is stored under a hash that is not its name's.";
    ATTR_DOUBLE "attr-name-twice" Error "An inode has an attribute twice.";
    ATTR_VALUE "attr-value" Error "An attribute's value cannot be read or is malformed.";
    ATTR_INCOMPLETE "attr-incomplete" Warning "An attribute operation was interrupted; the attribute is marked incomplete.";
    ATTR_EXTRA "attr-stray-block" Error "An attribute fork maps blocks that are not part of it.";
    PARENT_RECORD "parent-record" Error "A parent pointer breaks a rule.";
    PARENT "parent-pointers" Error "An inode's parent pointers differ from the entries that lead to it.";
    SYMLINK "symlink" Error "A symbolic link breaks a rule.";
    QUOTA "quota" Error "A quota inode or its state breaks a rule.";
    QUOTA_NONE "quota-none" Warning "The superblock announces quotas, but names no quota inode.";
    QUOTA_SKIPPED "quota-not-compared" Note "Quota records were not compared with the usage.";
    QUOTA_USAGE "quota-usage" Error "A quota record differs from the usage counted.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        let mut names: Vec<_> = ALL.iter().map(|c| c.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}
