//! A store in memory that fails, forgets answers, stands still and lies, from a seed; and in whose
//! requests other machines do something.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;
use uxfs_remote::{Bytes, Entry, Parts, Store};
use uxfs_testkit::Rng;

/// One request in so many fails before it is done, and one in so many after it.
const FAILS: u64 = 100;

/// One request in so many finds the store standing still from then on.
const STOPS: u64 = 400;

struct State {
    objects: BTreeMap<String, Bytes>,
    rng: Rng,
    down: bool,
    /// It answers all requests.
    calm: bool,
    /// It may stand still at any request.
    stops: bool,
    /// Acknowledges the next delta and drops it.
    lies: bool,
    requests: u64,
    /// What happens before one of the next puts, and how many pass before it.
    between: Option<(u64, Between)>,
}

/// What another machine does.
pub(crate) type Between = Box<dyn FnOnce() + Send>;

pub(crate) struct SimStore(Mutex<State>);

impl SimStore {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(State {
            objects: BTreeMap::new(),
            rng: Rng::spread(seed),
            down: false,
            calm: false,
            stops: false,
            lies: false,
            requests: 0,
            between: None,
        }))
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.0.lock().down = down;
    }

    pub(crate) fn set_stops(&self, stops: bool) {
        self.0.lock().stops = stops;
    }

    /// Does something before a put, when so many have passed. Replaces what was to be done.
    pub(crate) fn between(&self, between: Option<(u64, Between)>) {
        self.0.lock().between = between;
    }

    /// Takes what is due before the next put.
    fn due(&self) -> Option<Between> {
        let state = &mut *self.0.lock();
        let (left, _) = state.between.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        state.between.take().map(|(_, between)| between)
    }

    /// Answers all requests, as long as `work` runs.
    pub(crate) fn calmly<T>(&self, work: impl FnOnce() -> T) -> T {
        let was = std::mem::replace(&mut self.0.lock().calm, true);
        let done = work();
        self.0.lock().calm = was;
        done
    }

    /// Answers all requests from now on.
    pub(crate) fn set_calm(&self) {
        self.0.lock().calm = true;
    }

    pub(crate) fn lie(&self) {
        self.0.lock().lies = true;
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Bytes> {
        self.0.lock().objects.clone()
    }

    pub(crate) fn set(&self, name: &str, bytes: Option<Vec<u8>>) {
        let objects = &mut self.0.lock().objects;
        match bytes {
            Some(bytes) => objects.insert(name.to_owned(), bytes.into()),
            None => objects.remove(name),
        };
    }

    /// Does a request, which may fail before or after.
    fn request<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let state = &mut *self.0.lock();
        state.requests += 1;
        if state.calm {
            return work(state);
        }
        state.down |= state.stops && state.rng.once_in(STOPS);
        if state.down || state.rng.once_in(FAILS) {
            return Err(io::Error::other("503 Slow Down"));
        }
        let done = work(state);
        if state.rng.once_in(FAILS) {
            return Err(io::Error::other("connection reset"));
        }
        done
    }
}

struct SimParts<'s> {
    store: &'s SimStore,
    name: String,
    parts: Mutex<BTreeMap<usize, Bytes>>,
}

impl Parts for SimParts<'_> {
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()> {
        self.store.request(|_| {
            self.parts.lock().insert(number, bytes);
            Ok(())
        })
    }

    fn finish(&self) -> io::Result<()> {
        let parts = self.parts.lock();
        assert!(parts.keys().copied().eq(0..parts.len()), "a part is missing");
        let whole: Vec<u8> = parts.values().flatten().copied().collect();
        self.store.request(|state| {
            state.objects.insert(self.name.clone(), whole.into());
            Ok(())
        })
    }

    fn abandon(&self) {}
}

impl Store for SimStore {
    fn put_new(&self, name: &str, bytes: Bytes) -> io::Result<bool> {
        // Reads are made under locks that a writer in the same thread would wait for.
        if let Some(between) = self.due() {
            between();
        }
        self.request(|state| {
            if state.objects.contains_key(name) {
                return Ok(false);
            }
            if !(name.starts_with("deltas/") && std::mem::take(&mut state.lies)) {
                state.objects.insert(name.to_owned(), bytes);
            }
            Ok(true)
        })
    }

    fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        if let Some(between) = self.due() {
            between();
        }
        self.request(|state| {
            state.objects.insert(name.to_owned(), bytes);
            Ok(())
        })
    }

    fn begin_parts<'s>(&'s self, name: &str) -> io::Result<Box<dyn Parts + 's>> {
        let parts = SimParts { store: self, name: name.to_owned(), parts: Mutex::default() };
        self.request(|_| Ok(Box::new(parts) as Box<dyn Parts + 's>))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Bytes> {
        self.get_range(name, 0..most)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        self.request(|state| {
            let object = state.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            let len = object.len() as u64;
            Ok(object.slice(range.start.min(len) as usize..range.end.min(len) as usize))
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Entry>> {
        self.request(|state| {
            let entry = |(name, bytes): (&String, &Bytes)| Entry {
                name: name.clone(),
                len: bytes.len() as u64,
            };
            let of_prefix = state.objects.iter().filter(|(name, _)| name.starts_with(prefix));
            Ok(of_prefix.map(entry).collect())
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.request(|state| {
            state.objects.remove(name);
            Ok(())
        })
    }
}
