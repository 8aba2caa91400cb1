//! A sample of power cuts; `uxfs crash` explores as many as wanted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use uxfs_crash::{Plan, explore};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn cuts_are_survived() {
    let plan = Plan {
        seed: setting("UXFS_SEED", 0),
        count: setting("UXFS_COUNT", 2000),
        per_workload: setting("UXFS_PER_WORKLOAD", 100),
    };
    match explore(&plan, &mut |_| Ok(()), &mut |_| {}) {
        Ok(explored) => println!("{explored}"),
        Err(failed) => panic!("{failed}"),
    }
}
