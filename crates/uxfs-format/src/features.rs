//! The feature words of the v5 superblock.

bitflags::bitflags! {
    /// `sb_versionnum` without its low four bits, which hold the version itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Version: u16 {
        /// Some inode has an attribute fork, or had one.
        const ATTR = 0x10;
        /// 32-bit link counts.
        const NLINK = 0x20;
        /// Quotas are accounted.
        const QUOTA = 0x40;
        /// Inode chunks are aligned.
        const ALIGN = 0x80;
        /// Data is aligned to a stripe unit.
        const DALIGN = 0x100;
        /// Version 2 log.
        const LOGV2 = 0x400;
        /// Sectors larger than 512 bytes.
        const SECTOR = 0x800;
        /// Extents carry the unwritten flag.
        const EXTFLG = 0x1000;
        /// Version 2 directories.
        const DIRV2 = 0x2000;
        /// Names compare without ASCII case.
        const BORG = 0x4000;
        /// `sb_features2` is in use.
        const MOREBITS = 0x8000;
    }

    /// `sb_features2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features2: u32 {
        /// Counters in the superblock are exact only on a clean volume.
        const LAZYSBCOUNT = 0x2;
        /// The fork offset of an inode may move.
        const ATTR2 = 0x8;
        /// Old parent pointers; never used.
        const PARENT = 0x10;
        /// 32-bit project identifiers.
        const PROJID32 = 0x80;
        /// Checksums: version 5.
        const CRC = 0x100;
        /// File types in directories (version 4 only).
        const FTYPE = 0x200;
    }

    /// `sb_features_ro_compat`: an unknown bit allows reading only.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// Free-inode btree.
        const FINOBT = 0x1;
        /// Reverse mapping btree.
        const RMAPBT = 0x2;
        /// Shared extents and their reference count btree.
        const REFLINK = 0x4;
        /// Block counts of the inode btrees in the AGI.
        const INOBTCNT = 0x8;
    }

    /// `sb_features_incompat`: an unknown bit forbids opening.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// File types in directories; always set in version 5.
        const FTYPE = 0x1;
        /// Inode chunks may have holes.
        const SPINODES = 0x2;
        /// The UUID inside metadata is `sb_meta_uuid`.
        const META_UUID = 0x4;
        /// Timestamps may be 64-bit nanoseconds.
        const BIGTIME = 0x8;
        /// A repair must run before anything else.
        const NEEDSREPAIR = 0x10;
        /// Wide extent counters.
        const NREXT64 = 0x20;
        /// Exchange-range items may be in the log.
        const EXCHRANGE = 0x40;
        /// Parent pointers in attributes.
        const PARENT = 0x80;
        /// Metadata directory tree.
        const METADIR = 0x100;
        /// Zoned realtime device.
        const ZONED = 0x200;
        /// Holes in the zones' address space.
        const ZONE_GAPS = 0x400;
    }

    /// `sb_features_log_incompat`: what may be in a dirty log.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogIncompat: u32 {
        /// Logged attribute updates.
        const LOG_XATTRS = 0x1;
    }
}

/// Names the flags for a message: the names of known bits, the unknown rest in hexadecimal.
pub fn describe<F: bitflags::Flags<Bits = u32>>(flags: F) -> String {
    let mut names: Vec<String> = flags.iter_names().map(|(n, _)| n.to_lowercase()).collect();
    let unknown = flags.bits() & !F::all().bits();
    if unknown != 0 {
        names.push(format!("{unknown:#x}"));
    }
    names.join(", ")
}
