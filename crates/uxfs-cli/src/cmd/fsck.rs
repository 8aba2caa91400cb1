//! `uxfs fsck`: checks a volume and replays its log, with the options and exit codes of fsck(8).
//!
//! 1. The volume is checked first, with its log replayed in memory. The device is written to only if
//!    this finds no damage, so a damaged volume keeps every byte for a later repair.
//! 2. Replaying is the only repair. Damage is reported.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, json};
use uxfs::disk::OpenMode;
use uxfs::{Fs, OpenOptions};
use uxfs_check::{LogState, Verdict, code};

use super::check;
use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{address, interrupt, json};

/// Check a volume before it is mounted, and replay its log
///
/// Checks the volume as uxfs check does. If it is sound and its log is dirty, as after a power cut,
/// --replay writes in place what the log holds, so that programs that refuse dirty logs accept the
/// volume. -a, -p and -y, which fsck(8) and boot scripts pass, include --replay. A damaged volume is
/// never written to: repair it with uxfs repair.
///
/// Exit status, of which several can be added: 0 clean; 1 the log was replayed; 4 damage found, or the
/// log is dirty and was not replayed; 8 the volume could not be checked or written; 16 wrong command
/// line; 32 cancelled by a signal.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs fsck disk.img\n  \
    uxfs fsck --replay disk.img\n  \
    uxfs fsck -a /dev/vdb && mount /dev/vdb /mnt\n  \
    uxfs fsck --json -n disk.img | jq .verdict")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Replay a dirty log if the volume is sound
    #[arg(long)]
    replay: bool,
    /// Change nothing
    #[arg(short = 'n', id = "no_modify",
          conflicts_with_all = ["replay", "automatic", "preen", "yes"])]
    _no_modify: bool,
    /// Repair without questions: the same as --replay
    #[arg(short = 'a', id = "automatic")]
    automatic: bool,
    /// The same as -a
    #[arg(short = 'p', id = "preen")]
    preen: bool,
    /// Answer yes to all questions: the same as --replay
    #[arg(short = 'y', id = "yes")]
    yes: bool,
    /// Check even if the volume seems clean; this command always does
    #[arg(short = 'f', id = "force")]
    _force: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The image or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

// Exit codes of fsck(8), besides `check::OPERATIONAL`.
const CORRECTED: u8 = 1;
const UNCORRECTED: u8 = 4;
const USAGE: u8 = 16;
const CANCELLED: i32 = 32;

/// Checks the volume, replays its log if wanted, and prints what was found.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let path = &options.image;
    let wanted = options.replay || options.automatic || options.preen || options.yes;
    if wanted && images.norecovery() {
        let why = "--norecovery cannot be combined with --replay, -a, -p and -y";
        session.fail_with(USAGE, Failure::bare(why));
        return Ok(());
    }
    // A replay that is cut is continued by the next one, so the process can end at any moment.
    let words = format!("uxfs: fsck: {}: cancelled; run it again", path.display());
    interrupt::cancel(CANCELLED, words).map_err(|error| Failure::host(path, &error))?;
    let Some(mut report) = check::verify(path, options.quiet, session, images) else {
        return Ok(());
    };
    let mut exit = if report.incomplete { check::OPERATIONAL } else { 0 };
    let mut transactions = None;
    match report.verdict() {
        Verdict::Clean => {}
        Verdict::Damaged => {
            exit |= UNCORRECTED;
            advise(session, path, "uxfs fsck repairs no damage: see uxfs repair");
        }
        // What was not read may be damaged.
        Verdict::LogNotReplayed if wanted && !report.incomplete => match replay(path, images) {
            Ok(count) => {
                exit |= CORRECTED;
                transactions = Some(count);
                report.log = LogState::Clean;
                // It says that the log holds changes.
                report.findings.retain(|finding| finding.code != code::LOG_REPLAYED.name);
            }
            Err(failure) => {
                exit |= UNCORRECTED | check::OPERATIONAL;
                session.fail(failure);
            }
        },
        Verdict::LogNotReplayed => {
            exit |= UNCORRECTED;
            let what = "the log is dirty: run uxfs fsck --replay, or mount the volume";
            advise(session, path, what);
        }
    }
    session.set_code(exit);
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(path.display().to_string()));
        map.insert("replayed".into(), json!(transactions.is_some()));
        map.insert("transactions".into(), json!(transactions.unwrap_or(0)));
        map.extend(report.to_json());
        return session.print(json::document("fsck", map));
    }
    if let Some(count) = transactions {
        session.print(format!("log replayed: {count} transactions\n"))?;
    }
    session.print(format!("{report}\n"))
}

fn advise(session: &Session, path: &Path, what: &str) {
    session.say(format!("uxfs: fsck: {}: {what}", path.display()).as_bytes());
}

/// Replays the log on the device and leaves it clean. Returns the number of transactions in it.
fn replay(path: &Path, images: &Images) -> Result<u64> {
    let dev = address::open(path, OpenMode::Write, images.location())
        .map_err(|error| Failure::host(path, &error))?;
    let failed = |error| Failure::volume(path, error);
    let fs = Fs::open(dev, OpenOptions::default()).map_err(failed)?;
    let count = fs.recovery().map_or(0, |recovery| recovery.replay.transactions);
    fs.close().map_err(failed)?;
    Ok(count)
}
