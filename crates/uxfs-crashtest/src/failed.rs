//! A state that failed, made small and explained.
//!
//! 1. While it is made smaller, only failures of its own class count. One of another class is noted.
//! 2. The problem that is reported belongs to the state that is reported, which is judged anew at the end.
//!    If it passes then, that is noted.
//! 3. The files that an explanation tries are removed whatever happens.
//!
//! `test` calls it for the first state that fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use uxfs_disk::MemDev;

use crate::error::{Error, Result};
use crate::explain::{Case, Explanation};
use crate::job::How;
use crate::judge::{Checked, Verdict};
use crate::outcome::Failure;
use crate::problem::Problem;
use crate::recorder::Run;
use crate::shrink::{Judged, Shrunk, shrink};
use crate::state::State;
use crate::test::{Test, whole};
use crate::timeline::Timeline;
use crate::tree::Tree;

/// A failed state made small, and what is said of that.
pub(crate) struct Small {
    pub(crate) state: State,
    pub(crate) problem: Problem,
    pub(crate) notes: Vec<String>,
}

/// Makes a failed state small. `judge` tries a state; if it is to try it anew, it takes no known verdict.
pub(crate) fn made_small(
    run: &Run,
    failed: &State,
    problem: Problem,
    keep: bool,
    judge: &mut dyn FnMut(&State, bool) -> Option<Verdict>,
) -> Small {
    let (class, mut last) = (problem.class, problem);
    let mut another = None;
    let shrunk = match keep {
        true => Shrunk { state: failed.clone(), is_least: true },
        false => shrink(run, failed, &mut |state| match judge(state, false) {
            Some(Verdict::Failed(problem)) if problem.class == class => {
                last = problem;
                Judged::Fails
            }
            Some(Verdict::Failed(problem)) => {
                another.get_or_insert((state.clone(), problem));
                Judged::Passes
            }
            Some(Verdict::Passed) => Judged::Passes,
            Some(Verdict::Stopped) | None => Judged::Unknown,
        }),
    };
    let mut notes = Vec::new();
    match judge(&shrunk.state, true) {
        Some(Verdict::Failed(problem)) if problem.class == class => last = problem,
        Some(Verdict::Failed(problem)) => {
            notes.push(format!("tried again, this state failed in another way: {}", problem.text));
        }
        Some(Verdict::Passed) => notes.push(
            "seen once: tried again, this state passed, so the check depends on more than the files and \
             the acknowledgements"
                .into(),
        ),
        Some(Verdict::Stopped) | None => {}
    }
    if !shrunk.is_least {
        notes.push("a smaller loss may be enough: not all were tried".into());
    }
    if let Some((state, problem)) = another {
        notes.push(format!("state {state} fails in another way: {}", problem.text));
    }
    Small { state: shrunk.state, problem: last, notes }
}

impl Test<'_> {
    /// Makes a failed state small, and explains it.
    pub(crate) fn failure(
        &self,
        run: &Arc<Run>,
        state: &State,
        problem: Problem,
        checked: &Checked,
    ) -> Failure {
        let small =
            made_small(run, state, problem, self.plan.state.is_some(), &mut |state, anew| {
                let checked = (!anew).then_some(checked);
                self.judge(run, state, checked).ok().map(|(verdict, _)| verdict)
            });
        let least = small.state;
        let disk = Arc::new(run.recording.state(least.at, &least.survivors));
        let kept = MemDev::clone(&disk);
        let acks = run.acks[..run.acks_before(least.at)].to_vec();
        let before = self.tree(Arc::new(run.before.clone()));
        let explanation = self.explain(run, &least, disk, &acks, before.as_ref().ok());
        let end = run.recording.len();
        let places = self.leg.places(Arc::new(run.recording.state(end, &whole(run, end))));
        let before = before.ok();
        let timeline = Timeline::new(run, &least, &places, &explanation, before.as_ref());
        Failure {
            state: least,
            first: state.clone(),
            problem: small.problem.text,
            notes: small.notes,
            acks,
            explanation,
            timeline,
            disk: kept,
            run: Arc::clone(run),
        }
    }

    /// The files of a disk after recovery, or why they cannot be had.
    fn tree(&self, disk: Arc<MemDev>) -> std::result::Result<Tree, &'static str> {
        const DAMAGED: &str = "the file system itself does not recover";
        let recovered = self.leg.recover(disk).ok().and_then(std::result::Result::ok);
        match recovered.ok_or(DAMAGED)?.tree() {
            Ok(Some(tree)) => Ok(tree),
            Ok(None) => Err("the files are too many to compare"),
            Err(_) => Err(DAMAGED),
        }
    }

    fn explain(
        &self,
        run: &Run,
        state: &State,
        disk: Arc<MemDev>,
        acks: &[String],
        before: Option<&Tree>,
    ) -> Explanation {
        let unknown = |why: &str| Explanation::Unknown { why: why.into() };
        let recovered = match self.tree(disk) {
            Ok(recovered) => recovered,
            Err(why) => return unknown(why),
        };
        let Some(before) = before else {
            return unknown("the files before the run are too many to compare");
        };
        let Some(check) = &self.plan.check else {
            return unknown("there is no --check to ask");
        };
        let accepts = |tree: &Tree| self.accepts(check, tree, acks);
        let case = Case::new(run, before, state.at, &recovered, &accepts);
        case.explain()
    }

    /// Does the check accept these files, in a directory of the host? An error says why that is
    /// unknown.
    fn accepts(
        &self,
        check: &str,
        tree: &Tree,
        acks: &[String],
    ) -> std::result::Result<bool, String> {
        let dir = self.fresh("tree");
        let asked = self.asked(check, tree, acks, &dir);
        // It is in a directory that goes away.
        let _ = fs::remove_dir_all(&dir);
        match asked.map_err(|error| error.to_string())? {
            How::Stopped => Err("the test was interrupted".into()),
            How::TimedOut => Err("the check did not end in time".into()),
            how => Ok(how == How::Success),
        }
    }

    fn asked(&self, check: &str, tree: &Tree, acks: &[String], dir: &Path) -> Result<How> {
        let host = |error| Error::host("cannot write files to try", error);
        fs::create_dir(dir).map_err(host)?;
        tree.write_to(dir).map_err(host)?;
        let (job, acked) = self.check_job(check, acks)?;
        let ended = job.run_in(dir, None);
        // As above.
        let _ = fs::remove_file(acked);
        Ok(ended?.how)
    }
}
