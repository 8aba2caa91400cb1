//! `uxfs du`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::format::Ino;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Met, Next, Way};
use crate::{json, number};

/// Show how much space trees take
///
/// Without options in units of 1024 bytes, as du(1). A file with several names counts once. Blocks that
/// files share are counted for each of them.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs du -sh disk.img:/usr disk.img:/var\n  uxfs du -d 1 disk.img")]
pub(crate) struct Options {
    /// Files too, not directories alone
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Lengths instead of the space taken
    #[arg(long)]
    apparent_size: bool,
    /// Lengths in bytes
    #[arg(short, long, conflicts_with_all = ["kibibytes", "mebibytes", "human_readable"])]
    bytes: bool,
    /// A total of all at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Show nothing deeper than this
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Sizes such as 1.5G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// In KiB, as without it
    #[arg(short = 'k', id = "kibibytes")]
    _kibibytes: bool,
    /// Each name of a file with several counts
    #[arg(short = 'l', long)]
    count_links: bool,
    /// In MiB
    #[arg(short = 'm', id = "mebibytes", conflicts_with = "human_readable")]
    mebibytes: bool,
    /// Only a sum for each argument
    #[arg(short, long)]
    summarize: bool,
    /// End lines with a zero byte instead of a newline
    #[arg(short = '0', long)]
    null: bool,
    /// As a JSON document
    #[arg(long, conflicts_with_all = ["human_readable", "mebibytes", "null"])]
    pub(crate) json: bool,
    /// The trees
    #[arg(value_name = "IMAGE[:/PATH]", required = true)]
    files: Vec<OsString>,
}

/// What was found so far.
struct Counter<'a> {
    options: &'a Options,
    session: &'a Session,
    /// Files with several names that were counted: image, inode.
    seen: HashSet<(u64, Ino)>,
    documents: Vec<Value>,
}

/// Shows it.
pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut counter = Counter { options, session, seen: HashSet::new(), documents: Vec::new() };
    let mut total = 0u64;
    for file in &options.files {
        let sum = counter.tree(images, &Inside::parse(file));
        total = total.saturating_add(session.ok(sum).unwrap_or(0));
    }
    if options.total && !options.json {
        counter.line(total, b"total")?;
    }
    if options.json {
        let mut map = Map::new();
        map.insert("files".into(), Value::Array(counter.documents));
        map.insert("total_bytes".into(), json!(total));
        session.print(json::document("du", map))?;
    }
    Ok(())
}

impl Counter<'_> {
    /// Counts a tree; gives its bytes.
    fn tree(&mut self, images: &Images, place: &Inside) -> Result<u64> {
        let found = tree::find(images, place, false, false)?;
        let start = (tree::shown(place), found.stat.clone());
        let (volume, session) = (found.image.volume, self.session);
        // Sums of the directories that are open, outermost first.
        let mut sums: Vec<u64> = Vec::new();
        let mut whole = 0;
        let mut visit = |met: Met<'_>| {
            let directory = tree::is_dir(met.stat);
            if !met.leaving {
                let again = !directory && met.stat.nlink > 1 && !self.options.count_links;
                if again && !self.seen.insert((volume, met.stat.ino)) {
                    return Ok(Next::Skip);
                }
                let bytes = self.bytes_of(&met);
                if directory {
                    sums.push(bytes);
                    return Ok(Next::Enter);
                }
                sums.last_mut().map_or_else(|| whole = bytes, |sum| *sum += bytes);
                if self.options.all || met.depth == 0 {
                    self.show(&met, bytes)?;
                }
                return Ok(Next::Skip);
            }
            let bytes = sums.pop().unwrap_or(0);
            sums.last_mut().map_or_else(|| whole = bytes, |sum| *sum += bytes);
            self.show(&met, bytes)?;
            Ok(Next::Enter)
        };
        let mut trouble = |path: &[u8], error| {
            session.fail(Failure::volume(OsStr::from_bytes(path), error));
        };
        let way = Way { both: true, follow: false };
        tree::walk(found.fs(), start, way, &mut visit, &mut trouble)?;
        // A directory that could not be read is not left.
        Ok(sums.iter().fold(whole, |sum, bytes| sum + bytes))
    }

    fn bytes_of(&self, met: &Met<'_>) -> u64 {
        let lengths = self.options.apparent_size || self.options.bytes;
        match lengths {
            // As in coreutils, of what has a length.
            true => met.stat.size,
            false => met.stat.blocks << met.fs.geo.block_log,
        }
    }

    fn show(&mut self, met: &Met<'_>, bytes: u64) -> Result<()> {
        let deepest =
            if self.options.summarize { 0 } else { self.options.max_depth.unwrap_or(usize::MAX) };
        if met.depth > deepest {
            return Ok(());
        }
        if self.options.json {
            let mut map = Map::new();
            json::put_bytes(&mut map, "path", met.path);
            map.insert("bytes".into(), json!(bytes));
            self.documents.push(Value::Object(map));
            return Ok(());
        }
        self.line(bytes, met.path)
    }

    fn line(&self, bytes: u64, path: &[u8]) -> Result<()> {
        let options = self.options;
        let size = match (options.human_readable, options.mebibytes, options.bytes) {
            (true, ..) => number::human(bytes),
            (_, true, _) => bytes.div_ceil(1 << 20).to_string(),
            (.., true) => bytes.to_string(),
            _ => bytes.div_ceil(1 << 10).to_string(),
        };
        let end: &[u8] = if options.null { b"\0" } else { b"\n" };
        self.session.print([size.as_bytes(), b"\t", path, end].concat())
    }
}
