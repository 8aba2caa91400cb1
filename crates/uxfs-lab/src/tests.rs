//! The labels attacked: disks, clients and engines that do not keep their word must not get away
//! with it; and runs that are to be equal are.

use std::sync::Arc;

use uxfs_disk::fault::Fault;
use uxfs_models::Description;

use crate::bed::{Lie, Setup};
use crate::durability::{Durability, Worth, judge};
use crate::experiments;
use crate::plan::{Found, How, Quiet};
use crate::sim::Weakness;
use crate::work::fs_mark::{self, Load, Sync};
use crate::work::recording::Recording;
use crate::work::replay::{home, plant, run as replay};

fn setup() -> Setup {
    let mut setup = Setup::new(&Description::named("hdd-7200").unwrap(), 11).mkfs('d', "agcount=4");
    setup.cuts = 32;
    setup
}

fn run(setup: &Setup, sync: Sync) -> Durability {
    let load = Load { threads: 3, files: 40, size: 12_288, sync };
    match setup.run(|lab| fs_mark::run(lab, load)) {
        Ok(ran) => judge(&ran, setup.cuts, setup.seed),
        // A volume that the fault stopped has been caught too.
        Err(error) => panic!("{error}"),
    }
}

/// Rows of honest engines on honest disks keep what they promise.
#[test]
fn who_keeps_their_word_is_believed() {
    for sync in [Sync::Each, Sync::Tickets, Sync::All, Sync::Post, Sync::Reverse] {
        for fua in [false, true] {
            let mut setup = setup();
            setup.fua = fua;
            let found = run(&setup, sync);
            assert!(!found.failed, "{sync:?} {fua}: {found:?}");
            assert_eq!((found.found, found.lost), (Worth::Stable, 0), "{sync:?} {fua}: {found:?}");
        }
    }
    let mut weak = setup().mount(&["nobarrier"]);
    weak.cuts = 8;
    let found = run(&weak, Sync::Each);
    assert_eq!((found.promised, found.found), (Worth::Cache, Worth::Cache), "{found:?}");
    assert!(found.lost > 0 && found.flushes == 0 && !found.failed, "{found:?}");
    let found = run(&setup(), Sync::Never);
    assert_eq!((found.promised, found.found, found.failed), (Worth::Memory, Worth::Memory, false));
}

/// Planted faults, of disks, clients and the engine: each makes its row fail.
#[test]
fn who_does_not_is_caught() {
    let mut caught = Vec::new();
    for weakness in [
        Weakness::FlushDropped,
        Weakness::SomeFlushesDropped,
        Weakness::FuaDropped,
        Weakness::WriteLost,
        Weakness::WriteTorn,
        Weakness::WriteMisplaced,
    ] {
        let mut setup = setup();
        setup.weakness = Some(weakness);
        setup.fua = weakness == Weakness::FuaDropped;
        let found = run(&setup, Sync::Each);
        println!("{weakness:?}: {} {} {:?}", found.label(), found.checked(), found.problem);
        assert!(found.failed, "{weakness:?}: {found:?}");
        caught.push(format!("{weakness:?}"));
    }
    for lie in [Lie::Early, Lie::Never, Lie::Sometimes, Lie::DataOnly] {
        let mut setup = setup();
        setup.lie = Some(lie);
        let found = run(&setup, Sync::Each);
        println!("{lie:?}: {} {} {:?}", found.label(), found.checked(), found.problem);
        assert!(found.failed, "{lie:?}: {found:?}");
        caught.push(format!("{lie:?}"));
    }
    for fault in [Fault::FlushAfterLog, Fault::CommitLost, Fault::ChunkLost, Fault::IcreateMissing]
    {
        let mut setup = setup();
        setup.fault = Some(fault);
        let found = run(&setup, Sync::Each);
        println!("{fault:?}: {} {} {:?}", found.label(), found.checked(), found.problem);
        assert!(found.failed, "{fault:?}: {found:?}");
        caught.push(format!("{fault:?}"));
    }
    assert!(caught.len() >= 12, "{caught:?}");
}

/// The label states what was found, also where little was promised.
#[test]
fn labels_tell_what_was_found() {
    let mut weak = setup().mount(&["nobarrier"]);
    weak.cuts = 0;
    let found = run(&weak, Sync::Each);
    assert!(found.label().starts_with("volatile cache, up to "), "{}", found.label());
    let mut lying = setup();
    (lying.cuts, lying.weakness) = (0, Some(Weakness::FlushDropped));
    let found = run(&lying, Sync::Each);
    assert!(found.label().starts_with("FAILED: promised stable storage, worth volatile"));
}

/// A row of several runs is worth what the worst of them was, and fails with it.
#[test]
fn a_run_that_fails_is_not_lost_among_others() {
    let honest = run(&setup(), Sync::Each);
    let mut lying = setup();
    (lying.cuts, lying.weakness) = (0, Some(Weakness::FlushDropped));
    let weak = run(&lying, Sync::Each);
    assert!(!honest.failed && honest.cuts > 0 && weak.failed);
    let found = |durability: &Durability, rate: f64| {
        let mut found = Found { durability: Some(durability.clone()), ..Found::default() };
        found.set("rate", rate);
        found
    };
    let all = vec![found(&honest, 2.0), found(&weak, 3.0), found(&honest, 7.0)];
    let mean = Found::mean(all, "rate");
    assert_eq!(["low", "rate", "high"].map(|key| mean.get(key)), [Some(2.0), Some(4.0), Some(7.0)]);
    let durability = mean.durability.unwrap();
    assert!(durability.label().starts_with("FAILED: promised stable storage, worth volatile"));
    assert_eq!(durability.cuts, 2 * honest.cuts);
}

/// The same seed, however many rows are run at a time: the same digits.
#[test]
fn equal_runs_are_equal() {
    let found = |jobs: usize| {
        let mut how = How::new(5);
        how.jobs = jobs.try_into().unwrap();
        how.cuts = 2;
        how.only = "create".into();
        let found = experiments::run("delaylog", &how, &Quiet).unwrap();
        (serde_json::to_string(&found).unwrap(), found.csv())
    };
    assert_eq!(found(1), found(2));
}

/// A recording played: what was synced, and all that is left at its end, is worth what is said; an
/// engine that loses some of it is caught; and each run is like the other.
#[test]
fn a_recording_is_played_and_judged() {
    let text = "uxfs-trace 1\n# a test\np 0 old\np 1 source\np 1 lock\np 1 kept\np 0 sub\np 5 a\n\
                p 0 moved\np 7 a\nd 1\nf 2 9000\nO 2\nR 2 0 9000\nR 2 0 9000\nw 300\nC 3\nW 3 0 5000\n\
                W 3 5000 7000\nS 3\nK 3\nN 3 4\nS 4\nD 5\nC 6\nW 6 0 70000\nS 6\nN 5 7\nG 8\nS 8\n\
                M 6\nU 6\nE 7\nA 4\nO 2\nT 2 0\nW 2 0 4096\nK 2\nL 4 3\nU 3\nY 3 9\n";
    let recording = Arc::new(Recording::parse(text, "test").unwrap());
    let played = |fault: Option<Fault>| {
        let mut setup = setup();
        setup.fault = fault;
        let planted = Arc::clone(&recording);
        setup.prepare =
            Some(Arc::new(move |fs| (0..3).try_for_each(|n| plant(fs, &planted, &home(n)))));
        let ran = setup.run(|lab| replay(lab, &recording, 3)).unwrap();
        let reads = ran.trace.count(crate::sim::Kind::Read);
        (ran.value.played, reads, judge(&ran, setup.cuts, setup.seed))
    };
    let (sum, reads, found) = played(None);
    // The file under its old name, which the recording asks for no more.
    assert_eq!((sum.left_out, sum.syncs), (3, 12), "{sum:?}");
    assert!(!found.failed && found.found == Worth::Stable && found.lost == 0, "{found:?}");
    assert!(found.acknowledged >= 15 && found.looked_for > 30 && reads > 0, "{found:?}");
    assert_eq!(format!("{:?}", played(None)), format!("{:?}", (sum, reads, found)));
    for fault in [Fault::FlushAfterLog, Fault::CommitLost] {
        let found = played(Some(fault)).2;
        assert!(found.failed, "{fault:?}: {found:?}");
    }
}

#[test]
#[ignore = "by hand: LAB=NAME,... ONLY=TEXT"]
fn by_hand() {
    let names = std::env::var("LAB").unwrap_or_else(|_| "fs-mark".into());
    for name in names.split(',') {
        let begun = std::time::Instant::now();
        let mut how = How::new(7);
        how.only = std::env::var("ONLY").unwrap_or_default();
        let found = experiments::run(name, &how, &Quiet).unwrap();
        println!("{found}\n{:?}", begun.elapsed());
    }
}
