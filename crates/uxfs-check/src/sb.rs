//! Checks the superblock: rules for the primary in addition to its verification, the secondary
//! superblocks, and the counters.

use uxfs_disk::BlockDev;
use uxfs_format::btree::TreeKind;
use uxfs_format::features::{Incompat, Version};
use uxfs_format::superblock::{Superblock, used_len};
use uxfs_format::{AgNo, Geometry, Ino, Lsn, copies};

use crate::code;
use crate::ctx::Ctx;
use crate::finding::Place;
use crate::group::Group;

/// Bits of `versionnum` that every version 5 volume has.
const NEEDED: Version = Version::NLINK
    .union(Version::LOGV2)
    .union(Version::EXTFLG)
    .union(Version::DIRV2)
    .union(Version::MOREBITS);
/// Bits of `features2` that every version 5 volume has: lazy counters, attr2, 32-bit projects, CRC.
const NEEDED2: u32 = 0x18a;

/// Bytes at the start of a device to search for a secondary superblock if the usual offsets have
/// none.
const COPY_SCAN: u64 = 1 << 30;

/// A rule: does it hold, and the message if it does not.
type Rule = (bool, String);

/// Checks the primary superblock, whose sector is given.
pub(crate) fn check_primary(ctx: &Ctx<'_>, sector: &[u8]) {
    let sb = &ctx.sb;
    let own = (sb.inprogress == 0, "inprogress is set".to_owned());
    for (fine, message) in
        features(sb).into_iter().chain(layout(sb)).chain(inodes(ctx)).chain([own])
    {
        if !fine {
            ctx.find(code::SB_FIELD, Place::VOLUME, message);
        }
    }
    if sb.incompat().contains(Incompat::NEEDSREPAIR) {
        ctx.find(code::SB_REPAIR, Place::VOLUME, "the volume needs a repair; run xfs_repair");
    }
    tail(ctx, sector, AgNo(0));
    ctx.check_lsn(Lsn(sb.lsn.get()), &Place::ag(AgNo(0)));
    quota(ctx);
}

/// Checks that the bytes behind the used fields are zero.
fn tail(ctx: &Ctx<'_>, sector: &[u8], ag: AgNo) {
    let used = used_len(ctx.sb.incompat());
    if sector.iter().skip(used).any(|b| *b != 0) {
        let code = if ag.0 == 0 { code::SB_FIELD } else { code::SB_COPY };
        ctx.find(code, Place::ag(ag), format!("bytes from {used} on are not 0"));
    }
}

fn features(sb: &Superblock) -> Vec<Rule> {
    let version = sb.version_flags();
    let (two, bad_two) = (sb.features2.get(), sb.bad_features2.get());
    let known = NEEDED
        | Version::ATTR
        | Version::QUOTA
        | Version::ALIGN
        | Version::DALIGN
        | Version::SECTOR
        | Version::BORG;
    let sector = sb.sectsize.get() > 512;
    vec![
        (version.contains(NEEDED) && known.contains(version), format!("versionnum {version:?}")),
        (two & NEEDED2 == NEEDED2 && two & !0x3bb == 0, format!("features2 {two:#x}")),
        (two == bad_two, format!("bad_features2 {bad_two:#x} is not features2 {two:#x}")),
        (sb.incompat().contains(Incompat::FTYPE), "no file types in directories".into()),
        (sb.features_compat.get() == 0, "unknown compatible features".into()),
        (sb.log_incompat().bits() == 0, "features of a dirty log".into()),
        (
            version.contains(Version::SECTOR) || !sector,
            format!("SECTOR bit against sectors of {}", sb.sectsize.get()),
        ),
        (sb.flags == 0 && sb.shared_vn == 0, "flags or shared_vn are not 0".into()),
    ]
}

fn layout(sb: &Superblock) -> Vec<Rule> {
    let (unit, width) = (sb.unit.get(), sb.width.get());
    let rext = u64::from(sb.rextsize.get()) * u64::from(sb.blocksize.get());
    let realtime = sb.rblocks.get() != 0;
    let no_realtime = sb.rextents.get() == 0 && sb.rbmblocks.get() == 0 && sb.frextents.get() == 0;
    let sector = sb.version_flags().contains(Version::SECTOR);
    let (log_size, log_log) = (sb.logsectsize.get(), sb.logsectlog);
    let log_sector = log_size.is_power_of_two()
        && log_size >= 512
        && u32::from(log_log) == u32::from(log_size).trailing_zeros();
    let agsize = u64::from(sb.agblocks.get());
    vec![
        ((unit == 0) == (width == 0), format!("stripe unit {unit}, width {width}")),
        (unit == 0 || width.is_multiple_of(unit), format!("stripe unit {unit}, width {width}")),
        ((4096..=1 << 30).contains(&rext), format!("realtime extents of {rext} bytes")),
        (realtime || no_realtime, "realtime counts without a realtime device".into()),
        (realtime || sb.rextslog == 0, format!("rextslog {}", sb.rextslog)),
        (
            if sector { log_sector } else { log_size == 0 && log_log == 0 },
            format!("log sectors of {log_size}, logarithm {log_log}"),
        ),
        (sb.logsunit.get() != 0, "log stripe unit 0".into()),
        (sb.logblocks.get() <= 1 << 20, format!("log of {} blocks", sb.logblocks.get())),
        (agsize * u64::from(sb.blocksize.get()) <= 1 << 40, format!("AGs of {agsize} blocks")),
        (sb.inoalignmt.get() < sb.agblocks.get(), format!("inode alignment {}", sb.inoalignmt)),
        (
            sb.incompat().contains(Incompat::SPINODES) || sb.spino_align.get() == 0,
            format!("sparse inode alignment {} without sparse inodes", sb.spino_align),
        ),
    ]
}

/// The inode numbers at which mkfs puts the root directory: the first chunk behind the initial
/// metadata of an AG. If one block holds all free extents of a group, mkfs.xfs 7 puts no blocks in
/// the free list for the trees' growth, and mkfs.xfs 6.1 puts one for each tree.
fn root_inodes(geo: &Geometry) -> [u64; 2] {
    let (rmap, finobt, reflink) = (geo.has_rmap(), geo.has_finobt(), geo.has_reflink());
    let roots = 3 + u32::from(rmap) + u32::from(finobt) + u32::from(reflink);
    let size = geo.block_size as usize;
    let heights = |tree: TreeKind, records: u32| tree.max_height(size, records.into()).min(2);
    let bno = heights(TreeKind::Bno, geo.ag_blocks.div_ceil(2));
    // The group's size does not bound the number of mappings of shared blocks.
    let rmaps = match rmap {
        true if reflink => 2,
        true => heights(TreeKind::Rmap, geo.ag_blocks),
        false => 0,
    };
    let newer = |height: u32| (2 * height).saturating_sub(2);
    let log = match geo.log_start.0 != 0 && geo.fsb_ag(geo.log_start).0 == 0 {
        true => geo.log_blocks,
        false => 0,
    };
    // The stripe unit matters only if the chunk alignment exceeds one block.
    let (unit, own) = (geo.stripe_unit, geo.inode_align);
    let align = if unit > 0 && own > 1 && unit.is_multiple_of(own) { unit } else { own };
    [2 * bno + rmaps, 2 * newer(bno) + newer(rmaps)].map(|list| {
        let first = u64::from(geo.ag_header_blocks() + roots + list) + u64::from(log);
        first.next_multiple_of(align.into()) << geo.inopb_log
    })
}

/// Finds a secondary superblock, completes it to serve as the primary, and returns it with its
/// group. Secondary superblocks lack the inode numbers, but those are at fixed positions.
pub(crate) fn from_copy(dev: &dyn BlockDev) -> Option<(Superblock, AgNo)> {
    let mut read = |at: u64, buf: &mut [u8]| dev.read_at(at, buf).is_ok();
    let copy = copies::find(dev.len(), COPY_SCAN, &mut read)?;
    let mut sb = *Superblock::verify(&copy.sector).ok()?;
    let [root, _] = root_inodes(&Geometry::new(&sb));
    sb.rootino.set(root);
    sb.rbmino.set(root + 1);
    sb.rsumino.set(root + 2);
    sb.inprogress = 0;
    Some((sb, copy.ag))
}

fn inodes(ctx: &Ctx<'_>) -> Vec<Rule> {
    let (sb, geo) = (&ctx.sb, &ctx.geo);
    let (stored, bitmap, summary) = (sb.rootino.get(), sb.rbmino.get(), sb.rsumino.get());
    let [older, newer] = root_inodes(geo);
    let root = if stored == newer { newer } else { older };
    vec![
        (stored == root, format!("root directory is inode {stored}, expected {root}")),
        (bitmap == root + 1, format!("realtime bitmap is inode {bitmap}, expected {}", root + 1)),
        (
            summary == root + 2,
            format!("realtime summary is inode {summary}, expected {}", root + 2),
        ),
    ]
}

/// The quota inodes in the superblock.
pub(crate) fn quota_inodes(sb: &Superblock) -> impl Iterator<Item = Ino> {
    let all = [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()];
    let used = sb.version_flags().contains(Version::QUOTA);
    all.into_iter().map(Ino).filter(move |ino| used && ino.0 != 0 && !ino.is_null())
}

fn quota(ctx: &Ctx<'_>) {
    let sb = &ctx.sb;
    let bad = |message: String| ctx.find(code::QUOTA, Place::VOLUME, message);
    if sb.version_flags().contains(Version::QUOTA) {
        // The old group and project quota bits do not exist in version 5.
        if sb.qflags.get() & !0x7cf != 0 {
            bad(format!("unknown quota flags in {:#x}", sb.qflags.get()));
        }
        if quota_inodes(sb).next().is_none() {
            let message = "quotas are announced, but there is no quota inode".to_owned();
            ctx.find(code::QUOTA_NONE, Place::VOLUME, message);
        }
        return;
    }
    if sb.qflags.get() != 0 {
        bad(format!("quota flags {:#x} on a volume without quotas", sb.qflags.get()));
    }
    for ino in [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()] {
        if ino != 0 && ino != u64::MAX {
            bad(format!("quota inode {ino} on a volume without quotas"));
        }
    }
}

/// Checks the secondary superblock of a group.
pub(crate) fn check_copy(ctx: &Ctx<'_>, ag: AgNo) {
    let place = Place::ag(ag);
    let mut sector = vec![0; ctx.geo.sector_size as usize];
    if !ctx.read(ctx.geo.ag_sector_daddr(ag, 0), &mut sector, &place) {
        return;
    }
    let copy = match Superblock::verify(&sector) {
        Ok(copy) => copy,
        Err(e) => {
            ctx.find(code::SB_COPY, place, e.detail);
            return;
        }
    };
    tail(ctx, &sector, ag);
    let sb = &ctx.sb;
    let numbers = |sb: &Superblock| {
        [
            ("blocksize", sb.blocksize.get().into()),
            ("dblocks", sb.dblocks.get()),
            ("rblocks", sb.rblocks.get()),
            ("rextents", sb.rextents.get()),
            ("logstart", sb.logstart.get()),
            ("rextsize", sb.rextsize.get().into()),
            ("agblocks", sb.agblocks.get().into()),
            ("agcount", sb.agcount.get().into()),
            ("rbmblocks", sb.rbmblocks.get().into()),
            ("logblocks", sb.logblocks.get().into()),
            ("sectsize", sb.sectsize.get().into()),
            ("inodesize", sb.inodesize.get().into()),
            ("dirblklog", sb.dirblklog.into()),
            ("rextslog", sb.rextslog.into()),
            ("imax_pct", u64::from(sb.imax_pct > 100)),
            ("features2", sb.features2.get().into()),
            ("features_compat", sb.features_compat.get().into()),
            ("features_ro_compat", sb.ro_compat().bits().into()),
            ("features_incompat", u64::from(sb.incompat().bits() & !Incompat::NEEDSREPAIR.bits())),
            ("inoalignmt", sb.inoalignmt.get().into()),
            ("flags", u64::from(sb.flags) << 8 | u64::from(sb.shared_vn)),
            ("logsectsize", u64::from(sb.logsectsize.get()) << 8 | u64::from(sb.logsectlog)),
        ]
    };
    for ((name, stored), (_, wanted)) in numbers(copy).into_iter().zip(numbers(sb)) {
        if stored != wanted {
            let message = format!("{name} is {stored}, {wanted} in the primary");
            ctx.find(code::SB_COPY, place.clone(), message);
        }
    }
    for (fine, message) in features(copy)
        .into_iter()
        .chain(layout(copy))
        .chain(quota_copy(copy, sb))
        .chain(of_copy(copy, sb))
    {
        if !fine {
            ctx.find(code::SB_COPY, place.clone(), message);
        }
    }
    let fixed = |version: Version| version - Version::ATTR - Version::QUOTA - Version::DALIGN;
    if copy.uuid != sb.uuid || fixed(copy.version_flags()) != fixed(sb.version_flags()) {
        ctx.find(code::SB_COPY, place, "UUID or version differs from the primary's");
    }
}

/// Rules for a secondary superblock. Its inode numbers are unset (mkfs wrote most secondary
/// superblocks before it had inodes) or equal the primary's. Its `inprogress` is 0 or 1.
fn of_copy(copy: &Superblock, sb: &Superblock) -> Vec<Rule> {
    let numbers = |sb: &Superblock| [sb.rootino.get(), sb.rbmino.get(), sb.rsumino.get()];
    let fine = |(stored, wanted): (u64, u64)| stored == 0 || stored == u64::MAX || stored == wanted;
    let inodes = numbers(copy).into_iter().zip(numbers(sb)).all(fine);
    vec![
        (inodes, "numbers of the root directory or the realtime inodes differ".into()),
        (copy.inprogress <= 1, format!("inprogress is {}", copy.inprogress)),
    ]
}

/// Quota inodes in a secondary superblock are unset or equal the primary's.
fn quota_copy(copy: &Superblock, sb: &Superblock) -> Vec<Rule> {
    let numbers = |sb: &Superblock| [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()];
    let fine = |(stored, wanted): (u64, u64)| stored == 0 || stored == u64::MAX || stored == wanted;
    let inodes = numbers(copy).into_iter().zip(numbers(sb)).all(fine);
    let flags = copy.qflags.get() == 0 || copy.qflags == sb.qflags;
    vec![(inodes && flags, "quota inodes or flags differ from the primary's".into())]
}

/// Checks the counters, which are exact on a clean volume.
pub(crate) fn check_counters(ctx: &Ctx<'_>, groups: &[Group]) {
    let sum = |each: &dyn Fn(&Group) -> u64| groups.iter().map(each).sum::<u64>();
    let inodes = sum(&|group| group.inodes.0.into());
    let free_inodes = sum(&|group| group.inodes.1.into());
    let free = sum(&|group| group.free);
    let counters = [
        ("icount", ctx.sb.icount.get(), inodes),
        ("ifree", ctx.sb.ifree.get(), free_inodes),
        ("fdblocks", ctx.sb.fdblocks.get(), free),
    ];
    for (name, stored, counted) in counters {
        if stored != counted {
            let message = format!("{name} is {stored}, counted {counted}");
            ctx.find(code::SB_COUNTER, Place::VOLUME, message);
        }
    }
}
