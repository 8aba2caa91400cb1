//! Features that a volume can be given after it was made, as `xfs_admin -O` does.
//!
//! 1. A volume without the feature ignores what the feature adds. So that is written first, and the
//!    superblocks after it: a cut leaves the volume without the feature, and whole.
//! 2. Inodes that exist keep times and counters in the old form. The engine and the kernel give an inode the
//!    64-bit times when they log it next.
//!
//! Rules about which feature needs which other are those of xfs_repair 7.2, as it reports them.

use core::fmt;

use uxfs_core::{Error, Result};
use uxfs_format::agi::{self, Agi};
use uxfs_format::btree::{self, SHORT, TreeKind};
use uxfs_format::features::{Incompat, RoCompat};
use uxfs_format::superblock::Superblock;
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{AgBlock, AgNo, Check, Corrupt, Daddr, Geometry, Place, crc};

use super::Identity;

/// A feature that can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Times until 2486.
    Bigtime,
    /// Block counts of the inode trees, which make a mount faster. Needs the tree of free inodes.
    Inobtcount,
    /// Wide extent counters.
    Nrext64,
    /// Exchange of the contents of files. Needs shared blocks.
    Exchange,
}

impl Upgrade {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bigtime, Self::Inobtcount, Self::Nrext64, Self::Exchange];

    /// The name as mkfs.xfs and xfs_admin spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bigtime => "bigtime",
            Self::Inobtcount => "inobtcount",
            Self::Nrext64 => "nrext64",
            Self::Exchange => "exchange",
        }
    }

    /// The feature of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|upgrade| upgrade.name() == name)
    }

    /// Does the volume have it?
    pub fn is_in(self, sb: &Superblock) -> bool {
        sb.ro_compat().contains(self.ro_compat()) && sb.incompat().contains(self.incompat())
    }

    fn ro_compat(self) -> RoCompat {
        match self {
            Self::Inobtcount => RoCompat::INOBTCNT,
            Self::Bigtime | Self::Nrext64 | Self::Exchange => RoCompat::empty(),
        }
    }

    fn incompat(self) -> Incompat {
        match self {
            Self::Bigtime => Incompat::BIGTIME,
            Self::Inobtcount => Incompat::empty(),
            Self::Nrext64 => Incompat::NREXT64,
            Self::Exchange => Incompat::EXCHRANGE,
        }
    }

    fn set(self, sb: &mut Superblock) {
        sb.features_ro_compat.set((sb.ro_compat() | self.ro_compat()).bits());
        sb.features_incompat.set((sb.incompat() | self.incompat()).bits());
    }

    fn check_needs(self, sb: &Superblock) -> Result<()> {
        let (needed, name) = match self {
            Self::Bigtime | Self::Nrext64 => return Ok(()),
            Self::Inobtcount => (RoCompat::FINOBT, "finobt"),
            Self::Exchange => (RoCompat::REFLINK, "reflink"),
        };
        match sb.ro_compat().contains(needed) {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "{self} cannot be added to a volume without {name}"
            ))),
        }
    }
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Identity {
    /// Adds a feature. Returns `false` if the volume had it. The caller has checked the volume: what is
    /// damaged must be repaired first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the feature needs another one; otherwise as [`Identity::set_label`], and
    /// [`Error::Corrupt`] for damaged inode trees. Nothing has changed then, unless the device failed.
    pub fn upgrade(&mut self, upgrade: Upgrade) -> Result<bool> {
        self.check_changeable()?;
        if upgrade.is_in(&self.sb) {
            return Ok(false);
        }
        upgrade.check_needs(&self.sb)?;
        self.check_copies()?;
        if upgrade == Upgrade::Inobtcount {
            self.count_inode_trees()?;
        }
        self.change(&|sb| upgrade.set(sb))?;
        Ok(true)
    }

    /// Stores the number of blocks of both inode trees in each AGI.
    fn count_inode_trees(&self) -> Result<()> {
        let geo = Geometry::new(&self.sb);
        let mut counted = Vec::new();
        for ag in (0..geo.ag_count).map(AgNo) {
            let sector = self.agi(&geo, ag)?;
            let agi = Agi::view(&sector);
            let inodes =
                self.tree_blocks(&geo, ag, TreeKind::Ino, agi.root.get(), agi.level.get())?;
            let free = (agi.free_root.get(), agi.free_level.get());
            let free = self.tree_blocks(&geo, ag, TreeKind::FreeIno, free.0, free.1)?;
            counted.push((ag, inodes, free));
        }
        for (ag, inodes, free) in counted {
            let mut sector = self.agi(&geo, ag)?;
            let agi = Agi::view_mut(&mut sector);
            agi.iblocks.set(inodes);
            agi.fblocks.set(free);
            crc::stamp(&mut sector, agi::CRC_OFFSET);
            let daddr = geo.agi_daddr(ag);
            let failed = |source| Error::Io { what: "writing an AGI", daddr, source };
            self.dev.write_at(daddr.bytes(), &sector).map_err(failed)?;
        }
        self.flush()
    }

    fn agi(&self, geo: &Geometry, ag: AgNo) -> Result<Vec<u8>> {
        let mut sector = vec![0; usize::from(self.sb.sectsize.get())];
        self.read_verified(geo, BufKind::Agi, geo.agi_daddr(ag), ag, &mut sector)?;
        Ok(sector)
    }

    /// The number of blocks of a tree, level by level from its root.
    fn tree_blocks(
        &self,
        geo: &Geometry,
        ag: AgNo,
        kind: TreeKind,
        root: u32,
        levels: u32,
    ) -> Result<u32> {
        let mut block = vec![0; geo.block_size as usize];
        let mut level_blocks = vec![AgBlock(root)];
        let mut count = 0;
        for level in (0..levels).rev() {
            let mut children = Vec::new();
            for agblock in level_blocks {
                let corrupt = |check, problem: &str| {
                    let place = Place::Device(geo.ag_daddr(ag, agblock));
                    Error::from(Corrupt::new(kind.block_name(), place, check, problem.to_owned()))
                };
                if !geo.agblock_valid(ag, agblock) {
                    return Err(corrupt(Check::Pointer, "lies outside of its group"));
                }
                self.read_verified(
                    geo,
                    BufKind::Btree(kind),
                    geo.ag_daddr(ag, agblock),
                    ag,
                    &mut block,
                )?;
                if u32::from(btree::LEVEL.get(&block)) != level {
                    return Err(corrupt(Check::Level, "is not of the level at which it stands"));
                }
                count += 1;
                // A tree that refers to a block twice could be counted for ever.
                if count > geo.ag_len(ag) {
                    return Err(corrupt(
                        Check::Count,
                        "belongs to a tree that is larger than its group",
                    ));
                }
                if level > 0 {
                    let keys = SHORT.len + kind.max_node(block.len()) * kind.key_len();
                    let pointers = block[keys..].chunks_exact(SHORT.ptr_len);
                    let used = usize::from(btree::NUMRECS.get(&block));
                    children.extend(pointers.take(used).map(|raw| AgBlock(btree::ptr(raw) as u32)));
                }
            }
            level_blocks = children;
        }
        Ok(count)
    }

    fn read_verified(
        &self,
        geo: &Geometry,
        kind: BufKind,
        daddr: Daddr,
        ag: AgNo,
        buffer: &mut [u8],
    ) -> Result<()> {
        let failed = |source| Error::Io { what: kind.name(), daddr, source };
        self.dev.read_at(daddr.bytes(), buffer).map_err(failed)?;
        verify::check(buffer, kind, daddr, geo)?;
        verify::check_owner(buffer, kind, daddr, Owner::Ag(ag))?;
        match verify::checksum_matches(buffer, kind) {
            true => Ok(()),
            false => {
                let place = Place::Device(daddr);
                Err(Corrupt::new(kind.name(), place, Check::Checksum, "wrong checksum".to_owned())
                    .into())
            }
        }
    }
}
