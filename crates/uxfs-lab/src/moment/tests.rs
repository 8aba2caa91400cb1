//! The check of ordered mode finds what breaks it: planted faults of the engine and of disks, moments that are
//! too old, calls that are half there.

use std::time::Duration;

use uxfs::NewInode;
use uxfs_disk::fault::Fault;
use uxfs_models::Description;
use uxfs_testkit::Rng;

use super::*;
use crate::durability::{Durability, Fsyncs, judge};
use crate::history::{Kind, Written};
use crate::setup::{Lab, RunResult, Setup};
use crate::sim::DeviceFault;
use crate::work::{clients, fill, word};

const CLIENTS: u32 = 6;
const STEPS: u32 = 120;

fn setup(seed: u64) -> Setup {
    let disk = Description::named("hdd-7200").unwrap();
    let mut setup =
        Setup::new(&disk, seed).mkfs('d', "agcount=4").fsyncs(Fsyncs::Ordered { loss_s: 1 });
    setup.cuts = 48;
    setup
}

/// Clients that make, write, overwrite, cut, rename and remove files for some seconds, each in a directory of
/// its own, and pages of one file that all share.
fn churn(lab: &Arc<Lab>) -> uxfs::Result<()> {
    let shared = lab.put(lab.fs.root(), "shared", &NewInode::file(0o644))?;
    lab.begin();
    clients(lab, CLIENTS, move |lab, number| {
        let mut rng = Rng::spread(lab.seed ^ u64::from(number) << 16);
        let dir = lab.create(lab.fs.root(), &format!("dir{number}"), &NewInode::dir(0o755))?;
        let mut files: Vec<(String, Ino, u64)> = Vec::new();
        for step in 0..STEPS {
            lab.sim.rest(Duration::from_nanos(rng.scaled(50_000_000)));
            let word = word((u64::from(number) << 20) | (u64::from(step) + 1));
            let page = fill(word, 4096);
            lab.write(shared, rng.scaled(64) * 4096, &page)?;
            let at = rng.scaled(files.len().max(1) as u64) as usize;
            match rng.scaled(10) {
                0..=2 => {
                    let name = format!("file{step}");
                    let ino = lab.create(dir, &name, &NewInode::file(0o644))?;
                    let size = 1 + rng.scaled(30_000);
                    lab.write(ino, 0, &fill(word, size as usize))?;
                    files.push((name, ino, size));
                }
                _ if files.is_empty() => {}
                3..=5 => {
                    let (_, ino, size) = &mut files[at];
                    let from = rng.scaled(*size);
                    let data = fill(word, 1 + rng.scaled(20_000) as usize);
                    lab.write(*ino, from, &data)?;
                    *size = (*size).max(from + data.len() as u64);
                }
                6 => {
                    let (_, ino, size) = &mut files[at];
                    *size = rng.scaled(*size);
                    lab.truncate(*ino, *size)?;
                }
                7 => {
                    let new = format!("moved{step}");
                    lab.rename(dir, &files[at].0, dir, &new)?;
                    files[at].0 = new;
                }
                8 => {
                    let (name, ..) = files.swap_remove(at);
                    lab.unlink(dir, &name)?;
                }
                _ => lab.durable()?,
            }
        }
        Ok(())
    })?;
    lab.end();
    Ok(())
}

fn run(setup: &Setup) -> RunResult<()> {
    // No planted fault may stop the run itself.
    setup.run(churn).unwrap()
}

fn judged(setup: &Setup) -> Durability {
    judge(&run(setup), setup.cuts, setup.seed)
}

#[test]
fn each_cut_of_an_ordered_run_leaves_one_moment() {
    for seed in 1..=3 {
        let found = judged(&setup(seed));
        let moments = found.moments.unwrap();
        assert!(!found.failed && found.unsound == 0, "{seed}: {found:?}");
        assert_eq!((moments.whole, moments.mixed, moments.late), (48, 0, 0), "{seed}: {found:?}");
        assert!(moments.oldest_s > 0.2 && moments.oldest_s <= 1.0, "{seed}: {found:?}");
        assert_eq!(found.label(), "one earlier moment, at most 1 s old");
        assert_eq!(found, judged(&setup(seed)), "the same seed gives the same verdict");
    }
}

/// The faults of ordered mode, and those of every mode that it relies on. [`Fault::DataUnflushed`] is not among
/// them: it is of data that is written at once, which ordered mode has none of.
#[test]
fn each_planted_fault_of_ordered_mode_is_found() {
    let others = [Fault::FlushAfterLog, Fault::CommitLost, Fault::ReusedEarly];
    let missed: Vec<Fault> = Fault::ORDERED
        .into_iter()
        .chain(others)
        .filter(|fault| {
            let found = (1..=8).map(|seed| {
                let mut setup = setup(seed);
                setup.fault = Some(*fault);
                judged(&setup)
            });
            let found = found.into_iter().find(|found| found.failed);
            println!(
                "{fault:?}: {:?}",
                found.as_ref().map(|found| (found.label(), &found.problem))
            );
            found.is_none()
        })
        .collect();
    assert_eq!(missed, []);
}

#[test]
fn each_planted_fault_of_a_disk_is_found() {
    for fault in [
        DeviceFault::FlushDropped,
        DeviceFault::SomeFlushesDropped,
        DeviceFault::WriteLost,
        DeviceFault::WriteTorn,
    ] {
        let mut setup = setup(1);
        setup.device_fault = Some(fault);
        let found = judged(&setup);
        println!("{fault:?}: {} {:?}", found.label(), found.problem);
        assert!(found.failed, "{fault:?}: {found:?}");
    }
}

/// A run whose engine keeps 8 s, judged by a promise of 1 s.
#[test]
fn a_moment_that_is_too_old_is_found() {
    let mut setup = setup(1);
    setup.fsyncs = Fsyncs::Ordered { loss_s: 8 };
    let mut ran = run(&setup);
    assert!(!judge(&ran, setup.cuts, 1).failed);
    ran.promise.fsyncs = Fsyncs::Ordered { loss_s: 1 };
    let found = judge(&ran, setup.cuts, 1);
    let moments = found.moments.unwrap();
    assert!(found.failed && moments.mixed == 0 && moments.late > 0, "{found:?}");
    let label = found.label();
    assert!(
        label.starts_with("FAILED: promised one earlier moment, at most 1 s old, worth one"),
        "{label}"
    );
}

/// A volume whose history is made by hand.
struct ByHand {
    fs: Fs,
    initial: Store,
    history: History,
    time: u64,
}

impl ByHand {
    fn new() -> Self {
        let initial = setup(1).volume().unwrap();
        let dev: Arc<dyn BlockDev> = Arc::new(StoreDev::new(initial.clone()));
        let fs = Fs::open(dev, OpenOptions::default()).unwrap();
        Self { fs, initial, history: History::default(), time: 0 }
    }

    /// A call of one second, a second after the last.
    fn called(&mut self, change: Change) {
        let begin = self.history.position(self.time + 1);
        self.time += 2;
        self.history.ended(begin, self.time, change);
    }

    /// The verdict on the volume as it is, cut at this time.
    fn verdict(&self, cut: u64) -> Result<u64, String> {
        Moments::new(&self.initial, &self.history).unwrap().of(&self.fs, cut)
    }

    /// Makes a file `a` of three pages, in two calls, and the call that renames it to `b`; this one is not done.
    fn with_renamed_file() -> (Self, Ino, Vec<u8>) {
        let mut hand = Self::new();
        let dir = hand.fs.root();
        let data = fill(word(7), 3 * 4096);
        let ino = hand.fs.create(dir, b"a", &NewInode::file(0o644)).unwrap();
        let name = String::from("a");
        hand.called(Change::Made { dir, name: name.clone(), ino, kind: Kind::File });
        hand.called(Change::Wrote { ino, at: 0, bytes: Written::new(&data) });
        hand.called(Change::Renamed { dir, name, to_dir: dir, to_name: "b".into() });
        (hand, ino, data)
    }
}

#[test]
fn a_tree_is_of_the_latest_moment_that_it_fits() {
    let (hand, ino, data) = ByHand::with_renamed_file();
    assert_eq!(hand.verdict(100), Ok(4), "made, and not written until the write ended");
    assert_eq!(hand.verdict(3), Ok(3), "no later than the cut");
    hand.fs.write_at(ino, 0, &data).unwrap();
    assert_eq!(hand.verdict(100), Ok(6));
    let root = hand.fs.root();
    hand.fs.rename(root, b"a", root, b"b", uxfs::RenameFlags::default()).unwrap();
    assert_eq!(hand.verdict(100), Ok(100));
    assert!(hand.verdict(4).is_err(), "it was renamed later");
}

#[test]
fn what_fits_no_moment_is_named() {
    let refused = |cut: u64, change: &dyn Fn(&ByHand, Ino, &[u8])| {
        let (hand, ino, data) = ByHand::with_renamed_file();
        change(&hand, ino, &data);
        hand.verdict(cut).unwrap_err()
    };
    // Half of a write: a page of it, with its length; a length without the pages.
    let why =
        refused(4, &|hand, ino, data| hand.fs.write_at(ino, 2 * 4096, &data[..4096]).unwrap());
    assert!(why.contains("partly"), "{why}");
    let why = refused(4, &|hand, ino, _| hand.fs.truncate(ino, 3 * 4096).unwrap());
    assert!(why.contains("partly"), "{why}");
    // Half of a rename: both names.
    let why = refused(6, &|hand, ino, data| {
        hand.fs.write_at(ino, 0, data).unwrap();
        hand.fs.link(ino, hand.fs.root(), b"b").unwrap();
    });
    assert!(why.contains("partly"), "{why}");
    // The rename without the write before it.
    let why = refused(100, &|hand, _, _| {
        let root = hand.fs.root();
        hand.fs.rename(root, b"a", root, b"b", uxfs::RenameFlags::default()).unwrap();
    });
    assert!(why.contains("/b"), "{why}");
    // A name, a byte and a page that no call made.
    let why = refused(100, &|hand, _, _| {
        let _made = hand.fs.create(hand.fs.root(), b"c", &NewInode::file(0o644)).unwrap();
    });
    assert!(why.contains("/c: nobody made it"), "{why}");
    let why = refused(100, &|hand, ino, data| {
        hand.fs.write_at(ino, 0, data).unwrap();
        hand.fs.write_at(ino, 5000, b"x").unwrap();
    });
    assert!(why.contains("/a: its page 1"), "{why}");
    let why =
        refused(100, &|hand, ino, data| hand.fs.write_at(ino, 4 * 4096, &data[..4096]).unwrap());
    assert!(why.contains("its length"), "{why}");
}

#[test]
fn nothing_older_than_what_was_made_durable_passes() {
    let (mut hand, ino, data) = ByHand::with_renamed_file();
    hand.fs.write_at(ino, 0, &data).unwrap();
    hand.called(Change::MadeDurable);
    assert_eq!(hand.verdict(7), Ok(6), "its end is not reached");
    let why = hand.verdict(8).unwrap_err();
    assert!(why.contains("durable"), "{why}");
}
