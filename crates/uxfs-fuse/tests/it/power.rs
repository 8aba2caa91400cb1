//! Power cuts while programs run: the device of a mount records each write and flush. States of the
//! disk that a power cut allows are recovered and mounted again. `UXFS_SEED` and `UXFS_CUTS` choose
//! other states and more of them.

use std::path::Path;
use std::sync::{Arc, Mutex};

use uxfs::disk::{BlockDev, MemDev};
use uxfs::{Fs, mkfs};
use uxfs_crash::{Cut, Mark, RecordDev, Recording, rng};
use uxfs_fuse::{Mounted, Options, mount};

use crate::clients::{Client, KINDS, check};
use crate::rig::{Image, transport};

const SIZE: u64 = 256 << 20;
pub(crate) const SECTOR: usize = 512;

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

pub(crate) fn made() -> MemDev {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let layout = mkfs::Layout::new(&options, SIZE).unwrap();
    let disk = MemDev::new(SIZE);
    mkfs::write(&layout, &disk, &mkfs::WriteOptions::default()).unwrap();
    disk
}

pub(crate) fn mounted(dev: Arc<dyn BlockDev>, dir: &Path, options: &str) -> Mounted {
    let options = Options::parse(options).unwrap();
    let fs = Fs::open(dev, options.open_options()).unwrap();
    mount(fs, Path::new("recorded"), dir, &options).unwrap()
}

pub(crate) fn end(mounted: Mounted) {
    mounted.ender().end().unwrap();
    assert_eq!(mounted.wait().unwrap(), None);
}

/// A run of all programs at once, and the steps acknowledged as durable, in order.
struct Run {
    recording: Recording,
    durable: Vec<(&'static str, usize)>,
}

fn recorded(options: &str, fua: bool) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let before = made();
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces().with_fua(fua));
    // One of each kind comes over each way.
    let options = &format!("{options},{}", transport(fua.into()));
    let volume = mounted(Arc::clone(&dev) as Arc<dyn BlockDev>, dir.path(), options);
    let durable: Arc<Mutex<Vec<(&str, usize)>>> = Arc::default();
    let clients: Vec<Client> = KINDS
        .iter()
        .map(|&(kind, steps)| {
            let (durable, dev) = (Arc::clone(&durable), Arc::clone(&dev));
            Client::start(dir.path(), kind, steps, move |step| {
                let mut durable = durable.lock().unwrap();
                durable.push((kind, step));
                dev.mark(Mark::Durable(durable.len()));
            })
        })
        .collect();
    for client in clients {
        assert!(client.wait().success());
    }
    end(volume);
    for (kind, steps) in KINDS {
        assert!(durable.lock().unwrap().contains(&(kind, steps)), "{kind} did not finish");
    }
    let durable = durable.lock().unwrap().clone();
    Run { recording: Recording::new(before, dev.take(), SECTOR), durable }
}

impl Run {
    /// Mounts the disk that a cut left, and returns what is wrong with it.
    fn judge(&self, cut: Cut, options: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(cut.disk);
        let volume = mounted(Arc::clone(&disk) as Arc<dyn BlockDev>, dir.path(), options);
        let durable = &self.durable[..cut.durable];
        let steps = |kind| durable.iter().filter(|(of, _)| *of == kind).map(|(_, n)| *n).max();
        let wrong: Vec<String> = KINDS
            .iter()
            .filter_map(|(kind, _)| check(dir.path(), kind, steps(*kind).unwrap_or(0)).err())
            .collect();
        end(volume);
        judge(&disk);
        wrong
    }
}

/// Asserts that the check and `xfs_repair` find the volume sound.
fn judge(disk: &MemDev) {
    let image = Image::new(SIZE.max(300 << 20), &[]);
    save(disk, &image.path());
    image.judge();
}

/// Writes the disk to a file.
pub(crate) fn save(disk: &MemDev, path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    disk.for_written(|offset, bytes| {
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, offset)
    })
    .unwrap();
}

fn cuts(options: &str, fua: bool, seed: u64) {
    let run = recorded(options, fua);
    let mut rng = rng(setting("UXFS_SEED", seed));
    for number in 0..setting("UXFS_CUTS", 6) {
        let at = run.recording.choose(&mut rng);
        let cut = Cut::of(&run.recording, at, &mut rng);
        let where_ = format!("{options}: cut {number}, before event {at}");
        let wrong = run.judge(cut, options);
        assert!(wrong.is_empty(), "{where_}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn acknowledged_steps_survive_power_cuts() {
    cuts("", false, 1);
}

#[test]
fn acknowledged_steps_survive_power_cuts_with_fua() {
    cuts("logbsize=256k", true, 2);
}

#[test]
fn acknowledged_steps_survive_power_cuts_with_nodelaylog() {
    cuts("nodelaylog,wsync", false, 3);
}

/// Tests the check itself: steps that were not done yet count as lost.
#[test]
fn steps_acknowledged_too_early_are_reported() {
    let run = recorded("", false);
    let mut rng = rng(4);
    let mut early = run.recording.choose(&mut rng);
    let mut cut = Cut::of(&run.recording, early, &mut rng);
    // Programs progress differently in each run; at this point none has done much.
    while cut.durable > 0 {
        early /= 2;
        cut = Cut::of(&run.recording, early, &mut rng);
    }
    cut.durable = run.durable.len();
    let wrong = run.judge(cut, "");
    // The one that never syncs loses nothing, except before its directory is there.
    for (kind, _) in KINDS.into_iter().filter(|(kind, _)| *kind != "rest") {
        let reported = wrong.iter().any(|text| text.starts_with(kind));
        assert!(reported, "{kind} is not reported, before event {early}: {wrong:?}");
    }
}
