//! Volumes whose log is on a device of its own. In power cuts each device has a volatile cache of its own, and
//! a flush of one keeps nothing of the other. Checks and scrubs look at the log, too.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs::scrub::{Scrub, ScrubOptions, scrub};
use uxfs::{Devices, Fs, NewInode, OpenOptions, WritebackOptions};
use uxfs_check::{CheckOptions, LogState, Report, check};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_oracle::Rng;
use uxfs_testkit::{Event, RecordDev, Recording};

use crate::volume::{MIB, setting};

/// Bytes of a file.
const SIZE: usize = 6000;

/// A recorded device. A mark behind each of its events says when it happened: both devices count with
/// one clock.
struct Timed {
    dev: RecordDev<MemDev, u64>,
    clock: Arc<Mutex<u64>>,
}

impl Timed {
    fn new(before: &MemDev, clock: &Arc<Mutex<u64>>) -> Arc<Self> {
        Arc::new(Self { dev: RecordDev::new(before.clone()), clock: Arc::clone(clock) })
    }

    fn at_once<T>(&self, event: impl FnOnce(&RecordDev<MemDev, u64>) -> T) -> T {
        let mut clock = self.clock.lock();
        let done = event(&self.dev);
        *clock += 1;
        self.dev.mark(*clock);
        done
    }
}

impl BlockDev for Timed {
    uxfs_disk::forward!(self => self.dev; len, lengthen, read_at, has_fua, discard, will_read, will_write_bulk,
        allocate, check_present, warning, read_only, sector_size, as_file);

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.at_once(|dev| dev.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.at_once(|dev| dev.write_vectored_at(offset, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.at_once(|dev| dev.write_bulk_at(offset, data))
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.at_once(|dev| dev.write_fua_at(offset, data))
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.at_once(|dev| dev.zero(offset, len))
    }

    fn flush(&self) -> io::Result<()> {
        self.at_once(|dev| dev.flush())
    }
}

fn memory(path: &Path) -> MemDev {
    let bytes = std::fs::read(path).unwrap();
    let dev = MemDev::new(bytes.len() as u64);
    for (number, piece) in bytes.chunks(4096).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            dev.write_at(number as u64 * 4096, piece).unwrap();
        }
    }
    dev
}

fn open(data: Arc<dyn BlockDev>, log: Arc<dyn BlockDev>) -> uxfs::Result<Fs> {
    let mut options = OpenOptions::default();
    options.writeback = Some(WritebackOptions::default());
    let mut devices = Devices::new(data);
    devices.log = Some(log);
    Fs::open_devices(devices, options)
}

fn content(round: u64) -> Vec<u8> {
    vec![round as u8; SIZE]
}

/// A run on both devices, and the moments at which rounds became durable.
struct Run {
    parts: [Recording<u64>; 2],
    durable: Vec<(u64, u64)>,
    end: u64,
}

impl Run {
    /// Each round makes a file, overwrites one, and removes one; every third is made durable, now and then by
    /// writing everything in place.
    fn new(rounds: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, log) = (dir.path().join("data.img"), dir.path().join("log.img"));
        std::fs::File::create(&log).unwrap().set_len(64 * MIB).unwrap();
        let logdev = format!("size=64m,logdev={}", log.display());
        uxfs_oracle::mkfs(&data, 300 * MIB, &["-l", &logdev]);
        let before = [memory(&data), memory(&log)];
        let clock = Arc::new(Mutex::new(0));
        let [data, log] = before.each_ref().map(|dev| Timed::new(dev, &clock));
        let fs = open(data.clone(), log.clone()).unwrap();
        let mut durable = Vec::new();
        for round in 0..rounds {
            let name = |number: u64| format!("f{number}").into_bytes();
            let ino = fs.create(fs.root(), &name(round), &NewInode::file(0o644)).unwrap();
            fs.write_at(ino, 0, &content(round)).unwrap();
            if round % 5 == 4 {
                fs.unlink(fs.root(), &name(round - 4)).unwrap();
            }
            match round % 12 {
                11 => fs.quiesce().unwrap(),
                2 | 5 | 8 => fs.sync().unwrap(),
                _ => continue,
            }
            durable.push((*clock.lock(), round));
        }
        drop(fs);
        let end = *clock.lock();
        let [before_data, before_log] = before;
        let parts = [
            Recording::new(before_data, data.dev.take(), 512),
            Recording::new(before_log, log.dev.take(), 512),
        ];
        Self { parts, durable, end }
    }

    /// Both devices after a cut behind the event of this moment.
    fn cut(&self, moment: u64, rng: &mut Rng) -> [MemDev; 2] {
        self.parts.each_ref().map(|part| {
            let later = |event: &Event<u64>| matches!(event, Event::Mark(at) if *at > moment);
            let at = part.events().iter().position(later).unwrap_or(part.len());
            // The event of that later mark has not happened.
            part.cut(at.saturating_sub(usize::from(at < part.len())), rng)
        })
    }
}

/// Recovers both devices; what was durable is there, and the volume is sound.
fn recovered(run: &Run, moment: u64, [data, log]: [MemDev; 2]) -> Result<(), String> {
    let (data, log): (Arc<dyn BlockDev>, Arc<dyn BlockDev>) = (Arc::new(data), Arc::new(log));
    let whole = || {
        let mut devices = Devices::new(Arc::clone(&data));
        devices.log = Some(Arc::clone(&log));
        devices.whole().map_err(|error| error.to_string())
    };
    // What the checker sees without a change is what the recovery then leaves.
    let (replayed, replay) = uxfs::check::replayed(whole()?);
    let mut how = CheckOptions::default();
    how.replay = replay;
    sound(&*replayed, &how)?;
    let fs = open(Arc::clone(&data), Arc::clone(&log)).map_err(|error| error.to_string())?;
    let last = run.durable.iter().rev().find(|(at, _)| *at <= moment);
    for round in 0..last.map_or(0, |(_, round)| round + 1) {
        let name = format!("f{round}");
        let Ok(ino) = fs.lookup(fs.root(), name.as_bytes()) else {
            // Rounds behind the last durable one may have removed it.
            let removed = round % 5 == 0;
            removed.then_some(()).ok_or(format!("{name} is lost"))?;
            continue;
        };
        let mut found = vec![0; SIZE];
        let len = fs.read_at(ino, 0, &mut found).map_err(|error| format!("{name}: {error}"))?;
        if len != SIZE || found != content(round) {
            return Err(format!("{name} has other content"));
        }
    }
    fs.close().map_err(|error| error.to_string())?;
    match sound(&*whole()?, &CheckOptions::default())?.log {
        LogState::Clean => Ok(()),
        other => Err(format!("the log is {other:?} after the volume was closed")),
    }
}

/// Checks a volume; an error unless it is sound and its log was looked at.
fn sound(dev: &dyn BlockDev, how: &CheckOptions) -> Result<Report, String> {
    let report = check(dev, how, &|_| {}).map_err(|error| error.to_string())?;
    match report.is_clean() && report.log != LogState::External {
        true => Ok(report),
        false => Err(report.to_string()),
    }
}

/// What changes after the moment of a scrub is not seen, and the log is not either.
#[test]
fn a_volume_with_an_external_log_is_scrubbed_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (data, log) = (dir.path().join("data.img"), dir.path().join("log.img"));
    std::fs::File::create(&log).unwrap().set_len(64 * MIB).unwrap();
    uxfs_oracle::mkfs(&data, 300 * MIB, &["-l", &format!("logdev={}", log.display())]);
    let fs = open(Arc::new(memory(&data)), Arc::new(memory(&log))).unwrap();
    let file = |n: u64| format!("a rather long name of file number {n}").into_bytes();
    for n in 0..300 {
        let ino = fs.create(fs.root(), &file(n), &NewInode::file(0o644)).unwrap();
        fs.write_at(ino, 0, &content(n)).unwrap();
    }
    fs.quiesce().unwrap();
    let before = scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap();
    let moment = Scrub::begin(&fs, ScrubOptions::default()).unwrap();
    for n in 0..300 {
        fs.unlink(fs.root(), &file(n)).unwrap();
    }
    fs.quiesce().unwrap();
    fs.create(fs.root(), b"new", &NewInode::dir(0o755)).unwrap();
    fs.quiesce().unwrap();
    let report = moment.run(&|_| {}).unwrap();
    assert!(report.is_clean() && report.log != LogState::External, "{report}");
    assert_eq!(report.totals, before.totals);
    drop(moment);
    let now = scrub(&fs, ScrubOptions::default(), &|_| {}).unwrap();
    assert!(now.is_clean() && now.totals != before.totals, "{now}");
    fs.close().unwrap();
}

/// A byte of the log that changes is reported, and a volume whose log is not at hand is checked without it.
#[test]
fn damage_of_an_external_log_is_found() {
    let run = Run::new(3);
    let [data, log] = run.cut(run.end, &mut Rng::new(1));
    let (data, log): (Arc<dyn BlockDev>, Arc<MemDev>) = (Arc::new(data), Arc::new(log));
    let mut devices = Devices::new(Arc::clone(&data));
    devices.log = Some(log.clone());
    open(Arc::clone(&data), log.clone()).unwrap().close().unwrap();
    let whole = devices.whole().unwrap();
    sound(&*whole, &CheckOptions::default()).unwrap();
    let alone = check(&*data, &CheckOptions::default(), &|_| {}).unwrap();
    assert!(alone.is_clean() && alone.log == LogState::External, "{alone}");
    // The UUID of all records.
    for at in (0..64 * MIB).step_by(512) {
        let mut sector = [0; 512];
        log.read_at(at, &mut sector).unwrap();
        if sector[..4] == [0xfe, 0xed, 0xba, 0xbe] {
            log.write_at(at + 304, &[!sector[304]]).unwrap();
        }
    }
    let report = check(&*whole, &CheckOptions::default(), &|_| {}).unwrap();
    assert!(!report.is_clean() && report.log == LogState::Damaged, "{report}");
    // A log that is longer than its device.
    let mut short = Devices::new(data);
    short.log = Some(Arc::new(MemDev::new(63 * MIB)));
    assert!(short.whole().err().unwrap().to_string().contains("its device has"));
}

#[test]
fn an_external_log_survives_power_cuts() {
    let run = Run::new(60);
    let count = 300 * setting("UXFS_ROUNDS", 1);
    let seed = setting("UXFS_SEED", 1);
    for number in 0..count {
        let mut rng = Rng::new(seed << 20 | number);
        let moment = rng.below(run.end + 1);
        let disks = run.cut(moment, &mut rng);
        recovered(&run, moment, disks)
            .unwrap_or_else(|why| panic!("UXFS_SEED={seed}, cut {number} at {moment}: {why}"));
    }
}
