//! The workloads in real time: `fs-mark`, `tar-star`, `barriers`, `git` and `compile`.

use std::sync::Barrier;
use std::time::Instant;

use parking_lot::Mutex;
use uxfs_bench::fs_mark::file_name;
use uxfs_testkit::Rng;

use super::volume::{After, Dir, Made, Volume};
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

/// A variant of a workload.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) group: String,
    after: After,
    threads: u32,
    files: u32,
    pub(super) barrier: bool,
}

impl Variant {
    fn extract(group: &str, after: After, barrier: bool) -> Self {
        Self { group: group.into(), after, threads: 1, files: FILES, barrier }
    }

    /// Does the variant need tickets, which only uxfs has?
    pub(super) fn tickets(&self) -> bool {
        self.after == After::Ticket
    }

    /// The durability that the calls promise on a correct file system.
    pub(super) fn promise(&self) -> &'static str {
        match (self.after, self.barrier) {
            (After::Nothing, _) => "memory, until the kernel writes it back",
            (_, false) => "a volatile cache, as mounted without barriers",
            (After::End, _) => "stable storage, as syncfs promises",
            (After::Each | After::Ticket, _) => "stable storage, as fsync promises",
        }
    }
}

/// A workload.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) about: &'static str,
    /// A note about the input, if one was named.
    pub(super) note: Option<String>,
    what: What,
}

/// The kind of work.
enum What {
    Files,
    Tree(Tree),
    Recorded(Recording),
}

impl Work {
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
                    about: "What programs did to a tree was recorded call by call, and is played again \
                            by one thread without their work between; then everything is synced. \
                            Reads of what was read or written before are left to the page cache, and \
                            are not done by uxfs in this process, which has none.",
                    note: played(&what),
                    what: What::Recorded(what),
                }
            }
            "fs-mark" => Self {
                name: "fs-mark",
                title: "fs_mark: files made by several threads".into(),
                about: "Threads make files, each in a directory of its own: empty and not synced \
                        (-S 0 -s 0), or of 4 KiB and synced before the next is made (-S 1 -s 4096).",
                note: None,
                what: What::Files,
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
                    what: What::Tree(tree),
                }
            }
            "barriers" => Self {
                name: "barriers",
                title: "a tree of 3,000 files extracted and synced, with barriers and without"
                    .into(),
                about: "A tree as of a kernel's sources is extracted and synced at the end. ext4 and \
                        btrfs can still be mounted without barriers, XFS since Linux 4.19 not.",
                note: None,
                what: What::Tree(Tree::new("linux-2.6.32", FILES, 2012)),
            },
            _ => return Ok(None),
        }))
    }

    /// Is the figure files per second?
    pub(super) fn rated(&self) -> bool {
        matches!(self.what, What::Files)
    }

    pub(super) fn variants(&self) -> Vec<Variant> {
        match self.name {
            "fs-mark" => {
                let variant = |threads: u32, after, files| {
                    let what = match after {
                        After::Nothing => "not synced",
                        _ => "4 KiB, fsync each",
                    };
                    let many = if threads == 1 { "" } else { "s" };
                    let group = format!("{threads} thread{many}, {what}");
                    Variant { group, after, threads, files, barrier: true }
                };
                let mut all: Vec<Variant> = Vec::new();
                all.extend([1, 4, 8].map(|n| variant(n, After::Nothing, 24_000 / n)));
                all.extend([1, 8, 32].map(|n| variant(n, After::Each, 960 / n.min(8))));
                all
            }
            "tar-star" => vec![
                Variant::extract("no sync", After::Nothing, true),
                Variant::extract(END, After::End, true),
                Variant::extract("fsync each (star)", After::Each, true),
                Variant::extract(TICKETS, After::Ticket, true),
            ],
            "git" | "compile" => {
                vec![Variant::extract("one thread, synced at its end", After::End, true)]
            }
            _ => vec![
                Variant::extract("barrier", After::End, true),
                Variant::extract("nobarrier", After::End, false),
            ],
        }
    }

    /// Runs the work. The measured part is returned as nanoseconds `begun` and `ended` of the
    /// volume's clock.
    pub(super) fn run(&self, volume: &Volume, variant: &Variant, seed: u64) -> Result<Found> {
        let since = Instant::now();
        match &self.what {
            What::Tree(tree) => extract(volume, variant, tree, since),
            What::Recorded(recording) => replay(volume, recording, since),
            What::Files => fs_mark(volume, variant, seed, since),
        }
    }
}

fn took(found: &mut Found, mut latencies: Vec<u64>) {
    latencies.sort_unstable();
    for (key, percent) in [("p50_ms", 50), ("p99_ms", 99)] {
        let at = (latencies.len() * percent).div_ceil(100).max(1) - 1;
        if let Some(ns) = latencies.get(at) {
            found.set(key, *ns as f64 / 1e6);
        }
    }
}

fn span(found: &mut Found, begun: u64, ended: u64) -> f64 {
    found.set("begun", begun as f64);
    found.set("ended", ended as f64);
    ended.saturating_sub(begun).max(1) as f64 / 1e9
}

fn extract(volume: &Volume, variant: &Variant, tree: &Tree, since: Instant) -> Result<Found> {
    let now = || volume.now(since);
    let begun = now();
    let (mut dirs, mut owed, mut latencies): (Vec<Dir>, _, _) =
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
        let file = Made { name, content: &content, word, dated: true };
        owed.extend(volume.put(&dirs[*dir], &file, variant.after)?);
        if variant.after == After::Each {
            latencies.push(now() - began);
        }
    }
    let made = now();
    if variant.after == After::End {
        volume.sync()?;
    }
    volume.settle(owed)?;
    let mut found = Found::default();
    let total = span(&mut found, begun, now());
    found.set("total_s", total);
    found.set("extract_s", (made - begun) as f64 / 1e9);
    took(&mut found, latencies);
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
    let total = span(&mut found, begun, volume.now(since));
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
            let len = if variant.after == After::Nothing { 0 } else { DURABLE };
            let content = fill(word, len);
            let began = volume.now(since);
            let file = Made { name: &name, content: &content, word, dated: false };
            volume.put(dir, &file, variant.after)?;
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
        ready.wait();
        let begun = volume.now(since);
        for worker in workers {
            worker.join().map_err(|_| LabError::new("making files", "a thread panicked"))??;
        }
        Ok::<u64, LabError>(begun)
    })?;
    let mut found = Found::default();
    let seconds = span(&mut found, begun, volume.now(since));
    let files = f64::from(variant.threads) * f64::from(variant.files);
    found.set("rate", files / seconds);
    found.set("total_s", seconds);
    took(&mut found, latencies.into_inner());
    Ok(found)
}
