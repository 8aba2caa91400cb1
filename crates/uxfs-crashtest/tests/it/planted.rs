//! Faults planted in programs: each is found, and the explanation names the call or the change; the
//! corrected program passes. `UXFS_ONLY` names one, `UXFS_COUNT` sets the states of a corrected one.

use uxfs_crashtest::{Explanation, Failure};

use crate::rig::{planted, setting, tested};

/// What an explanation says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    /// Exactly these calls are missing; each begins so.
    Missing(&'static [&'static str]),
    /// Another kind, whose text contains this.
    Text(&'static str),
}

use Says::{Missing, Text};

/// Programs of `tests/programs/planted.py`, and what is said of them.
const PLANTED: &[(&str, Says)] = &[
    ("lost_fsync", Missing(&["fsync (or fdatasync) of m0"])),
    ("lost_directory_fsync", Missing(&["fsync of the directory ."])),
    ("fsync_too_soon", Missing(&["fsync (or fdatasync) of m0"])),
    ("fsync_of_another_file", Missing(&["fsync (or fdatasync) of m0"])),
    ("link_without_directory_fsync", Missing(&["fsync of the directory ."])),
    ("directory_renamed", Missing(&["fsync of the directory ."])),
    (
        "buffered",
        Text("too early: this was done only after the acknowledgement: writing 4000 bytes"),
    ),
    (
        "rename_before_fsync",
        Missing(&["fsync (or fdatasync) of config, before new is renamed to it"]),
    ),
    ("truncate_then_write", Text("setting the length of config to 0")),
    ("remove_then_rename", Text("out of order: removing config")),
    ("torn_overwrite", Text("torn: writing 5000 bytes at offset 0 of config")),
    ("log_after_data", Text("out of order: writing 1 bytes")),
    ("log_without_fsync", Missing(&["fsync (or fdatasync) of log"])),
    ("index_before_blob", Text("out of order: writing 3 bytes at offset")),
    ("direct_without_flush", Missing(&["fsync (or fdatasync) of direct"])),
    ("mmap_without_msync", Missing(&["msync(MS_SYNC) or fsync of mapped"])),
    ("symlink_switched", Missing(&["fsync of the directory ."])),
    ("truncate_without_fsync", Missing(&["fsync (or fdatasync) of log"])),
    ("copy_without_fsync", Missing(&["fsync (or fdatasync) of m0"])),
    ("remove_without_directory_fsync", Missing(&["fsync of the directory ."])),
    ("acknowledged_too_soon", Missing(&["fsync (or fdatasync) of m0", "fsync of the directory ."])),
    ("sqlite", Missing(&["fsync (or fdatasync) of db-wal", "fsync of the directory ."])),
];

pub(crate) fn chosen() -> impl Iterator<Item = (&'static str, Says)> {
    let only = std::env::var("UXFS_ONLY").ok();
    PLANTED.iter().copied().filter(move |(name, _)| only.as_ref().is_none_or(|only| only == name))
}

/// Is the explanation the right one?
pub(crate) fn is_right(failure: &Failure, says: Says) -> bool {
    match (says, &failure.explanation) {
        (Missing(calls), Explanation::Missing(found)) => {
            calls.len() == found.len()
                && calls.iter().all(|call| found.iter().any(|one| one.call.starts_with(call)))
        }
        (Text(text), other) => other.to_string().contains(text),
        (Missing(_), _) => false,
    }
}

#[test]
fn each_planted_fault_is_found_and_its_explanation_names_what_is_wrong() {
    let mut wrong = Vec::new();
    for (name, says) in chosen() {
        let outcome = tested(&planted(name, "bad")).unwrap_or_else(|e| panic!("{name}: {e}"));
        match &outcome.failure {
            None => wrong.push(format!("{name}: not found in {outcome}")),
            Some(failure) if !is_right(failure, says) => {
                wrong.push(format!("{name}: not {says:?}:\n{failure}"));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_corrected_programs_pass() {
    let mut wrong = Vec::new();
    for (name, _) in chosen() {
        let mut plan = planted(name, "good");
        plan.count = usize::try_from(setting("UXFS_COUNT", 60)).unwrap();
        let outcome = tested(&plan).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(outcome.states > 20, "{name}: {outcome}");
        if let Some(failure) = &outcome.failure {
            wrong.push(format!("{name}:\n{failure}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The state that a failure names fails again, and loses as little as reported.
#[test]
fn a_state_is_repeated_by_its_name() {
    let mut plan = planted("lost_directory_fsync", "bad");
    let first = tested(&plan).unwrap().failure.unwrap();
    plan.state = Some(first.state.to_string().parse().unwrap());
    let again = tested(&plan).unwrap();
    assert_eq!((again.states, again.runs.len()), (1, 1));
    let again = again.failure.unwrap();
    assert_eq!((again.state, again.problem), (first.state, first.problem));
}

/// The number of threads changes nothing. All use one recording: the kernel tells a server of FUSE when it
/// forgets a file, at a time of its own, so the requests of two runs may differ.
#[test]
fn any_number_of_threads_gives_the_same_verdict() {
    let mut plan = planted("rename_before_fsync", "bad");
    let recorded = tested(&plan).unwrap().failure.unwrap();
    plan.recorded = Some(recorded.run);
    let mut verdict = |jobs: usize| {
        plan.jobs = jobs.try_into().unwrap();
        let outcome = tested(&plan).unwrap();
        let failure = outcome.failure.unwrap();
        (outcome.states, outcome.distinct, failure.state, failure.problem, failure.explanation)
    };
    assert_eq!(verdict(1), verdict(3));
}
