//! Programs that cannot be tested, and what is said of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::rig::{plan, tested};

fn refused(line: &str, change: impl FnOnce(&mut uxfs_crashtest::Plan)) -> String {
    let mut plan = plan(&["sh", "-c", line], Some("true".into()));
    change(&mut plan);
    tested(&plan).err().unwrap().to_string()
}

#[test]
fn a_program_that_cannot_be_tested_is_refused_with_the_reason() {
    let failed = refused("echo words; exit 3", |_| ());
    assert!(failed.contains("without any power cut: exit status 3"), "{failed}");
    assert!(failed.contains("words"), "{failed}");
    let late = refused("sleep 600", |plan| plan.timeout = Duration::from_millis(100));
    assert!(late.contains("--timeout"), "{late}");
    let much = refused("head -c 9000000 /dev/zero > f; sync f", |plan| plan.limit = 1 << 20);
    assert!(much.contains("--limit"), "{much}");
    let forks = refused("sleep 600 &", |_| ());
    assert!(forks.contains("left processes"), "{forks}");
    // It leaves its process group, and ends when the volume is gone.
    let line = "setsid sh -c 'exec >/dev/null 2>&1; touch ready; while [ -e ready ]; do sleep 0.1; done' & \
                while ! [ -e ready ]; do sleep 0.01; done";
    let daemon = refused(line, |_| ());
    assert!(daemon.contains("left processes"), "{daemon}");
    let left = |plan: &mut uxfs_crashtest::Plan| plan.check = Some(line.to_owned());
    let daemon = refused("true", left);
    assert!(daemon.contains("--check left processes"), "{daemon}");
    let check = refused("true", |plan| plan.check = Some("echo no; false".into()));
    assert!(check.contains("fails without any power cut") && check.contains("no"), "{check}");
    let setup = refused("true", |plan| plan.setup = Some("exit 9".into()));
    assert!(setup.contains("--setup failed without any power cut: exit status 9"), "{setup}");
    let missing = tested(&plan(&["/no/such/program"], None)).err().unwrap().to_string();
    assert!(missing.contains("/no/such/program"), "{missing}");
}

/// Nothing was acknowledged and no check was given: the volume itself is checked.
#[test]
fn without_a_check_integrity_is_checked() {
    let outcome = tested(&plan(&["sh", "-c", "mkdir a; echo x > a/f; mv a b"], None)).unwrap();
    assert!(outcome.failure.is_none() && outcome.acknowledged_nothing(), "{outcome}");
    assert!(outcome.states > 3, "{outcome}");
}

#[test]
fn an_interrupted_test_ends_with_what_it_has() {
    let plan = plan(&["sh", "-c", "echo x > f; sync f"], Some("true".into()));
    plan.stop.store(true, Ordering::Relaxed);
    let outcome = tested(&plan).unwrap();
    assert!(outcome.interrupted && outcome.states == 0);
    assert!(outcome.to_string().starts_with("interrupted on uxfs"), "{outcome}");
    assert_eq!(outcome.to_json()["passed"], false);
}

/// What `--setup` did is there when the program starts, and in every state.
#[test]
fn the_setup_is_part_of_every_state() {
    let mut plan = plan(&["sh", "-c", "test -e made && echo x > f"], Some("test -e made".into()));
    plan.setup = Some("touch made".into());
    assert!(tested(&plan).unwrap().failure.is_none());
}
