//! `uxfs defrag`: moves the data of split files to fewer and longer extents.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, json};
use uxfs::format::inode::{S_IFMT, S_IFREG};
use uxfs::{DefragOptions, Fragmentation};
use uxfs_host::os_str;

#[cfg(target_os = "linux")]
mod of_mount;

use crate::image::Images;
use crate::place::{Inside, Place};
use crate::progress::Bytes;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};
use crate::{json, number, quote};

/// Move the data of split files to fewer and longer extents
///
/// PATH is IMAGE:/FILE, an image, or a file or directory on a mount of uxfs, which may be in use.
/// Content, times, holes and unwritten blocks stay. A run of extents is moved if that saves half of
/// them, and data becomes free only when the copy is on stable storage. Files that are flagged as not
/// to be defragmented, immutable or append-only are left alone. Prints the files that changed.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs defrag /mnt/db/table\n  uxfs defrag -r /mnt\n  \
                        uxfs defrag -n -r disk.img:/var\n  uxfs defrag disk.img")]
pub(crate) struct Options {
    /// Only show the numbers of extents, and how few would do
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Descend into directories; an image without a path is done whole
    #[arg(short, long)]
    recursive: bool,
    /// Also move blocks that are shared with other files: the file gets its own copies, which take space
    #[arg(long)]
    shared: bool,
    /// Show every file
    #[arg(short, long)]
    verbose: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON documents, one per file
    #[arg(long)]
    pub(crate) json: bool,
    /// Files, directories or images
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// What was done to a file.
struct Outcome {
    before: Fragmentation,
    /// Extents afterwards; `None` if nothing was to be done.
    after: Option<u64>,
    moved: u64,
    kept: Option<String>,
}

/// A run of the command: what the files seen so far come to.
struct Run<'a> {
    options: &'a Options,
    session: &'a Session,
    bar: &'a Bytes,
    files: u64,
    before: u64,
    after: u64,
    moved: u64,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    Bytes::during(options.quiet || options.json, |bar| {
        let (files, before, after, moved) = (0, 0, 0, 0);
        let mut run = Run { options, session, bar, files, before, after, moved };
        for path in &options.paths {
            session.ok(run.path(path, images));
        }
        run.sum()
    })
}

impl Run<'_> {
    fn path(&mut self, path: &OsString, images: &Images) -> Result<()> {
        match Place::parse(path) {
            Place::Image(inside) => self.in_image(&inside, images, self.options.recursive),
            #[cfg(target_os = "linux")]
            Place::Host(host) if of_mount::is_mounted(&host) => self.in_mount(&host),
            Place::Host(host) if host.is_dir() => {
                Err(Failure::new(&host, "no volume is mounted here by uxfs"))
            }
            Place::Host(_) => self.in_image(&Inside::parse(path), images, true),
        }
    }

    fn in_image(&mut self, place: &Inside, images: &Images, recursive: bool) -> Result<()> {
        let found = tree::find(images, place, !self.options.dry_run, false)?;
        self.may_enter(&place.shown(), found.is_dir(), recursive)?;
        let session = self.session;
        let start = (tree::shown(place), found.stat.clone());
        let mut visit = |visited: tree::Visited<'_>| {
            if visited.stat.mode & S_IFMT == S_IFREG {
                let done = self.in_volume(visited.fs, visited.stat.ino);
                let done = done.map_err(|error| Failure::volume(os_str(visited.path), error));
                if let Some(outcome) = session.ok(done) {
                    self.report(visited.path, visited.depth == 0, &outcome)?;
                }
            } else if visited.depth == 0 && !found.is_dir() {
                session.fail(Failure::at(visited.path, "not a regular file or directory"));
            }
            Ok(Next::Enter)
        };
        let mut on_error = |path: &[u8], error| session.fail(Failure::volume(os_str(path), error));
        tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
    }

    fn in_volume(&self, fs: &uxfs::Fs, ino: uxfs::format::Ino) -> uxfs::Result<Outcome> {
        let before = fs.fragmentation(ino)?;
        if self.options.dry_run || before.extents == before.possible {
            return Ok(Outcome { before, after: None, moved: 0, kept: None });
        }
        let options = DefragOptions { shared: self.options.shared };
        let done = fs.defrag(ino, options)?;
        let after = Some(fs.fragmentation(ino)?.extents);
        let kept = done.kept.map(|kept| kept.to_string());
        Ok(Outcome { before, after, moved: done.moved, kept })
    }

    /// Refuses a directory without `-r`.
    fn may_enter(&self, path: &[u8], is_dir: bool, recursive: bool) -> Result<()> {
        match is_dir && !recursive {
            true => Err(Failure::at(path, "is a directory: -r descends into it")),
            false => Ok(()),
        }
    }

    /// Prints what was done to a file. `named`: it is an operand.
    fn report(&mut self, path: &[u8], named: bool, outcome: &Outcome) -> Result<()> {
        let Outcome { before, after, moved, kept } = outcome;
        let extents = after.unwrap_or(before.extents);
        self.files += 1;
        self.before += before.extents;
        self.after += if self.options.dry_run { before.possible } else { extents };
        self.moved += moved;
        self.bar.show(self.moved);
        let split = before.extents > before.possible;
        let changed = if self.options.dry_run { split } else { *moved > 0 };
        if !(named || changed || self.options.verbose) {
            return Ok(());
        }
        if self.options.json {
            return self.session.print(document(path, outcome));
        }
        let name = quote::message(path);
        let mut line = format!("{}: {} extents", String::from_utf8_lossy(&name), before.extents);
        match (self.options.dry_run, kept) {
            (true, _) => line += &format!(", {} possible", before.possible),
            (false, Some(kept)) => line += &format!(", left alone: {kept}"),
            (false, None) => {
                line += &format!(" before, {extents} after, {} moved", number::human(*moved));
            }
        }
        self.session.print(line + "\n")
    }

    /// Prints the sum, if there is more than one file.
    fn sum(&self) -> Result<()> {
        if self.files < 2 || self.options.json {
            return Ok(());
        }
        let Self { files, before, after, moved, .. } = self;
        let line = match self.options.dry_run {
            true => format!("{files} files: {before} extents, {after} possible\n"),
            false => {
                let moved = number::human(*moved);
                format!("{files} files: {before} extents before, {after} after, {moved} moved\n")
            }
        };
        self.session.print(line)
    }
}

fn document(path: &[u8], outcome: &Outcome) -> Vec<u8> {
    let Outcome { before, after, moved, kept } = outcome;
    let mut map = Map::new();
    json::put_bytes(&mut map, "path", path);
    map.insert("extents_before".into(), json!(before.extents));
    map.insert("extents_after".into(), json!(after.unwrap_or(before.extents)));
    map.insert("extents_possible".into(), json!(before.possible));
    map.insert("moved_bytes".into(), json!(moved));
    map.insert("kept".into(), json!(kept));
    json::document("defrag", map)
}
