//! `uxfs resize`: grows and shrinks volumes.

#[cfg(target_os = "linux")]
pub(crate) mod of_mount;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};
use uxfs::resize::{self, Method, ResizeOptions, ResizeSummary, Target};

use crate::address;
use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{json, number};

/// Grow or shrink a volume
///
/// Without SIZE the volume grows to fill its file, partition or device, as with xfs_growfs. With SIZE
/// the volume gets that size, and so does an image file. --minimize shrinks the volume to the smallest
/// size that holds its files. If the removed part is empty, the volume is truncated in place. Otherwise
/// resize builds a new volume and replaces the old one with it: everything is kept except inode numbers
/// and the sharing of blocks between files.
///
/// Given the directory of a mount made by uxfs, its server grows the volume while it is used, and lengthens
/// an image file to SIZE. Changes wait for a moment. A mounted volume does not shrink.
///
/// A change in place of an image does not go through the log. The volume is marked as needing repair
/// until all of the change is written: after a power cut meanwhile, only xfs_repair opens it.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs resize disk.img 20G\n  \
    uxfs resize --minimize disk.img\n  \
    truncate -s +5G disk.img && uxfs resize disk.img\n  \
    uxfs resize /mnt 20G\n  \
    uxfs resize --partition root whole-disk.img")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not report what was done
    #[arg(short, long)]
    quiet: bool,
    /// Shrink to the smallest size that holds the files
    #[arg(long, conflicts_with = "size")]
    minimize: bool,
    /// The image, or the directory of a mount
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The new size, as in 4G
    #[arg(value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 4G".into())
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    address::refuse(&options.image, "resize the image where it lies")?;
    let target = match (options.minimize, options.size) {
        (true, _) => Target::Minimize,
        (false, Some(bytes)) => Target::Bytes(bytes),
        (false, None) => Target::Fill,
    };
    if options.image.is_dir() {
        #[cfg(target_os = "linux")]
        return report(options, &of_mount::grow(&options.image, target)?, session);
        #[cfg(not(target_os = "linux"))]
        return Err(super::absent::failure());
    }
    let mut wanted = ResizeOptions::new(&options.image, target);
    wanted.location = images.location().clone();
    let done = resize::run(&wanted).map_err(|error| match error {
        resize::ResizeError::Volume(error) => images.not_a_volume(&options.image, error),
        resize::ResizeError::Host { path, source } => Failure::host(path, &source),
        other => Failure::new(&options.image, other.to_string()),
    })?;
    report(options, &done, session)
}

fn report(options: &Options, done: &ResizeSummary, session: &Session) -> Result<()> {
    let how = match done.method {
        Method::Unchanged => "unchanged",
        Method::Grown => "grown",
        Method::Truncated => "cut",
        Method::Rebuilt => "rebuilt",
    };
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.insert("before_bytes".into(), json!(done.before));
        map.insert("after_bytes".into(), json!(done.after));
        map.insert("how".into(), json!(how));
        if let Some(why) = &done.reason {
            map.insert("why".into(), json!(why));
        }
        return session.print(json::document("resize", map));
    }
    if options.quiet {
        return Ok(());
    }
    let name = options.image.display();
    session.print(match (done.method, &done.reason) {
        (Method::Unchanged, Some(why)) => {
            format!("{name}: {} bytes as before: {why}\n", done.before)
        }
        (Method::Unchanged, None) => format!("{name}: {} bytes as before\n", done.before),
        _ => format!("{name}: {how} from {} to {} bytes\n", done.before, done.after),
    })
}
