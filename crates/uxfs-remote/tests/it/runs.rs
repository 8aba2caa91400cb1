//! Runs of the simulation, and faults that it must find.

use uxfs_remote::fault::{Fault, plant};

use crate::world::{Done, World};

const STEPS: u64 = 150;

pub(crate) fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

fn run(seed: u64) -> Result<Done, String> {
    World::new(seed).run(STEPS, |_, _| {})
}

#[test]
fn whatever_happens_a_checkpoint_holds_what_once_was() {
    let first = number("UXFS_SEED", 0);
    let seeds = match std::env::var("UXFS_ONLY") {
        Ok(text) => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
        Err(_) => first..first + number("UXFS_COUNT", 150),
    };
    let mut all = Done::default();
    for seed in seeds {
        let done = run(seed).unwrap_or_else(|why| panic!("{why}; again: UXFS_ONLY={seed}"));
        all.checkpoints += done.checkpoints;
        all.restored += done.restored;
        all.fenced += done.fenced;
        all.compacted += done.compacted;
        all.failed += done.failed;
        all.kept_for_deltas += done.kept_for_deltas;
    }
    println!("{all:?}");
    if std::env::var("UXFS_ONLY").is_err() {
        let each = [
            all.checkpoints,
            all.restored,
            all.fenced,
            all.compacted,
            all.failed,
            all.kept_for_deltas,
        ];
        assert!(each.iter().all(|count| *count > 0), "{all:?}: something never happened");
    }
}

/// Runs until a fault is found; it must be soon.
#[track_caller]
fn is_found<T>(wanted: &str, run: impl Fn(u64) -> Result<T, String>) {
    for seed in 0..300 {
        if let Err(why) = run(seed) {
            assert!(why.contains(wanted), "seed {seed}: {why}");
            return;
        }
    }
    panic!("the fault was not found");
}

/// As [`is_found`], with a planted fault.
#[track_caller]
pub(crate) fn planted_is_found<T>(
    fault: Fault,
    wanted: &str,
    run: impl Fn(u64) -> Result<T, String>,
) {
    is_found(wanted, |seed| {
        plant(Some(fault));
        let found = run(seed);
        plant(None);
        found
    });
}

#[test]
fn a_manifest_before_its_deltas_is_found() {
    planted_is_found(Fault::ManifestFirst, "is missing", run);
}

#[test]
fn a_failure_that_is_forgotten_is_found() {
    planted_is_found(Fault::FailureForgotten, "holds what never was", run);
}

#[test]
fn a_second_writer_is_found() {
    planted_is_found(Fault::FenceIgnored, "", run);
}

#[test]
fn objects_removed_too_early_are_found() {
    planted_is_found(Fault::NamedRemoved, "is missing", run);
}

#[test]
fn removed_checkpoints_that_come_back_are_found() {
    planted_is_found(Fault::FloorForgotten, "are listed", run);
}

#[test]
fn a_flush_that_returns_early_is_found() {
    planted_is_found(Fault::FlushEarly, "was acknowledged and is not there", run);
}

#[test]
fn a_store_that_drops_what_it_acknowledged_is_found() {
    is_found("is missing", |seed| {
        World::new(seed).run(STEPS, |world, step| {
            if step % 20 == 0 {
                world.store.lie();
            }
        })
    });
}
