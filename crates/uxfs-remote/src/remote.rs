//! A volume in a store: its manifests by number, its deltas by name.
//!
//! 1. A manifest's number is its name. `publish` puts it only if there is none of that number, and finds
//!    out after a lost answer whether it is its own.
//! 2. A number that must stay taken although its checkpoint was removed holds a *marker*: the epoch, as text.
//! 3. A manifest's object may hold its checkpoint's delta, too. If later checkpoints name that, it stays when the
//!    checkpoint is removed. The *floor* tells such objects from checkpoints: those below it were removed.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use uxfs_delta::{Hash, Key, Layer, MANIFEST_MAX, Manifest, Place};

use crate::fault::{Fault, planted};
use crate::{Address, At, Entry, Error, Parts, Patience, Result, Store, parallel};

/// Requests at once.
const REQUESTS: usize = 16;

/// Parts of an object on their way at once.
const PARTS: usize = 4;

/// Most bytes of a marker; a manifest is longer.
const MARKER_MAX: u64 = 20;

/// Bytes of a manifest that are read at first. Most have fewer.
const MANIFEST_READ: u64 = 8 << 10;

const MANIFESTS: &str = "manifests/";
/// Below the manifests, so that one listing has both.
const FLOORS: &str = "manifests/floor/";
const DELTAS: &str = "deltas/";

/// A volume in a store.
pub struct Remote {
    store: Arc<dyn Store>,
    key: Option<Key>,
    patience: Patience,
    again: AtomicU64,
    requests: AtomicU64,
}

/// What became of a manifest that was put.
pub(crate) enum Put {
    Made(Hash),
    /// Another one has its number.
    Lost(Box<Manifest>, Hash),
    /// One that had its number was removed.
    Removed,
}

/// What there is below the name of the manifests. All ascend.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) checkpoints: Vec<u64>,
    /// Removed checkpoints whose objects are there, because of their deltas.
    pub(crate) removed: Vec<u64>,
    /// Removed checkpoints whose numbers are kept taken.
    pub(crate) markers: Vec<u64>,
    /// Checkpoints below the last of them were removed.
    pub(crate) floors: Vec<u64>,
}

impl Listing {
    fn of(mut found: Vec<Entry>) -> Self {
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let mut listing = Self::default();
        for Entry { name, len } in &found {
            let number = |prefix| name.strip_prefix(prefix)?.parse::<u64>().ok();
            if let Some(floor) = number(FLOORS) {
                listing.floors.push(floor);
            } else if let Some(number) = number(MANIFESTS) {
                let marker = is_marker(*len);
                if marker { &mut listing.markers } else { &mut listing.checkpoints }.push(number);
            }
        }
        let floor = listing.floors.last().copied().unwrap_or(0);
        let removed = listing.checkpoints.partition_point(|number| *number < floor);
        listing.removed = listing.checkpoints.drain(..removed).collect();
        listing
    }
}

/// Is an object of so many bytes a marker?
fn is_marker(len: u64) -> bool {
    (1..=MARKER_MAX).contains(&len)
}

pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFESTS}{number:016}")
}

fn floor_name(number: u64) -> String {
    format!("{FLOORS}{number:016}")
}

pub(crate) fn delta_name(sequence: u64, tag: u64) -> String {
    format!("{DELTAS}{sequence:016}-{tag:016x}")
}

/// The object that has a delta.
pub(crate) fn name_of(layer: &Layer) -> String {
    match layer.place {
        Place::Object(tag) => delta_name(layer.sequence, tag),
        Place::Manifest(_) => manifest_name(layer.sequence),
    }
}

/// The sequence number in the name of a delta.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    name.strip_prefix(DELTAS)?.split_once('-')?.0.parse().ok()
}

/// The bytes of a manifest, perhaps with some of what follows it in its object.
fn manifest_bytes(store: &dyn Store, name: &str) -> io::Result<Bytes> {
    let first = store.get_range(name, 0..MANIFEST_READ)?;
    match Manifest::len_in(&first) {
        _ if (first.len() as u64) < MANIFEST_READ => Ok(first),
        Some(len) if len <= MANIFEST_READ => Ok(first),
        Some(len) => store.get_range(name, 0..len.min(MANIFEST_MAX)),
        None => store.get(name, MANIFEST_MAX),
    }
}

/// A part of a manifest's object, behind the manifest. A marker in its place has none: then nothing is there.
fn in_manifest(store: &dyn Store, name: &str, range: Range<u64>) -> io::Result<Bytes> {
    let got = store.get_range(name, range);
    let is_empty =
        got.as_ref().map_or_else(|e| e.kind() != io::ErrorKind::NotFound, Bytes::is_empty);
    if is_empty && is_marker(store.get_range(name, 0..MARKER_MAX + 1)?.len() as u64) {
        return Err(io::ErrorKind::NotFound.into());
    }
    got
}

impl Remote {
    /// The volume in a store; `key` if it is encrypted.
    pub fn new(store: Arc<dyn Store>, key: Option<Key>, patience: Patience) -> Self {
        Self { store, key, patience, again: AtomicU64::new(0), requests: AtomicU64::new(0) }
    }

    /// The key.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Requests that were tried again.
    pub fn tried_again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// Requests made.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn ask<'s, T>(&'s self, request: impl Fn(&'s dyn Store) -> io::Result<T>) -> io::Result<T> {
        self.patience.run(&self.again, || {
            self.requests.fetch_add(1, Ordering::Relaxed);
            request(&*self.store)
        })
    }

    /// The numbers of all checkpoints, ascending.
    ///
    /// # Errors
    /// Those of the store.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        Ok(self.listing()?.checkpoints)
    }

    pub(crate) fn listing(&self) -> Result<Listing> {
        let found = self.ask(|store| store.list(MANIFESTS));
        found.map(Listing::of).map_err(Error::store("listing the manifests"))
    }

    /// The number below which checkpoints were removed.
    fn floor(&self) -> Result<u64> {
        let found = self.ask(|store| store.list(FLOORS));
        let found = found.map_err(Error::store("listing what was removed"))?;
        Ok(Listing::of(found).floors.last().copied().unwrap_or(0))
    }

    /// Removes the checkpoints below a number, whatever objects are there.
    pub(crate) fn raise_floor(&self, number: u64) -> Result<()> {
        let name = floor_name(number);
        let text = Bytes::from(number.to_string());
        let put = self.ask(|store| store.replace(&name, text.clone()));
        put.map_err(Error::store(format!("putting {name}")))
    }

    /// Forgets a floor.
    pub(crate) fn remove_floor(&self, number: u64) -> Result<()> {
        let name = floor_name(number);
        self.ask(|store| store.delete(&name)).map_err(Error::store(format!("removing {name}")))
    }

    /// The epoch of a removed checkpoint whose number a marker keeps.
    pub(crate) fn marker(&self, number: u64) -> Result<Option<u64>> {
        let name = manifest_name(number);
        let bytes = self.ask(|store| store.get(&name, MARKER_MAX));
        let bytes = bytes.map_err(Error::store(format!("reading {name}")))?;
        Ok(std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()))
    }

    /// Removes a checkpoint of this epoch; its number stays taken.
    pub(crate) fn mark(&self, number: u64, epoch: u64) -> Result<()> {
        let name = manifest_name(number);
        let text = Bytes::from(epoch.to_string());
        let put = self.ask(|store| store.replace(&name, text.clone()));
        put.map_err(Error::store(format!("removing {name}")))
    }

    /// A manifest and its hash, also of a removed checkpoint whose object stays for its delta.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] if there is none; those of the store; what is wrong with it.
    pub fn manifest(&self, number: u64) -> Result<(Manifest, Hash)> {
        let name = manifest_name(number);
        let bytes = match self.ask(|store| manifest_bytes(store, &name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoCheckpoint(number.to_string()));
            }
            other => other.map_err(Error::store(format!("reading {name}")))?,
        };
        if is_marker(bytes.len() as u64) {
            return Err(Error::NoCheckpoint(number.to_string()));
        }
        Manifest::parse(number, &bytes, self.key()).map_err(Error::object(&name))
    }

    /// The manifests of all checkpoints, ascending. One that is removed meanwhile is left out.
    ///
    /// # Errors
    /// Those of the store; what is wrong with a manifest.
    pub fn manifests(&self) -> Result<Vec<Manifest>> {
        let found = Mutex::new(Vec::new());
        parallel::for_each(REQUESTS, &self.numbers()?, |_, number| match self.manifest(*number) {
            Err(Error::NoCheckpoint(_)) => Ok(()),
            other => other.map(|(manifest, _)| found.lock().push(manifest)),
        })?;
        let mut found = found.into_inner();
        found.sort_by_key(|manifest| manifest.number);
        Ok(found)
    }

    /// The last manifest; `None` if there is none.
    ///
    /// # Errors
    /// Those of the store; what is wrong with it.
    pub fn newest(&self) -> Result<Option<(Manifest, Hash)>> {
        match self.numbers()?.last() {
            Some(number) => self.manifest(*number).map(Some),
            None => Ok(None),
        }
    }

    /// The manifest of a checkpoint.
    ///
    /// # Errors
    /// [`Error::NoVolume`], [`Error::NoCheckpoint`]; those of the store; what is wrong with it.
    pub fn find(&self, at: At) -> Result<Manifest> {
        self.find_hashed(at).map(|(manifest, _)| manifest)
    }

    /// The manifest of a checkpoint, and its hash.
    fn find_hashed(&self, at: At) -> Result<(Manifest, Hash)> {
        let time = match at {
            At::Number(number) if number < self.floor()? => {
                return Err(Error::NoCheckpoint(number.to_string()));
            }
            At::Number(number) => return self.manifest(number),
            At::Newest => u64::MAX,
            At::Time(time) => time,
        };
        let numbers = self.numbers()?;
        let Some(newest) = numbers.last() else { return Err(Error::NoVolume) };
        let newest = self.manifest(*newest)?;
        if newest.0.made_at <= time {
            return Ok(newest);
        }
        // Times ascend with numbers.
        let (mut found, mut from, mut to) = (None, 0, numbers.len() - 1);
        while from < to {
            let middle = usize::midpoint(from, to);
            let manifest = self.manifest(numbers[middle])?;
            if manifest.0.made_at <= time {
                (found, from) = (Some(manifest), middle + 1);
            } else {
                to = middle;
            }
        }
        found.ok_or_else(|| Error::NoCheckpoint("as old as that".into()))
    }

    /// The manifest at an address in this store, and its hash.
    ///
    /// # Errors
    /// As [`Remote::find`]; [`Error::Invalid`] if it is not the one that the address means.
    pub fn at(&self, address: &Address) -> Result<(Manifest, Hash)> {
        let (manifest, hash) = self.find_hashed(address.at)?;
        match &address.hash {
            Some(wanted) if !hash.to_string().starts_with(wanted) => Err(Error::Invalid(format!(
                "checkpoint {} is not the one that was there: the store was made anew",
                manifest.number
            ))),
            _ => Ok((manifest, hash)),
        }
    }

    /// Puts a manifest, followed by the bytes of the delta that it places there.
    pub(crate) fn publish(&self, manifest: &Manifest, delta: &[u8]) -> Result<Put> {
        let (mut bytes, hash) = manifest.build(self.key())?;
        bytes.extend_from_slice(delta);
        let bytes = Bytes::from(bytes);
        let name = manifest_name(manifest.number);
        let made = if planted(Fault::FenceLate) {
            let is_taken = self.numbers()?.last().is_some_and(|last| *last >= manifest.number);
            self.ask(|store| {
                let put = || store.replace(&name, bytes.clone());
                if is_taken { Ok(false) } else { put().map(|()| true) }
            })
        } else {
            self.ask(|store| store.put_new(&name, bytes.clone()))
        };
        if made.map_err(Error::store(format!("putting {name}")))? {
            return Ok(Put::Made(hash));
        }
        // Perhaps by this call, whose first answer was lost.
        match self.manifest(manifest.number) {
            Ok((_, theirs)) if theirs == hash => Ok(Put::Made(hash)),
            Ok((manifest, theirs)) => Ok(Put::Lost(Box::new(manifest), theirs)),
            Err(Error::NoCheckpoint(_)) => Ok(Put::Removed),
            Err(error) => Err(error),
        }
    }

    /// Puts a delta whose name was never used before.
    pub(crate) fn put_delta(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let bytes = Bytes::from(bytes);
        // If it is there, the answer to an earlier try was lost.
        let put = self.ask(|store| store.put_new(name, bytes.clone()));
        put.map(drop).map_err(Error::store(format!("putting {name}")))
    }

    /// Puts a long delta, whose name was never used before, in parts as `next` makes them until it
    /// returns `None`.
    pub(crate) fn put_parts(
        &self,
        name: &str,
        next: &mut dyn FnMut() -> io::Result<Option<Bytes>>,
    ) -> Result<()> {
        let put = self.ask(|store| store.begin_parts(name)).and_then(|parts| {
            let put = self.send(&*parts, next).and_then(|()| self.ask(|_| parts.finish()));
            // The first error is reported.
            put.inspect_err(|_| parts.abandon())
        });
        put.map_err(Error::store(format!("putting {name}")))
    }

    /// Puts some parts at once, each as often as a request may be tried.
    fn send(
        &self,
        parts: &dyn Parts,
        next: &mut dyn FnMut() -> io::Result<Option<Bytes>>,
    ) -> io::Result<()> {
        let joined = |thread: ScopedJoinHandle<'_, io::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of a part ended")))
        };
        std::thread::scope(|scope| {
            let mut under_way = VecDeque::new();
            let mut number = 0;
            while let Some(part) = next()? {
                if under_way.len() == PARTS
                    && let Some(first) = under_way.pop_front()
                {
                    joined(first)?;
                }
                let put = move || self.ask(|_| parts.put(number, part.clone()));
                let thread = std::thread::Builder::new().name("uxfs-part".into());
                under_way.push_back(thread.spawn_scoped(scope, put)?);
                number += 1;
            }
            under_way.into_iter().try_for_each(joined)
        })
    }

    /// Reads a part of a delta.
    pub(crate) fn read(&self, layer: &Layer, range: Range<u64>) -> Result<Bytes> {
        let name = name_of(layer);
        let got = match layer.place {
            Place::Object(_) => self.ask(|store| store.get_range(&name, range.clone())),
            Place::Manifest(at) => {
                let range = range.start.saturating_add(at)..range.end.saturating_add(at);
                self.ask(|store| in_manifest(store, &name, range.clone()))
            }
        };
        match got {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Missing(name)),
            other => other.map_err(Error::store(format!("reading {name}"))),
        }
    }

    /// The names and lengths of all deltas.
    pub(crate) fn deltas(&self) -> Result<Vec<Entry>> {
        self.ask(|store| store.list(DELTAS)).map_err(Error::store("listing the deltas"))
    }

    pub(crate) fn remove_delta(&self, name: &str) -> Result<()> {
        self.ask(|store| store.delete(name)).map_err(Error::store(format!("removing {name}")))
    }

    pub(crate) fn remove_manifest(&self, number: u64) -> Result<()> {
        let name = manifest_name(number);
        self.ask(|store| store.delete(&name)).map_err(Error::store(format!("removing {name}")))
    }
}
