//! Writers, a store and readers, and what must hold whatever they do.
//!
//! 1. A checkpoint in the store holds the content of a moment at which its writer tried to ship it.
//! 2. What a flush in `sync` mode acknowledged is in the last checkpoint.
//! 3. Of two writers at most one goes on: epochs never fall with the numbers.
//! 4. What was removed by no rule can be restored.

use std::collections::BTreeMap;
use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::{
    At, CacheOptions, Checkpoint, Error, Key, Manifest, Patience, Remote, RemoteDev, Retention,
    ShipMode, ShipOptions, Shipper, compact, prune, restore,
};
use uxfs_testkit::Rng;

use crate::sim_store::SimStore;

const LEN: u64 = 96 * 4096 + 1000;
const UUID: [u8; 16] = [7; 16];

/// A content that a checkpoint may have, and when it was the present one.
#[derive(Clone)]
struct Moment {
    step: u64,
    content: Arc<Vec<u8>>,
}

struct Writer {
    dev: Arc<MemDev>,
    shipper: Shipper,
    fenced: bool,
}

pub(crate) struct World {
    rng: Rng,
    pub(crate) store: Arc<SimStore>,
    key: Option<Key>,
    mode: ShipMode,
    step: u64,
    writers: Vec<Writer>,
    /// What each number may hold.
    moments: BTreeMap<u64, Vec<Moment>>,
    /// The step of the last acknowledged flush.
    acknowledged: u64,
}

/// What a run did, so that a test of it shows that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) checkpoints: u64,
    pub(crate) restored: u64,
    pub(crate) fenced: u64,
    pub(crate) compacted: u64,
    pub(crate) failed: u64,
    /// Objects of removed checkpoints that are there at the end.
    pub(crate) kept_for_deltas: u64,
}

fn content(dev: &dyn BlockDev) -> Vec<u8> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    bytes
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::spread(seed);
        let key = rng.once_in(3).then(|| Key::from_file(&[5; 32]).unwrap());
        let mode = if rng.once_in(2) { ShipMode::Sync } else { ShipMode::Async };
        Self {
            store: Arc::new(SimStore::new(seed ^ 0xabcd)),
            rng,
            key,
            mode,
            step: 0,
            writers: Vec::new(),
            moments: BTreeMap::new(),
            acknowledged: 0,
        }
    }

    fn remote(&self) -> Arc<Remote> {
        let store = Arc::clone(&self.store);
        Arc::new(Remote::new(store, self.key.clone(), Patience::without_pauses(6)))
    }

    /// Runs some steps, then looks at everything.
    ///
    /// # Errors
    /// What does not hold.
    pub(crate) fn run(&mut self, steps: u64, planted: impl Fn(&Self, u64)) -> Result<Done, String> {
        let mut done = Done::default();
        self.store.set_stops(true);
        for step in 1..=steps {
            self.step = step;
            planted(self, step);
            self.one_step(&mut done)?;
        }
        self.store.set_stops(false);
        self.store.set_down(false);
        self.judge_all(&mut done)?;
        Ok(done)
    }

    fn one_step(&mut self, done: &mut Done) -> Result<(), String> {
        self.writers.retain(|writer| !writer.fenced);
        if self.writers.is_empty() {
            return self.begin(None);
        }
        let which = self.rng.index(self.writers.len());
        match self.rng.below(100) {
            0..45 => self.write(which),
            45..60 => self.flush(which, done),
            60..75 => self.ship(which, done),
            75..78 => self.begin(Some(which))?,
            78..80 => self.take_over()?,
            80..83 => self.compact(done),
            83..86 => self.prune()?,
            86..90 => {
                let down = self.rng.once_in(3);
                self.store.set_down(down);
            }
            _ => self.judge_one(done)?,
        }
        Ok(())
    }

    /// A writer begins: on a device of its own if there is none, or anew on that of a killed writer.
    fn begin(&mut self, killed: Option<usize>) -> Result<(), String> {
        let dev = match killed {
            Some(which) => self.writers.remove(which).dev,
            None => match self.newest() {
                Ok(Some(manifest)) => match self.restored(manifest) {
                    Ok(dev) => Arc::new(dev),
                    Err(Error::Store { .. }) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                },
                Ok(None) => Arc::new(MemDev::new(LEN)),
                Err(_) => return Ok(()),
            },
        };
        self.start(dev);
        Ok(())
    }

    fn start(&mut self, dev: Arc<MemDev>) {
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&self.step.to_be_bytes());
        let inside_bytes = if self.rng.once_in(2) { 0 } else { usize::MAX };
        let options = ShipOptions { mode: self.mode, inside_bytes, ..ShipOptions::default() };
        let on = Arc::<MemDev>::clone(&dev);
        // A store that is down lets no writer begin.
        if let Ok(shipper) = Shipper::without_thread(on, self.remote(), UUID, options, identity) {
            self.writers.push(Writer { dev, shipper, fenced: false });
        }
    }

    /// A second writer begins from the last checkpoint, while the first one goes on.
    fn take_over(&mut self) -> Result<(), String> {
        if self.writers.len() == 1 { self.begin(None) } else { Ok(()) }
    }

    fn write(&mut self, which: usize) {
        let blocks = LEN.div_ceil(4096);
        for _ in 0..self.rng.below(6) {
            let at = self.rng.below(blocks) * 4096 + self.rng.below(3) * 512;
            let len = (1 + self.rng.below(9)) * 1024;
            let len = len.min(LEN.saturating_sub(at)) as usize;
            let data = match self.rng.below(4) {
                0 => vec![0; len],
                1 => (0..len).map(|_| self.rng.bits() as u8).collect(),
                _ => vec![self.rng.bits() as u8; len],
            };
            let writer = &self.writers[which];
            if len > 0 {
                writer.shipper.write_at(at, &data).unwrap();
            }
        }
    }

    /// Notes what the next number may hold from now on.
    fn note_moment(&mut self, which: usize) -> u64 {
        let writer = &self.writers[which];
        let content = Arc::new(content(&*writer.dev));
        let next = writer.shipper.status().checkpoint + 1;
        // A compaction, or a manifest whose answer was lost, may have taken the next numbers.
        let last = self
            .store
            .objects()
            .into_keys()
            .filter_map(|name| name.strip_prefix("manifests/")?.parse::<u64>().ok());
        let last = last.max().unwrap_or(0).max(next);
        for number in next..=last + 1 {
            let moment = Moment { step: self.step, content: Arc::clone(&content) };
            self.moments.entry(number).or_default().push(moment);
        }
        writer.shipper.status().checkpoint
    }

    fn flush(&mut self, which: usize, done: &mut Done) {
        self.note_moment(which);
        let before = self.writers[which].shipper.status().checkpoints;
        let flushed = self.writers[which].shipper.flush();
        let after = self.writers[which].shipper.status();
        // What was in the store before is not acknowledged anew.
        let acknowledges = after.checkpoints > before || after.lag_bytes > 0;
        match flushed {
            Ok(()) if self.mode == ShipMode::Sync && acknowledges => self.acknowledged = self.step,
            Ok(()) => {}
            Err(error) => {
                done.failed += 1;
                self.writers[which].fenced = error.to_string().contains("another writer");
                done.fenced += u64::from(self.writers[which].fenced);
            }
        }
    }

    fn ship(&mut self, which: usize, done: &mut Done) {
        self.note_moment(which);
        match self.writers[which].shipper.ship_now() {
            Ok(Some(_)) => done.checkpoints += 1,
            Ok(None) => {}
            Err(error) => {
                done.failed += 1;
                self.writers[which].fenced = matches!(error, Error::Fenced { .. });
                done.fenced += u64::from(self.writers[which].fenced);
            }
        }
    }

    fn compact(&mut self, done: &mut Done) {
        let Ok(Some(last)) = self.newest() else { return };
        // Whether or not the answer comes, the next number may hold what the last one holds.
        let moments = self.moments.get(&last.number).cloned().unwrap_or_default();
        self.moments.entry(last.number + 1).or_default().extend(moments);
        if let Ok(Some(_)) = compact(&self.remote()) {
            done.compacted += 1;
        }
    }

    fn prune(&mut self) -> Result<(), String> {
        let last = 1 + self.rng.below(5);
        match prune(&self.remote(), Retention { last: Some(last), since: None }) {
            Ok(_) => match self.store.calmly(|| self.remote().numbers()) {
                Ok(numbers) if numbers.len() as u64 <= last => Ok(()),
                _ => Err("checkpoints that were removed are listed".into()),
            },
            Err(Error::NoVolume | Error::Store { .. } | Error::NoCheckpoint(_)) => Ok(()),
            Err(error) => Err(format!("pruning: {error}")),
        }
    }

    fn newest(&self) -> Result<Option<Manifest>, Error> {
        Ok(self.remote().newest()?.map(|(manifest, _)| manifest))
    }

    fn restored(&self, manifest: Manifest) -> Result<MemDev, Error> {
        let checkpoint = Checkpoint::open(self.remote(), manifest)?;
        let target = MemDev::new(LEN);
        restore(&checkpoint, &target, true, &|_, _| {})?;
        Ok(target)
    }

    /// Restores a checkpoint that is there, reads a part of it in place, and compares both.
    fn judge_one(&mut self, done: &mut Done) -> Result<(), String> {
        let Ok(numbers) = self.remote().numbers() else { return Ok(()) };
        match self.rng.pick(&numbers).copied() {
            Some(number) => self.judge(number, done).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the step of the newest moment that the checkpoint holds; 0 if the store failed.
    fn judge(&mut self, number: u64, done: &mut Done) -> Result<u64, String> {
        let what = |error: Error| match error {
            Error::Store { .. } => Ok(0),
            other => Err(format!("checkpoint {number}: {other}")),
        };
        let (manifest, _) = match self.remote().manifest(number) {
            Ok(found) => found,
            Err(error) => return what(error),
        };
        let restored = match self.restored(manifest.clone()) {
            Ok(dev) => content(&dev),
            Err(error) => return what(error),
        };
        let known = self.moments.get(&number).map_or(&[][..], |moments| moments);
        let Some(moment) = known.iter().rev().find(|moment| *moment.content == restored) else {
            return Err(format!("checkpoint {number} holds what never was"));
        };
        let step = moment.step;
        done.restored += 1;
        let checkpoint = match Checkpoint::open(self.remote(), manifest) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return what(error).map(|_| step),
        };
        let dev = RemoteDev::new(checkpoint, CacheOptions::default());
        let at = self.rng.below(LEN);
        let mut part = vec![0; self.rng.below((LEN - at).min(100_000)) as usize];
        if dev.read_at(at, &mut part).is_ok() && part != restored[at as usize..][..part.len()] {
            return Err(format!("checkpoint {number} reads otherwise in place"));
        }
        Ok(step)
    }

    fn judge_all(&mut self, done: &mut Done) -> Result<(), String> {
        let numbers = self.store.calmly(|| self.remote().numbers()).map_err(|e| e.to_string())?;
        for number in (1..numbers.last().copied().unwrap_or(0)).filter(|n| !numbers.contains(n)) {
            let found = self.store.calmly(|| self.remote().find(At::Number(number)));
            match found {
                Err(Error::NoCheckpoint(_)) => {}
                _ => return Err(format!("checkpoint {number} was removed, and is found")),
            }
            let name = format!("manifests/{number:016}");
            let object = self.store.objects().get(&name).map_or(0, |bytes| bytes.len());
            // What is short only keeps the number.
            done.kept_for_deltas += u64::from(object > 20);
        }
        let (mut epoch, mut last) = (0, 0);
        for number in numbers {
            // The store may fail a few times in a row.
            let mut step = 0;
            for _ in 0..5 {
                step = self.judge(number, done)?;
                if step > 0 {
                    break;
                }
            }
            last = step;
            if let Ok((manifest, _)) = self.remote().manifest(number) {
                if manifest.epoch < epoch {
                    return Err(format!("checkpoint {number}: its writer had lost its place"));
                }
                epoch = manifest.epoch;
            }
        }
        if last > 0 && last < self.acknowledged || last == 0 && self.acknowledged > 0 {
            let step = self.acknowledged;
            return Err(format!("the flush of step {step} was acknowledged and is not there"));
        }
        Ok(())
    }
}
