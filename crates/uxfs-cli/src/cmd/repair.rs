//! `uxfs repair`: plans the repair of a damaged volume, applies the plan, or gives every byte back.
//!
//! 1. Without `--apply` nothing is written to the image.
//! 2. A plan is made or read whole before the image changes, and the undo file is on stable storage before
//!    the first byte does.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use uxfs::Devices;
use uxfs::disk::OpenMode;
use uxfs::volume;
use uxfs_repair::{Plan, RepairError, RepairOptions};

use super::check;
use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{interrupt, json};

/// Repair a damaged volume: a plan first, then with an undo file
///
/// Prints a plan: each step names a structure, what is wrong with it, what it becomes, and what is lost. The
/// repair is done in memory first, and uxfs check must find its result sound; otherwise there is no plan.
/// Nothing is written to the image without --apply.
///
/// --apply writes the bytes before to the undo file, and then the image. If it is interrupted, run it again
/// with the same undo file, or give every byte back with --undo. What no directory entry leads to is found
/// in lost+found.
///
/// Exit status: 0 nothing to do, or undone; 1 repaired; 4 damage found and not repaired; 8 the volume could
/// not be repaired, or the writing failed: undo, or run it again; 16 wrong command line; 32 cancelled by a
/// signal.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs repair -n disk.img\n  \
    uxfs repair --apply disk.img && uxfs check disk.img\n  \
    uxfs repair --plan plan.json disk.img && uxfs repair --apply=plan.json disk.img\n  \
    uxfs repair --apply --logdev disk.log disk.img\n  \
    uxfs repair --undo disk.img.undo disk.img")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Change nothing, as without --apply
    #[arg(short = 'n', id = "no_modify", conflicts_with_all = ["apply", "undo"])]
    _no_modify: bool,
    /// Save the plan, with the bytes before and after
    #[arg(long, value_name = "FILE", conflicts_with = "undo")]
    plan: Option<PathBuf>,
    /// Apply the plan; with a file, the one saved there
    #[arg(long, value_name = "PLAN", num_args = 0..=1, require_equals = true,
          default_missing_value = "", conflicts_with = "undo")]
    apply: Option<OsString>,
    /// Where the bytes before the repair go [default: IMAGE.undo; required for a block device]
    #[arg(long, value_name = "FILE", requires = "apply")]
    undo_file: Option<PathBuf>,
    /// Give back every byte that repairs with this undo file changed, and remove the file
    #[arg(long, value_name = "FILE")]
    undo: Option<PathBuf>,
    /// Drop a log that cannot be replayed, with the changes in it
    #[arg(short = 'L', long, conflicts_with = "undo")]
    drop_log: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// The image or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

// Exit codes of fsck(8), besides `check::OPERATIONAL`.
const REPAIRED: u8 = 1;
const NOT_REPAIRED: u8 = 4;
const CANCELLED: i32 = 32;

/// Plans, applies or undoes a repair.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let path = &options.image;
    let words = format!("uxfs: repair: {}: cancelled; run it again, or undo", path.display());
    interrupt::cancel(CANCELLED, words).map_err(|error| Failure::host(path, &error))?;
    if let Err(failure) = act(options, session, images) {
        session.fail_with(check::OPERATIONAL, failure);
    }
    Ok(())
}

fn act(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let path = &options.image;
    let undo = undo_file(options)?;
    let writes = options.apply.is_some() || options.undo.is_some();
    let mode = if writes { OpenMode::Write } else { OpenMode::Read };
    let dev =
        volume::open(path, mode, images.location()).map_err(|error| Failure::host(path, &error))?;
    let devices = images.others().beside(dev, mode)?;
    let both = devices.clone().side_by_side();
    let both = both.map_err(|error| Failure::volume(path.as_os_str(), error))?;
    let failed = |error: RepairError| Failure::new(path, error.to_string());
    if let Some(file) = &options.undo {
        let bytes = uxfs_repair::undo(&*both, file).map_err(failed)?;
        return undone(options, session, bytes);
    }
    let plan = match options.apply.as_deref().filter(|saved| !saved.is_empty()).map(Path::new) {
        Some(saved) => {
            let text =
                std::fs::read_to_string(saved).map_err(|error| Failure::host(saved, &error))?;
            Plan::from_json(&text).map_err(|error| Failure::new(saved, error.to_string()))?
        }
        None => make(options, devices).map_err(failed)?,
    };
    if let Some(file) = &options.plan {
        let text = json::document("repair-plan", plan.to_json(true));
        std::fs::write(file, text).map_err(|error| Failure::host(file, &error))?;
    }
    let applied = options.apply.is_some() && !plan.is_empty();
    if applied {
        uxfs_repair::apply(&plan, &*both, &undo).map_err(failed)?;
    }
    session.set_code(match (plan.is_empty(), applied) {
        (true, _) => 0,
        (false, true) => REPAIRED,
        (false, false) => NOT_REPAIRED,
    });
    show(options, session, &plan, applied.then_some(&undo))
}

/// The undo file: by default `IMAGE.undo`. Beside a device it would lie in memory, and be gone after a power
/// cut.
fn undo_file(options: &Options) -> Result<PathBuf> {
    let image = &options.image;
    if let Some(file) = &options.undo_file {
        return Ok(file.clone());
    }
    let beside = match std::fs::metadata(image) {
        Ok(found) => found.is_file(),
        // The address of an export, or what the opening complains of.
        Err(_) => !image.to_string_lossy().contains("://"),
    };
    if options.apply.is_some() && !beside {
        let problem = "this is no regular file: name with --undo-file where the bytes before go";
        return Err(Failure::new(image, problem));
    }
    let mut name = OsString::from(image);
    name.push(".undo");
    Ok(name.into())
}

fn make(options: &Options, devices: Devices) -> uxfs_repair::Result<Plan> {
    let mut how = RepairOptions::default();
    (how.drop_log, how.log) = (options.drop_log, devices.log);
    let bar = (!options.quiet && std::io::stderr().is_terminal()).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
    });
    let plan = uxfs_repair::plan(devices.data, &how, &|phase| {
        if let Some(bar) = &bar {
            bar.set_message(phase.name());
            bar.tick();
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    plan
}

fn show(options: &Options, session: &Session, plan: &Plan, undo: Option<&PathBuf>) -> Result<()> {
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.insert("repaired".into(), json!(undo.is_some()));
        map.insert("undo_file".into(), json!(undo.map(|undo| undo.display().to_string())));
        map.insert("lost".into(), plan.lost().map(Value::from).collect());
        let mut plan = plan.to_json(false);
        plan.remove("version");
        map.extend(plan);
        return session.print(json::document("repair", map));
    }
    for step in &plan.steps {
        session.print(format!("{step}\n"))?;
    }
    let counted = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    let steps = counted(plan.steps.len(), "step", "steps");
    let (lost, bytes) = (
        counted(plan.lost().count(), "loss", "losses"),
        plan.changes.iter().map(|change| change.after.len()).sum::<usize>(),
    );
    session.print(match (plan.is_empty(), undo) {
        (true, _) => "nothing to repair\n".to_owned(),
        (false, None) => {
            format!("{steps}, {bytes} bytes change; {lost}; not applied\n")
        }
        (false, Some(undo)) => format!(
            "repaired: {steps}, {bytes} bytes changed; {lost}; undo file {}\n",
            undo.display()
        ),
    })
}

fn undone(options: &Options, session: &Session, bytes: u64) -> Result<()> {
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.insert("undone_bytes".into(), json!(bytes));
        return session.print(json::document("repair", map));
    }
    session.print(format!("undone: {bytes} bytes are as they were\n"))
}
