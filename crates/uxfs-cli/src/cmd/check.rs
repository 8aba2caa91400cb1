//! `uxfs check`: is a volume sound? Exit codes are those of fsck(8).

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs::disk::OpenMode;
use uxfs::volume;
use uxfs_check::{CheckOptions, check};

use crate::image::Images;
use crate::session::{Failure, Result, Session};

/// Verify a volume, reading only
///
/// Looks at every header, tree, inode, directory, attribute and counter, and at whom each block
/// belongs to. Exit status: 0 sound, 4 damage found, 8 could not be looked at.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs check disk.img\n  uxfs check --json disk.img")]
pub(crate) struct Options {
    /// As a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Exit code of fsck(8) for an operational error.
const OPERATIONAL: u8 = 8;

/// Checks, and prints what was found.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let name = options.image.as_os_str();
    let dev = match volume::open(&options.image, OpenMode::Read, images.place()) {
        Ok(dev) => dev,
        Err(error) => {
            session.fail_with(OPERATIONAL, Failure::host(name, &error));
            return Ok(());
        }
    };
    let bar = (!options.quiet && std::io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    });
    let checked = check(&*dev, &CheckOptions::default(), &|progress| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
            bar.set_message(format!("{:?}", progress.phase));
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    match checked {
        Ok(report) => {
            session.set_code(report.exit_code());
            if options.json {
                return session.print(format!("{:#}\n", report.to_json()));
            }
            session.print(format!("{report}\n"))
        }
        Err(error) => {
            let hint = images.place().is_whole().then(|| volume::partitions_hint(&dev)).flatten();
            let words = hint.unwrap_or_else(|| error.to_string());
            session.fail_with(error.exit_code(), Failure::new(name, words));
            Ok(())
        }
    }
}
