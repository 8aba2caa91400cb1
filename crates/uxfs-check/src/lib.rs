//! A complete, read-only verification of XFS v5 volumes.
//!
//! [`check`] verifies every structure of a volume alone and against all others, and returns a
//! [`Report`] of [`Finding`]s. It shares only the views and rules of `uxfs-format` with the code
//! that changes volumes, so that it can serve as an independent test of that code.
//!
//! 1. Nothing is written, and the log is not replayed here. To judge a volume with a dirty log as
//!    its next mount will find it, the caller replays the log in memory, passes a device that shows
//!    the result, and sets [`CheckOptions::replay`].
//! 2. No input causes a panic, an endless loop or unbounded memory use. The memory for cross checks
//!    is limited ([`CheckOptions::memory_limit`]); every pointer is followed once.
//! 3. An undamaged volume has no findings except notes.
//! 4. If the primary superblock is damaged, a secondary one replaces it. Values that only the
//!    primary holds, such as counters, are then not checked.
//!
//! The check has four phases: groups and their btrees ([`Phase::Groups`]); inodes with directories
//! and attributes ([`Phase::Inodes`]); owners of blocks ([`Phase::Blocks`]); links and counters
//! ([`Phase::Links`]). The first three use all threads.
//!
//! ```
//! use uxfs_check::{CheckOptions, check};
//! use uxfs_disk::MemDev;
//!
//! let empty = MemDev::new(1 << 20);
//! let error = check(&empty, &CheckOptions::default(), &|_| {}).unwrap_err();
//! assert_eq!(error.exit_code(), 8);
//! ```

#![warn(missing_docs)]

mod btree;
mod bytes;
mod chunks;
mod claim;
pub mod code;
mod ctx;
mod error;
mod finding;
mod group;
mod inode;
mod links;
mod log;
mod options;
mod owners;
mod paths;
mod records;
mod report;
mod sb;
mod table;
mod usage;
mod work;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uxfs_disk::BlockDev;
use uxfs_format::features::{Incompat, RoCompat, describe};
use uxfs_format::superblock::{MAGIC, Superblock};
use uxfs_format::{AgNo, Geometry, Ino};

pub use code::Code;
pub use error::CheckError;
pub use finding::{Finding, Place, Severity};
pub use options::{CheckOptions, Phase, Progress, Replay};
pub use report::{LogState, Report, Totals, Verdict};

use ctx::Ctx;
use group::Group;
use inode::{Local, PIECE, Pass};
use table::Table;

/// Minimum size of a group in bytes, except the last one.
const AG_MIN: u64 = 16 << 20;
/// Maximum size of a sector in bytes.
const LONGEST_SECTOR: usize = 32768;

/// Checks the volume on a device. Threads call `progress` from time to time.
///
/// # Errors
/// If there is no volume that can be checked. Damage to a volume is not an error but a finding.
pub fn check(
    dev: &dyn BlockDev,
    options: &CheckOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, CheckError> {
    let sector = read_superblock(dev)?;
    let (sb, damage) = match Superblock::verify(&sector) {
        Ok(sb) => (*sb, None),
        Err(e) => match sb::from_copy(dev) {
            Some((sb, ag)) => {
                let message = format!("{}; the copy in AG {ag} is used instead", e.detail);
                (sb, Some(message))
            }
            None => return unreadable(&sector, e.detail),
        },
    };
    supported(&sb)?;
    let geo = Geometry::new(&sb);
    let state = log::State::of(dev, &geo, &sb, &options.replay);
    let log = state.in_short();
    let mut ctx = Ctx::new(dev, geo, sb, options);
    ctx.log_head = state.head;
    ctx.primary = damage.is_none();
    if let Some(message) = damage {
        ctx.find(code::SB, Place::ag(AgNo(0)), message);
    }
    for (code, message) in state.findings {
        if code == code::LOG_UNFINISHED {
            ctx.set_incomplete();
        }
        ctx.find(code, Place::VOLUME, format!("the log: {message}"));
    }
    if ctx.sb.rblocks.get() != 0 {
        ctx.find(code::REALTIME, Place::VOLUME, "the realtime device was not checked");
    }
    let len = u128::from(ctx.geo.dblocks) << ctx.geo.block_log;
    // Without these two checks, a superblock could cause a walk of billions of groups.
    if len > u128::from(dev.len()) {
        let message = format!("{len} bytes, but the device has {}", dev.len());
        ctx.find(code::SB_SIZE, Place::VOLUME, message);
        return Ok(finish(ctx, log, Totals::default()));
    }
    if u64::from(ctx.geo.ag_blocks) << ctx.geo.block_log < AG_MIN {
        let message = format!("groups of {} blocks, minimum {AG_MIN} bytes", ctx.geo.ag_blocks);
        ctx.find(code::SB_FIELD, Place::VOLUME, message);
        return Ok(finish(ctx, log, Totals::default()));
    }
    if ctx.primary {
        sb::check_primary(&ctx, &sector[..ctx.geo.sector_size as usize]);
    }
    let totals = phases(&ctx, progress);
    Ok(finish(ctx, log, totals))
}

fn finish(ctx: Ctx<'_>, log: LogState, totals: Totals) -> Report {
    let incomplete = ctx.is_incomplete();
    let (findings, left_out) = ctx.into_findings();
    Report { findings, left_out, incomplete, log, totals }
}

fn read_superblock(dev: &dyn BlockDev) -> Result<Vec<u8>, CheckError> {
    let len = usize::try_from(dev.len()).unwrap_or(usize::MAX).min(LONGEST_SECTOR);
    let mut sector = vec![0; len];
    dev.read_at(0, &mut sector).map_err(CheckError::Read)?;
    Ok(sector)
}

/// Handles a superblock that fails verification: not XFS, another version, or damaged.
fn unreadable(sector: &[u8], problem: String) -> Result<Report, CheckError> {
    let Some(sb) = Superblock::view(sector) else { return Err(CheckError::NotXfs(0)) };
    if sb.magicnum.get() != MAGIC {
        return Err(CheckError::NotXfs(sb.magicnum.get()));
    }
    if sb.version() < 5 {
        return Err(old_version(sb));
    }
    let Code { name, severity, .. } = code::SB;
    let place = Place::ag(AgNo(0));
    let finding = Finding { code: name, severity, place, message: problem };
    Ok(Report { findings: vec![finding], incomplete: true, ..Report::default() })
}

fn old_version(sb: &Superblock) -> CheckError {
    let version = sb.version();
    CheckError::Unsupported(format!("XFS version {version} (v{version}, without checksums)"))
}

fn supported(sb: &Superblock) -> Result<(), CheckError> {
    if sb.version() < 5 {
        return Err(old_version(sb));
    }
    let known = Incompat::all() - Incompat::METADIR - Incompat::ZONED - Incompat::ZONE_GAPS;
    let unknown = sb.incompat() - known;
    // `-` of bitflags also drops unknown bits of its left side, but those matter here.
    let more = sb.incompat().bits() & !known.bits();
    if more != 0 {
        let names = if unknown.is_empty() { format!("{more:#x}") } else { describe(unknown) };
        return Err(CheckError::Unsupported(format!("a volume with the features {names}")));
    }
    let more = sb.ro_compat().bits() & !RoCompat::all().bits();
    if more != 0 {
        return Err(CheckError::Unsupported(format!("a volume with the features {more:#x}")));
    }
    Ok(())
}

fn phases(ctx: &Ctx<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Totals {
    let groups = check_groups(ctx, progress);
    let table = Table::new(ctx, &groups);
    meta_inodes(ctx, &table);
    let locals = check_inodes(ctx, &groups, &table, progress);
    let mut totals = Totals { ags: ctx.geo.ag_count.into(), ..Totals::default() };
    for local in &locals {
        totals.inodes += local.totals.inodes;
        totals.directories += local.totals.directories;
        totals.entries += local.totals.entries;
        totals.extents += local.totals.extents;
    }
    totals.free_blocks = groups.iter().map(|group| group.free_blocks).sum();
    let complete = !ctx.is_incomplete()
        && locals.iter().all(|local| !local.incomplete)
        && groups.iter().all(|group| group.complete);
    check_blocks(ctx, &groups, &locals, complete, progress);
    // Unlinked inodes may already be subtracted from the counters.
    match locals.iter().all(|local| local.unlinked.is_empty()) {
        true if complete => usage::check(ctx, locals.iter().map(|local| &local.usage)),
        false if complete => usage::skip(ctx),
        _ => {}
    }
    progress(Progress { phase: Phase::Links, done: 0, total: 1 });
    // Skipped links would cause findings about all inodes that they lead to.
    if !ctx.is_incomplete() {
        links::check(ctx, &groups, &table, locals);
    }
    if ctx.primary {
        sb::check_counters(ctx, &groups);
    }
    paths::fill(ctx, &groups, &table, &mut ctx.findings());
    progress(Progress { phase: Phase::Links, done: 1, total: 1 });
    totals
}

fn check_groups(ctx: &Ctx<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Vec<Group> {
    let count = ctx.geo.ag_count as usize;
    let work = |piece: usize, done: &mut Vec<(usize, Group)>| {
        // The number of groups fits 32 bits.
        let ag = AgNo(piece as u32);
        if piece > 0 {
            sb::check_copy(ctx, ag);
        }
        done.push((piece, group::check(ctx, ag)));
    };
    let done = work::share(ctx.options.threads, count, Phase::Groups, progress, &work);
    let mut groups: Vec<(usize, Group)> = done.into_iter().flatten().collect();
    groups.sort_by_key(|(ag, _)| *ag);
    groups.into_iter().map(|(_, group)| group).collect()
}

fn check_inodes(
    ctx: &Ctx<'_>,
    groups: &[Group],
    table: &Table,
    progress: &(dyn Fn(Progress) + Sync),
) -> Vec<Local> {
    let mut pieces = Vec::new();
    for (ag, group) in (0u32..).map(AgNo).zip(groups) {
        pieces.extend(group.chunks.chunks(PIECE).map(|chunks| (ag, chunks)));
    }
    let pass = Pass { ctx, groups, table };
    let work = |piece: usize, local: &mut Local| {
        let (ag, chunks) = pieces[piece];
        inode::check(&pass, ag, chunks, local);
    };
    work::share(ctx.options.threads, pieces.len(), Phase::Inodes, progress, &work)
}

fn check_blocks(
    ctx: &Ctx<'_>,
    groups: &[Group],
    locals: &[Local],
    complete: bool,
    progress: &(dyn Fn(Progress) + Sync),
) {
    let all: Mutex<FxHashSet<Ino>> = Mutex::default();
    let work = |piece: usize, (): &mut ()| {
        let mut sharing = FxHashSet::default();
        owners::check(ctx, AgNo(piece as u32), &groups[piece], complete, &mut sharing);
        all.lock().extend(sharing);
    };
    work::share(ctx.options.threads, groups.len(), Phase::Blocks, progress, &work);
    let mut sharing = all.into_inner();
    for ino in locals.iter().flat_map(|local| &local.reflinked) {
        sharing.remove(ino);
    }
    for ino in sharing {
        ctx.find(code::REFLINK_FLAG, Place::inode(ino), "shares blocks without the reflink flag");
    }
}

/// Checks that the inodes named by the superblock are in use; entries need not lead to them.
fn meta_inodes(ctx: &Ctx<'_>, table: &Table) {
    if ctx.is_incomplete() {
        return;
    }
    let own = ctx.geo.rt_inos.into_iter().chain(sb::quota_inodes(&ctx.sb));
    for ino in own {
        match table.get(ino).filter(|slot| slot.is_used()) {
            Some(slot) => slot.set_meta(),
            None => {
                let message = "the superblock names it, but it is not in use";
                ctx.find(code::META_INODE, Place::inode(ino), message);
            }
        }
    }
    if table.get(ctx.geo.root_ino).is_none_or(|slot| !slot.is_used()) {
        let message = "the root directory is not in use";
        ctx.find(code::META_INODE, Place::inode(ctx.geo.root_ino), message);
    }
}
