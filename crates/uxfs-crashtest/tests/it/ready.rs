//! The ready-made tests find nothing in programs that sync as they should. `UXFS_COUNT` sets the number of
//! states of each.

use uxfs_crashtest::READY;

use crate::rig::{plan, setting, tested};

#[test]
fn programs_that_sync_as_they_should_pass() {
    for ready in READY {
        let dir = tempfile::tempdir().unwrap();
        let (command, check) = ready.prepare(dir.path()).unwrap();
        let mut plan = plan(&[], Some(check));
        plan.command = command;
        plan.count = usize::try_from(setting("UXFS_COUNT", 90)).unwrap();
        let outcome = tested(&plan).unwrap();
        println!("{}: {outcome}", ready.name);
        if let Some(failure) = &outcome.failure {
            panic!("{}:\n{failure}", ready.name);
        }
        assert!(outcome.runs.iter().all(|run| run.acks == 25), "{:?}", outcome.runs);
    }
}
