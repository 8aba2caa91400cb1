//! What shipping and reading from afar cost, beside the alternative in the same run: `tools/remote-rates`.
//!
//! The store is modelled: each request takes a time, and one in a hundred fails, before or after it
//! was done. Local files are real. Each figure is the median of several turns, in which both sides
//! alternate.
//!
//! 1. Nothing here decides pass or fail.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode};
use uxfs_remote::{
    At, Bytes, CacheOptions, Checkpoint, Entry, Parts, Patience, Remote, RemoteDev, ShipMode,
    ShipOptions, Shipper, Store, restore, ship,
};
use uxfs_testkit::Rng;

const TURNS: usize = 3;
const TURN: Duration = Duration::from_secs(4);
const MIB: u64 = 1 << 20;

/// A store in memory whose requests take a time.
struct ModelStore {
    objects: Mutex<BTreeMap<String, Bytes>>,
    rng: Mutex<Rng>,
    takes: Duration,
}

impl ModelStore {
    fn new(takes: Duration) -> Arc<Self> {
        Arc::new(Self { objects: Mutex::default(), rng: Mutex::new(Rng::new(1)), takes })
    }

    fn request<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Bytes>) -> T) -> io::Result<T> {
        let luck = self.rng.lock().below(200);
        std::thread::sleep(self.takes);
        if luck == 0 {
            return Err(io::Error::other("503 Slow Down"));
        }
        let done = work(&mut self.objects.lock());
        if luck == 1 { Err(io::Error::other("connection reset")) } else { Ok(done) }
    }
}

struct ModelParts<'s> {
    store: &'s ModelStore,
    name: String,
    parts: Mutex<BTreeMap<usize, Bytes>>,
}

impl Parts for ModelParts<'_> {
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()> {
        self.store.request(|_| drop(self.parts.lock().insert(number, bytes)))
    }

    fn finish(&self) -> io::Result<()> {
        let whole: Vec<u8> = self.parts.lock().values().flatten().copied().collect();
        self.store.request(|objects| drop(objects.insert(self.name.clone(), whole.into())))
    }

    fn abandon(&self) {}
}

impl Store for ModelStore {
    fn put_new(&self, name: &str, bytes: Bytes) -> io::Result<bool> {
        self.request(|objects| match objects.contains_key(name) {
            true => false,
            false => objects.insert(name.to_owned(), bytes).is_none(),
        })
    }

    fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        self.request(|objects| drop(objects.insert(name.to_owned(), bytes)))
    }

    fn begin_parts<'s>(&'s self, name: &str) -> io::Result<Box<dyn Parts + 's>> {
        Ok(Box::new(ModelParts { store: self, name: name.to_owned(), parts: Mutex::default() }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Bytes> {
        self.get_range(name, 0..most)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        self.request(|objects| {
            let object = objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            let len = object.len() as u64;
            Ok(object.slice(range.start.min(len) as usize..range.end.min(len) as usize))
        })?
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Entry>> {
        self.request(|objects| {
            let found = objects.iter().filter(|(name, _)| name.starts_with(prefix));
            found.map(|(name, b)| Entry { name: name.clone(), len: b.len() as u64 }).collect()
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.request(|objects| drop(objects.remove(name)))
    }
}

/// The alternative to `sync`: a device in memory whose flush takes a time, which callers that wait share.
struct FlushDev {
    dev: MemDev,
    takes: Duration,
    /// Flushes begun and ended.
    turns: Mutex<(u64, u64)>,
    ended: Condvar,
}

impl FlushDev {
    fn new(len: u64, takes: Duration) -> Self {
        Self { dev: MemDev::new(len), takes, turns: Mutex::default(), ended: Condvar::new() }
    }
}

impl BlockDev for FlushDev {
    uxfs_disk::forward!(self => self.dev; len, read_at, write_at, has_fua, discard, will_read, will_write_bulk, zero, allocate,
        check_present, warning, read_only, sector_size, lengthen, as_file);
    uxfs_disk::emulate!(write_bulk_at, write_fua_at);

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.dev.write_vectored_at(offset, pieces)
    }

    fn flush(&self) -> io::Result<()> {
        let mut turns = self.turns.lock();
        // The next flush to begin covers this caller.
        let need = turns.0 + 1;
        while turns.1 < need {
            if turns.0 == turns.1 {
                turns.0 += 1;
                drop(turns);
                std::thread::sleep(self.takes);
                turns = self.turns.lock();
                turns.1 = turns.0;
                self.ended.notify_all();
            } else {
                self.ended.wait(&mut turns);
            }
        }
        Ok(())
    }
}

fn remote(store: &Arc<ModelStore>) -> Arc<Remote> {
    Arc::new(Remote::new(Arc::<ModelStore>::clone(store), None, Patience::default()))
}

/// Durable writes of 4 KiB in a second, by so many callers.
fn durable_rate(dev: &dyn BlockDev, callers: u64) -> f64 {
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let (count, stop) = (&count, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(caller);
                let mut data = [0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    data.fill_with(|| rng.bits() as u8);
                    dev.write_at(rng.below(dev.len() / 4096) * 4096, &data).unwrap();
                    dev.flush().unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(TURN);
        stop.store(true, Ordering::Relaxed);
    });
    count.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs both sides in turns. Returns the medians.
fn pair(mut one: impl FnMut() -> f64, mut other: impl FnMut() -> f64) -> (f64, f64) {
    let turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (one(), other())).collect();
    (median(turns.iter().map(|t| t.0).collect()), median(turns.iter().map(|t| t.1).collect()))
}

fn line(takes: Duration, what: &str, (ours, theirs): (f64, f64), unit: &str, wanted: &str) {
    let ratio = ours / theirs;
    println!(
        "{:>4} ms | {what:<44} | {ours:>9.1} | {theirs:>9.1} {unit:<5} | {ratio:>5.2} | {wanted}",
        takes.as_millis()
    );
}

fn async_cost(takes: Duration, dir: &std::path::Path) {
    let open = |name: &str| -> Arc<dyn BlockDev> {
        Arc::new(FileDev::open(&dir.join(name), OpenMode::Create(64 * MIB)).unwrap())
    };
    let (plain, store) = (open("plain"), ModelStore::new(takes));
    let options = ShipOptions::default();
    let shipper = Shipper::start(open("shipped"), remote(&store), [1; 16], options).unwrap();
    let rates = pair(|| durable_rate(&shipper, 4), || durable_rate(&*plain, 4));
    line(takes, "async: durable writes, beside no shipping", rates, "1/s", ">= 0.97");
    shipper.finish().unwrap();
    let status = shipper.status();
    let bytes = (status.changed_bytes as f64, status.merged_bytes as f64);
    let shipped = ((bytes.0 + bytes.1) / MIB as f64, bytes.0 / MIB as f64);
    line(takes, "async: bytes shipped, beside those changed", shipped, "MiB", "<= 1.20");
}

fn sync_cost(takes: Duration) {
    let store = ModelStore::new(takes);
    let options = ShipOptions { mode: ShipMode::Sync, ..ShipOptions::default() };
    let dev = Arc::new(MemDev::new(64 * MIB));
    let shipper = Shipper::start(dev, remote(&store), [1; 16], options).unwrap();
    let alternative = FlushDev::new(64 * MIB, takes);
    let rates = pair(|| durable_rate(&shipper, 64), || durable_rate(&alternative, 64));
    line(takes, "sync, 64 callers, beside a flush of one put", rates, "1/s", ">= 0.97");
    let twice = FlushDev::new(64 * MIB, 2 * takes);
    let rates = pair(|| durable_rate(&shipper, 64), || durable_rate(&twice, 64));
    line(takes, "sync, 64 callers, beside a flush of two puts", rates, "1/s", "");
}

fn reading(takes: Duration, dir: &std::path::Path) {
    let len = 512 * MIB;
    let store = ModelStore::new(takes);
    let image = MemDev::new(len);
    let mut rng = Rng::new(3);
    let mut piece = vec![0; MIB as usize];
    for at in 0..len / MIB {
        piece.fill_with(|| rng.bits() as u8);
        image.write_at(at * MIB, &piece).unwrap();
    }
    ship(&image, remote(&store), [1; 16], 5).unwrap();
    let open = || {
        let remote = remote(&store);
        let newest = remote.find(At::Newest).unwrap();
        Checkpoint::open(remote, newest).unwrap()
    };
    let (name, bytes) = {
        let objects = store.objects.lock();
        let delta = objects.iter().find(|(name, _)| name.starts_with("deltas/"));
        delta.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).unwrap()
    };
    // As a plain client reads a long object: one range after the other.
    let get = |at: u64| loop {
        if let Ok(got) = store.get_range(&name, at..(at + 8 * MIB).min(bytes)) {
            return got.to_vec().len() as u64;
        }
    };
    let rate =
        |begun: Instant, bytes: u64| bytes as f64 / MIB as f64 / begun.elapsed().as_secs_f64();
    let stream = || {
        let dev = RemoteDev::new(open(), CacheOptions::default());
        let mut piece = vec![0; MIB as usize];
        let begun = Instant::now();
        (0..len / MIB).for_each(|at| dev.read_at(at * MIB, &mut piece).unwrap());
        rate(begun, len)
    };
    let plain = || {
        let begun = Instant::now();
        rate(begun, (0..bytes.div_ceil(8 * MIB)).map(|at| get(at * 8 * MIB)).sum())
    };
    line(takes, "streaming read, beside ranges of 8 MiB", pair(stream, plain), "MiB/s", ">= 0.80");
    let restored = |target: &dyn BlockDev| {
        let checkpoint = open();
        let begun = Instant::now();
        restore(&checkpoint, target, true, &|_, _| {}).unwrap();
        target.flush().unwrap();
        rate(begun, len)
    };
    let parallel = |target: &dyn BlockDev| {
        let next = AtomicU64::new(0);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed) * 8 * MIB;
                        if at >= bytes {
                            break;
                        }
                        let end = (at + 8 * MIB).min(bytes);
                        let got = loop {
                            if let Ok(got) = store.get_range(&name, at..end) {
                                break got;
                            }
                        };
                        target.write_at(at, &got).unwrap();
                    }
                });
            }
        });
        target.flush().unwrap();
        rate(begun, bytes)
    };
    let memory = || MemDev::new(bytes.max(len));
    let rates = pair(|| restored(&memory()), || parallel(&memory()));
    line(takes, "restore, beside 16 ranges at once", rates, "MiB/s", "");
    let file = || {
        let path = dir.join("restored");
        drop(std::fs::remove_file(&path));
        FileDev::open(&path, OpenMode::Create(bytes.max(len))).unwrap()
    };
    let rates = pair(|| restored(&file()), || parallel(&file()));
    line(takes, "restore into a file, beside the same", rates, "MiB/s", ">= 0.90");
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    println!(
        "request | what                                         |      ours | beside          | ratio | wanted"
    );
    for takes in [20, 100].map(Duration::from_millis) {
        async_cost(takes, dir.path());
        sync_cost(takes);
        reading(takes, dir.path());
    }
}
