//! The ready-made tests find nothing in programs that sync as they should. `UXFS_COUNT` sets the number of
//! states of each.

use std::path::Path;

use uxfs_crashtest::{Explanation, Plan, Prepared, Ready};

use crate::rig::{plan, python, setting, tested};

/// Tests whose programs `./test` installs.
const TRIED: [&str; 7] =
    ["sqlite-wal", "sqlite-delete", "sqlite-truncate", "sqlite-persist", "mail", "cp", "dpkg"];

/// A plan for a ready-made test, which keeps its script in `dir`.
fn prepared(ready: Ready, dir: &Path) -> Plan {
    let Prepared { mut command, setup, check } = ready.prepare(dir).unwrap();
    command[0] = python().into();
    let with_python = |line: String| line.replacen("python3", python(), 1);
    Plan { command, setup: setup.map(with_python), ..plan(&[], Some(with_python(check))) }
}

#[test]
fn programs_that_sync_as_they_should_pass() {
    for name in TRIED {
        let ready = Ready::of(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut plan = prepared(ready, dir.path());
        plan.count = usize::try_from(setting("UXFS_COUNT", 90)).unwrap();
        let outcome = tested(&plan).unwrap();
        println!("{name}: {outcome}");
        if let Some(failure) = &outcome.failure {
            panic!("{name}:\n{failure}");
        }
        let steps = if name == "dpkg" { 10 } else { 25 };
        assert!(outcome.runs.iter().all(|run| run.acks == steps), "{name}: {:?}", outcome.runs);
    }
}

/// SQLite's default: it does not sync the directory when it removes the journal, so a journal can come back
/// and take a commit with it. SQLite documents that, and `extra` against it.
#[test]
fn sqlite_that_removes_its_journal_needs_extra() {
    let dir = tempfile::tempdir().unwrap();
    let plan = prepared(Ready::of("sqlite-default").unwrap(), dir.path());
    let failure = tested(&plan).unwrap().failure.unwrap();
    assert!(failure.problem.contains("records were acknowledged"), "{failure}");
    let Explanation::Missing(calls) = &failure.explanation else { panic!("{failure}") };
    let calls: Vec<&str> = calls.iter().map(|missing| missing.call.as_str()).collect();
    assert_eq!(calls, ["fsync of the directory ."], "{failure}");
}
