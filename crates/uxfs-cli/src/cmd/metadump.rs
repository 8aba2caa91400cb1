//! `uxfs metadump`: writes a dump of a volume's metadata.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};
use uxfs_metadump::{Content, DumpOptions, DumpSummary, Event, Version};

use crate::image::Images;
use crate::session::{Failure, Result, Session};
use crate::{dumps, json, progress};

/// Write a dump of a volume's metadata, to show a problem without the files
///
/// A dump has everything but the data of files, and is read by uxfs mdrestore and xfs_mdrestore. Names of
/// files and attributes and the targets of links get other names, of the same length and hash, by a key
/// that nobody knows; values of attributes are cleared, and so is what is left in unused space. Names of
/// up to four bytes and lost+found stay. What is damaged is dumped as it is, or left out where it might
/// hold names.
///
/// The log is copied if it is dirty, with the names in it; an empty one takes the place of a clean one.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs metadump disk.img disk.metadump\n  \
    uxfs metadump --format-version 2 /dev/vdb - | zstd > vdb.metadump.zst\n  \
    uxfs metadump --keep-names --whole-blocks disk.img everything.metadump\n  \
    uxfs metadump --seed 'our secret' disk.img same-every-time.metadump")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the bytes of metadata that are not in use; they can hold old names
    #[arg(short = 'a', long)]
    whole_blocks: bool,
    /// Keep names, targets of links, and values of attributes
    #[arg(short = 'o', long)]
    keep_names: bool,
    /// End at the first read error, instead of leaving out what cannot be read
    #[arg(short = 'e', long)]
    stop_at_read_error: bool,
    /// Say what is damaged or left out
    #[arg(short = 'w', long)]
    warnings: bool,
    /// Version of the format: 1 is read by every xfs_mdrestore, 2 by those from 6.6 on
    #[arg(short = 'v', long, value_name = "1|2", default_value = "1", value_parser = parse_version)]
    format_version: Version,
    /// Take longer extents of metadata for damage, and leave them out
    #[arg(short = 'm', long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    longest_extent: Option<u64>,
    /// Choose other names by TEXT, so that the same volume gives the same dump; who knows TEXT can undo it
    #[arg(long, value_name = "TEXT", conflicts_with = "keep_names")]
    seed: Option<String>,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The image or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The dump; - is standard output
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

/// The version that a number names.
pub(crate) fn parse_version(text: &str) -> std::result::Result<Version, String> {
    match text {
        "1" => Ok(Version::One),
        "2" => Ok(Version::Two),
        _ => Err("dumps have version 1 or 2".into()),
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    if options.json && dumps::is_stream(&options.out) {
        return Err(Failure::bare("--json takes standard output: write the dump to a file"));
    }
    let mut wanted = DumpOptions {
        version: options.format_version,
        whole_blocks: options.whole_blocks,
        stop_at_read_error: options.stop_at_read_error,
        ..DumpOptions::default()
    };
    if !options.keep_names {
        wanted.names = Some(dumps::names(options.seed.as_deref())?);
    }
    wanted.longest_extent = options.longest_extent.unwrap_or(wanted.longest_extent);
    let image = options.image.display();
    let say = |text: &str| session.say(format!("uxfs: metadump: {image}: {text}").as_bytes());
    let summary = progress::Dump::during(options.quiet, |bar| {
        dumps::write(&options.image, images.location(), &options.out, &wanted, &mut |event| {
            match event {
                Event::Progress(progress) => bar.show(progress),
                Event::Warning(text) if options.warnings => bar.suspend(|| say(&text)),
                Event::Notice(text) => bar.suspend(|| say(&text)),
                _ => {}
            }
        })
    })?;
    report(options, session, &summary)
}

fn report(options: &Options, session: &Session, summary: &DumpSummary) -> Result<()> {
    if options.json {
        let mut map = Map::new();
        map.insert("image".into(), json!(options.image.display().to_string()));
        map.insert("out".into(), json!(options.out.display().to_string()));
        let version = if options.format_version == Version::Two { 2 } else { 1 };
        map.insert("format_version".into(), json!(version));
        map.extend(content(summary.content));
        map.insert("inodes".into(), json!(summary.inodes));
        map.insert("metadata_bytes".into(), json!(summary.bytes));
        map.insert("warnings".into(), json!(summary.warnings));
        map.insert("withheld_bytes".into(), json!(summary.withheld));
        return session.print(json::document("metadump", map));
    }
    if summary.warnings > 0 && !options.warnings {
        let count = summary.warnings;
        let image = options.image.display();
        let text =
            format!("uxfs: metadump: {image}: {count} damages or read errors; -w shows them");
        session.say(text.as_bytes());
    }
    Ok(())
}

/// What a dump holds, for JSON.
pub(crate) fn content(content: Content) -> Map<String, serde_json::Value> {
    let mut map = Map::new();
    map.insert("obfuscated".into(), json!(content.contains(Content::OBFUSCATED)));
    map.insert("whole_blocks".into(), json!(content.contains(Content::WHOLE_BLOCKS)));
    map.insert("dirty_log".into(), json!(content.contains(Content::DIRTY_LOG)));
    map
}
