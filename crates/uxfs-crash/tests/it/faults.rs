//! Tests of the explorer: it must find each fault planted in the engine.

use uxfs_crash::{Explored, Plan, explore};
use uxfs_disk::fault::{Fault, is_any_planted};

use crate::setting;

/// Number of states among which a fault must be found.
const STATES_MAX: u64 = 8000;
/// Faults that do no harm in a workload of one thread: buffers written in place have no changes in the
/// open checkpoint, a list of unlinked inodes has one inode at a time, the cycle numbers of a torn
/// record's blocks reveal it before its checksum, and replay continues to the newest state.
const HARMLESS: [Fault; 4] =
    [Fault::InPlaceEarly, Fault::UnlinkedNotLogged, Fault::TornAccepted, Fault::LsnIgnored];

fn explore_with(fault: Option<Fault>, ordered: bool, count: u64) -> Explored {
    let mut plan = Plan::new(setting("UXFS_SEED", 7000), setting("UXFS_COUNT", count));
    plan.per_workload = 40;
    plan.fault = fault;
    plan.ordered = ordered;
    explore(&plan, &|| ())
}

/// Looks for each fault, in ordered mode or not.
fn all_are_found(faults: &[Fault], ordered: bool) {
    // The failure shows the effect of a fault; the message of a panic adds nothing.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_any_planted() {
            hook(panic);
        }
    }));
    let mut missed = Vec::new();
    // `UXFS_FAULT` selects one fault by its name.
    let only = std::env::var("UXFS_FAULT").ok();
    let selected = |fault: &&Fault| match &only {
        Some(name) => format!("{fault:?}") == *name,
        None => !HARMLESS.contains(fault),
    };
    for fault in faults.iter().filter(selected) {
        let explored = explore_with(Some(*fault), ordered, STATES_MAX);
        match explored.failures.first() {
            Some(failed) => println!("{fault:?}: after {} states: {failed:.300}", explored.states),
            None => missed.push(*fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn each_planted_fault_is_found() {
    all_are_found(&Fault::ALL, false);
}

#[test]
fn each_planted_fault_of_atomic_writes_is_found() {
    all_are_found(&Fault::ATOMIC, false);
}

#[test]
fn each_planted_fault_of_ordered_mode_is_found() {
    let shared = [
        Fault::ReusedEarly,
        Fault::DataUnflushed,
        Fault::MovedUnflushed,
        Fault::FlushAfterLog,
        Fault::CommitLost,
    ];
    all_are_found(&[&Fault::ORDERED[..], &shared].concat(), true);
}

#[test]
fn without_a_fault_nothing_is_found() {
    for ordered in [false, true] {
        let explored = explore_with(None, ordered, 200);
        assert!(explored.failures.is_empty(), "{}", explored.failures[0]);
    }
}
