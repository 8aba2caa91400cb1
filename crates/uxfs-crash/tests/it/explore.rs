//! A sample of power cuts. `uxfs crash` explores any number.
//!
//! `UXFS_SEED` and `UXFS_COUNT` choose another sample; `UXFS_STATE` repeats one state of the workload with
//! that seed, and writes the disk into a file if it fails.

use uxfs_crash::{Plan, VOLUMES, explore, repeat};

use crate::setting;

#[test]
fn volumes_survive_power_cuts() {
    survive(false);
}

#[test]
fn volumes_in_ordered_mode_show_one_moment_after_power_cuts() {
    survive(true);
}

fn survive(ordered: bool) {
    let seed = setting("UXFS_SEED", 0);
    let state = setting("UXFS_STATE", u64::MAX);
    if state != u64::MAX {
        if let Err(failed) = repeat(seed, state, ordered) {
            let path = std::env::temp_dir().join(format!("uxfs-crash-{seed}-{state}.img"));
            if let Some(disk) = &failed.disk {
                crate::put(disk, &path);
            }
            panic!("{failed}; see {}", path.display());
        }
        return;
    }
    let mut plan = Plan::new(seed, setting("UXFS_COUNT", 5040));
    plan.per_workload = setting("UXFS_PER_WORKLOAD", 60);
    plan.failures_max = 20;
    plan.ordered = ordered;
    let explored = explore(&plan, &|| ());
    println!("{explored}");
    let failures: Vec<String> = explored.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(explored.volumes.len(), VOLUMES.len().min(explored.workloads as usize));
}
