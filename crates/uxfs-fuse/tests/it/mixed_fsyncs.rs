//! Programs that fsync files with new data, and programs that rename and fsync directories, at the same time:
//! commits are deferred, and acknowledged steps survive power cuts.

use std::fs::{File, create_dir, rename};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use uxfs::disk::{BlockDev, MemDev};
use uxfs_crash::{Cut, Mark, RecordDev, Recording, rng};
use uxfs_fuse::control;
use uxfs_testkit::{Answer, FaultDev, Op, Rule};

use crate::power::{SECTOR, end, made, mounted, setting};
use crate::rig::transports;

/// Programs of each kind, and their steps.
const PROGRAMS: usize = 6;
const STEPS: usize = 25;
/// How long a flush takes: long enough for other callers to come.
const FLUSH: Duration = Duration::from_millis(2);
const LEN: usize = 6000;

/// An acknowledged step.
#[derive(Clone, Copy)]
enum Step {
    /// This file of this program has its content.
    Written(usize, usize),
    /// This directory of this program has this name.
    Renamed(usize, usize),
}

fn byte(program: usize, step: usize) -> u8 {
    (1 + (program * STEPS + step) % 255) as u8
}

fn write(dir: &Path, program: usize, acknowledge: &impl Fn(Step)) {
    for step in 0..STEPS {
        let mut file = File::create(dir.join(format!("file-{program}-{step}"))).unwrap();
        file.write_all(&[byte(program, step); LEN]).unwrap();
        file.sync_all().unwrap();
        acknowledge(Step::Written(program, step));
    }
}

fn move_about(dir: &Path, program: usize, acknowledge: &impl Fn(Step)) {
    let name = |step| dir.join(format!("dir-{program}-{step}"));
    create_dir(name(0)).unwrap();
    for step in 1..STEPS {
        rename(name(step - 1), name(step)).unwrap();
        File::open(dir).unwrap().sync_all().unwrap();
        acknowledge(Step::Renamed(program, step));
    }
}

/// Checks a mounted tree against what was acknowledged. Files that were not are empty or whole.
fn check(dir: &Path, durable: &[Step]) -> Result<(), String> {
    for step in durable {
        match *step {
            Step::Written(program, step) => {
                let path = dir.join(format!("file-{program}-{step}"));
                let len = std::fs::metadata(&path).map_err(|e| format!("{path:?}: {e}"))?.len();
                if len != LEN as u64 {
                    return Err(format!("{path:?}: {len} bytes"));
                }
            }
            Step::Renamed(program, step) => {
                let later = |now: &usize| dir.join(format!("dir-{program}-{now}")).is_dir();
                if !(step..STEPS).any(|now| later(&now)) {
                    return Err(format!(
                        "directory {program} is not renamed for the {step}th time"
                    ));
                }
            }
        }
    }
    for program in 0..PROGRAMS {
        for step in 0..STEPS {
            let path = dir.join(format!("file-{program}-{step}"));
            let Ok(content) = std::fs::read(&path) else { continue };
            let whole = content.iter().all(|b| *b == byte(program, step));
            if !whole || ![0, LEN].contains(&content.len()) {
                return Err(format!("{path:?}: {} bytes, and not its own", content.len()));
            }
        }
    }
    Ok(())
}

struct Run {
    recording: Recording,
    durable: Vec<Step>,
    deferred: u64,
}

fn run(options: &str) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let before = made();
    let record = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let slow = FaultDev::new(Arc::clone(&record) as Arc<dyn BlockDev>);
    slow.add(Rule::on(&[Op::Flush]).before(|_| {
        thread::sleep(FLUSH);
        Answer::Pass
    }));
    let volume = mounted(Arc::new(slow), dir.path(), options);
    let inner = dir.path().join("inner");
    create_dir(&inner).unwrap();
    File::open(dir.path()).unwrap().sync_all().unwrap();
    let durable: Mutex<Vec<Step>> = Mutex::default();
    let acknowledge = |step| {
        let mut durable = durable.lock().unwrap();
        durable.push(step);
        record.mark(Mark::Durable(durable.len()));
    };
    thread::scope(|scope| {
        for program in 0..PROGRAMS {
            let (inner, acknowledge) = (&inner, &acknowledge);
            scope.spawn(move || write(inner, program, acknowledge));
            scope.spawn(move || move_about(inner, program, acknowledge));
        }
    });
    let stats = control::ask(dir.path(), control::STATS).unwrap();
    let deferred = stats.iter().find(|(name, _)| name == "commits_deferred").unwrap();
    let deferred = deferred.1.parse().unwrap();
    end(volume);
    let durable = durable.into_inner().unwrap();
    Run { recording: Recording::new(before, record.take(), SECTOR), durable, deferred }
}

fn judge(disk: MemDev, options: &str, durable: &[Step]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let volume = mounted(Arc::new(disk), dir.path(), options);
    let judged = check(&dir.path().join("inner"), durable);
    end(volume);
    judged
}

#[test]
fn fsyncs_with_and_without_new_data_share_flushes_and_survive_power_cuts() {
    let mut rng = rng(setting("UXFS_SEED", 21));
    for options in transports() {
        let run = run(options);
        assert_eq!(run.durable.len(), PROGRAMS * (2 * STEPS - 1));
        assert!(run.deferred > 0, "{options}: no commit was deferred");
        for number in 0..setting("UXFS_CUTS", 12) {
            let at = run.recording.choose(&mut rng);
            let cut = Cut::of(&run.recording, at, &mut rng);
            if cut.durable == 0 {
                continue;
            }
            let judged = judge(cut.disk, options, &run.durable[..cut.durable]);
            assert_eq!(judged, Ok(()), "{options}: cut {number}, before event {at}");
        }
    }
}

/// Tests the check: steps that were not done yet count as lost.
#[test]
fn steps_of_mixed_programs_acknowledged_too_early_are_reported() {
    let run = run(transports()[0]);
    let mut rng = rng(4);
    let at = run.recording.choose(&mut rng) / 2;
    let cut = Cut::of(&run.recording, at, &mut rng);
    assert!(cut.durable < run.durable.len());
    judge(cut.disk, transports()[0], &run.durable).unwrap_err();
}
