//! The rounds of a repair: check, mend what the check finds, until it finds nothing.
//!
//! 1. The first check decides whether there is anything to do. A volume that it finds sound is not
//!    touched.
//! 2. A few rounds are enough, because a round settles everything that it can see; damage may hide other
//!    damage from the first ones. If the last round's check is not content, the repair is an error.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use uxfs_check::{CheckOptions, Finding, Replay, Report, Severity, Verdict, check, code};
use uxfs_core::Devices;
use uxfs_disk::BlockDev;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::Superblock;
use uxfs_format::{AgNo, Ino};

use crate::error::{RepairError, Result};
use crate::links::Suspects;
use crate::options::{Phase, RepairOptions};
use crate::plan::Plan;
use crate::volume::Volume;
use crate::{bits, conflict, group, links, log, pass, refill, rewrite, superblock};

/// Most rounds.
const ROUNDS: usize = 8;
/// Most findings that a check keeps for a round.
const FINDINGS: usize = 200_000;

/// Findings about directories whose blocks or index are wrong.
const DIRS: [uxfs_check::Code; 10] = [
    code::DIR,
    code::DIR_BLOCK,
    code::DIR_SIZE,
    code::DIR_DOUBLE,
    code::DIR_HASH,
    code::DIR_BESTS,
    code::DIR_EXTRA,
    code::DA,
    code::DA_CHAIN,
    code::DA_HASH,
];
/// Findings about attributes.
const ATTRS: [uxfs_check::Code; 11] = [
    code::ATTR,
    code::ATTR_BLOCK,
    code::ATTR_HASH,
    code::ATTR_DOUBLE,
    code::ATTR_VALUE,
    code::ATTR_EXTRA,
    code::PARENT_RECORD,
    code::PARENT,
    code::DA,
    code::DA_CHAIN,
    code::DA_HASH,
];

/// Plans the repair of the volume on `dev`, which does not change. The plan is empty if the volume is
/// sound.
///
/// # Errors
/// [`RepairError`]: there is no volume that can be repaired, or its repair would not leave it sound.
pub fn plan(
    dev: Arc<dyn BlockDev>,
    options: &RepairOptions,
    progress: &(dyn Fn(Phase) + Sync),
) -> Result<Plan> {
    let (sb, problem) = superblock::find(&dev)?;
    supported(&sb, &*dev)?;
    let dev = with_log(&sb, dev, options)?;
    let mut volume = Volume::new(dev, sb);
    progress(Phase::Log);
    if problem.is_some() {
        superblock::mend(&mut volume, problem.as_deref(), &[])?;
    }
    log::replay(&mut volume, options.drop_log)?;
    refresh(&mut volume)?;
    if volume.log_head.is_none() {
        pass::run(&mut volume, &FxHashSet::default(), &FxHashSet::default())?;
        log::make(&mut volume)?;
    }
    let mut last = None;
    for _ in 0..ROUNDS {
        progress(Phase::Check);
        let mut report = examine(&volume)?;
        if is_sound(&report) {
            return volume.into_plan();
        }
        if bits::put_back(&mut volume, &report.findings)? {
            report = examine(&volume)?;
            if is_sound(&report) {
                return volume.into_plan();
            }
        }
        round(&mut volume, &report, progress)?;
        last = Some(report);
    }
    let report = examine(&volume)?;
    if is_sound(&report) {
        return volume.into_plan();
    }
    let first = report.findings.iter().find(|finding| finding.severity == Severity::Error);
    let first = first.or(report.findings.first()).map_or_else(String::new, Finding::to_string);
    let stuck = last.is_some_and(|last| last.findings == report.findings);
    let how = if stuck { "it stays as it is" } else { "it keeps changing" };
    Err(RepairError::Unsound(format!("{first} ({how})")))
}

/// The superblock that the overlay shows, after others wrote there.
fn refresh(volume: &mut Volume) -> Result<()> {
    let sector = volume.sector(uxfs_format::Daddr(0))?;
    if let Ok(sb) = Superblock::verify(&sector) {
        volume.sb = *sb;
        volume.geo = uxfs_format::Geometry::new(sb);
    }
    Ok(())
}

fn supported(sb: &Superblock, dev: &dyn BlockDev) -> Result<()> {
    let refuse = |what: &str| Err(RepairError::Unsupported(what.into()));
    if sb.is_v4() {
        return refuse("a volume of version 4");
    }
    if sb.incompat().intersects(Incompat::METADIR | Incompat::ZONED | Incompat::ZONE_GAPS) {
        return refuse("a volume with a metadata directory tree");
    }
    if sb.rblocks.get() != 0 {
        return refuse("a volume with a realtime section");
    }
    let needed = sb.dblocks.get().saturating_mul(sb.blocksize.get().into());
    if needed > dev.len() {
        let there = dev.len();
        return Err(RepairError::Beyond(format!(
            "the volume has {needed} bytes and its device only {there}: an image that was cut short"
        )));
    }
    Ok(())
}

/// The device with the log that the volume has, inside or on a device of its own.
fn with_log(
    sb: &Superblock,
    dev: Arc<dyn BlockDev>,
    options: &RepairOptions,
) -> Result<Arc<dyn BlockDev>> {
    let refuse = |what: &str| Err(RepairError::Unsupported(what.into()));
    let Some(log) = options.log.clone() else {
        return match sb.logstart.get() {
            0 => refuse("a volume with an external log whose device is not given (--logdev)"),
            _ => Ok(dev),
        };
    };
    if sb.logstart.get() != 0 {
        return refuse("the log of a volume that has its own inside (--logdev)");
    }
    let needed = u64::from(sb.logblocks.get()).saturating_mul(sb.blocksize.get().into());
    if needed > log.len() {
        let there = log.len();
        return Err(RepairError::Beyond(format!(
            "the log has {needed} bytes and its device only {there}: name the right device"
        )));
    }
    let mut devices = Devices::new(dev);
    devices.log = Some(log);
    devices.side_by_side().map_err(|error| RepairError::Beyond(error.to_string()))
}

fn examine(volume: &Volume) -> Result<Report> {
    let mut options = CheckOptions::default();
    options.max_findings = FINDINGS;
    options.replay = Replay::None;
    Ok(check(&*volume.dev, &options, &|_| {})?)
}

fn is_sound(report: &Report) -> bool {
    report.verdict() == Verdict::Clean && !report.incomplete
}

/// What a report says about each part of the volume.
fn sort(report: &Report, groups: u32) -> (Suspects, FxHashSet<AgNo>, FxHashSet<Ino>) {
    let mut suspects = Suspects::default();
    let mut stale = FxHashSet::default();
    let mut flagged = FxHashSet::default();
    let any = |codes: &[uxfs_check::Code], finding: &Finding| {
        codes.iter().any(|code| code.name == finding.code)
    };
    for finding in &report.findings {
        let lsn = finding.code == code::LSN.name;
        match (finding.place.inode, finding.place.ag) {
            (Some(ino), _) => {
                if any(&DIRS, finding) || lsn {
                    suspects.dirs.insert(ino);
                }
                if any(&ATTRS, finding) || lsn && finding.place.block.is_some() {
                    suspects.attrs.insert(ino);
                }
                if finding.code == code::REFLINK_FLAG.name {
                    flagged.insert(ino);
                }
            }
            (None, Some(ag)) if ag.0 < groups && !any(&[code::SB, code::SB_COPY], finding) => {
                stale.insert(ag);
            }
            _ => {}
        }
    }
    (suspects, stale, flagged)
}

fn round(volume: &mut Volume, report: &Report, progress: &(dyn Fn(Phase) + Sync)) -> Result<()> {
    superblock::mend(volume, None, &report.findings)?;
    superblock::disown_files(volume)?;
    let (suspects, stale, flagged) = sort(report, volume.geo.ag_count);
    progress(Phase::Inodes);
    let mut scan = FxHashSet::default();
    let (mut pass, mut links) = loop {
        let mut pass = pass::run(volume, &flagged, &scan)?;
        let before = volume.steps.len();
        conflict::settle(volume, &mut pass)?;
        let settled = before..volume.steps.len();
        progress(Phase::Links);
        let links = links::settle(volume, &mut pass, &suspects)?;
        if links.doubted.is_empty() {
            break (pass, links);
        }
        // These wrote nothing yet, and come again. Inodes that were mended do not.
        volume.steps.drain(settled);
        scan.extend(&links.doubted);
    };
    // Only now it is known that a quota inode that was not found is not there.
    for ino in superblock::drop_quota(volume, &mut pass, &report.findings)? {
        links.attrs.remove(&ino);
    }
    rewrite::run(volume, &mut pass)?;
    progress(Phase::Groups);
    pass.claims.merge();
    for ag in volume.groups() {
        let found = report
            .findings
            .iter()
            .find(|finding| finding.place.ag == Some(ag) && finding.place.inode.is_none());
        if stale.contains(&ag) || pass.stale.contains(&ag) {
            let wrong = found.map_or("its inodes changed".into(), |found| found.message.clone());
            group::rebuild(volume, &pass, ag, &wrong)?;
        }
    }
    superblock::count(volume)?;
    progress(Phase::Refill);
    refill::run(volume, &links)?;
    superblock::count(volume)
}
