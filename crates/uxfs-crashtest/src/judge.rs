//! The verdict on a state: it is recovered and checked.
//!
//! 1. A check depends on files and acknowledgements alone, so of states that are equal in them one is
//!    checked. Without a check the volume's structures are examined: those of equal files may
//!    differ, so each state is examined.
//! 2. A time-out is tried once more, and is never taken for the verdict on an equal state.
//! 3. A check leaves no process: with one that does, the test could not go on with the next state.
//!
//! `test` asks for states in their order, `failed` for those with a smaller loss.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::job::{Ended, How, Job};
use crate::problem::{Class, Problem};
use crate::recorder::Run;
use crate::state::State;
use crate::test::Test;

/// The digest of a state's files, and the number of acknowledgements.
pub(crate) type Key = (u64, usize);
/// What a check said.
pub(crate) type Checked = Mutex<HashMap<Key, Option<Problem>>>;

/// How a state was judged.
pub(crate) enum Verdict {
    Passed,
    Failed(Problem),
    /// The test was stopped meanwhile.
    Stopped,
}

impl From<Option<Problem>> for Verdict {
    fn from(problem: Option<Problem>) -> Self {
        problem.map_or(Self::Passed, Self::Failed)
    }
}

impl Test<'_> {
    /// Recovers and checks a state. `checked` has the verdicts of the check so far, if they count.
    pub(crate) fn judge(
        &self,
        run: &Run,
        state: &State,
        checked: Option<&Checked>,
    ) -> Result<(Verdict, Option<Key>)> {
        let judged = self.judge_once(run, state, checked)?;
        match judged.0 {
            Verdict::Failed(problem) if problem.class == Class::TimedOut => {
                self.judge_once(run, state, checked)
            }
            _ => Ok(judged),
        }
    }

    fn judge_once(
        &self,
        run: &Run,
        state: &State,
        checked: Option<&Checked>,
    ) -> Result<(Verdict, Option<Key>)> {
        let disk = Arc::new(run.recording.state(state.at, &state.survivors));
        let recovered = match self.leg.recover(disk)? {
            Ok(recovered) => recovered,
            Err(problem) => return Ok((Verdict::Failed(problem), None)),
        };
        let acks = run.acks_before(state.at);
        let key = match recovered.tree() {
            Ok(tree) => tree.map(|tree| (tree.digest(), acks)),
            Err(problem) => return Ok((Verdict::Failed(problem), None)),
        };
        let Some(check) = &self.plan.check else {
            return Ok((recovered.damage().into(), key));
        };
        let known = key.zip(checked).and_then(|(key, checked)| checked.lock().get(&key).cloned());
        if let Some(known) = known {
            return Ok((known.into(), key));
        }
        let (job, acked) = self.check_job(check, &run.acks[..acks])?;
        let ended = recovered.run(&job);
        // It is in a directory that goes away.
        let _ = fs::remove_file(acked);
        let ended = ended?;
        if ended.how == How::Stopped {
            return Ok((Verdict::Stopped, key));
        }
        let problem = self.said(&ended)?;
        let is_certain = problem.as_ref().is_none_or(|problem| problem.class != Class::TimedOut);
        if let (Some(key), Some(checked), true) = (key, checked, is_certain) {
            checked.lock().insert(key, problem.clone());
        }
        Ok((problem.into(), key))
    }

    /// What a check found.
    fn said(&self, ended: &Ended) -> Result<Option<Problem>> {
        let (class, how) = match ended.how {
            How::Success if ended.left_processes => {
                return self.must_succeed("--check", ended).map(|()| None);
            }
            How::Success => return Ok(None),
            How::TimedOut => {
                let seconds = self.plan.timeout.as_secs();
                (Class::TimedOut, format!("the check did not end within {seconds} s"))
            }
            How::KernelStopped => (Class::Kernel, format!("the check failed: {}", ended.how)),
            how => (Class::Check, format!("the check failed: {how}")),
        };
        Ok(Some(Problem::new(
            class,
            match ended.output.is_empty() {
                true => how,
                false => format!("{how}: {}", ended.output),
            },
        )))
    }

    /// A check that knows these acknowledgements, and the file with them.
    pub(crate) fn check_job(&self, check: &str, acks: &[String]) -> Result<(Job, PathBuf)> {
        let path = self.fresh("acked");
        let text: String = acks.iter().map(|ack| format!("{ack}\n")).collect();
        fs::write(&path, text).map_err(|error| Error::host("acknowledgements", error))?;
        let mut job = self.shell(check);
        job.env.push(("UXFS_ACKED".into(), path.clone().into()));
        Ok((job, path))
    }

    /// An unused path in the scratch directory.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.scratch.path().join(format!("{what}-{number}"))
    }
}
