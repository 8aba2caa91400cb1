//! Power cuts under SQLite on a mount with `sync=ordered`: each state of the disk must be that of one earlier
//! moment, and not before what was acknowledged as durable. How old it is, is printed.
//!
//! `UXFS_ROUNDS` and `UXFS_CUTS` set the number of runs and of states of each, `UXFS_SEED` the first
//! seed. What the programs do follows from the seed, the moments of the server's writes do not: a
//! failure leaves the disk.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uxfs::disk::{BlockDev, MemDev};
use uxfs::format::Ino;
use uxfs::{Error, Fs, OpenOptions};
use uxfs_check::{CheckOptions, check};
use uxfs_crash::{Cut, Mark, RecordDev, Recording, rng};

use crate::power::{SECTOR, end, made, mounted, save, setting};
use crate::rig::{run, transport};

/// What a crash may cost, while the machine keeps up.
const LOSS: Duration = Duration::from_secs(1);
/// Steps of each program.
const STEPS: u64 = 150;

/// Journal mode and `synchronous` of the programs that run at once.
type Programs = [[&'static str; 2]; 2];

fn script(dir: &Path, name: &str) -> Command {
    let mut command = Command::new("python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sqlite.py");
    command.arg("-B").arg(script).arg(dir).arg(name);
    command
}

/// A step of one of the programs.
#[derive(Clone, Copy)]
struct Step {
    program: usize,
    number: u64,
    at: Instant,
}

/// Steps in the order of the marks in the recording.
#[derive(Default)]
struct Steps {
    done: Vec<Step>,
    durable: Vec<Step>,
}

struct Run {
    recording: Recording,
    steps: Steps,
}

fn start(dir: &Path, program: usize, [journal, synchronous]: [&str; 2], seed: u64) -> Child {
    script(dir, &program.to_string())
        .args([
            "do",
            journal,
            synchronous,
            &STEPS.to_string(),
            &(seed + program as u64).to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed: ./test installs it")
}

fn recorded(programs: Programs, options: &str, seed: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let before = made();
    let fua = seed.is_multiple_of(2);
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces().with_fua(fua));
    let volume = mounted(Arc::clone(&dev) as Arc<dyn BlockDev>, dir.path(), options);
    let steps: Mutex<Steps> = Mutex::default();
    std::thread::scope(|scope| {
        for (program, &modes) in programs.iter().enumerate() {
            let mut child = start(dir.path(), program, modes, seed);
            let (steps, dev) = (&steps, &dev);
            scope.spawn(move || {
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    let mut words = line.split(' ');
                    let (what, number) = (words.next().unwrap(), words.next().unwrap());
                    let step =
                        Step { program, number: number.parse().unwrap(), at: Instant::now() };
                    let mut steps = steps.lock().unwrap();
                    if what == "durable" {
                        steps.durable.push(step);
                        dev.mark(Mark::Durable(steps.durable.len()));
                    } else {
                        steps.done.push(step);
                        dev.mark(Mark::Step(steps.done.len()));
                    }
                }
                assert!(child.wait().unwrap().success(), "{modes:?} failed");
            });
        }
    });
    end(volume);
    Run {
        recording: Recording::new(before, dev.take(), SECTOR),
        steps: steps.into_inner().unwrap(),
    }
}

/// Copies the files of a directory of the volume.
fn copy_out(fs: &Fs, name: &str, to: &Path) {
    let dir = match fs.resolve(name.as_bytes(), true) {
        Err(Error::NotFound) => return,
        dir => dir.unwrap(),
    };
    std::fs::create_dir(to.join(name)).unwrap();
    for name_in in ["db", "db-wal", "db-journal", "lines", "counter", "renamed"] {
        let ino: Ino = match fs.lookup(dir, name_in.as_bytes()) {
            Err(Error::NotFound) => continue,
            ino => ino.unwrap(),
        };
        let mut bytes = vec![0; usize::try_from(fs.stat(ino).unwrap().size).unwrap()];
        let mut have = 0;
        while have < bytes.len() {
            let got = fs.read_at(ino, have as u64, &mut bytes[have..]).unwrap();
            assert!(got > 0, "{name}/{name_in} ends at {have}");
            have += got;
        }
        std::fs::write(to.join(name).join(name_in), bytes).unwrap();
    }
}

impl Run {
    /// Recovers the disk that a cut left, and returns the age of the moment that it holds.
    fn judge(&self, cut: &Cut, disk: &Arc<MemDev>) -> Result<Duration, String> {
        let fs = Fs::open(Arc::clone(disk) as Arc<dyn BlockDev>, OpenOptions::default());
        let fs = fs.map_err(|error| format!("the recovery: {error}"))?;
        let dir = tempfile::tempdir().unwrap();
        let mut oldest = Duration::ZERO;
        for program in 0..Programs::default().len() {
            copy_out(&fs, &program.to_string(), dir.path());
            oldest = oldest.max(self.judge_program(cut, program, dir.path())?);
        }
        fs.close().map_err(|error| format!("the close: {error}"))?;
        let report = check(&**disk, &CheckOptions::default(), &|_| {}).unwrap();
        if !report.is_clean() {
            return Err(format!("uxfs check: {:#?}", report.findings));
        }
        Ok(oldest)
    }

    fn judge_program(&self, cut: &Cut, program: usize, dir: &Path) -> Result<Duration, String> {
        let output = script(dir, &program.to_string()).arg("check").output().unwrap();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("program {program}: {error}"));
        }
        let rows: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let of_it = |steps: &[Step]| -> Vec<Step> {
            steps.iter().filter(|step| step.program == program).copied().collect()
        };
        let durable =
            of_it(&self.steps.durable[..cut.durable]).last().map_or(0, |step| step.number);
        if rows < durable {
            return Err(format!("program {program}: {rows} rows, and {durable} were durable"));
        }
        let before = &self.steps.done[..cut.begun];
        let lost = of_it(before).into_iter().find(|step| step.number > rows);
        let age = lost.map_or(Duration::ZERO, |lost| before[before.len() - 1].at - lost.at);
        // How old it may be depends on how busy the machine is, so it is only printed.
        Ok(age)
    }
}

/// The first state that is wrong, if any, and its disk before the recovery.
fn first_wrong(programs: Programs, sync: &str, cuts: u64) -> Option<(String, MemDev)> {
    let first = setting("UXFS_SEED", 1);
    let (mut states, mut oldest, mut events) = (0, Duration::ZERO, 0);
    for seed in first..first + setting("UXFS_ROUNDS", 1) {
        let mut rng = rng(seed);
        // With little memory for dirty data, writers cut epochs too.
        let dirty = ["64m", "1m", "256k"][rng.index(3)];
        let log = ["32k", "256k"][rng.index(2)];
        let way = transport(seed);
        let options = format!("{sync},dirty_bytes={dirty},logbsize={log},{way}");
        let run = recorded(programs, &options, seed);
        events += run.recording.len();
        for number in 0..cuts {
            let at = run.recording.choose(&mut rng);
            let cut = Cut::of(&run.recording, at, &mut rng);
            match run.judge(&cut, &Arc::new(cut.disk.clone())) {
                Ok(age) => oldest = oldest.max(age),
                Err(wrong) => {
                    let wrong = format!(
                        "UXFS_SEED={seed} {programs:?} {options}: cut {number}, before event {at} \
                         of {}: {wrong}",
                        run.recording.len()
                    );
                    return Some((wrong, cut.disk));
                }
            }
            states += 1;
        }
    }
    println!("{programs:?}: {states} states of {events} events; the oldest lacked {oldest:?}");
    None
}

fn cuts(programs: Programs) {
    let sync = format!("sync=ordered,loss={}", LOSS.as_secs());
    if let Some((wrong, disk)) = first_wrong(programs, &sync, setting("UXFS_CUTS", 12)) {
        let name = format!("uxfs-ordered-{}.img", std::process::id());
        let path = std::env::temp_dir().join(name);
        save(&disk, &path);
        panic!("{wrong}\nthe disk before the recovery: {}", path.display());
    }
}

#[test]
fn sqlite_with_its_fsyncs_comes_back_whole() {
    cuts([["wal", "full"], ["delete", "full"]]);
}

#[test]
fn sqlite_that_never_syncs_comes_back_whole() {
    cuts([["wal", "off"], ["persist", "off"]]);
}

/// Tests the check itself: on a durable mount, programs that do not sync leave a mixture.
#[test]
fn without_order_a_mixture_is_found() {
    let wrong = first_wrong([["wal", "off"], ["persist", "off"]], "sync=durable", 40);
    let wrong = wrong.map(|(wrong, _)| wrong);
    println!("{wrong:?}");
    assert!(wrong.is_some_and(|wrong| wrong.contains("program")), "no state was a mixture");
}

/// For a program that `UXFS_PROGRAM` names. It runs as `PROGRAM do DIRECTORY` on the volume and prints
/// `durable N` for what the volume acknowledged. `PROGRAM check DIRECTORY N` judges what a cut left.
/// `tools/ordered-postgres` is one.
#[test]
#[ignore = "UXFS_PROGRAM names the program"]
fn a_program_of_ones_own_comes_back_whole() {
    let program = std::env::var_os("UXFS_PROGRAM").expect("UXFS_PROGRAM names the program");
    let program = |what: &str, dir: &Path| {
        let mut command = Command::new(&program);
        command.arg(what).arg(dir);
        command
    };
    let new_dir = || {
        let dir = tempfile::tempdir().unwrap();
        run("chmod", &[OsStr::new("755"), dir.path().as_os_str()]);
        dir
    };
    let options = &format!("sync=ordered,loss={},allow_other", LOSS.as_secs());
    let (before, dir) = (made(), new_dir());
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let volume = mounted(Arc::clone(&dev) as Arc<dyn BlockDev>, dir.path(), options);
    let mut child = program("do", dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut durable = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        durable.push(line.strip_prefix("durable ").unwrap().to_owned());
        dev.mark(Mark::Durable(durable.len()));
    }
    assert!(child.wait().unwrap().success());
    end(volume);
    let recording = Recording::new(before, dev.take(), SECTOR);
    let seed = setting("UXFS_SEED", 1);
    let mut rng = rng(seed);
    for number in 0..setting("UXFS_CUTS", 12) {
        // Before the first, there is nothing to judge.
        let (at, cut) = loop {
            let at = recording.choose(&mut rng);
            let cut = Cut::of(&recording, at, &mut rng);
            if cut.durable > 0 {
                break (at, cut);
            }
        };
        let sure = &durable[cut.durable - 1];
        let (dir, disk) = (new_dir(), Arc::new(cut.disk.clone()));
        let volume = mounted(Arc::clone(&disk) as Arc<dyn BlockDev>, dir.path(), options);
        let judged = program("check", dir.path()).arg(sure).status().unwrap();
        end(volume);
        let report = check(&*disk, &CheckOptions::default(), &|_| {}).unwrap();
        println!(
            "cut {number}, before event {at} of {}, {sure} durable: {judged}",
            recording.len()
        );
        if !judged.success() || !report.is_clean() {
            let path =
                std::env::temp_dir().join(format!("uxfs-ordered-{}.img", std::process::id()));
            save(&cut.disk, &path);
            panic!(
                "UXFS_SEED={seed} {:?}\nthe disk before the recovery: {}",
                report.findings,
                path.display()
            );
        }
    }
}
