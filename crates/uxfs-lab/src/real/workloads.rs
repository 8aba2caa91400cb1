//! The workloads in real time: `fs-mark`, `tar-star`, `barriers`, `git` and `compile`.

use std::sync::Barrier;
use std::time::Instant;

use parking_lot::Mutex;
use uxfs_bench::fs_mark::file_name;
use uxfs_testkit::Rng;

use super::volume::{Dir, NewFile, SyncMode, Volume};
use crate::experiments::recorded::{recording, title};
use crate::experiments::tar_star::tree;
use crate::plan::{Found, How};
use crate::work::recording::Recording;
use crate::work::tree::Tree;
use crate::work::{fill, word};
use crate::{LabError, Result};

pub(super) const END: &str = "one sync at the end (tar)";
pub(super) const TICKETS: &str = "fsync each, waited for at the end";

/// Files of the trees: enough for seconds, not for minutes.
const FILES: u32 = 3_000;
/// Bytes of a file that is synced.
const DURABLE: usize = 4096;

#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) group: String,
    sync: SyncMode,
    threads: u32,
    files: u32,
    pub(super) barrier: bool,
}

impl Variant {
    fn extract(group: &str, sync: SyncMode, barrier: bool) -> Self {
        Self { group: group.into(), sync, threads: 1, files: FILES, barrier }
    }

    /// Does the variant need tickets, which only uxfs has?
    pub(super) fn tickets(&self) -> bool {
        self.sync == SyncMode::Ticket
    }

    /// The durability that the calls promise on a correct file system.
    pub(super) fn promise(&self) -> &'static str {
        match (self.sync, self.barrier) {
            (SyncMode::Nothing, _) => "memory, until the kernel writes it back",
            (_, false) => "a volatile cache, as mounted without barriers",
            (SyncMode::End, _) => "stable storage, as syncfs promises",
            (SyncMode::Each | SyncMode::Ticket, _) => "stable storage, as fsync promises",
        }
    }
}

pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) about: &'static str,
    /// A note about the input, if one was named.
    pub(super) note: Option<String>,
    input: Input,
}

enum Input {
    Files,
    Tree(Tree),
    Recorded(Recording),
}

impl Workload {
    /// The work of this name, if there is one.
    ///
    /// # Errors
    /// If the named archive or recording cannot be read.
    pub(super) fn named(name: &str, how: &How) -> Result<Option<Self>> {
        let played = |recording: &Recording| {
            let (about, calls) = (&recording.about, recording.calls());
            Some(format!("the recording: {about}; {calls} calls, their work left out"))
        };
        Ok(Some(match name {
            "git" | "compile" => {
                let what = recording(name, how)?;
                Self {
                    name: if name == "git" { "git" } else { "compile" },
                    title: title(name, how, &what),
                    about: "Input programs did to a tree was recorded call by call, and is played again \
                            by one thread without their work between; then everything is synced. \
                            Reads of what was read or written before are left to the page cache, and \
                            are not done by uxfs in this process, which has none.",
                    note: played(&what),
                    input: Input::Recorded(what),
                }
            }
            "fs-mark" => Self {
                name: "fs-mark",
                title: "fs_mark: files made by several threads".into(),
                about: "Threads make files, each in a directory of its own: empty and not synced \
                        (-S 0 -s 0), or of 4 KiB and synced before the next is made (-S 1 -s 4096).",
                note: None,
                input: Input::Files,
            },
            "tar-star" => {
                let (tree, archive) = tree(how, FILES)?;
                Self {
                    name: "tar-star",
                    title: "a tree of 3,000 files extracted, synced or not".into(),
                    about: "A tree as of a kernel's sources is extracted, with no sync at all, with one \
                        of the whole file system at the end, and with an fsync of each file before \
                        the next; and by uxfs with an fsync of each that is waited for at the end.",
                    note: archive,
                    input: Input::Tree(tree),
                }
            }
            "barriers" => Self {
                name: "barriers",
                title: "a tree of 3,000 files extracted and synced, with barriers and without"
                    .into(),
                about: "A tree as of a kernel's sources is extracted and synced at the end. ext4 and \
                        btrfs can still be mounted without barriers, XFS since Linux 4.19 not.",
                note: None,
                input: Input::Tree(Tree::new("linux-2.6.32", FILES, 2012)),
            },
            _ => return Ok(None),
        }))
    }

    /// Is the figure files per second?
    pub(super) fn rated(&self) -> bool {
        matches!(self.input, Input::Files)
    }

    pub(super) fn variants(&self) -> Vec<Variant> {
        match self.name {
            "fs-mark" => {
                let variant = |threads: u32, sync, files| {
                    let what = match sync {
                        SyncMode::Nothing => "not synced",
                        _ => "4 KiB, fsync each",
                    };
                    let many = if threads == 1 { "" } else { "s" };
                    let group = format!("{threads} thread{many}, {what}");
                    Variant { group, sync, threads, files, barrier: true }
                };
                let mut all: Vec<Variant> = Vec::new();
                all.extend([1, 4, 8].map(|n| variant(n, SyncMode::Nothing, 24_000 / n)));
                all.extend([1, 8, 32].map(|n| variant(n, SyncMode::Each, 960 / n.min(8))));
                all
            }
            "tar-star" => vec![
                Variant::extract("no sync", SyncMode::Nothing, true),
                Variant::extract(END, SyncMode::End, true),
                Variant::extract("fsync each (star)", SyncMode::Each, true),
                Variant::extract(TICKETS, SyncMode::Ticket, true),
            ],
            "git" | "compile" => {
                vec![Variant::extract("one thread, synced at its end", SyncMode::End, true)]
            }
            _ => vec![
                Variant::extract("barrier", SyncMode::End, true),
                Variant::extract("nobarrier", SyncMode::End, false),
            ],
        }
    }

    /// Runs the work. The measured part is returned as nanoseconds `begun` and `ended` of the
    /// volume's clock.
    pub(super) fn run(&self, volume: &Volume, variant: &Variant, seed: u64) -> Result<Found> {
        let since = Instant::now();
        match &self.input {
            Input::Tree(tree) => extract(volume, variant, tree, since),
            Input::Recorded(recording) => replay(volume, recording, since),
            Input::Files => fs_mark(volume, variant, seed, since),
        }
    }
}

fn set_percentiles(found: &mut Found, mut latencies: Vec<u64>) {
    latencies.sort_unstable();
    for (key, percent) in [("p50_ms", 50), ("p99_ms", 99)] {
        let at = (latencies.len() * percent).div_ceil(100).max(1) - 1;
        if let Some(ns) = latencies.get(at) {
            found.set(key, *ns as f64 / 1e6);
        }
    }
}

fn set_span(found: &mut Found, begun: u64, ended: u64) -> f64 {
    found.set("begun", begun as f64);
    found.set("ended", ended as f64);
    ended.saturating_sub(begun).max(1) as f64 / 1e9
}

fn extract(volume: &Volume, variant: &Variant, tree: &Tree, since: Instant) -> Result<Found> {
    let now = || volume.now(since);
    let begun = now();
    let (mut dirs, mut pending, mut latencies): (Vec<Dir>, _, _) =
        (Vec::new(), Vec::new(), Vec::new());
    for (number, (dir, name, size)) in (0..).zip(&tree.files) {
        while dirs.len() <= *dir {
            let (parent, dir_name) = &tree.dirs[dirs.len()];
            let parent = dirs.get(*parent).cloned().unwrap_or_else(|| volume.root());
            dirs.push(volume.mkdir(&parent, dir_name)?);
        }
        let word = word(number);
        let content = fill(word, *size as usize);
        let began = now();
        let file = NewFile { name, content: &content, word, dated: true };
        pending.extend(volume.put(&dirs[*dir], &file, variant.sync)?);
        if variant.sync == SyncMode::Each {
            latencies.push(now() - began);
        }
    }
    let made = now();
    if variant.sync == SyncMode::End {
        volume.sync()?;
    }
    volume.wait_durable(pending)?;
    let mut found = Found::default();
    let total = set_span(&mut found, begun, now());
    found.set("total_s", total);
    found.set("extract_s", (made - begun) as f64 / 1e9);
    set_percentiles(&mut found, latencies);
    Ok(found)
}

fn replay(volume: &Volume, recording: &Recording, since: Instant) -> Result<Found> {
    let mut client = volume.client(recording)?;
    volume.sync()?;
    let begun = volume.now(since);
    let took = client.play()?;
    let made = volume.now(since);
    volume.sync()?;
    let mut found = Found::default();
    let total = set_span(&mut found, begun, volume.now(since));
    client.synced();
    found.set("total_s", total);
    found.set("extract_s", (made - begun) as f64 / 1e9);
    found.set("left_out", took.left_out as f64);
    Ok(found)
}

fn fs_mark(volume: &Volume, variant: &Variant, seed: u64, since: Instant) -> Result<Found> {
    let root = volume.root();
    let dirs: Vec<Dir> = (0..variant.threads)
        .map(|thread| volume.mkdir(&root, &thread.to_string()))
        .collect::<Result<_>>()?;
    volume.sync()?;
    let ready = Barrier::new(dirs.len() + 1);
    let latencies = Mutex::new(Vec::new());
    let client = |thread: u64, dir: &Dir| -> Result<()> {
        let mut rng = Rng::spread(seed ^ thread << 32);
        let mut took = Vec::new();
        ready.wait();
        for number in 0..variant.files {
            let name = file_name(number, &mut rng);
            let word = word(thread << 24 | u64::from(number));
            let len = if variant.sync == SyncMode::Nothing { 0 } else { DURABLE };
            let content = fill(word, len);
            let began = volume.now(since);
            let file = NewFile { name: &name, content: &content, word, dated: false };
            volume.put(dir, &file, variant.sync)?;
            took.push(volume.now(since) - began);
        }
        latencies.lock().extend(took);
        Ok(())
    };
    let begun = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..)
            .zip(&dirs)
            .map(|(thread, dir)| {
                let client = &client;
                scope.spawn(move || client(thread, dir))
            })
            .collect();
        // The threads run as soon as the barrier opens, and this one may be the last.
        let begun = volume.now(since);
        ready.wait();
        for worker in workers {
            worker.join().map_err(|_| LabError::new("making files", "a thread panicked"))??;
        }
        Ok::<u64, LabError>(begun)
    })?;
    let mut found = Found::default();
    let seconds = set_span(&mut found, begun, volume.now(since));
    let files = f64::from(variant.threads) * f64::from(variant.files);
    found.set("rate", files / seconds);
    found.set("total_s", seconds);
    set_percentiles(&mut found, latencies.into_inner());
    Ok(found)
}
