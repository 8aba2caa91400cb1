//! `uxfs diff`: shows what differs between two images, or trees in them.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::diff::{self, Changed, Difference, Kind};
use uxfs::forks;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::{address, json, quote, tree};

/// Show what differs between two images
///
/// Prints a line for each path: A (only the second has it), D (only the first has it) or M (both have it, and
/// it differs); the number of bytes of content that differ, or for A and D the length of the files; for M
/// what differs (content, mtime, mode, …); the path. A tree that only one image has is one line.
///
/// Metadata is compared, and data only where it is not known to be the same: of forks of one base, or of a
/// fork and its base, and of checkpoints of one volume in a store, what both share is not read. Times of access and inode numbers do not count.
///
/// Exit status: 0 if nothing differs, 1 if something does, 2 if the images cannot be compared.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs diff base.img child\n  \
    uxfs diff one.img:/etc other.img:/etc\n  \
    uxfs diff s3://backups/disk@40 s3://backups/disk@41\n  \
    uxfs diff --json base.img child | jq -r '.differences[].path'")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing: the exit status says it
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// The image, or the tree in it, that counts as the old one
    #[arg(value_name = "OLD[:/PATH]")]
    old: OsString,
    /// The one that counts as the new one
    #[arg(value_name = "NEW[:/PATH]")]
    new: OsString,
}

/// Exit codes of diff(1).
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    if let Err(failure) = compare(options, session, images) {
        session.fail_with(TROUBLE, failure);
    }
    Ok(())
}

/// Where the disks of two images may differ, if that is known.
fn differing(old: &Inside, new: &Inside, images: &Images) -> Result<Option<Changed>> {
    // In a part of a disk, addresses of data are others than on the disk.
    if !images.location().is_whole() {
        return Ok(None);
    }
    let there = |one: &Path, other: &Path| address::differing(one, other);
    forks::differing(&old.image, &new.image, &there)
        .map_err(|error| Failure::host(&new.image, &error))
}

/// A failure, of a volume or of the output.
struct Trouble(Failure);

impl From<uxfs::Error> for Trouble {
    fn from(error: uxfs::Error) -> Self {
        Self(Failure::bare(error.to_string()))
    }
}

fn compare(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let (mut old, mut new) = (Inside::parse(&options.old), Inside::parse(&options.new));
    for inside in [&mut old, &mut new] {
        // A volume in a store may go on meanwhile.
        let pinned = address::pinned(&inside.image);
        inside.image = pinned.map_err(|error| Failure::host(&inside.image, &error))?;
    }
    let changed = differing(&old, &new, images)?;
    let one = tree::find(images, &old, false, true)?;
    let other = tree::find(images, &new, false, true)?;
    let mut documents = Vec::new();
    let trees = ((one.fs(), one.stat.ino), (other.fs(), other.stat.ino));
    let mut show = |difference: Difference| -> std::result::Result<(), Trouble> {
        if options.json {
            documents.push(document(&difference));
        } else if !options.quiet {
            session.print(line(&difference)).map_err(Trouble)?;
        }
        Ok(())
    };
    let summary = diff::diff(trees.0, trees.1, changed.as_ref(), &mut show);
    let summary = summary.map_err(|Trouble(failure)| failure)?;
    if summary.paths > 0 {
        session.set_code(DIFFERENT);
    }
    if options.json {
        let mut map = Map::new();
        map.insert("differences".into(), Value::Array(documents));
        map.insert("paths".into(), json!(summary.paths));
        map.insert("bytes".into(), json!(summary.bytes));
        map.insert("read_bytes".into(), json!(summary.read));
        session.print(json::document("diff", map))?;
    }
    Ok(())
}

fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Added => "A",
        Kind::Removed => "D",
        Kind::Changed => "M",
    }
}

fn line(difference: &Difference) -> Vec<u8> {
    let Difference { path, kind, bytes, what, dir } = difference;
    let mut line = format!("{} {bytes} ", letter(*kind));
    if *kind == Kind::Changed {
        line += &what.join(",");
        line.push(' ');
    }
    let slash: &[u8] = if *dir && path != b"/" { b"/" } else { b"" };
    [line.as_bytes(), &quote::message(path), slash, b"\n"].concat()
}

fn document(difference: &Difference) -> Value {
    let mut map = Map::new();
    map.insert("kind".into(), json!(letter(difference.kind)));
    json::put_bytes(&mut map, "path", &difference.path);
    map.insert("bytes".into(), json!(difference.bytes));
    map.insert("what".into(), json!(difference.what));
    map.insert("directory".into(), json!(difference.dir));
    Value::Object(map)
}
