//! `uxfs du`: shows the space that trees use.

use std::collections::HashSet;
use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::format::Ino;
use uxfs::format::inode::{S_IFLNK, S_IFMT, S_IFREG};
use uxfs_host::os_str;

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, Visited, WalkOptions};
use crate::{json, number};

/// Show the space that trees use
///
/// The default unit is 1024 bytes, as in du(1). A file with several names counts once. Shared blocks
/// count for each file that shares them. Only regular files and symbolic links have a length.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs du -sh disk.img:/usr disk.img:/var\n  uxfs du -d 1 disk.img")]
pub(crate) struct Options {
    /// Show files too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// Show lengths instead of the space used
    #[arg(long)]
    apparent_size: bool,
    /// Show lengths in bytes
    #[arg(short, long, overrides_with_all = ["kibibytes", "mebibytes", "human_readable"])]
    bytes: bool,
    /// Show a total at the end
    #[arg(short = 'c', long)]
    total: bool,
    /// Show nothing deeper than this
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    max_depth: Option<usize>,
    /// Print sizes such as 1.5G
    #[arg(short = 'h', long, overrides_with_all = ["bytes", "kibibytes", "mebibytes"])]
    human_readable: bool,
    /// Show KiB, the default
    #[arg(short = 'k', id = "kibibytes", overrides_with_all = ["bytes", "human_readable", "mebibytes"])]
    _kibibytes: bool,
    /// Count a file once for each of its names
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Show MiB
    #[arg(short = 'm', id = "mebibytes", overrides_with_all = ["bytes", "human_readable", "kibibytes"])]
    mebibytes: bool,
    /// Do not add subdirectories to a directory's sum
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// Show only a sum for each operand
    #[arg(short, long)]
    summarize: bool,
    /// End lines with a NUL byte instead of a newline
    #[arg(short = '0', long)]
    null: bool,
    /// Stay in one file system; no effect, because an image holds only one
    #[arg(short = 'x', long = "one-file-system", id = "one_file_system")]
    _one_file_system: bool,
    /// Print a JSON document
    #[arg(long, conflicts_with_all = ["human_readable", "mebibytes", "null"])]
    pub(crate) json: bool,
    /// The trees
    #[arg(value_name = "IMAGE[:/PATH]", required = true)]
    files: Vec<OsString>,
}

/// Bytes of a directory with its files, and of its subdirectories.
struct Sum {
    own: u64,
    below: u64,
}

/// Adds the innermost open directory's sum to its parent's, or stores it as the sum of the tree.
fn close(open: &mut Vec<Sum>, whole: &mut u64) {
    let bytes = open.pop().map_or(0, |sum| sum.own + sum.below);
    match open.last_mut() {
        Some(up) => up.below += bytes,
        None => *whole = bytes,
    }
}

/// The state of a count.
struct Counter<'a> {
    options: &'a Options,
    session: &'a Session,
    /// Files with several names that are counted already: image, inode.
    seen: HashSet<(u64, Ino)>,
    documents: Vec<Value>,
}

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
    /// Counts a tree. Returns its bytes.
    fn tree(&mut self, images: &Images, place: &Inside) -> Result<u64> {
        let found = tree::find(images, place, false, false)?;
        let start = (tree::shown(place), found.stat.clone());
        let (volume, session) = (found.image.volume, self.session);
        // The open directories, outermost first.
        let mut open: Vec<Sum> = Vec::new();
        let mut whole = 0;
        let mut visit = |visited: Visited<'_>| {
            // The walk does not leave a directory that it could not read, so close it at the next
            // file outside of it.
            let above = visited.depth + usize::from(visited.leaving);
            while open.len() > above {
                close(&mut open, &mut whole);
            }
            if visited.leaving {
                let sum = open.last().map_or(0, |sum| match self.options.separate_dirs {
                    true => sum.own,
                    false => sum.own + sum.below,
                });
                close(&mut open, &mut whole);
                self.show(&visited, sum)?;
                return Ok(Next::Enter);
            }
            let directory = tree::is_dir(visited.stat);
            let again = !directory && visited.stat.nlink > 1 && !self.options.count_links;
            if again && !self.seen.insert((volume, visited.stat.ino)) {
                return Ok(Next::Skip);
            }
            let bytes = self.bytes_of(&visited);
            if directory {
                open.push(Sum { own: bytes, below: 0 });
                return Ok(Next::Enter);
            }
            open.last_mut().map_or_else(|| whole = bytes, |sum| sum.own += bytes);
            if self.options.all || visited.depth == 0 {
                self.show(&visited, bytes)?;
            }
            Ok(Next::Skip)
        };
        let mut on_error = |path: &[u8], error| {
            session.fail(Failure::volume(os_str(path), error));
        };
        let walk_options = WalkOptions { both: true, follow: false };
        tree::walk(found.fs(), start, walk_options, &mut visit, &mut on_error)?;
        while !open.is_empty() {
            close(&mut open, &mut whole);
        }
        Ok(whole)
    }

    fn bytes_of(&self, visited: &Visited<'_>) -> u64 {
        let lengths = self.options.apparent_size || self.options.bytes;
        match lengths {
            // As in coreutils 9.2 and later: the length of other files depends on the file system.
            true => match visited.stat.mode & S_IFMT {
                S_IFREG | S_IFLNK => visited.stat.size,
                _ => 0,
            },
            false => visited.stat.blocks << visited.fs.geo.block_log,
        }
    }

    fn show(&mut self, visited: &Visited<'_>, bytes: u64) -> Result<()> {
        let deepest =
            if self.options.summarize { 0 } else { self.options.max_depth.unwrap_or(usize::MAX) };
        if visited.depth > deepest {
            return Ok(());
        }
        if self.options.json {
            let mut map = Map::new();
            json::put_bytes(&mut map, "path", visited.path);
            map.insert("bytes".into(), json!(bytes));
            self.documents.push(Value::Object(map));
            return Ok(());
        }
        self.line(bytes, visited.path)
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
