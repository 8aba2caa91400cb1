//! Programs on a tree of source files: tar, find, git and rm, and what they ask the mount.
//!
//! 1. A step's time ends when its program does. What is then only in memory is in the row's
//!    durability; tables of the steps that write show the same with a sync that follows.
//! 2. Each step begins when the one before is on stable storage, so that none pays for another.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::options::Options;
use super::requests::{RequestTable, Requests};
use super::subject::{self, KERNEL, MOUNT, Subject};
use super::tree::Tree;
use super::unsynced::Unsynced;
use crate::host::{Scratch, timed};
use crate::settings::alternating;
use crate::{BenchError, Report, Result, Row};

const STABLE: &str = "on stable storage (sync included)";
const READ: &str = "nothing written";
const KERNEL_UNSYNCED: &str = "in memory: metadata and data for 30 s at most";
const NAMES: [&str; 2] = [MOUNT, KERNEL];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tar,
    Find,
    Git,
    Rm,
}

const STEPS: [Step; 4] = [Step::Tar, Step::Find, Step::Git, Step::Rm];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar x",
            Self::Find => "find",
            Self::Git => "git",
            Self::Rm => "rm -r",
        }
    }

    fn writes(self) -> bool {
        self != Self::Find
    }

    /// Number of files that it works on.
    fn files(self, tree: &Tree) -> u64 {
        if self == Self::Git { tree.git_files } else { tree.files }
    }

    fn title(self, tree: &Tree) -> String {
        let (dir, files) = (tree.git.display(), tree.git_files);
        match self {
            Self::Find => format!("find, warm, in {}", tree.what),
            Self::Git if tree.git == Path::new("") => {
                format!("git add and commit of {}", tree.what)
            }
            Self::Git => format!("git add and commit of {dir}, {files} files"),
            Self::Tar | Self::Rm => format!("{} of {}", self.name(), tree.what),
        }
    }

    /// Number of runs whose mean is its time: a run of find is too short.
    fn runs(self) -> u32 {
        if self == Self::Find { 10 } else { 1 }
    }

    /// What one of its seconds is in the unit of its figures.
    fn unit(self) -> (f64, &'static str) {
        if self == Self::Find { (1e3, "ms") } else { (1.0, "s") }
    }
}

/// What a step took.
struct Took {
    seconds: f64,
    /// Of the sync afterwards.
    sync: f64,
    requests: Option<Requests>,
}

pub(super) fn run_all(
    options: &Options,
    unsynced: Unsynced,
    scratch: &Scratch,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<Report>, RequestTable)> {
    say("a tree for tar, find, git and rm");
    let tree = Tree::new(options.tree.as_deref(), scratch)?;
    let mut reports: Vec<(Step, [Report; 2])> =
        STEPS.into_iter().map(|step| (step, new_reports(step, &tree, options, unsynced))).collect();
    let title = format!("requests of the programs to the mount, -o {}", options.options);
    let notes = vec!["the kernel's XFS has no server: it asks none of them".into()];
    let mut requests = RequestTable::new(title, notes);
    for round in 1..=options.rounds {
        say(&format!("tar, find, git, rm, round {round} of {}", options.rounds));
        for (at, name) in alternating(round, [(0, MOUNT), (1, KERNEL)]) {
            let all = subject::with(name, options, scratch, |subject| steps(subject, &tree))?;
            for ((step, [alone, synced]), took) in reports.iter_mut().zip(all) {
                let (scale, _) = step.unit();
                alone.rows[at].samples.push(scale * took.seconds);
                synced.rows[at].samples.push(scale * (took.seconds + took.sync));
                if let Some(asked) = took.requests {
                    requests.add(step.name(), step.files(&tree), asked);
                }
            }
        }
    }
    let reports = reports.into_iter().flat_map(|(step, [alone, synced])| {
        std::iter::once(alone).chain(step.writes().then_some(synced))
    });
    Ok((reports.collect(), requests))
}

/// The report of a step, and that of the step with a sync.
fn new_reports(step: Step, tree: &Tree, options: &Options, unsynced: Unsynced) -> [Report; 2] {
    let alone = match step.writes() {
        true => [unsynced.of_files(), KERNEL_UNSYNCED.into()],
        false => [READ; 2].map(String::from),
    };
    let report = |sync: &str, costs: [String; 2]| Report {
        title: format!("{}{sync}, -o {}", step.title(tree), options.options),
        unit: step.unit().1,
        rows: NAMES.into_iter().zip(costs).map(|(name, cost)| Row::new(name, cost)).collect(),
        base: KERNEL.into(),
        notes: Vec::new(),
    };
    [report("", alone), report(", and a sync", [unsynced.words(STABLE.into()), STABLE.into()])]
}

/// Runs all steps.
fn steps(subject: &Subject, tree: &Tree) -> Result<Vec<Took>> {
    let root = subject.dir();
    let (top, repository) = (root.join("tree"), root.join("repository"));
    let made = std::fs::create_dir(&top);
    made.map_err(|e| BenchError::new(top.display().to_string(), e))?;
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.env("GIT_DIR", &repository).env("GIT_WORK_TREE", top.join(&tree.git));
        // Nothing of this user's and this machine's settings.
        command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "uxfs");
            command.env(format!("GIT_{who}_EMAIL"), "uxfs@example.org");
        }
        command.current_dir(root).args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
        finish(command.args(args))
    };
    let find = || finish(Command::new("find").arg(&top));
    let mut all = Vec::with_capacity(STEPS.len());
    for step in STEPS {
        // What precedes it.
        match step {
            Step::Find => find()?,
            Step::Git => git(&["init", "-q"])?,
            Step::Tar | Step::Rm => {}
        }
        subject.sync()?;
        let run_once = || match step {
            Step::Tar => {
                let args = [OsStr::new("-C"), top.as_os_str(), OsStr::new("-xf")];
                finish(Command::new("tar").args(args).arg(&tree.tar))
            }
            Step::Find => find(),
            Step::Git => {
                git(&["add", "-A"])?;
                git(&["commit", "-q", "-m", "all"])
            }
            Step::Rm => finish(Command::new("rm").arg("-r").arg(&top)),
        };
        // The requests are those of the first run.
        let before = subject.requests()?;
        let (mut seconds, ()) = timed(run_once)?;
        let after = subject.requests()?;
        for _ in 1..step.runs() {
            seconds += timed(run_once)?.0;
        }
        seconds /= f64::from(step.runs());
        let (sync, ()) = timed(|| subject.sync())?;
        let requests = after.zip(before).map(|(after, before)| after.since(&before));
        all.push(Took { seconds, sync, requests });
    }
    Ok(all)
}

/// Runs a program to its end; only its errors are kept.
fn finish(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = command.spawn().and_then(std::process::Child::wait_with_output);
    let ended = ended.map_err(|e| BenchError::new(&*name, e))?;
    if !ended.status.success() {
        let words = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        return Err(BenchError::new(name, format!("{}: {words}", ended.status)));
    }
    Ok(())
}
