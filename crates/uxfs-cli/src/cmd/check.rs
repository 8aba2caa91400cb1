//! `uxfs check`: verifies a volume without writing to it. The exit codes are those of fsck(8).

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, json};
use uxfs::disk::OpenMode;
use uxfs::{Device, Error};
use uxfs_check::{CheckError, CheckOptions, Replay, Report, check};

use crate::address;
use crate::image::Images;
use crate::json;
use crate::session::{Failure, Result, Session};

/// Verify a volume without writing to it
///
/// Checks every header, tree, inode, directory, attribute and counter, and the owner of each block.
/// If the log is dirty, as after a power cut, check replays it in memory and checks the volume as the
/// next mount would find it. With --norecovery, check reads the volume as it is on the device.
/// Warnings are not damage.
///
/// Exit status: 0 sound; 2 sound, but the log is not replayed yet: mount the volume, or run
/// `uxfs log quiesce`; 4 damage found; 8 the volume could not be checked completely (added to the
/// others); 16 wrong command line.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs check disk.img\n  \
    uxfs check --json disk.img\n  \
    uxfs check --norecovery disk.img\n  \
    uxfs check --logdev disk.log disk.img")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Change nothing, as xfs_repair -n; this command never changes anything
    #[arg(short = 'n', id = "no_modify")]
    _no_modify: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Exit code of fsck(8) for an operational error.
pub(super) const OPERATIONAL: u8 = 8;

/// Checks the volume and prints the findings.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let Some(report) = verify(&options.image, options.quiet, session, images) else {
        return Ok(());
    };
    session.set_code(report.exit_code());
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.extend(report.to_json());
        return session.print(json::document("check", map));
    }
    session.print(format!("{report}\n"))
}

/// Opens the volume with its external log, if that was given.
fn open(path: &Path, images: &Images) -> Result<Device> {
    let dev = address::open(path, OpenMode::Read, images.location())
        .map_err(|error| Failure::host(path, &error))?;
    let devices = images.others().beside(dev, OpenMode::Read)?;
    devices.whole().map_err(|error| Failure::volume(path.as_os_str(), error))
}

/// Checks the volume. Reports a volume that cannot be checked, and then returns `None`.
pub(super) fn verify(
    path: &Path,
    quiet: bool,
    session: &Session,
    images: &Images,
) -> Option<Report> {
    let dev = match open(path, images) {
        Ok(dev) => dev,
        Err(failure) => {
            session.fail_with(OPERATIONAL, failure);
            return None;
        }
    };
    let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    });
    let (dev, replay) = match images.norecovery() {
        true => (dev, Replay::None),
        false => uxfs::check::replayed(dev),
    };
    let mut how = CheckOptions::default();
    how.replay = replay;
    let checked = check(&*dev, &how, &|progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            bar.set_message(format!("{:?}", progress.phase));
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let error = match checked {
        Ok(report) => return Some(report),
        Err(error) => error,
    };
    let code = error.exit_code();
    let failure = match error {
        CheckError::NotXfs(magic) => {
            images.not_a_volume(path, Error::NotXfs(format!("starts with {magic:#010x}")))
        }
        other => Failure::new(path, other.to_string()),
    };
    session.fail_with(code, failure);
    None
}
