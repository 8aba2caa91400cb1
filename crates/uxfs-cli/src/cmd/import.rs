//! `uxfs import`: a tar stream or a directory into an image.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs::import::{self, Headroom, ImportOptions, Progress};

use super::mkfs::Geometry;
use crate::number;
use crate::session::{Failure, Result, Session};

/// Put a tar archive or a directory into an image, new or existing
///
/// SOURCE is a tar archive (plain, gzip, xz or zstd; - for standard input) or a directory. An image
/// that is not there is made, with the size given or as large as the tree needs; one that holds XFS
/// is added to. An import that does not finish leaves a new image marked unfinished.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs import linux-6.1.tar.xz disk.img --size 4G\n  \
    curl -s https://example.org/root.tar.zst | uxfs import - disk.img --size 8G\n  \
    uxfs import ./rootfs disk.img --headroom 20% -m rmapbt=1")]
pub(crate) struct Options {
    /// The archive, the directory, or - for standard input
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Size of a new image, as in 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// What to leave free in a new image of computed size: a size, or a percentage of the tree
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = parse_headroom)]
    headroom: Option<Headroom>,
    #[command(flatten)]
    geometry: Geometry,
    /// Label of a new image, at most 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// Make the image anew even if it holds something
    #[arg(short, long)]
    force: bool,
    /// Allow a new volume below 300 MiB and other geometry that is not worth having
    #[arg(long)]
    unsupported: bool,
    /// No progress bar, no summary
    #[arg(short, long)]
    quiet: bool,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 4G".into())
}

fn parse_headroom(text: &str) -> std::result::Result<Headroom, String> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().map(Headroom::Percent).map_err(|_| "not a percentage".into());
    }
    number::size(text).map(Headroom::Bytes).ok_or_else(|| "neither a size nor a percentage".into())
}

/// Imports.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let mut wanted = ImportOptions::new(&options.source, &options.image);
    wanted.mkfs = options.geometry.options().map_err(|e| Failure::bare(e.to_string()))?;
    wanted.mkfs.unsupported = options.unsupported;
    if let Some(label) = &options.label {
        wanted.mkfs.apply('L', label).map_err(|e| Failure::bare(e.to_string()))?;
    }
    wanted.size = options.size;
    wanted.headroom = options.headroom.unwrap_or_default();
    wanted.force = options.force;
    let bar = (!options.quiet && std::io::stderr().is_terminal()).then(Bar::new);
    let result = import::run(&wanted, &mut |progress| {
        if let Some(bar) = &bar {
            bar.show(progress);
        }
    });
    if let Some(bar) = bar {
        bar.bar.finish_and_clear();
    }
    let summary = result.map_err(|error| Failure::bare(error.to_string()))?;
    for warning in &summary.warnings {
        session.say(format!("uxfs: import: {warning}").as_bytes());
    }
    if !options.quiet {
        let made = if summary.created { "made" } else { "added to" };
        session.print(format!(
            "{} {made}: {} entries, {} bytes of data, volume of {} bytes\n",
            options.image.display(),
            summary.entries,
            summary.bytes,
            summary.size
        ))?;
    }
    Ok(())
}

/// The progress bar.
struct Bar {
    bar: ProgressBar,
}

const KNOWN: &str = "{wide_bar} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} {msg}";
const UNKNOWN: &str = "{spinner} {bytes} {bytes_per_sec} {elapsed} {msg}";

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let bar = Self { bar };
        bar.style(UNKNOWN);
        bar.bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    fn show(&self, progress: Progress) {
        if let Some(total) = progress.total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            self.style(KNOWN);
        }
        self.bar.set_position(progress.read);
        self.bar.set_message(format!("{} files", progress.files));
    }
}
