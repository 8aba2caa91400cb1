//! Tests of the durability labels against planted faults of disks, clients and the engine, and of the
//! repeatability of runs.

use std::ops::ControlFlow;
use std::sync::Arc;

use uxfs::Fs;
use uxfs::format::Ino;
use uxfs_disk::fault::Fault;
use uxfs_models::Description;
use uxfs_testkit::Rng;

use crate::durability::{Durability, DurabilityLevel, cut, judge, recover};
use crate::experiments;
use crate::plan::{Found, How, NoProgress};
use crate::setup::{FaultyClient, Setup};
use crate::sim::DeviceFault;
use crate::work::fs_mark::{self, Load, Sync};
use crate::work::recording::Recording;
use crate::work::replay::{client_dir, populate, run as replay};
use crate::work::{database, dbench, mail};

fn setup() -> Setup {
    let mut setup = Setup::new(&Description::named("hdd-7200").unwrap(), 11).mkfs('d', "agcount=4");
    setup.cuts = 32;
    setup
}

fn run(setup: &Setup, sync: Sync) -> Durability {
    let load = Load { threads: 3, files: 40, size: 12_288, sync };
    match setup.run(|lab| fs_mark::run(lab, load)) {
        Ok(ran) => judge(&ran, setup.cuts, setup.seed),
        // No planted fault may stop the run itself.
        Err(error) => panic!("{error}"),
    }
}

/// Without a fault, no row fails.
#[test]
fn rows_without_a_fault_have_the_promised_durability() {
    for sync in [Sync::Each, Sync::Tickets, Sync::All, Sync::Post, Sync::Reverse] {
        for fua in [false, true] {
            let mut setup = setup();
            setup.fua = fua;
            let found = run(&setup, sync);
            assert!(!found.failed, "{sync:?} {fua}: {found:?}");
            assert_eq!(
                (found.found, found.lost),
                (DurabilityLevel::Stable, 0),
                "{sync:?} {fua}: {found:?}"
            );
        }
    }
    let mut degraded = setup().mount(&["nobarrier"]);
    degraded.cuts = 8;
    let found = run(&degraded, Sync::Each);
    assert_eq!(
        (found.promised, found.found),
        (DurabilityLevel::Cache, DurabilityLevel::Cache),
        "{found:?}"
    );
    assert!(found.lost > 0 && found.flushes == 0 && !found.failed, "{found:?}");
    let found = run(&setup(), Sync::Never);
    assert_eq!(
        (found.promised, found.found, found.failed),
        (DurabilityLevel::Memory, DurabilityLevel::Memory, false)
    );
}

/// Each planted fault of a disk, a client or the engine makes its row fail.
#[test]
fn each_planted_fault_fails_its_row() {
    let mut caught = Vec::new();
    for device_fault in [
        DeviceFault::FlushDropped,
        DeviceFault::SomeFlushesDropped,
        DeviceFault::FuaDropped,
        DeviceFault::WriteLost,
        DeviceFault::WriteTorn,
        DeviceFault::WriteMisplaced,
    ] {
        let mut setup = setup();
        setup.device_fault = Some(device_fault);
        setup.fua = device_fault == DeviceFault::FuaDropped;
        let found = run(&setup, Sync::Each);
        println!("{device_fault:?}: {} {} {:?}", found.label(), found.checked(), found.problem);
        assert!(found.failed, "{device_fault:?}: {found:?}");
        caught.push(format!("{device_fault:?}"));
    }
    for client_fault in
        [FaultyClient::Early, FaultyClient::Never, FaultyClient::Sometimes, FaultyClient::DataOnly]
    {
        let mut setup = setup();
        setup.client_fault = Some(client_fault);
        let found = run(&setup, Sync::Each);
        println!("{client_fault:?}: {} {} {:?}", found.label(), found.checked(), found.problem);
        assert!(found.failed, "{client_fault:?}: {found:?}");
        caught.push(format!("{client_fault:?}"));
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

fn children(fs: &Fs, dir: Ino) -> Vec<Ino> {
    let mut found = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            found.push(entry.ino);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// After each cut a mail is empty or whole, whether or not it was acknowledged. Returns the number of mails
/// that are neither, of all.
fn torn_mails(setup: &Setup) -> (u32, u32) {
    let load = mail::Load { clients: 8, mails: 30, warmup: 0, boxes: 4, think_us: 2_000 };
    let ran = setup.run(|lab| mail::run(lab, load)).unwrap();
    let safe = ran.trace.safe(ran.volatile);
    let mut rng = Rng::new(setup.seed);
    let (mut torn, mut all) = (0, 0);
    for _ in 0..setup.cuts {
        let moment = ran.begun + rng.scaled(ran.ended - ran.begun);
        let (_dev, fs) = recover(cut(&ran, &safe, moment, 0.5, &mut rng)).unwrap();
        for dir in children(&fs, fs.root()) {
            for mail in children(&fs, dir) {
                let mut content = vec![0; fs.stat(mail).unwrap().size as usize];
                fs.read_at(mail, 0, &mut content).unwrap();
                let word = content.get(..8).unwrap_or_default();
                let is_whole = content.chunks(8).all(|part| part == &word[..part.len()]);
                all += 1;
                torn += u32::from(!is_whole || word == [0; 8]);
            }
        }
    }
    (torn, all)
}

/// A commit that is deferred until its data is flushed never shows data that is not.
#[test]
fn deferred_commits_show_flushed_data_only() {
    let mut setup = setup();
    setup.cuts = 40;
    let (torn, all) = torn_mails(&setup);
    assert!(torn == 0 && all > 1000, "{torn} of {all}");
    setup.fault = Some(Fault::CommittedEarly);
    let (torn, all) = torn_mails(&setup);
    assert!(torn > 0, "{torn} of {all}");
}

/// Connections that share one file would wait for its blocks while a commit of it is deferred.
#[test]
fn commits_of_a_shared_file_are_not_deferred() {
    let load = database::Load { clients: 8, commits: 20, warmup: 0, think_us: 500 };
    let ran = setup().run(|lab| {
        database::run(lab, load)?;
        Ok(lab.fs.stats())
    });
    let stats = ran.unwrap().value;
    assert!(stats.commits_deferred == 0 && stats.flushes > 20, "{stats:?}");
}

#[test]
fn flushes_of_dbench_clients_are_durable() {
    let load = Arc::new(dbench::own_load());
    let run = |setup: &Setup| setup.run(|lab| dbench::run(lab, &load, 3, 100, 800)).unwrap();
    let setup = setup();
    let ran = run(&setup);
    let found = judge(&ran, setup.cuts, setup.seed);
    assert!(!found.failed, "{found:?}");
    assert_eq!((found.found, found.lost), (DurabilityLevel::Stable, 0), "{found:?}");
    // Each flush follows a write, and is acknowledged once.
    let moved = ran.value;
    assert_eq!((moved.steps, moved.flushes, ran.acks.len()), (2400, 48, 48), "{moved:?}");
    assert_eq!(ran.latencies.len(), 2400);
    let again = run(&setup);
    assert_eq!((ran.latencies, ran.ended), (again.latencies, again.ended));
    let mut faulty = setup.clone();
    faulty.client_fault = Some(FaultyClient::Never);
    let found = judge(&run(&faulty), setup.cuts, setup.seed);
    assert!(found.failed, "{found:?}");
}

/// Without power cuts, the label still states the durability derived from the trace.
#[test]
fn labels_state_the_durability_found() {
    let mut degraded = setup().mount(&["nobarrier"]);
    degraded.cuts = 0;
    let found = run(&degraded, Sync::Each);
    assert!(found.label().starts_with("volatile cache, up to "), "{}", found.label());
    let mut faulty = setup();
    (faulty.cuts, faulty.device_fault) = (0, Some(DeviceFault::FlushDropped));
    let found = run(&faulty, Sync::Each);
    assert!(found.label().starts_with("FAILED: promised stable storage, worth volatile"));
}

/// A row of several runs has the durability of the worst run, and fails if one fails.
#[test]
fn a_row_fails_if_one_of_its_runs_fails() {
    let good = run(&setup(), Sync::Each);
    let mut faulty = setup();
    (faulty.cuts, faulty.device_fault) = (0, Some(DeviceFault::FlushDropped));
    let degraded = run(&faulty, Sync::Each);
    assert!(!good.failed && good.cuts > 0 && degraded.failed);
    let found = |durability: &Durability, rate: f64| {
        let mut found = Found { durability: Some(durability.clone()), ..Found::default() };
        found.set("rate", rate);
        found.set("max_ms", rate);
        found
    };
    let all = vec![found(&good, 2.0), found(&degraded, 3.0), found(&good, 7.0)];
    let mean = Found::mean(all, "rate");
    assert_eq!(mean.get("max_ms"), Some(7.0), "the longest of all runs");
    assert_eq!(["low", "rate", "high"].map(|key| mean.get(key)), [Some(2.0), Some(4.0), Some(7.0)]);
    let durability = mean.durability.unwrap();
    assert!(durability.label().starts_with("FAILED: promised stable storage, worth volatile"));
    assert_eq!(durability.cuts, 2 * good.cuts);
}

/// What is written and flushed after the measured part is not in its rates.
#[test]
fn the_measured_part_has_an_end() {
    let ran = |more: u32| {
        let setup = setup();
        let ran = setup.run(|lab| {
            let load = Load { threads: 1, files: 3, size: 0, sync: Sync::Never };
            let made = fs_mark::run(lab, load)?;
            let root = lab.fs.root();
            for number in 0..more {
                let new = uxfs::NewInode::file(0o600);
                let ino = lab.create(root, &format!("after{number}"), &new)?;
                lab.fsync(ino)?;
            }
            Ok(made)
        });
        let ran = ran.unwrap();
        (Found::of(&ran, &setup), ran.trace.count(crate::sim::Kind::Flush))
    };
    let ((none, _), (found, flushes)) = (ran(0), ran(5));
    assert!(flushes >= 5, "{flushes}");
    let durability = found.durability.as_ref().unwrap();
    assert_eq!((durability.flushes, durability.forced), (0, 0));
    for key in ["flushes", "flushes_s", "log_mb_s", "log_iops"] {
        assert_eq!(found.get(key), none.get(key), "{key}");
    }
    assert!(found.get("log_bytes") > none.get("log_bytes"));
}

/// The number of parallel rows does not change the digits.
#[test]
fn the_number_of_jobs_does_not_change_results() {
    let found = |jobs: usize| {
        let mut how = How::new(5);
        how.jobs = jobs.try_into().unwrap();
        how.cuts = 2;
        how.only = "create".into();
        let found = experiments::run("delaylog", &how, &NoProgress).unwrap();
        (serde_json::to_string(&found).unwrap(), found.csv())
    };
    assert_eq!(found(1), found(2));
}

/// A replay loses no acknowledged operation, is repeatable, and fails with a faulty engine.
#[test]
fn a_recording_is_replayed_and_checked() {
    let text = "uxfs-trace 1\n# a test\np 0 old\np 1 source\np 1 lock\np 1 kept\np 0 sub\np 5 a\n\
                p 0 moved\np 7 a\nd 1\nf 2 9000\nO 2\nR 2 0 9000\nR 2 0 9000\nw 300\nC 3\nW 3 0 5000\n\
                W 3 5000 7000\nS 3\nK 3\nN 3 4\nS 4\nD 5\nC 6\nW 6 0 70000\nS 6\nN 5 7\nG 8\nS 8\n\
                M 6\nU 6\nE 7\nA 4\nO 2\nT 2 0\nW 2 0 4096\nK 2\nL 4 3\nU 3\nY 3 9\n";
    let recording = Arc::new(Recording::parse(text, "test").unwrap());
    let played = |fault: Option<Fault>| {
        let mut setup = setup();
        setup.fault = fault;
        let source = Arc::clone(&recording);
        setup.prepare = Some(Arc::new(move |fs| {
            (0..3).try_for_each(|n| populate(fs, &source, &client_dir(n)))
        }));
        let ran = setup.run(|lab| replay(lab, &recording, 3)).unwrap();
        let reads = ran.trace.count(crate::sim::Kind::Read);
        (ran.value.played, reads, judge(&ran, setup.cuts, setup.seed))
    };
    let (sum, reads, found) = played(None);
    // The skipped steps are those on a file that the recording knows only by its old name.
    assert_eq!((sum.left_out, sum.syncs), (3, 12), "{sum:?}");
    assert!(
        !found.failed && found.found == DurabilityLevel::Stable && found.lost == 0,
        "{found:?}"
    );
    assert!(found.acknowledged >= 15 && found.looked_for > 30 && reads > 0, "{found:?}");
    assert_eq!(format!("{:?}", played(None)), format!("{:?}", (sum, reads, found)));
    for fault in [Fault::FlushAfterLog, Fault::CommitLost] {
        let found = played(Some(fault)).2;
        assert!(found.failed, "{fault:?}: {found:?}");
    }
}

/// Rows of ordered mode and under eatmydata state their durability, and repeat with any number of jobs.
#[test]
fn rows_with_less_durability_state_it_and_repeat() {
    let found = |only: &str, jobs: usize| {
        let mut how = How::new(3);
        how.jobs = jobs.try_into().unwrap();
        how.cuts = 4;
        how.only = only.into();
        experiments::run("database", &how, &NoProgress).unwrap()
    };
    let worth = |only: &str| {
        let found = found(only, 2);
        assert!(found.rows.len() == 1 && !found.failed(), "{found}");
        (found.rows[0].worth.clone(), found.rows[0].checked.clone())
    };
    let (ordered, checked) = worth("hdd-7200, 1 client / ordered, loss=1");
    assert_eq!(ordered, "one earlier moment, at most 1 s old");
    assert!(checked.contains("each left one moment, at most "), "{checked}");
    let (ignored, _) = worth("hdd-7200, 1 client / eatmydata");
    assert!(ignored.starts_with("nothing promised; memory, up to "), "{ignored}");
    let (one, two) = (found("client / ordered", 1), found("client / ordered", 2));
    assert_eq!(one.rows.len(), 6);
    assert_eq!(one, two);
    assert_eq!(one.csv(), two.csv());
}

#[test]
#[ignore = "by hand: LAB=NAME,... ONLY=TEXT"]
fn run_experiments_by_hand() {
    let names = std::env::var("LAB").unwrap_or_else(|_| "fs-mark".into());
    for name in names.split(',') {
        let begun = std::time::Instant::now();
        let mut how = How::new(7);
        how.only = std::env::var("ONLY").unwrap_or_default();
        let found = experiments::run(name, &how, &NoProgress).unwrap();
        println!("{found}\n{:?}", begun.elapsed());
    }
}
