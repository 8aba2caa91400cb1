//! The codes of findings. A code, once published, keeps its name and meaning.

use crate::Severity::{self, Error, Note, Warning};

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its name, as findings carry it.
    pub name: &'static str,
    /// How bad findings of this kind are.
    pub severity: Severity,
    /// What it means.
    pub about: &'static str,
}

macro_rules! codes {
    ($($ident:ident $name:literal $severity:ident $about:literal;)*) => {
        $(#[doc = $about]
        pub const $ident: Code = Code { name: $name, severity: $severity, about: $about };)*

        /// Every code there is.
        pub const ALL: &[Code] = &[$($ident),*];
    };
}

codes! {
    READ "read" Error "A part of the device could not be read.";
    LIMIT "limit" Note "The check came to its memory limit and left something out.";
    SB "sb" Error "The primary superblock breaks a rule.";
    SB_COPY "sb-copy" Error "A copy of the superblock is damaged or differs from the primary.";
    SB_FIELD "sb-field" Error "A field of the superblock holds what it must not.";
    SB_COUNTER "sb-counter" Error "A counter of the superblock differs from what was counted.";
    SB_SIZE "sb-size" Error "The device is shorter than the volume.";
    SB_REPAIR "sb-needsrepair" Error "The volume is marked as in need of a repair.";
    REALTIME "realtime" Note "The realtime device was not looked at.";
    LOG_DIRTY "log-dirty" Warning "The log holds changes that are not on the volume; what else is found may come from that.";
    LOG_REPLAYED "log-replayed" Note "The log holds changes that are not on the volume; the volume is judged with them.";
    LOG_UNFINISHED "log-unfinished" Warning "What the log announced could not be finished; what else is found may come from that.";
    LOG "log" Error "The log is damaged.";
    LOG_EXTERNAL "log-external" Note "The log is on another device and was not looked at.";
    LSN "lsn-ahead" Error "A structure says that it was changed later than the log's last record.";
    AGF "agf" Error "An AGF breaks a rule.";
    AGF_FREEBLKS "agf-freeblks" Error "agf_freeblks differs from the free blocks counted.";
    AGF_LONGEST "agf-longest" Error "agf_longest is not the length of the longest free extent.";
    AGF_BTREEBLKS "agf-btreeblks" Error "agf_btreeblks differs from the blocks counted.";
    AGF_BLOCKS "agf-tree-blocks" Error "The AGF's count of a tree's blocks differs from those counted.";
    AGF_FIELD "agf-field" Error "A field of the AGF holds what it must not.";
    AGI "agi" Error "An AGI breaks a rule.";
    AGI_COUNT "agi-count" Error "agi_count or agi_freecount differs from the inodes counted.";
    AGI_BLOCKS "agi-tree-blocks" Error "The AGI's count of a tree's blocks differs from those counted.";
    AGI_FIELD "agi-field" Error "A field of the AGI holds what it must not.";
    AGFL "agfl" Error "An AGFL breaks a rule.";
    AGFL_SLOT "agfl-slot" Error "A slot of the free list in use holds no valid block.";
    AGFL_DOUBLE "agfl-double" Error "A block is in the free list twice.";
    BTREE "btree-block" Error "A btree block breaks a rule.";
    BTREE_CRC "btree-crc" Error "A btree block's checksum does not match.";
    BTREE_OWNER "btree-owner" Error "A btree block belongs to someone else.";
    BTREE_LEVEL "btree-level" Error "A btree block is of another level than its place in the tree.";
    BTREE_POINTER "btree-pointer" Error "A btree pointer leads outside the volume.";
    BTREE_LOOP "btree-loop" Error "A btree block is reached twice.";
    BTREE_SIBLING "btree-sibling" Error "Sibling pointers of btree blocks do not agree.";
    BTREE_MIN "btree-minrecs" Error "A btree block holds fewer records than it must.";
    BTREE_KEY "btree-key" Error "A btree key is not its child's.";
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
    RMAP_EXTRA "rmap-extra" Error "A reverse mapping tells of an owner that does not have the blocks.";
    BLOCK_OWNERS "block-owners" Error "Blocks have two owners that cannot share them, or are free and in use.";
    BLOCK_LEAK "block-leak" Error "Blocks are neither free nor owned.";
    REFLINK_FLAG "reflink-flag" Error "A file shares blocks without being marked so.";
    INODE "inode" Error "An inode breaks a rule.";
    INODE_CRC "inode-crc" Error "An inode's checksum does not match.";
    INODE_FREE "inode-free" Error "An inode is free for the inode btree and in use by itself, or the other way about.";
    INODE_FLAGS "inode-flags" Error "An inode has flags that it cannot have.";
    INODE_FIELD "inode-field" Error "A field of an inode holds what it must not.";
    INODE_TIME "inode-time" Error "A time of an inode is not one.";
    INODE_HINT "inode-extsize" Error "An extent size hint breaks a rule.";
    INODE_NBLOCKS "inode-nblocks" Error "di_nblocks differs from the blocks counted.";
    INODE_NEXTENTS "inode-nextents" Error "A count of extents differs from those counted.";
    INODE_NLINK "inode-nlink" Error "The link count differs from the entries counted.";
    INODE_LOST "inode-lost" Error "No directory entry leads to an inode that is in use.";
    INODE_UNLINKED "inode-unlinked" Error "An inode without links is on no unlinked list, or one with links is.";
    UNLINKED_LIST "unlinked-list" Warning "Inodes wait on an unlinked list.";
    UNLINKED_CHAIN "unlinked-chain" Error "An unlinked list is damaged.";
    EXTENT "extent" Error "An extent breaks a rule.";
    EXTENT_OVERLAP "extent-overlap" Error "A fork has the same blocks twice.";
    FORK "fork" Error "A fork breaks a rule.";
    META_INODE "meta-inode" Error "An inode that the superblock names is not what it must be.";
    DIR "dir" Error "A directory in its inode breaks a rule.";
    DIR_BLOCK "dir-block" Error "A directory block breaks a rule.";
    DIR_SIZE "dir-size" Error "A directory's size differs from its blocks.";
    DIR_DOT "dir-dot" Error "\".\" or \"..\" is missing, misplaced or wrong.";
    DIR_DOUBLE "dir-name-twice" Error "A directory holds a name twice.";
    DIR_HASH "dir-hash" Error "A directory's index does not agree with its entries.";
    DIR_BESTS "dir-bests" Error "A directory's index of free room does not agree with its blocks.";
    DIR_EXTRA "dir-stray-block" Error "A directory has blocks that are no part of it.";
    DIR_ENTRY "dir-entry" Error "An entry leads to an inode that does not exist or is not in use.";
    DIR_FTYPE "dir-ftype" Error "An entry tells another type of file than its inode.";
    DIR_PARENTS "dir-two-parents" Error "A directory has entries in two places.";
    DIR_LOOP "dir-loop" Error "A directory cannot be reached from the root.";
    DA "da-block" Error "A block of a directory's or attribute fork's tree breaks a rule.";
    DA_CHAIN "da-chain" Error "Blocks of a directory's or attribute fork's tree are not chained in order.";
    DA_HASH "da-hash" Error "A node's hash is not the highest of its child.";
    ATTR "attr" Error "Attributes in an inode break a rule.";
    ATTR_BLOCK "attr-block" Error "An attribute block breaks a rule.";
    ATTR_HASH "attr-hash" Error "An attribute is filed under a hash that is not its name's.";
    ATTR_DOUBLE "attr-name-twice" Error "An inode has an attribute twice.";
    ATTR_VALUE "attr-value" Error "An attribute's value cannot be read, or is not of its form.";
    ATTR_INCOMPLETE "attr-incomplete" Warning "An attribute was left half set.";
    ATTR_EXTRA "attr-stray-block" Error "An attribute fork has blocks that are no part of it.";
    PARENT_RECORD "parent-record" Error "A parent pointer breaks a rule.";
    PARENT "parent-pointers" Error "An inode's parent pointers differ from the entries that lead to it.";
    SYMLINK "symlink" Error "A symbolic link breaks a rule.";
    QUOTA "quota" Error "A quota inode or its state breaks a rule.";
    QUOTA_USAGE "quota-usage" Error "A quota record does not say what is used.";
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
