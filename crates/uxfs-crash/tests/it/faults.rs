//! The explorer, explored: faults are planted in the engine, and each is found.

use uxfs_crash::{Explored, Plan, explore};
use uxfs_disk::fault::{Fault, is_any_planted};

use crate::setting;

/// States within which a fault is found.
const ENOUGH: u64 = 8000;
/// Faults that do no harm to one thread alone: what goes home has no changes that gather, a list of
/// unlinked inodes has one at a time, a torn record shows by the cycles of its blocks before its
/// checksum is asked, and replay goes on to what is newest.
const OUT_OF_REACH: [Fault; 4] =
    [Fault::HomeEarly, Fault::UnlinkedNotLogged, Fault::TornAccepted, Fault::LsnIgnored];

fn look(fault: Option<Fault>, count: u64) -> Explored {
    let mut plan = Plan::new(setting("UXFS_SEED", 7000), setting("UXFS_COUNT", count));
    plan.per_workload = 40;
    plan.fault = fault;
    explore(&plan, &|| ())
}

#[test]
fn each_planted_fault_is_found() {
    // The failure itself shows the effect of a fault; a backtrace would be noise.
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_any_planted() {
            shown(panic);
        }
    }));
    let mut missed = Vec::new();
    // One alone, by its name, for who looks into it.
    let only = std::env::var("UXFS_FAULT").ok();
    let wanted = |fault: &Fault| match &only {
        Some(name) => format!("{fault:?}") == *name,
        None => !OUT_OF_REACH.contains(fault),
    };
    for fault in Fault::ALL.into_iter().filter(wanted) {
        let explored = look(Some(fault), ENOUGH);
        match explored.failures.first() {
            Some(failed) => println!("{fault:?}: after {} states: {failed:.300}", explored.states),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn without_a_fault_nothing_is_found() {
    let explored = look(None, 200);
    assert!(explored.failures.is_empty(), "{}", explored.failures[0]);
}
