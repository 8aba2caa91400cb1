//! `uxfs mdrestore`: makes a volume of a dump of metadata.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};
use uxfs_metadump::{Content, Info, Version};

use super::metadump;
use crate::session::{Result, Session};
use crate::{dumps, json, progress};

/// Make a volume of a dump of metadata
///
/// Reads what uxfs metadump and xfs_metadump write. The volume has everything but the data of files, which
/// reads as zeroes in a new file. An existing file is replaced; a device keeps what the dump does not hold.
/// Until all is written the volume is marked unfinished, and nothing mounts it.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs mdrestore disk.metadump restored.img\n  \
    zstd -dc vdb.metadump.zst | uxfs mdrestore - restored.img\n  \
    uxfs mdrestore --info disk.metadump")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Show what the dump holds; without IMAGE, nothing is restored
    #[arg(short, long)]
    info: bool,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    /// The dump; - is standard input
    #[arg(value_name = "DUMP")]
    dump: PathBuf,
    /// The image or block device that becomes the volume
    #[arg(value_name = "IMAGE", required_unless_present = "info")]
    image: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let mut map = Map::new();
    map.insert("dump".into(), json!(options.dump.display().to_string()));
    let mut show = |info: Info| -> Result<()> {
        map.insert("format_version".into(), json!(number(info)));
        if let Some(content) = info.content {
            map.extend(metadump::content(content));
        }
        match options.info && !options.json {
            true => session.print(words(info)),
            false => Ok(()),
        }
    };
    let Some(image) = &options.image else {
        show(dumps::info(&options.dump)?)?;
        return finish(options, session, map);
    };
    let summary = progress::Bytes::during(options.quiet, |bar| {
        dumps::restore(&options.dump, image, &mut show, &mut |read| bar.show(read))
    })?;
    map.insert("image".into(), json!(image.display().to_string()));
    map.insert("volume_bytes".into(), json!(summary.len));
    map.insert("metadata_bytes".into(), json!(summary.bytes));
    finish(options, session, map)
}

fn finish(options: &Options, session: &Session, map: Map<String, serde_json::Value>) -> Result<()> {
    if options.json { session.print(json::document("mdrestore", map)) } else { Ok(()) }
}

fn number(info: Info) -> u8 {
    if info.version == Version::Two { 2 } else { 1 }
}

fn words(info: Info) -> String {
    let mut text = format!("format version: {}\n", number(info));
    let Some(content) = info.content else {
        return text + "content: not recorded\n";
    };
    let of = |flag, yes, no| if content.contains(flag) { yes } else { no };
    for (what, word) in [
        ("names", of(Content::OBFUSCATED, "replaced", "kept")),
        ("unused bytes", of(Content::WHOLE_BLOCKS, "kept", "cleared")),
        ("log", of(Content::DIRTY_LOG, "dirty", "clean")),
    ] {
        text += &format!("{what}: {word}\n");
    }
    text
}
