//! The geometry of a FAT volume.

use std::io;

use super::name;
use super::tree::{Dir, ENTRY, Node, Tree};

/// Bytes in a sector.
pub(super) const SECTOR: u64 = 512;
/// Sectors before the first table of FAT32.
const RESERVED: u64 = 32;
/// Entries in the root directory of FAT16, which has a fixed length.
const ROOT_ENTRIES: u64 = 512;
/// Fewest clusters of FAT16 and FAT32: their number alone says which of them a volume is.
const MIN_16: u64 = 4085;
const MIN_32: u64 = 65_525;
const MAX_32: u64 = 0x0fff_fff5;
/// Shortest volume that gets FAT32 unless the spec says otherwise: some firmware reads nothing else.
const PREFER_32: u64 = 34 << 20;

/// Longest volume, in MiB: sectors are numbered by 32 bits.
const LARGEST_MIB: u64 = 2 << 20;

/// Options of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Label in capital letters, at most 11 bytes.
    pub label: Option<String>,
    /// Serial number of the volume.
    pub serial: u32,
    /// Bits of an entry of the table, 16 or 32; chosen by size if not given.
    pub bits: Option<u8>,
    /// First sector of the partition on its disk.
    pub hidden_sectors: u32,
    /// Latest time of a file, seconds since 1970.
    pub latest: i64,
    /// Time of directories that no directory of the host stands for, seconds since 1970.
    pub made: i64,
}

/// Why a volume cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FatError {
    /// The tree does not fit.
    #[error("a FAT{bits} volume of {len} bytes has {have} clusters, but the files need {need}")]
    TooSmall {
        /// Bits of a table entry.
        bits: u8,
        /// Length of the volume in bytes.
        len: u64,
        /// Clusters of the volume.
        have: u64,
        /// Clusters of the tree.
        need: u64,
    },
    /// There is no such volume.
    #[error("{0}")]
    Unfit(String),
    /// The tree, or an error of the host.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where the parts of a volume lie, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// 16 or 32.
    pub bits: u8,
    pub(super) sectors: u64,
    pub(super) reserved: u64,
    pub(super) table: u64,
    pub(super) root: u64,
    pub(super) per_cluster: u64,
    pub(super) clusters: u64,
}

impl Layout {
    /// The layout of a volume of `len` bytes that can hold `tree`.
    ///
    /// # Errors
    /// [`FatError`]
    pub fn new(len: u64, tree: &Tree, options: &Options) -> Result<Self, FatError> {
        if options.label.as_ref().is_some_and(|label| name::label(label).is_none()) {
            let problem = "a FAT label has at most 11 capital letters, digits and -_ and the like";
            return Err(FatError::Unfit(problem.into()));
        }
        let bits = options.bits.unwrap_or(if len >= PREFER_32 { 32 } else { 16 });
        let layout = match bits {
            16 => (0..8).map(|log| Self::with(len, 16, 1 << log)).find(|l| l.clusters < MIN_32),
            32 => Some(Self::with(len, 32, cluster_32(len))),
            _ => return Err(FatError::Unfit("a FAT has entries of 16 or 32 bits".into())),
        };
        let least = if bits == 16 { MIN_16 } else { MIN_32 };
        let Some(layout) = layout.filter(|l| (least..MAX_32).contains(&l.clusters)) else {
            let problem = format!("no FAT{bits} volume has {len} bytes");
            return Err(FatError::Unfit(problem));
        };
        let need = layout.needed(&tree.root, true, options.label.is_some())?;
        if need > layout.clusters {
            return Err(FatError::TooSmall { bits, len, have: layout.clusters, need });
        }
        Ok(layout)
    }

    /// The shortest length in MiB that holds a tree, in bytes.
    ///
    /// # Errors
    /// [`FatError`] if no volume holds it.
    pub fn smallest(tree: &Tree, options: &Options) -> Result<u64, FatError> {
        let (mut low, mut high) = (2u64, 2u64);
        let fits = |mib: u64| match Self::new(mib << 20, tree, options) {
            Ok(_) => Ok(true),
            Err(FatError::TooSmall { .. }) => Ok(false),
            Err(FatError::Unfit(_)) if mib <= PREFER_32 >> 20 => Ok(false),
            Err(other) => Err(other),
        };
        while !fits(high)? {
            if high >= LARGEST_MIB {
                Self::new(high << 20, tree, options)?;
            }
            (low, high) = (high, high * 2);
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fits(middle)? { high = middle } else { low = middle }
        }
        Ok(high << 20)
    }

    fn with(len: u64, bits: u8, per_cluster: u64) -> Self {
        let sectors = (len / SECTOR).min(u32::MAX.into());
        let (reserved, root) =
            if bits == 16 { (1, ROOT_ENTRIES * ENTRY / SECTOR) } else { (RESERVED, 0) };
        let mut table = 1;
        loop {
            let data = sectors.saturating_sub(reserved + root + 2 * table);
            let clusters = data / per_cluster;
            let needed = ((clusters + 2) * u64::from(bits / 8)).div_ceil(SECTOR);
            if needed <= table {
                return Self { bits, sectors, reserved, table, root, per_cluster, clusters };
            }
            table = needed;
        }
    }

    /// Bytes in a cluster.
    pub(super) fn cluster(&self) -> u64 {
        self.per_cluster * SECTOR
    }

    /// Clusters of a directory and all below it.
    fn needed(&self, dir: &Dir, root: bool, label: bool) -> Result<u64, FatError> {
        let entries = dir.entries()?;
        let len = Dir::len(&entries, if root { label.into() } else { 2 });
        let own = self.dir_clusters(len, root)?;
        entries.iter().try_fold(own, |sum, (_, node)| {
            let below = match node {
                Node::Dir(dir) => self.needed(dir, false, label)?,
                Node::File { len, .. } => len.div_ceil(self.cluster()),
            };
            Ok(sum + below)
        })
    }

    /// Clusters of a directory with this many bytes.
    pub(super) fn dir_clusters(&self, len: u64, root: bool) -> Result<u64, FatError> {
        if root && self.bits == 16 {
            if len > self.root * SECTOR {
                let problem = format!("the root directory of FAT16 has {ROOT_ENTRIES} entries");
                return Err(FatError::Unfit(problem));
            }
            return Ok(0);
        }
        Ok(len.div_ceil(self.cluster()).max(1))
    }

    /// First byte of a cluster.
    pub(super) fn offset(&self, cluster: u64) -> u64 {
        (self.reserved + 2 * self.table + self.root + (cluster - 2) * self.per_cluster) * SECTOR
    }
}

/// Sectors in a cluster of a FAT32 volume, as Microsoft's specification has them.
fn cluster_32(len: u64) -> u64 {
    match len {
        len if len <= 260 << 20 => 1,
        len if len <= 8 << 30 => 8,
        len if len <= 16 << 30 => 16,
        len if len <= 32 << 30 => 32,
        _ => 64,
    }
}
