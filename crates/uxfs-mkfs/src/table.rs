//! The geometry table that `mkfs.xfs` and `xfs_info` print.

use std::fmt::Write;

use uxfs_format::features::{Features2, Incompat, RoCompat, Version};
use uxfs_format::superblock::Superblock;

use crate::layout::Layout;

/// The table for a new volume, as `mkfs.xfs` prints it for a device called `name`.
pub fn table(layout: &Layout, name: &str) -> String {
    let sb = layout.superblock();
    shown(&sb, Names { log: layout.log_device.as_deref(), ..Names::new(name) }, columns_of(&sb))
}

impl core::fmt::Display for Layout {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&table(self, ""))
    }
}

/// The table of an existing volume, as `xfs_info` prints it. Features newer than version 6.1 are
/// shown only if the volume has any of them.
pub fn table_of(sb: &Superblock, name: &str) -> String {
    shown(sb, Names::new(name), columns_of(sb))
}

/// What the features of a volume need shown.
fn columns_of(sb: &Superblock) -> Columns {
    let newer = sb
        .incompat()
        .intersects(Incompat::EXCHRANGE | Incompat::PARENT | Incompat::METADIR | Incompat::ZONED);
    let groups = sb.incompat().intersects(Incompat::METADIR | Incompat::ZONED);
    let zoned = sb.incompat().contains(Incompat::ZONED);
    Columns { newer, groups, zoned }
}

/// The table for a new volume, as `mkfs.xfs` of version 7.2 prints it.
pub fn table_7(layout: &Layout, name: &str) -> String {
    let names = Names { log: layout.log_device.as_deref(), ..Names::new(name) };
    shown(&layout.superblock(), names, ALL_COLUMNS)
}

/// The table of an existing volume, as `xfs_info` of version 7.2 prints it: with all features that it
/// knows.
pub fn table_of_7(sb: &Superblock, name: &str) -> String {
    shown(sb, Names::new(name), ALL_COLUMNS)
}

/// What the devices are called.
#[derive(Clone, Copy)]
struct Names<'a> {
    data: &'a str,
    /// The device of the log, if that is external and its name is known.
    log: Option<&'a str>,
}

impl<'a> Names<'a> {
    fn new(data: &'a str) -> Self {
        Self { data, log: None }
    }
}

const ALL_COLUMNS: Columns = Columns { newer: true, groups: true, zoned: true };

/// What a table shows besides the features of version 6.1.
#[derive(Clone, Copy)]
struct Columns {
    /// Exchange-range, metadata directories, parent pointers.
    newer: bool,
    /// Groups of the realtime section.
    groups: bool,
    /// Its zones.
    zoned: bool,
}

fn shown(sb: &Superblock, names: Names<'_>, columns: Columns) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_table(&mut out, sb, names, columns);
    out
}

fn write_table(
    out: &mut String,
    sb: &Superblock,
    names: Names<'_>,
    columns: Columns,
) -> core::fmt::Result {
    metadata_lines(out, sb, names.data, columns.newer)?;
    let block = sb.blocksize.get();
    writeln!(
        out,
        "data     ={:<22} bsize={:<6} blocks={}, imaxpct={}",
        "", block, sb.dblocks, sb.imax_pct
    )?;
    writeln!(out, "         ={:<22} sunit={:<6} swidth={} blks", "", sb.unit, sb.width)?;
    write!(
        out,
        "naming   =version {:<14} bsize={:<6} ascii-ci={}, ftype={}",
        2,
        u64::from(block) << sb.dirblklog.min(16),
        u8::from(sb.version_flags().contains(Version::BORG)),
        u8::from(has_ftype(sb)),
    )?;
    if columns.newer {
        write!(out, ", parent={}", u8::from(sb.incompat().contains(Incompat::PARENT)))?;
    }
    writeln!(out)?;
    log_lines(out, sb, names.log)?;
    realtime_lines(out, sb, columns)
}

fn metadata_lines(out: &mut String, sb: &Superblock, name: &str, newer: bool) -> core::fmt::Result {
    let ro = |feature| u8::from(sb.ro_compat().contains(feature));
    let incompat = |feature| u8::from(sb.incompat().contains(feature));
    let features2 = |feature| u8::from(sb.features2().contains(feature));
    writeln!(
        out,
        "meta-data={name:<22} isize={:<6} agcount={}, agsize={} blks",
        sb.inodesize, sb.agcount, sb.agblocks
    )?;
    writeln!(
        out,
        "         ={:<22} sectsz={:<5} attr={}, projid32bit={}",
        "",
        sb.sectsize,
        1 + features2(Features2::ATTR2),
        features2(Features2::PROJID32)
    )?;
    writeln!(
        out,
        "         ={:<22} crc={:<8} finobt={}, sparse={}, rmapbt={}",
        "",
        features2(Features2::CRC),
        ro(RoCompat::FINOBT),
        incompat(Incompat::SPINODES),
        ro(RoCompat::RMAPBT)
    )?;
    writeln!(
        out,
        "         ={:<22} reflink={:<4} bigtime={} inobtcount={} nrext64={}",
        "",
        ro(RoCompat::REFLINK),
        incompat(Incompat::BIGTIME),
        ro(RoCompat::INOBTCNT),
        incompat(Incompat::NREXT64)
    )?;
    if newer {
        writeln!(
            out,
            "         ={:<22} exchange={:<3} metadir={}",
            "",
            incompat(Incompat::EXCHRANGE),
            incompat(Incompat::METADIR)
        )?;
    }
    Ok(())
}

fn has_ftype(sb: &Superblock) -> bool {
    sb.incompat().contains(Incompat::FTYPE) || sb.features2().contains(Features2::FTYPE)
}

fn log_lines(out: &mut String, sb: &Superblock, device: Option<&str>) -> core::fmt::Result {
    let location = match sb.logstart.get() {
        0 => device.unwrap_or("external"),
        _ => "internal log",
    };
    let version = if sb.version_flags().contains(Version::LOGV2) { 2 } else { 1 };
    let sector = match sb.logsectsize.get() {
        0 => 512,
        size => size,
    };
    let block = sb.blocksize.get();
    writeln!(
        out,
        "log      ={location:<22} bsize={block:<6} blocks={}, version={version}",
        sb.logblocks
    )?;
    writeln!(
        out,
        "         ={:<22} sectsz={sector:<5} sunit={} blks, lazy-count={}",
        "",
        sb.logsunit.get() / block.max(1),
        u8::from(sb.features2().contains(Features2::LAZYSBCOUNT))
    )
}

fn realtime_lines(out: &mut String, sb: &Superblock, columns: Columns) -> core::fmt::Result {
    let location = if sb.rblocks.get() == 0 { "none" } else { "external" };
    writeln!(
        out,
        "realtime ={location:<22} extsz={:<6} blocks={}, rtextents={}",
        u64::from(sb.rextsize.get()) * u64::from(sb.blocksize.get()),
        sb.rblocks,
        sb.rextents
    )?;
    if columns.groups {
        writeln!(
            out,
            "         ={:<22} rgcount={:<4} rgsize={} extents",
            "", sb.rgcount, sb.rgextents
        )?;
    }
    if columns.zoned {
        let zoned = u8::from(sb.incompat().contains(Incompat::ZONED));
        // The fields exist only with the feature.
        let (start, reserved) = match zoned {
            1 => (sb.rtstart.get(), sb.rtreserved.get()),
            _ => (0, 0),
        };
        writeln!(out, "         ={:<22} zoned={zoned:<6} start={start} reserved={reserved}", "")?;
    }
    Ok(())
}
