//! Power cuts of a volume whose log is on a device of its own: each device has a volatile cache of its own,
//! and a flush of one keeps nothing of the other.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs::{Devices, Fs, NewInode, OpenOptions, WritebackOptions};
use uxfs_check::{CheckOptions, check};
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
    let fs = open(Arc::clone(&data), log).map_err(|error| error.to_string())?;
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
    let report = check(&*data, &CheckOptions::default(), &|_| {}).map_err(|e| e.to_string())?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(report.to_string()),
    }
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
