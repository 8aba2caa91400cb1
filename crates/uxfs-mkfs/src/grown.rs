//! For existing volumes: writes the groups by which a volume grows, and derives the options that
//! would make a similar volume.
//!
//! The new groups are written behind the volume's end. They are unused until the primary superblock
//! includes them, and the existing volume is not changed. As in the kernel, an added group starts
//! with an empty free list, unlike a group that mkfs.xfs makes.

use core::ops::Range;

use uxfs_disk::BlockDev;
use uxfs_format::features::{Incompat, RoCompat};
use uxfs_format::superblock::Superblock;
use uxfs_format::{AgNo, Geometry, Naming, Uuid};

use crate::error::MkfsError;
use crate::groups::Groups;
use crate::layout::{Hints, Layout};
use crate::log::LogPlace;
use crate::options::Options;
use crate::size::Size;
use crate::stripe::Stripe;
use crate::units::Units;
use crate::write::Writer;

impl Layout {
    /// The layout that a superblock describes.
    fn of(sb: &Superblock) -> Self {
        let geo = Geometry::new(sb);
        let units = Units {
            block: geo.block_size,
            sector: geo.sector_size,
            inode: geo.inode_size,
            dir_block: geo.block_size << geo.dir_blklog,
            ro_compat: geo.ro_compat,
            incompat: geo.incompat,
            naming: geo.naming,
        };
        Self {
            units,
            stripe: Stripe { unit: geo.stripe_unit, width: geo.stripe_width },
            groups: Groups { dblocks: geo.dblocks, blocks: geo.ag_blocks, count: geo.ag_count },
            log: LogPlace {
                inside: geo.log_ag().map(|ag| (ag, geo.fsb_agblock(geo.log_start))),
                blocks: geo.log_blocks,
                unit: if geo.log_sunit > 1 { geo.log_sunit / geo.block_size } else { 0 },
            },
            imax_pct: geo.imax_pct,
            // The UUID in metadata.
            uuid: geo.meta_uuid,
            label: sb.fname,
            hints: Hints::default(),
            log_device: None,
        }
    }
}

/// Writes the metadata of groups by which a volume is to grow. `sb` is the superblock after the
/// growth; each group gets a copy. Returns the number of free blocks in the new groups.
///
/// # Errors
/// If the device is too short or fails.
pub fn write_groups(
    sb: &Superblock,
    groups: Range<u32>,
    dev: &dyn BlockDev,
) -> Result<u64, MkfsError> {
    let layout = Layout::of(sb);
    if dev.len() < layout.size_bytes() || groups.end > layout.groups.count || groups.start == 0 {
        return crate::error::geometry("the new groups lie beyond the device");
    }
    let fixed = u64::from(layout.units.fixed_blocks());
    let mut free = 0;
    for ag in groups.clone().map(AgNo) {
        let len = u64::from(layout.ag_len(ag));
        let Some(left) = len.checked_sub(fixed).filter(|left| *left > 0) else {
            return crate::error::geometry(format!("a group of {len} blocks is too short"));
        };
        free += left;
    }
    let how = crate::WriteOptions::default();
    let writer = Writer::growing(&layout, sb, dev, &how);
    for ag in groups.map(AgNo) {
        writer.group(ag)?;
    }
    Ok(free)
}

/// The options that make a volume of the same kind: block, sector, inode and directory block sizes,
/// features, stripe, label (if it is text) and UUID. Size, groups and log are not set.
pub fn options_like(sb: &Superblock) -> Options {
    let (ro, incompat) = (sb.ro_compat(), sb.incompat());
    let block = sb.blocksize.get();
    // In basic blocks: a stripe unit of a valid volume is below 2 TiB.
    let basic = |blocks: u32| blocks.checked_mul(block / 512).filter(|units| *units > 0);
    let mut like = Options {
        label: core::str::from_utf8(sb.label()).unwrap_or_default().to_owned(),
        uuid: Some(Uuid(sb.uuid)),
        block_size: Some(block),
        sector_size: Some(sb.sectsize.get().into()),
        ..Options::default()
    };
    like.inode.size = Some(sb.inodesize.get().into());
    like.inode.maxpct = Some(sb.imax_pct);
    like.inode.sparse = Some(incompat.contains(Incompat::SPINODES));
    like.inode.nrext64 = Some(incompat.contains(Incompat::NREXT64));
    like.inode.exchange = Some(incompat.contains(Incompat::EXCHRANGE));
    like.naming.version = Some(Naming::of(sb.version_flags()));
    like.naming.parent = Some(incompat.contains(Incompat::PARENT));
    like.naming.size = Some(Size::Bytes(u64::from(block) << sb.dirblklog.min(16)));
    like.meta.finobt = Some(ro.contains(RoCompat::FINOBT));
    like.meta.rmapbt = Some(ro.contains(RoCompat::RMAPBT));
    like.meta.reflink = Some(ro.contains(RoCompat::REFLINK));
    like.meta.inobtcount = Some(ro.contains(RoCompat::INOBTCNT));
    like.meta.bigtime = Some(incompat.contains(Incompat::BIGTIME));
    like.data.sunit = basic(sb.unit.get());
    like.data.swidth = like.data.sunit.and(basic(sb.width.get()));
    if sb.logsunit.get() > 1 {
        like.log.su = Some(Size::Bytes(sb.logsunit.get().into()));
    }
    like
}
