//! The superblock: found, from any copy if need be, and put right together with its copies.
//!
//! 1. A primary superblock with a right checksum and possible fields is trusted where most copies do not
//!    contradict it.
//! 2. From a copy come geometry and features. The label, the quota inodes and the hints of the primary
//!    stay where its checksum is right.
//! 3. The counters are those of the groups, after these are sound.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use uxfs_check::{Finding, Place, code};
use uxfs_disk::BlockDev;
use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::dquot::{self, Dquot, QuotaFlags, QuotaType};
use uxfs_format::features::{Incompat, LogIncompat, Version};
use uxfs_format::inode::{self, CORE_LEN, Fork, InodeCore, S_IFMT, S_IFREG};
use uxfs_format::superblock::{CRC_OFFSET, Superblock, used_len};
use uxfs_format::{AgNo, Geometry, Ino, copies, crc};
use zerocopy::IntoBytes;

use crate::burst;
use crate::error::{RepairError, Result};
use crate::fork;
use crate::pass::{Known, Pass};
use crate::volume::Volume;

/// Bytes at the start of a device that are searched for a copy.
const SCAN: u64 = 4 << 30;
/// Bits of the version that may differ between the superblock and its copies.
const CHANGING: Version = Version::ATTR.union(Version::QUOTA).union(Version::DALIGN);
/// Blocks of a file that are searched for records of quota.
const SEARCHED: usize = 1024;
/// Longest sector.
const LONGEST: usize = 32768;

/// The inodes that the superblock names, besides the root.
pub(crate) fn internal(sb: &Superblock) -> Vec<Ino> {
    let quota = [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()];
    let used = sb.version_flags().contains(Version::QUOTA);
    let quota = quota.into_iter().filter(|ino| used && *ino != 0 && *ino != u64::MAX);
    [sb.rbmino.get(), sb.rsumino.get()].into_iter().chain(quota).map(Ino).collect()
}

/// The superblock to trust, and why it is not the primary as it stands.
pub(crate) fn find(dev: &Arc<dyn BlockDev>) -> Result<(Superblock, Option<String>)> {
    let len = usize::try_from(dev.len()).unwrap_or(usize::MAX).min(LONGEST);
    let mut sector = vec![0; len];
    let failed = |source| RepairError::Io { what: "reading the superblock", offset: 0, source };
    dev.read_at(0, &mut sector).map_err(failed)?;
    let problem = match Superblock::verify(&sector) {
        Ok(sb) => match contradicted(dev, sb) {
            None => return Ok((*sb, None)),
            Some(problem) => problem,
        },
        Err(problem) => problem.detail,
    };
    if let Some(sb) = bits_put_back(&sector)
        && contradicted(dev, &sb).is_none()
    {
        return Ok((sb, Some("a few bits were changed, which its checksum tells".into())));
    }
    let mut read = |at: u64, buf: &mut [u8]| dev.read_at(at, buf).is_ok();
    let Some(copy) = copies::find(dev.len(), SCAN, &mut read) else {
        return match Superblock::verify(&sector) {
            Ok(sb) => Ok((*sb, None)),
            Err(_) => Err(RepairError::Beyond(format!(
                "the superblock is damaged ({problem}), and no copy of it was found"
            ))),
        };
    };
    let mut sb = *Superblock::verify(&copy.sector).map_err(|e| RepairError::Beyond(e.detail))?;
    roots(dev, &mut sb)?;
    sb.inprogress = 0;
    let old = Superblock::verify(&sector).ok();
    if let Some(old) = old.filter(|old| old.uuid == sb.uuid) {
        sb.fname = old.fname;
        let own = old.version_flags() & CHANGING;
        sb.versionnum.set(sb.versionnum.get() & !CHANGING.bits() | own.bits());
        (sb.uquotino, sb.gquotino, sb.pquotino) = (old.uquotino, old.gquotino, old.pquotino);
        (sb.qflags, sb.imax_pct, sb.unit, sb.width) =
            (old.qflags, old.imax_pct, old.unit, old.width);
        if !crate::superblock::is_possible(&sb) {
            (sb.unit, sb.width) = (0.into(), 0.into());
            sb.versionnum.set(sb.versionnum.get() & !Version::DALIGN.bits());
        }
    }
    // With the first attribute the kernel sets the bit; it may stay set.
    sb.versionnum.set(sb.versionnum.get() | Version::ATTR.bits());
    let message = format!("{problem}; the copy in AG {} takes its place", copy.ag);
    Ok((sb, Some(message)))
}

/// Does a superblock pass its verification, once it is stamped?
fn is_possible(sb: &Superblock) -> bool {
    Superblock::verify(&sector_of(sb)).is_ok()
}

/// The superblock with a short burst of flipped bits put back.
fn bits_put_back(sector: &[u8]) -> Option<Superblock> {
    [512, 1024, 2048, 4096].into_iter().find_map(|len| {
        let mut sector = sector.get(..len)?.to_vec();
        burst::undo(&mut sector, CRC_OFFSET).then_some(())?;
        let sb = Superblock::verify(&sector).ok()?;
        (usize::from(sb.sectsize.get()) == len).then_some(*sb)
    })
}

/// Why most copies say that the primary's geometry is another one.
fn contradicted(dev: &Arc<dyn BlockDev>, sb: &Superblock) -> Option<String> {
    let geo = Geometry::new(sb);
    let (mut agree, mut differ) = (0, 0);
    let group = u64::from(geo.ag_blocks) << geo.block_log;
    for ag in 1..sb.agcount.get().min(17) {
        let mut sector = vec![0; geo.sector_size as usize];
        let there = dev.read_at(u64::from(ag) * group, &mut sector).is_ok();
        let Some(copy) = Superblock::verify(&sector).ok().filter(|_| there) else { continue };
        let same = |sb: &Superblock| {
            let features = sb.incompat() - Incompat::NEEDSREPAIR;
            (
                [sb.blocksize.get(), sb.agblocks.get(), sb.agcount.get(), sb.logblocks.get()],
                [sb.dblocks.get(), sb.logstart.get(), sb.rblocks.get()],
                [sb.features_ro_compat.get(), features.bits(), sb.inoalignmt.get()],
                [
                    sb.features2.get(),
                    sb.features_compat.get(),
                    sb.rextsize.get(),
                    sb.logsunit.get(),
                ],
                [sb.sectsize.get(), sb.inodesize.get(), sb.logsectsize.get()],
                [sb.dirblklog, sb.rextslog, sb.flags, sb.shared_vn, sb.logsectlog],
                sb.version_flags() - CHANGING,
            )
        };
        let root = [0, u64::MAX, sb.rootino.get()].contains(&copy.rootino.get());
        match same(copy) == same(sb) && copy.uuid == sb.uuid && root {
            true => agree += 1,
            false => differ += 1,
        }
    }
    (differ > agree).then(|| format!("{differ} copies differ from it, {agree} agree"))
}

/// Sets the numbers of the root directory and the realtime inodes, which not all copies have.
fn roots(dev: &Arc<dyn BlockDev>, sb: &mut Superblock) -> Result<()> {
    let geo = Geometry::new(sb);
    let group = u64::from(geo.ag_blocks) << geo.block_log;
    let known = |ino: u64| ino != 0 && ino != u64::MAX;
    for ag in 1..sb.agcount.get() {
        let mut sector = vec![0; geo.sector_size as usize];
        if known(sb.rootino.get()) {
            break;
        }
        if dev.read_at(u64::from(ag) * group, &mut sector).is_ok()
            && let Ok(copy) = Superblock::verify(&sector)
            && copy.uuid == sb.uuid
        {
            sb.rootino = copy.rootino;
        }
    }
    if !known(sb.rootino.get()) {
        return Err(RepairError::Beyond(
            "no copy of the superblock names the root directory".into(),
        ));
    }
    // mkfs puts them side by side.
    sb.rbmino.set(sb.rootino.get() + 1);
    sb.rsumino.set(sb.rootino.get() + 2);
    Ok(())
}

/// A superblock's sector, stamped.
fn sector_of(sb: &Superblock) -> Vec<u8> {
    let mut sector = vec![0; usize::from(sb.sectsize.get()).clamp(512, LONGEST)];
    let used = used_len(sb.incompat());
    sector[..used].copy_from_slice(&sb.as_bytes()[..used]);
    crc::stamp(&mut sector, CRC_OFFSET);
    sector
}

/// Puts the fields of the trusted superblock right that have one right value.
fn settle(volume: &mut Volume) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    let sb = &mut volume.sb;
    let needs = sb.incompat().contains(Incompat::NEEDSREPAIR);
    if needs {
        let incompat = sb.incompat() - Incompat::NEEDSREPAIR;
        sb.features_incompat.set(incompat.bits());
        wrong.push("it is marked as in need of repair".into());
    }
    if sb.inprogress != 0 {
        sb.inprogress = 0;
        wrong.push("it is marked as unfinished".into());
    }
    if sb.log_incompat() != LogIncompat::empty() {
        sb.features_log_incompat.set(0);
        wrong.push("it names features of a log that is clean".into());
    }
    if sb.bad_features2 != sb.features2 {
        sb.bad_features2 = sb.features2;
        wrong.push("bad_features2 differs from features2".into());
    }
    let beside = [sb.rootino.get() + 1, sb.rootino.get() + 2];
    if [sb.rbmino.get(), sb.rsumino.get()] != beside {
        (sb.rbmino, sb.rsumino) = (beside[0].into(), beside[1].into());
        wrong.push("the realtime inodes are not beside the root directory".into());
    }
    for count in [&mut sb.rextents, &mut sb.frextents] {
        if sb.rblocks.get() == 0 && count.get() != 0 {
            count.set(0);
            wrong.push("realtime extents are counted, and there are none".into());
        }
    }
    if sb.rblocks.get() == 0 && sb.rbmblocks.get() != 0 {
        sb.rbmblocks.set(0);
        wrong.push("blocks of a realtime bitmap are counted, and there is none".into());
    }
    let quota = sb.version_flags().contains(Version::QUOTA);
    if !quota && sb.qflags.get() != 0 {
        sb.qflags.set(0);
        wrong.push("quota flags without quota".into());
    }
    for ino in [&mut sb.uquotino, &mut sb.gquotino, &mut sb.pquotino] {
        if !quota && ino.get() != 0 && ino.get() != u64::MAX {
            ino.set(u64::MAX);
            wrong.push("a quota inode without quota".into());
        }
    }
    // What was counted may be wrong now. The next open for writing counts again.
    let flags = QuotaFlags::from_bits_truncate(sb.qflags.get());
    if quota && flags.intersects(QuotaFlags::CHKD) {
        sb.qflags.set((flags - QuotaFlags::CHKD).bits());
        wrong.push("what quota counted may be wrong; the next mount counts again".into());
    }
    if sb.unit.get() != 0 && !sb.width.get().is_multiple_of(sb.unit.get())
        || sb.width.get() == 0 && sb.unit.get() != 0
    {
        sb.width = sb.unit;
        wrong.push("a stripe width that is no multiple of the unit".into());
    }
    if volume.is_ahead(uxfs_format::Lsn(volume.sb.lsn.get())) {
        volume.sb.lsn.set(0);
        wrong.push("its LSN is ahead of the log".into());
    }
    wrong
}

/// Writes the primary superblock and the copies that differ.
pub(crate) fn mend(volume: &mut Volume, problem: Option<&str>, findings: &[Finding]) -> Result<()> {
    let mut wrong: Vec<String> = problem.into_iter().map(str::to_owned).collect();
    wrong.extend(settle(volume));
    let primary = findings.iter().any(|finding| {
        [code::SB.name, code::SB_FIELD.name].contains(&finding.code)
            || finding.code == code::LSN.name && finding.place == Place::ag(AgNo(0))
    });
    if primary && wrong.is_empty() {
        wrong.push("a field breaks a rule".into());
    }
    volume.geo = Geometry::new(&volume.sb);
    if !wrong.is_empty() {
        write(volume, AgNo(0), &wrong.join("; "))?;
    }
    let copies: Vec<AgNo> = findings
        .iter()
        .filter(|finding| finding.code == code::SB_COPY.name)
        .filter_map(|finding| finding.place.ag)
        .filter(|ag| ag.0 > 0 && ag.0 < volume.geo.ag_count)
        .collect();
    for ag in copies {
        write(volume, ag, "it is damaged or differs from the primary")?;
    }
    Ok(())
}

fn write(volume: &mut Volume, ag: AgNo, wrong: &str) -> Result<()> {
    let name = if ag.0 == 0 { "superblock" } else { "superblock copy" };
    let becomes = if ag.0 == 0 { "its fields are put right" } else { "it is as the primary" };
    let step = volume.step(name, Place::ag(ag), wrong, becomes);
    let sector = sector_of(&volume.sb);
    let daddr = volume.geo.ag_sector_daddr(ag, 0);
    volume.write(step, daddr.bytes(), &sector)
}

/// Does a file hold records of quota? Only its first blocks are looked at.
fn has_records(volume: &Volume, ino: Ino) -> Result<bool> {
    let raw = volume.inode(ino)?;
    let Ok(core) = InodeCore::decode_unchecked(&raw, ino) else { return Ok(false) };
    let range = core.fork_range(Fork::Data, raw.len() - CORE_LEN);
    let map = fork::read(volume, ino, &core, Fork::Data, &raw[CORE_LEN..][range])?;
    let blocks = map.extents.iter().flat_map(|e| (0..e.len).map(|number| e.start.plus(number)));
    let is_record = |raw: &[u8]| {
        let of = |kind: QuotaType| Dquot::decode(raw, kind, dquot::ID.get(raw)).is_ok();
        QuotaType::ALL.into_iter().any(of)
            && (!volume.geo.has_crc() || crc::matches(raw, dquot::CRC_OFFSET))
    };
    for block in blocks.take(SEARCHED) {
        if volume.blocks(block, 1)?.chunks_exact(dquot::LEN).any(is_record) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives up what the superblock names as a quota inode and what is none: another type of file, or a file
/// with a length and without a record (the length of a quota inode is 0). Called before the links are
/// followed, so that such a file keeps its names.
pub(crate) fn disown_files(volume: &mut Volume) -> Result<()> {
    if !volume.sb.version_flags().contains(Version::QUOTA) {
        return Ok(());
    }
    let named = [volume.sb.uquotino, volume.sb.gquotino, volume.sb.pquotino];
    let mut disowned = FxHashSet::default();
    for ino in named.map(|ino| Ino(ino.get())) {
        if !volume.geo.ino_valid(ino) {
            continue;
        }
        let raw = volume.inode(ino)?;
        let Ok(core) = InodeCore::decode_unchecked(&raw, ino) else { continue };
        let other = core.mode != 0 && core.mode & S_IFMT != S_IFREG;
        if inode::has_magic(&raw) && (other || core.size > 0 && !has_records(volume, ino)?) {
            disowned.insert(ino.0);
        }
    }
    if disowned.is_empty() {
        return Ok(());
    }
    give_up(volume, &disowned);
    write(volume, AgNo(0), "a file that holds no quota is named as a quota inode")
}

/// Clears the fields that name these inodes, and switches quota off if no field is left.
fn give_up(volume: &mut Volume, gone: &FxHashSet<u64>) {
    let sb = &mut volume.sb;
    for ino in [&mut sb.uquotino, &mut sb.gquotino, &mut sb.pquotino] {
        if gone.contains(&ino.get()) {
            ino.set(u64::MAX);
        }
    }
    if [sb.uquotino, sb.gquotino, sb.pquotino].iter().all(|ino| matches!(ino.get(), 0 | u64::MAX)) {
        sb.versionnum.set(sb.versionnum.get() & !Version::QUOTA.bits());
        sb.qflags.set(0);
    }
}

/// Gives up quota inodes that are lost or whose records are damaged.
pub(crate) fn drop_quota(
    volume: &mut Volume,
    pass: &mut Pass,
    findings: &[Finding],
) -> Result<FxHashSet<Ino>> {
    let is_file = |pass: &Pass, ino: Ino| pass.get(ino).is_some_and(Known::is_file);
    let damaged = |ino: Ino| {
        let is_bad = |finding: &Finding| {
            finding.code == code::QUOTA.name && finding.place.inode == Some(ino)
        };
        findings.iter().any(is_bad) || !is_file(pass, ino)
    };
    let named = [volume.sb.uquotino, volume.sb.gquotino, volume.sb.pquotino].map(|ino| ino.get());
    let used = volume.sb.version_flags().contains(Version::QUOTA);
    let kept = |ino: &u64| !used || *ino == 0 || *ino == u64::MAX || !damaged(Ino(*ino));
    let mut gone: FxHashSet<Ino> = named.into_iter().filter(|ino| !kept(ino)).map(Ino).collect();
    if gone.is_empty() {
        return Ok(gone);
    }
    give_up(volume, &gone.iter().map(|ino| ino.0).collect());
    write(volume, AgNo(0), "a quota inode is lost, or its records are damaged")?;
    gone.retain(|ino| is_file(pass, *ino));
    for ino in &gone {
        let mut raw = volume.inode(*ino)?;
        crate::inode::encode_free(volume, *ino, &mut raw);
        let wrong = "damaged quota records";
        let step = volume.step("inode", Place::inode(*ino), wrong, "a free inode");
        volume.lose(step, "the limits in it");
        volume.write(step, volume.inode_at(*ino), &raw)?;
    }
    pass.free(volume, &gone);
    Ok(gone)
}

/// Makes the counters those of the groups.
pub(crate) fn count(volume: &mut Volume) -> Result<()> {
    let (mut inodes, mut free_inodes, mut free) = (0, 0, 0);
    for ag in volume.groups() {
        let agi = volume.sector(volume.geo.agi_daddr(ag))?;
        let agi = Agi::view(&agi);
        inodes += u64::from(agi.count.get());
        free_inodes += u64::from(agi.freecount.get());
        let agf = volume.sector(volume.geo.agf_daddr(ag))?;
        let agf = Agf::view(&agf);
        free += [agf.freeblks.get(), agf.flcount.get(), agf.btreeblks.get()]
            .into_iter()
            .map(u64::from)
            .sum::<u64>();
    }
    let counters = |sb: &Superblock| (sb.icount.get(), sb.ifree.get(), sb.fdblocks.get());
    if counters(&volume.sb) == (inodes, free_inodes, free) {
        return Ok(());
    }
    let wrong = "counters of inodes and free blocks differ from the groups'";
    volume.sb.icount.set(inodes);
    volume.sb.ifree.set(free_inodes);
    volume.sb.fdblocks.set(free);
    write(volume, AgNo(0), wrong)
}
