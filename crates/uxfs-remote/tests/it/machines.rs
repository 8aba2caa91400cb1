//! Machines that hold a volume in a store, one after the other, and what must hold whatever they and the store do.
//!
//! 1. A checkpoint holds what its writer's device held at a moment at which it tried to ship it. One in which
//!    nothing changed (a claim, a release, a compaction) holds what the one before it holds. No number ever
//!    changes its content.
//! 2. Epochs never fall with the numbers, and each belongs to one writer.
//! 3. The last checkpoint holds every write that a flush in `sync` mode acknowledged, on any machine.
//! 4. Nothing but a takeover begins while another machine holds the volume. A writer that knows that it was
//!    overtaken writes nothing any more.
//! 5. A device reads as it was written, however little its cache holds. After its process was killed, each sector is
//!    as it was at some moment since the last flush.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_disk::{BlockDev, MemDev};
use uxfs_remote::fault::Fault;
use uxfs_remote::{
    CacheFiles, CacheOptions, Checkpoint, Error, Hash, HoldOptions, Manifest, Patience, Remote,
    Retention, ShipMode, ShipOptions, Shipper, compact, prune, restore, ship,
};
use uxfs_testkit::Rng;

use crate::runs::{number, planted_is_found};
use crate::sim_store::SimStore;

const BLOCKS: u64 = 96;
const LEN: u64 = BLOCKS * 4096 + 1000;
const STEPS: u64 = 150;
const MACHINES: usize = 3;

type Writer = [u8; 16];
type Content = Arc<Vec<u8>>;

struct Machine {
    files: CacheFiles,
    /// All writers that tried to begin with these files.
    used: Vec<Writer>,
    running: Option<(Arc<Shipper>, Writer)>,
    /// What its device holds.
    model: Vec<u8>,
    /// What it held since the last flush.
    since: Vec<Vec<u8>>,
    lost: bool,
}

impl Machine {
    fn new() -> Self {
        let (blocks, map) = (MemDev::new(LEN), MemDev::new(CacheFiles::map_len(LEN)));
        let files = CacheFiles { blocks: Arc::new(blocks), map: Arc::new(map) };
        Self {
            files,
            used: Vec::new(),
            running: None,
            model: Vec::new(),
            since: Vec::new(),
            lost: false,
        }
    }
}

/// What is known of a checkpoint.
struct Known {
    hash: Hash,
    content: Content,
    /// The last step at which its content was a device's.
    step: u64,
}

struct World {
    rng: Rng,
    store: Arc<SimStore>,
    mode: ShipMode,
    step: u64,
    machines: Vec<Machine>,
    /// What each writer may have shipped, and at which step it held that.
    moments: BTreeMap<Writer, Vec<(u64, Content)>>,
    known: BTreeMap<u64, Known>,
    acknowledged: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    shipped: u64,
    begun: u64,
    resumed: u64,
    refused: u64,
    taken_over: u64,
    taken_over_within: u64,
    lost: u64,
    unshipped: u64,
    judged: u64,
}

impl Done {
    fn add(&mut self, other: Self) {
        self.shipped += other.shipped;
        self.begun += other.begun;
        self.resumed += other.resumed;
        self.refused += other.refused;
        self.taken_over += other.taken_over;
        self.taken_over_within += other.taken_over_within;
        self.lost += other.lost;
        self.unshipped += other.unshipped;
        self.judged += other.judged;
    }
}

fn remote(store: &Arc<SimStore>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<SimStore>::clone(store), None, Patience::without_pauses(6)))
}

fn content(dev: &dyn BlockDev) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).map(|()| bytes)
}

fn is_overtaken(error: &Error) -> bool {
    matches!(error, Error::Fenced { .. })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::spread(seed);
        let store = Arc::new(SimStore::new(seed ^ 0x1234));
        let base = MemDev::new(LEN);
        for block in (0..BLOCKS).step_by(3) {
            base.write_at(block * 4096, &[rng.bits() as u8; 4096]).unwrap();
        }
        let shipped = store.calmly(|| ship(&base, remote(&store), [7; 16], 5));
        assert_eq!(shipped.unwrap().unwrap().number, 1);
        let mode = if rng.once_in(2) { ShipMode::Sync } else { ShipMode::Async };
        let machines = (0..MACHINES).map(|_| Machine::new()).collect();
        let (moments, known) = (BTreeMap::new(), BTreeMap::new());
        Self { rng, store, mode, step: 0, machines, moments, known, acknowledged: 0 }
    }

    fn run(&mut self) -> Result<Done, String> {
        let mut done = Done::default();
        self.judge(&mut done)?;
        self.store.set_stops(true);
        for step in 1..=STEPS {
            self.step = step;
            self.one_step(&mut done)?;
        }
        self.store.set_stops(false);
        self.store.set_down(false);
        self.judge(&mut done)?;
        Ok(done)
    }

    fn one_step(&mut self, done: &mut Done) -> Result<(), String> {
        let which = self.rng.index(MACHINES);
        if self.machines[which].running.is_none() {
            return if self.rng.once_in(3) { self.begin(which, done) } else { Ok(()) };
        }
        match self.rng.below(100) {
            0..45 => self.write(which),
            45..70 => self.put(which, done),
            70..74 => {
                self.machines[which].running = None;
                Ok(())
            }
            74..77 => self.finish(which),
            77..80 => self.look_after(done),
            80..84 => {
                let down = self.rng.once_in(3);
                self.store.set_down(down);
                Ok(())
            }
            84..90 => self.read(which),
            _ => self.judge(done),
        }
    }

    fn options(&mut self, takeover: bool) -> HoldOptions {
        let cache_bytes = if self.rng.once_in(2) { 12 * 4096 } else { 1 << 30 };
        let inside_bytes = if self.rng.once_in(2) { 0 } else { usize::MAX };
        let ship = ShipOptions { mode: self.mode, inside_bytes, ..ShipOptions::default() };
        let name = "a machine".into();
        HoldOptions { name, takeover, ship, reading: CacheOptions::default(), cache_bytes }
    }

    fn newest(&self) -> Manifest {
        let newest = self.store.calmly(|| remote(&self.store).newest());
        newest.unwrap().unwrap().0
    }

    fn restored(&self, manifest: &Manifest) -> Result<Vec<u8>, String> {
        let what = |error: Error| format!("checkpoint {}: {error}", manifest.number);
        self.store.calmly(|| {
            let checkpoint =
                Checkpoint::open(remote(&self.store), manifest.clone()).map_err(what)?;
            let target = MemDev::new(LEN);
            restore(&checkpoint, &target, true, &|_, _| {}).map_err(what)?;
            content(&target).map_err(|error| error.to_string())
        })
    }

    /// An identity of its own for each writer.
    fn identity(&mut self) -> Writer {
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&self.step.to_be_bytes());
        identity[8..].copy_from_slice(&self.rng.bits().to_be_bytes());
        identity
    }

    fn begin(&mut self, which: usize, done: &mut Done) -> Result<(), String> {
        let takeover = self.rng.once_in(4);
        let (options, writer) = (self.options(takeover), self.identity());
        let before = self.newest();
        let machine = &mut self.machines[which];
        let is_own = machine.used.contains(&before.writer);
        let is_held = before.holder.is_some();
        machine.used.push(writer);
        let files = machine.files.clone();
        let open = |_| Ok(files.clone());
        let begun = Shipper::hold_without_thread(remote(&self.store), &open, &options, writer);
        let resumes = is_own && is_held;
        match begun {
            Ok(shipper) => {
                if is_held && !is_own && !takeover {
                    return Err("a machine claimed what another one holds".into());
                }
                done.begun += 1;
                done.resumed += u64::from(resumes);
                done.taken_over += u64::from(is_held && !is_own);
                let content = match resumes {
                    true => self.survived(which, &shipper)?,
                    false => self.restored(&before)?,
                };
                let machine = &mut self.machines[which];
                machine.running = Some((Arc::new(shipper), writer));
                machine.lost = false;
                (machine.model, machine.since) = (content.clone(), vec![content]);
                self.read(which)
            }
            Err(Error::Held { .. }) => {
                done.refused += 1;
                match is_held && !is_own && !takeover {
                    true => Ok(()),
                    false => Err("a free volume was refused".into()),
                }
            }
            Err(Error::Unshipped { .. }) => {
                done.unshipped += 1;
                if is_own {
                    return Err("a machine was refused its own changes".into());
                }
                // Its directory is removed.
                self.machines[which] = Machine::new();
                Ok(())
            }
            Err(Error::Store { .. }) => {
                // The claim may have been put all the same.
                if !resumes {
                    self.machines[which].since = vec![self.restored(&before)?];
                }
                Ok(())
            }
            Err(error) => Err(format!("beginning: {error}")),
        }
    }

    /// What a killed process left, which its successor reads.
    fn survived(&self, which: usize, shipper: &Shipper) -> Result<Vec<u8>, String> {
        let seen = self.store.calmly(|| content(shipper)).map_err(|error| error.to_string())?;
        let since = &self.machines[which].since;
        for (number, sector) in seen.chunks(512).enumerate() {
            let at = number * 512;
            if !since.iter().any(|content| content[at..at + sector.len()] == *sector) {
                return Err(format!("machine {which} came back with what it did not write"));
            }
        }
        Ok(seen)
    }

    fn write(&mut self, which: usize) -> Result<(), String> {
        for _ in 0..self.rng.below(6) {
            let at = self.rng.below(BLOCKS + 1) * 4096 + self.rng.below(2) * 512;
            let len = (1 + self.rng.below(17)) * 512;
            let len = len.min(LEN.saturating_sub(at)) as usize;
            let data = match self.rng.below(4) {
                0 => vec![0; len],
                1 => (0..len).map(|_| self.rng.bits() as u8).collect(),
                _ => vec![self.rng.bits() as u8; len],
            };
            let machine = &mut self.machines[which];
            let Some((shipper, _)) = &machine.running else { return Ok(()) };
            let written = match data.iter().all(|byte| *byte == 0) {
                true => shipper.zero(at, len as u64),
                false => shipper.write_at(at, &data),
            };
            match written {
                Ok(()) if machine.lost => return Err("an overtaken writer wrote".into()),
                Ok(()) => {
                    machine.model[at as usize..at as usize + len].copy_from_slice(&data);
                    machine.since.push(machine.model.clone());
                }
                // What it is to change in part could not be fetched.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn note_moment(&mut self, which: usize) {
        let machine = &self.machines[which];
        if let Some((_, writer)) = &machine.running {
            let content = Arc::new(machine.model.clone());
            self.moments.entry(*writer).or_default().push((self.step, content));
        }
    }

    /// Ships or flushes. In the midst of it another machine may take over, or this one write.
    fn put(&mut self, which: usize, done: &mut Done) -> Result<(), String> {
        let other = (which + 1) % MACHINES;
        let is_free = self.machines[other].running.is_none();
        let within = (is_free && self.rng.once_in(4)).then(|| self.take_over_within(other));
        let writes = within.is_none() && self.rng.once_in(2);
        let written = if writes { self.write_within(which) } else { None };
        self.note_moment(which);
        let flushes = self.rng.once_in(2);
        let machine = &mut self.machines[which];
        let Some((shipper, _)) = &machine.running else { return Ok(()) };
        let before = shipper.status().checkpoints;
        let put = match flushes {
            true => shipper.flush().map_err(|error| error.to_string().contains("another writer")),
            false => shipper.ship_now().map(drop).map_err(|error| is_overtaken(&error)),
        };
        if put.is_ok() && flushes {
            machine.since = vec![machine.model.clone()];
        }
        match put {
            Ok(()) if machine.lost && flushes => return Err("an overtaken writer flushed".into()),
            // What was in the store before is not acknowledged anew.
            Ok(()) if flushes && self.mode == ShipMode::Sync => {
                let status = shipper.status();
                if written.is_none() && (status.checkpoints > before || status.lag_bytes > 0) {
                    self.acknowledged = self.step;
                }
            }
            Ok(()) => done.shipped += 1,
            Err(overtaken) => {
                done.lost += u64::from(overtaken && !machine.lost);
                machine.lost |= overtaken;
            }
        }
        self.store.between(None);
        if let Some((at, data, done)) = written
            && *done.lock()
        {
            let machine = &mut self.machines[which];
            machine.model[at..at + data.len()].copy_from_slice(&data);
            machine.since.push(machine.model.clone());
            self.note_moment(which);
        }
        let begun = within.and_then(|(begun, writer)| Some((begun.lock().take()?, writer)));
        let Some((begun, writer)) = begun else { return Ok(()) };
        self.machines[other].used.push(writer);
        let claim = match &begun {
            Ok(shipper) => {
                let number = shipper.status().checkpoint;
                let found = self.store.calmly(|| remote(&self.store).manifest(number));
                found.map_err(|error| format!("the claim {number}: {error}"))?.0
            }
            // The claim may have been put all the same.
            Err(_) => self.newest(),
        };
        let model = self.restored(&claim)?;
        let machine = &mut self.machines[other];
        (machine.model, machine.since) = (model.clone(), vec![model]);
        machine.running = begun.ok().map(|shipper| (Arc::new(shipper), writer));
        done.taken_over_within += u64::from(machine.running.is_some());
        Ok(())
    }

    /// Lets a new machine take over before one of the next puts. What comes of it is in the cell.
    fn take_over_within(&mut self, other: usize) -> (Begun, Writer) {
        let (options, writer) = (self.options(true), self.identity());
        self.machines[other] = Machine::new();
        let (files, store) = (self.machines[other].files.clone(), Arc::clone(&self.store));
        let begun = Begun::default();
        let cell = Arc::clone(&begun);
        let take_over = move || {
            let open = |_| Ok(files.clone());
            let held = Shipper::hold_without_thread(remote(&store), &open, &options, writer);
            *cell.lock() = Some(held);
        };
        self.store.between(Some((self.rng.below(2), Box::new(take_over))));
        (begun, writer)
    }

    /// Lets a machine write before one of the next puts: where, what, and whether it did.
    fn write_within(&mut self, which: usize) -> Option<(usize, Vec<u8>, Arc<Mutex<bool>>)> {
        let shipper = Arc::clone(&self.machines[which].running.as_ref()?.0);
        let at = self.rng.below(BLOCKS) * 4096;
        let data = vec![self.rng.bits() as u8; 4096];
        let done = Arc::new(Mutex::new(false));
        let (cell, written) = (Arc::clone(&done), data.clone());
        let write = move || *cell.lock() = shipper.write_at(at, &written).is_ok();
        self.store.between(Some((self.rng.below(2), Box::new(write))));
        Some((at as usize, data, done))
    }

    fn finish(&mut self, which: usize) -> Result<(), String> {
        self.note_moment(which);
        let Some((shipper, _)) = self.machines[which].running.take() else { return Ok(()) };
        let before = shipper.status().checkpoints;
        match shipper.finish() {
            Ok(()) if self.machines[which].lost => {
                Err("an overtaken writer gave the volume up".into())
            }
            Ok(()) => {
                if shipper.status().checkpoints > before {
                    self.acknowledged = self.step;
                }
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn look_after(&mut self, done: &mut Done) -> Result<(), String> {
        // What is removed is judged before.
        self.judge(done)?;
        let last = Some(1 + self.rng.below(5));
        let looked = match self.rng.once_in(2) {
            true => compact(&remote(&self.store)).map(drop),
            false => prune(&remote(&self.store), Retention { last, since: None }).map(drop),
        };
        match looked {
            Ok(()) | Err(Error::Store { .. } | Error::NoCheckpoint(_) | Error::Overtaken) => Ok(()),
            Err(error) => Err(format!("looking after: {error}")),
        }
    }

    /// A device reads as it was written.
    fn read(&mut self, which: usize) -> Result<(), String> {
        let newest = self.newest();
        let machine = &self.machines[which];
        let Some((shipper, writer)) = &machine.running else { return Ok(()) };
        match self.store.calmly(|| content(&**shipper)) {
            Ok(seen) if seen == machine.model => Ok(()),
            Ok(_) => Err(format!("machine {which} reads what it did not write")),
            // Checkpoints of a writer that was overtaken may be removed.
            Err(_) if newest.writer != *writer => Ok(()),
            Err(error) => Err(format!("machine {which} cannot read: {error}")),
        }
    }

    fn judge(&mut self, done: &mut Done) -> Result<(), String> {
        let remote = remote(&self.store);
        let numbers = self.store.calmly(|| remote.numbers()).unwrap();
        let mut before: Option<Manifest> = None;
        for number in &numbers {
            let (manifest, hash) = self
                .store
                .calmly(|| remote.manifest(*number))
                .map_err(|error| format!("checkpoint {number}: {error}"))?;
            if let Some(before) = &before
                && (manifest.epoch < before.epoch
                    || manifest.epoch == before.epoch && manifest.writer != before.writer)
            {
                return Err(format!("checkpoint {number}: its writer had lost its place"));
            }
            match self.known.get(number) {
                Some(known) if known.hash == hash => {}
                Some(_) => return Err(format!("checkpoint {number} was replaced")),
                None => self.judge_new(&manifest, hash, done)?,
            }
            before = Some(manifest);
        }
        let last = before.and_then(|last| Some((self.known.get(&last.number)?, last.writer)));
        match last.is_some_and(|(last, writer)| self.step_of(last, writer) < self.acknowledged) {
            true => Err(format!("step {} was acknowledged and is not there", self.acknowledged)),
            false => Ok(()),
        }
    }

    fn judge_new(
        &mut self,
        manifest: &Manifest,
        hash: Hash,
        done: &mut Done,
    ) -> Result<(), String> {
        let number = manifest.number;
        let content = Arc::new(self.restored(manifest)?);
        let never = || format!("checkpoint {number} holds what never was");
        let changed = manifest.changed_bytes > 0;
        let step = match self.known.get(&(number - 1)) {
            Some(before) if !changed => (before.content == content).then_some(before.step),
            // The base.
            None if number == 1 => Some(0),
            _ => {
                let moments = self.moments.get(&manifest.writer).map_or(&[][..], |all| all);
                let is_it = |moment: &&(u64, Content)| moment.1 == content;
                moments.iter().rev().find(is_it).map(|moment| moment.0)
            }
        };
        let step = step.ok_or_else(never)?;
        self.known.insert(number, Known { hash, content, step });
        done.judged += 1;
        Ok(())
    }

    /// The last step at which a checkpoint's content was that of its writer's device.
    fn step_of(&self, known: &Known, writer: Writer) -> u64 {
        let moments = self.moments.get(&writer).map_or(&[][..], |all| all);
        let same = moments.iter().rev().find(|moment| moment.1 == known.content);
        same.map_or(known.step, |moment| moment.0.max(known.step))
    }
}

/// What came of a machine that began in the midst of another's request.
type Begun = Arc<Mutex<Option<Result<Shipper, Error>>>>;

fn run(seed: u64) -> Result<Done, String> {
    World::new(seed).run()
}

#[test]
fn whatever_machines_do_the_volume_has_one_writer_and_one_history() {
    let first = number("UXFS_SEED", 0);
    let seeds = match std::env::var("UXFS_ONLY") {
        Ok(text) => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
        Err(_) => first..first + number("UXFS_COUNT", 150),
    };
    let mut all = Done::default();
    for seed in seeds {
        all.add(run(seed).unwrap_or_else(|why| panic!("{why}; again: UXFS_ONLY={seed}")));
    }
    println!("{all:?}");
    if std::env::var("UXFS_ONLY").is_err() {
        let each = [
            all.shipped,
            all.begun,
            all.resumed,
            all.refused,
            all.taken_over,
            all.taken_over_within,
            all.lost,
            all.unshipped,
            all.judged,
        ];
        assert!(each.iter().all(|count| *count > 0), "{all:?}: something never happened");
    }
}

#[test]
fn a_hold_that_is_ignored_is_found() {
    planted_is_found(Fault::HolderIgnored, "what another one holds", run);
}

#[test]
fn a_fence_that_is_looked_at_too_early_is_found() {
    planted_is_found(Fault::FenceLate, "", run);
}

#[test]
fn changes_of_an_overtaken_writer_that_come_back_are_found() {
    planted_is_found(Fault::LostShipped, "", run);
}

#[test]
fn blocks_given_back_too_early_are_found() {
    planted_is_found(Fault::GivenBackEarly, "", run);
}

#[test]
fn a_flush_that_does_not_wait_for_the_store_is_found() {
    planted_is_found(Fault::FlushEarly, "was acknowledged and is not there", run);
}

#[test]
fn a_writer_that_does_not_stop_is_found() {
    planted_is_found(Fault::FenceIgnored, "", run);
}
