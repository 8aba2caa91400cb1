//! The conformance suite: each topic, a program in `tests/posix`, runs on the mount and on the
//! kernel's XFS. It must print the same on both, except for the differences that `docs/MOUNT.md` lists.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::rig::{Ours, Theirs, Volume, transports};

const SIZE: u64 = 320 << 20;

/// A documented difference: the topic, and how its lines begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    topic: String,
    line: String,
}

/// The texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The table of differences of a page.
fn documented(name: &str) -> BTreeSet<Difference> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let listed = rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let topic = quoted(cells[1]).next().unwrap();
        quoted(cells[2]).map(move |line| Difference { topic: topic.clone(), line })
    });
    let listed: BTreeSet<Difference> = listed.collect();
    assert!(listed.len() > 10, "the table in docs/{name} is not found");
    listed
}

/// What a topic prints in a new directory of a volume.
fn transcript(topic: &str, volume: &dyn Volume) -> Vec<String> {
    let dir = volume.dir().join(topic);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(0), Some(0)).unwrap();
    crate::rig::run("chmod", &["777".as_ref(), dir.as_os_str()]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/posix/{topic}.py"));
    let output = Command::new("python3")
        .arg("-B")
        .arg(&script)
        .current_dir(&dir)
        .output()
        .expect("python3 is needed: ./test installs it");
    // The same failure on both sides would count as agreement.
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{topic} in {dir:?}: {}\n{error}", output.status);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Topics that were run, and differences found.
#[derive(Default)]
pub(crate) struct Findings {
    topics: BTreeSet<String>,
    wrong: String,
    met: BTreeSet<Difference>,
}

impl Findings {
    /// Runs topics on both, each time on one volume, with `options`; ours gets `ours_too` as well,
    /// and runs them once for each way in which requests come.
    fn compare(&mut self, options: &str, ours_too: &str, topics: &[&str]) {
        let theirs: Box<dyn Volume> = Box::new(Theirs::new(SIZE, options));
        let expected: Vec<_> = topics.iter().map(|topic| transcript(topic, &*theirs)).collect();
        theirs.end();
        for way in transports() {
            let ours_too = format!("{options},{ours_too},{way}");
            self.compare_with(&expected, &ours_too, topics);
        }
    }

    fn compare_with(&mut self, expected: &[Vec<String>], ours_too: &str, topics: &[&str]) {
        let ours: Box<dyn Volume> = Box::new(Ours::new(SIZE, ours_too));
        for (topic, there) in topics.iter().zip(expected) {
            let here = transcript(topic, &*ours);
            self.compare_lines(topic, ours_too, &here, there, &["MOUNT.md"]);
        }
        ours.end();
    }

    /// Compares what a topic printed on both. The differences are in the tables of `pages`.
    pub(crate) fn compare_lines(
        &mut self,
        topic: &str,
        ours_too: &str,
        here: &[String],
        there: &[String],
        pages: &[&str],
    ) {
        let listed: BTreeSet<Difference> = pages.iter().flat_map(|page| documented(page)).collect();
        self.topics.insert(topic.to_owned());
        assert!(there.len() > 3, "{topic}: {there:?}");
        for (mine, kernel) in here.iter().zip(there).filter(|(mine, kernel)| mine != kernel) {
            let known = |d: &&Difference| d.topic == *topic && kernel.starts_with(&d.line);
            match listed.iter().find(known) {
                Some(known) => {
                    self.met.insert(known.clone());
                }
                None => self.differs(topic, ours_too, mine, kernel),
            }
        }
        if here.len() != there.len() {
            let [mine, kernel] = [here, there].map(|lines| format!("{} lines", lines.len()));
            self.differs(topic, ours_too, &mine, &kernel);
        }
    }

    fn differs(&mut self, topic: &str, options: &str, mine: &str, kernel: &str) {
        let text = format!("{topic} ({options})\n  mount:  {mine}\n  kernel: {kernel}\n");
        self.wrong.push_str(&text);
    }

    /// Asserts that there are no other differences, and that those in the tables of `pages` are there.
    pub(crate) fn judge(&self, pages: &[&str]) {
        let wrong = &self.wrong;
        assert!(wrong.is_empty(), "the mount differs from the kernel's XFS:\n{wrong}");
        let stale: Vec<Difference> = pages
            .iter()
            .flat_map(|page| documented(page))
            .filter(|d| self.topics.contains(&d.topic) && !self.met.contains(d))
            .collect();
        assert!(stale.is_empty(), "no differences any more, but in {pages:?}: {stale:#?}");
    }
}

const PERMISSIONS: [&str; 7] =
    ["permissions", "access", "setid", "acls", "evaluation", "xattrs", "attributes"];
const NAMES: [&str; 11] = [
    "names",
    "links",
    "rename",
    "directories",
    "numbers",
    "paths",
    "handles",
    "errnos",
    "statx",
    "special",
    "space",
];
const CONTENT: [&str; 13] = [
    "times",
    "truncate",
    "holes",
    "ranges",
    "mapped",
    "mappings",
    "direct",
    "appending",
    "copying",
    "locks",
    "locking",
    "sharing",
    "extras",
];
const THREADS: [&str; 1] = ["threads"];

/// Topics of flags that forbid to open a file, which count only with `strict_open`.
const FLAGS: [&str; 2] = ["flags", "forbidden"];
const ATIMES: [&str; 2] = ["atimes", "times"];
const CACHES: [&str; 1] = ["caches"];

/// The topics that a guest runs: all but those for which its small kernel lacks Unix sockets and file
/// handles (docs/VIRTIOFS.md).
pub(crate) fn topics_of_guests() -> impl Iterator<Item = &'static str> {
    let all = PERMISSIONS.into_iter().chain(NAMES).chain(CONTENT).chain(THREADS);
    let all = all.chain(FLAGS).chain(["atimes"]).chain(CACHES);
    all.filter(|topic| !["errnos", "special", "handles"].contains(topic))
}

fn compare(ours_too: &str, topics: &[&str]) {
    let mut findings = Findings::default();
    findings.compare("", ours_too, topics);
    findings.judge(&["MOUNT.md"]);
}

#[test]
fn permissions() {
    compare("strict_open", &PERMISSIONS);
}

#[test]
fn names() {
    compare("", &NAMES);
}

#[test]
fn content() {
    compare("", &CONTENT);
}

/// Flags that forbid to open a file count only with `strict_open`.
#[test]
fn flags_without_strict_open() {
    compare("", &FLAGS);
}

#[test]
fn flags_with_strict_open() {
    let mut findings = Findings::default();
    findings.compare("", "strict_open", &FLAGS);
    assert!(findings.wrong.is_empty() && findings.met.is_empty(), "{}", findings.wrong);
}

#[test]
fn access_times() {
    let mut findings = Findings::default();
    for options in ["relatime", "strictatime", "noatime", "nodiratime", "lazytime"] {
        findings.compare(options, "", &ATIMES);
    }
    findings.judge(&["MOUNT.md"]);
}

#[test]
fn results_are_never_stale() {
    compare("", &CACHES);
}

/// What a program sees of files does not depend on what fsync waits for.
#[test]
fn names_and_content_in_ordered_mode() {
    // These count blocks, and a file gets its blocks with the next epoch, whenever that ends.
    let counting = ["space", "ranges", "numbers"];
    let mut topics = [&NAMES[..], &CONTENT, &THREADS].concat();
    topics.retain(|topic| !counting.contains(topic));
    let theirs: Box<dyn Volume> = Box::new(Theirs::new(SIZE, ""));
    let expected: Vec<_> = topics.iter().map(|topic| transcript(topic, &*theirs)).collect();
    theirs.end();
    let mut findings = Findings::default();
    findings.compare_with(&expected, &format!("sync=ordered,{}", transports()[0]), &topics);
    findings.judge(&["MOUNT.md"]);
}

#[test]
fn many_threads() {
    compare("", &THREADS);
}
