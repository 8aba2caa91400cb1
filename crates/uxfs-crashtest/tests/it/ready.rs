//! The ready-made tests find nothing in programs that sync as they should. `UXFS_COUNT` sets the number of
//! states of each.

use std::path::Path;

use uxfs_crashtest::{Explanation, Plan, READY, Ready};

use crate::rig::{plan, python, setting, tested};

/// A plan for a ready-made test, which keeps its script in `dir`.
fn prepared(ready: Ready, dir: &Path) -> Plan {
    let (mut command, check) = ready.prepare(dir).unwrap();
    command[0] = python().into();
    Plan { command, ..plan(&[], Some(check.replacen("python3", python(), 1))) }
}

#[test]
fn programs_that_sync_as_they_should_pass() {
    for ready in READY {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = prepared(*ready, dir.path());
        plan.count = usize::try_from(setting("UXFS_COUNT", 90)).unwrap();
        let outcome = tested(&plan).unwrap();
        println!("{}: {outcome}", ready.name);
        if let Some(failure) = &outcome.failure {
            panic!("{}:\n{failure}", ready.name);
        }
        assert!(outcome.runs.iter().all(|run| run.acks == 25), "{:?}", outcome.runs);
    }
}

/// SQLite's default: it does not sync the directory when it removes the journal, so a journal can come back
/// and take a commit with it. SQLite documents that, and `extra` against it.
#[test]
fn sqlite_that_removes_its_journal_needs_extra() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = prepared(Ready::of("sqlite-delete").unwrap(), dir.path());
    let full = |word: std::ffi::OsString| if word == "extra" { "full".into() } else { word };
    plan.command = plan.command.into_iter().map(full).collect();
    let failure = tested(&plan).unwrap().failure.unwrap();
    assert!(failure.problem.contains("rows were acknowledged"), "{failure}");
    let Explanation::Missing(calls) = &failure.explanation else { panic!("{failure}") };
    let calls: Vec<&str> = calls.iter().map(|missing| missing.call.as_str()).collect();
    assert_eq!(calls, ["fsync of the directory ."], "{failure}");
}
