//! A device whose checkpoints go to a store while it is written.
//!
//! 1. A checkpoint is the device's content at a moment when no write was under way, after a flush.
//! 2. `sync`: a flush or forced write returns when a checkpoint that was cut after it began is in the
//!    store. The callers that wait for one put share the next one. If the put fails, the flush fails.
//! 3. `async`: a thread ships the newest moment that was flushed. While nothing is flushed it sends
//!    nothing. What was not shipped for longer than the bound makes writers wait, a little at each write,
//!    until the store has caught up.
//! 4. A writer that lost its place to another one ships nothing any more: see [`crate::Error::Fenced`]. If it
//!    holds the volume, every later write and flush fails, so the volume stops.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex, MutexGuard};
use uxfs_disk::BlockDev;

use crate::checkpoint::Checkpoint;
use crate::compare::narrow;
use crate::fault::{Fault, planted};
use crate::hold::{self, Hold, HoldOptions};
use crate::publisher::{BLOCK, Published, Publisher};
use crate::tracker::Tracker;
use crate::write_cache::WriteCache;
use crate::{CacheFiles, Error, Remote, Result, patience};

/// How long a write waits at most while the store is behind.
const SLOWED: Duration = Duration::from_millis(100);

/// What a flush waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShipMode {
    /// For the device.
    #[default]
    Async,
    /// For the store.
    Sync,
}

/// How a device is shipped.
#[derive(Clone, Copy, Debug)]
pub struct ShipOptions {
    /// What a flush waits for.
    pub mode: ShipMode,
    /// `async`: the shortest time between two checkpoints.
    pub interval: Duration,
    /// `async`: for how long what was flushed may be missing in the store before writers are slowed.
    pub lag: Duration,
    /// Most bytes of memory for blocks that are overwritten before they are shipped.
    pub aside_bytes: usize,
    /// Most bytes of a delta that is put with its manifest, as one object. 0 puts each delta alone.
    pub inside_bytes: usize,
}

impl Default for ShipOptions {
    /// Async, a checkpoint in a second at most, 30 seconds behind, 64 MiB, and all deltas that one put carries.
    fn default() -> Self {
        Self {
            mode: ShipMode::Async,
            interval: Duration::from_secs(1),
            lag: Duration::from_secs(30),
            aside_bytes: 64 << 20,
            inside_bytes: usize::MAX,
        }
    }
}

/// What a shipper has done, and how far the store is behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShipStatus {
    /// The last checkpoint in the store; 0 if there is none.
    pub checkpoint: u64,
    /// When it was made, in milliseconds since 1970.
    pub made_at: Option<u64>,
    /// Checkpoints shipped by this shipper.
    pub checkpoints: u64,
    /// Bytes of blocks that changed, in all of them.
    pub changed_bytes: u64,
    /// Bytes of blocks that were shipped again to merge deltas.
    pub merged_bytes: u64,
    /// Bytes of objects put.
    pub stored_bytes: u64,
    /// Requests made.
    pub requests: u64,
    /// Requests that were tried again.
    pub tried_again: u64,
    /// Flushes whose moment is not in the store yet.
    pub lag_flushes: u64,
    /// Bytes of blocks that changed and are not in the store yet.
    pub lag_bytes: u64,
    /// For how long the oldest of these flushes has been missing in the store.
    pub lag: Duration,
    /// Writes that waited because the store is behind.
    pub slowed_writes: u64,
    /// Why the last checkpoint failed; `None` if it did not.
    pub error: Option<String>,
    /// `async`: how long it is until a failed checkpoint is tried again.
    pub next_try: Option<Duration>,
    /// `async`: the last error stays, so nothing is tried again.
    pub stopped: bool,
}

#[derive(Default)]
struct State {
    /// Moments that were frozen, and the last of them that is in the store.
    cut: u64,
    shipped: u64,
    /// The first flush that no cut covers, and how many there are.
    waiting_since: Option<Instant>,
    waiting: u64,
    /// The same of the cut that is under way.
    under_way_since: Option<Instant>,
    under_way: u64,
    done: ShipStatus,
    /// When a failed checkpoint is tried again.
    next_try: Option<Instant>,
    ending: bool,
}

struct Lead {
    publisher: Publisher,
    /// What the device was not compared with yet.
    uncompared: Option<Uncompared>,
}

/// A checkpoint, and the runs of blocks in which the device may differ from it.
struct Uncompared {
    last: Arc<Checkpoint>,
    runs: Vec<(u64, u64)>,
}

struct Inner {
    dev: Arc<dyn BlockDev>,
    /// The same device, if this writer holds the volume.
    cache: Option<Arc<WriteCache>>,
    /// Another writer took the volume over that this one held.
    lost: AtomicBool,
    options: ShipOptions,
    tracker: Tracker,
    /// Held while a checkpoint is shipped.
    lead: Mutex<Lead>,
    remote: Arc<Remote>,
    state: Mutex<State>,
    /// A flush came, or the end.
    wake: Condvar,
    /// A checkpoint was shipped, or failed.
    progress: Condvar,
    behind: AtomicBool,
    slowed: AtomicU64,
}

/// A device that ships its checkpoints.
pub struct Shipper {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A random identity for a writer.
pub(crate) fn new_writer() -> Result<[u8; 16]> {
    let mut writer = [0; 16];
    getrandom::fill(&mut writer)
        .map_err(|error| Error::Delta(uxfs_delta::Error::System(error.to_string())))?;
    Ok(writer)
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Shipper {
    /// Begins to ship `dev`, which holds the volume `uuid`. The last checkpoint of the store is read; the
    /// device is compared with it before the first checkpoint is put.
    ///
    /// # Errors
    /// [`Error::OtherVolume`]; those of the store; what is wrong with its objects.
    pub fn start(
        dev: Arc<dyn BlockDev>,
        remote: Arc<Remote>,
        uuid: [u8; 16],
        options: ShipOptions,
    ) -> Result<Self> {
        Self::without_thread(dev, remote, uuid, options, new_writer()?)?.with_thread()
    }

    /// Claims the volume in a store, to write it from afar: the device is its last checkpoint and,
    /// above that, a cache on this machine's disk, which `open` opens for an image of so many
    /// bytes. A predecessor's changes in the cache are part of the device, and are shipped.
    ///
    /// # Errors
    /// [`Error::Held`], [`Error::Unshipped`], [`Error::NoVolume`]; those of the store and of the cache; what is
    /// wrong with an object.
    pub fn hold(
        remote: Arc<Remote>,
        open: &dyn Fn(u64) -> io::Result<CacheFiles>,
        options: &HoldOptions,
    ) -> Result<Self> {
        Self::hold_without_thread(remote, open, options, new_writer()?)?.with_thread()
    }

    /// As [`Shipper::hold`], but nothing is shipped in the background, as [`Shipper::without_thread`].
    ///
    /// # Errors
    /// As [`Shipper::hold`].
    pub fn hold_without_thread(
        remote: Arc<Remote>,
        open: &dyn Fn(u64) -> io::Result<CacheFiles>,
        options: &HoldOptions,
        writer: [u8; 16],
    ) -> Result<Self> {
        let Hold { cache, publisher, checkpoint } = hold::begin(&remote, open, options, writer)?;
        let runs = cache.runs();
        let uncompared =
            (!runs.is_empty()).then(|| Uncompared { last: checkpoint, runs: runs.clone() });
        let lead = Lead { publisher, uncompared };
        let dev = Arc::<WriteCache>::clone(&cache);
        let shipper = Self::new(dev, Some(cache), remote, lead, options.ship);
        runs.iter().for_each(|(first, count)| shipper.inner.tracker.mark(*first, *count));
        Ok(shipper)
    }

    fn with_thread(self) -> Result<Self> {
        if self.mode() == ShipMode::Async {
            let inner = Arc::clone(&self.inner);
            let thread = std::thread::Builder::new().name("uxfs-ship".into());
            let thread = thread.spawn(move || inner.run()).map_err(Error::Image)?;
            *self.thread.lock() = Some(thread);
        }
        Ok(self)
    }

    /// As [`Shipper::start`], but nothing is shipped in the background: [`Shipper::ship_now`] does it. For
    /// simulations, which choose the writer's identity too.
    ///
    /// # Errors
    /// As [`Shipper::start`].
    pub fn without_thread(
        dev: Arc<dyn BlockDev>,
        remote: Arc<Remote>,
        uuid: [u8; 16],
        options: ShipOptions,
        writer: [u8; 16],
    ) -> Result<Self> {
        let len = dev.len();
        let (publisher, uncompared) =
            Publisher::begin(Arc::clone(&remote), writer, uuid, len, options.inside_bytes)?;
        let all = (0, len.div_ceil(u64::from(BLOCK)));
        let uncompared =
            uncompared.map(|last| Uncompared { last: Arc::new(last), runs: vec![all] });
        let shipper = Self::new(dev, None, remote, Lead { publisher, uncompared }, options);
        shipper.inner.tracker.mark(all.0, all.1);
        Ok(shipper)
    }

    fn new(
        dev: Arc<dyn BlockDev>,
        cache: Option<Arc<WriteCache>>,
        remote: Arc<Remote>,
        lead: Lead,
        options: ShipOptions,
    ) -> Self {
        let tracker = Tracker::new(dev.len(), BLOCK, options.aside_bytes);
        let done = ShipStatus {
            checkpoint: lead.publisher.last_number(),
            made_at: lead.publisher.last_made_at(),
            ..ShipStatus::default()
        };
        let inner = Inner {
            dev,
            cache,
            lost: AtomicBool::new(false),
            options,
            tracker,
            lead: Mutex::new(lead),
            remote,
            state: Mutex::new(State { done, ..State::default() }),
            wake: Condvar::new(),
            progress: Condvar::new(),
            behind: AtomicBool::new(false),
            slowed: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// Ships the present moment, unless nothing changed. Returns what was put.
    ///
    /// # Errors
    /// [`Error::Fenced`]; those of the store and of the device.
    pub fn ship_now(&self) -> Result<Option<Published>> {
        self.inner.lead(|lead| self.inner.ship(lead))
    }

    /// What was done, and how far the store is behind.
    pub fn status(&self) -> ShipStatus {
        self.inner.status()
    }

    /// What a flush waits for.
    pub fn mode(&self) -> ShipMode {
        self.inner.options.mode
    }

    /// Does it hold the volume?
    pub fn holds(&self) -> bool {
        self.inner.cache.is_some()
    }

    /// Ships what is missing in the store, gives up the volume if it holds it, and ends. The device
    /// must not be used any more.
    ///
    /// # Errors
    /// Why the last state is not in the store, or the volume still held.
    pub fn finish(&self) -> Result<()> {
        self.inner.end();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
        self.ship_now()?;
        if let Some(cache) = &self.inner.cache {
            self.inner.lead(|lead| lead.publisher.release(now()))?;
            cache.empty().map_err(Error::Cache)?;
        }
        Ok(())
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.inner.end();
    }
}

impl Inner {
    fn end(&self) {
        self.state.lock().ending = true;
        self.wake.notify_all();
    }

    fn status(&self) -> ShipStatus {
        let state = self.state.lock();
        let since = state.under_way_since.or(state.waiting_since);
        ShipStatus {
            requests: self.remote.requests(),
            tried_again: self.remote.tried_again(),
            lag_flushes: state.waiting + state.under_way,
            lag_bytes: self.tracker.pending(),
            lag: since.map_or(Duration::ZERO, |since| since.elapsed()),
            slowed_writes: self.slowed.load(Ordering::Relaxed),
            next_try: state.next_try.map(|at| at.saturating_duration_since(Instant::now())),
            ..state.done.clone()
        }
    }

    /// The thread of `async`.
    fn run(&self) {
        // The device was not compared with the store yet.
        let mut due = true;
        let mut failures = 0;
        loop {
            if due {
                match self.lead(|lead| self.ship(lead)) {
                    Ok(_) => {
                        (due, failures) = (false, 0);
                        self.rest(self.options.interval);
                    }
                    Err(error) if error.is_final() => {
                        self.state.lock().done.stopped = true;
                        return;
                    }
                    Err(_) => {
                        self.rest_after_failure(failures);
                        failures += 1;
                    }
                }
            }
            let mut state = self.state.lock();
            while !state.ending && !due && state.waiting == 0 {
                self.wake.wait(&mut state);
            }
            if state.ending {
                return;
            }
            due = true;
        }
    }

    /// Waits before a failed checkpoint is tried again, less if another caller ships meanwhile.
    fn rest_after_failure(&self, failures: u32) {
        let end = Instant::now() + patience::between_checkpoints(failures);
        let mut state = self.state.lock();
        if state.done.error.is_none() {
            // Another caller has shipped since.
            return;
        }
        state.next_try = Some(end);
        while !state.ending && state.next_try.is_some() {
            if self.wake.wait_until(&mut state, end).timed_out() {
                state.next_try = None;
            }
        }
        state.next_try = None;
    }

    /// Waits until the time has passed, or the end comes.
    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.ending && !self.wake.wait_until(&mut state, end).timed_out() {}
    }

    /// Ships the present moment, unless nothing changed.
    fn ship(&self, lead: &mut Lead) -> Result<Option<Published>> {
        loop {
            match self.ship_once(lead) {
                Err(Error::Overtaken) => {}
                done => return done,
            }
        }
    }

    fn ship_once(&self, lead: &mut Lead) -> Result<Option<Published>> {
        if let Some(Uncompared { last, runs }) = &lead.uncompared {
            let narrowed = narrow(&self.tracker, &*self.dev, last, runs);
            self.note(narrowed)?;
            lead.uncompared = None;
        }
        let changed = {
            let mut state = self.state.lock();
            state.cut += 1;
            (state.under_way_since, state.under_way) = (state.waiting_since.take(), state.waiting);
            state.waiting = 0;
            let changed = self.tracker.pending();
            if changed == 0 && lead.publisher.last_number() > 0 {
                state.shipped = state.cut;
                (state.under_way_since, state.under_way) = (None, 0);
                return Ok(None);
            }
            self.tracker.freeze(&lead.publisher.merged());
            changed
        };
        let published = lead.publisher.publish(&self.tracker, &*self.dev, changed, now());
        match &published {
            Ok(_) => self.tracker.release(),
            Err(_) => self.tracker.thaw(),
        }
        let mut state = self.state.lock();
        if let Ok(one) = &published {
            state.shipped = state.cut;
            state.done.checkpoint = one.number;
            state.done.made_at = lead.publisher.last_made_at();
            state.done.checkpoints += 1;
            state.done.changed_bytes += one.changed_bytes;
            state.done.merged_bytes += one.merged_bytes;
            state.done.stored_bytes += one.stored_bytes;
        } else {
            state.waiting_since = state.under_way_since.or(state.waiting_since);
            state.waiting += state.under_way;
        }
        (state.under_way_since, state.under_way) = (None, 0);
        self.behind.store(self.is_behind(&state), Ordering::Release);
        drop(state);
        let published = self.note(published)?;
        if let Some(cache) = &self.cache {
            // What was shipped stays in the cache until the next checkpoint if this fails.
            let last = lead.publisher.last_number();
            let _ = cache.shrink(last, |block| self.tracker.is_pending(block));
        }
        Ok(Some(published))
    }

    /// Keeps the error of the last checkpoint, and wakes those that wait for it.
    fn note<T>(&self, done: Result<T>) -> Result<T> {
        let error = match &done {
            Ok(_) | Err(Error::Overtaken) => None,
            Err(error) => Some(error.to_string()),
        };
        if self.cache.is_some() && matches!(done, Err(Error::Fenced { .. })) {
            self.lost.store(true, Ordering::Release);
        }
        {
            let mut state = self.state.lock();
            if error.is_none() && state.next_try.take().is_some() {
                self.wake.notify_all();
            }
            state.done.error = error;
        }
        self.progress.notify_all();
        done
    }

    fn is_behind(&self, state: &State) -> bool {
        let since = state.under_way_since.or(state.waiting_since);
        self.options.mode == ShipMode::Async
            && since.is_some_and(|since| since.elapsed() > self.options.lag)
    }

    /// Fails if another writer took the volume over.
    fn check_held(&self) -> io::Result<()> {
        if self.lost.load(Ordering::Acquire) && !planted(Fault::FenceIgnored) {
            return Err(io::Error::other(
                "another writer took this volume over: nothing is written any more",
            ));
        }
        Ok(())
    }

    /// Called when a flush is done.
    fn flushed(&self) -> io::Result<()> {
        let need = {
            let mut state = self.state.lock();
            let dirty = self.tracker.is_dirty();
            if dirty {
                state.waiting_since.get_or_insert_with(Instant::now);
                state.waiting += 1;
            }
            self.behind.store(self.is_behind(&state), Ordering::Release);
            state.cut + u64::from(dirty)
        };
        self.wake.notify_all();
        if self.options.mode == ShipMode::Async || planted(Fault::FlushEarly) {
            return Ok(());
        }
        // Others wait here while one ships for all that came before. Then one of them ships for all others.
        let mut state = self.state.lock();
        while state.shipped < need {
            match self.lead.try_lock() {
                Some(lead) => {
                    drop(state);
                    return self
                        .lead_with(lead, |lead| self.ship(lead))
                        .map(drop)
                        .map_err(io::Error::from);
                }
                None => self.progress.wait(&mut state),
            }
        }
        Ok(())
    }

    /// Leads, and wakes those that wait for the lead.
    fn lead<T>(&self, work: impl FnOnce(&mut Lead) -> T) -> T {
        self.lead_with(self.lead.lock(), work)
    }

    fn lead_with<T>(&self, mut lead: MutexGuard<'_, Lead>, work: impl FnOnce(&mut Lead) -> T) -> T {
        let done = work(&mut lead);
        drop(lead);
        // With the state locked none of them is between its look and its wait.
        let _state = self.state.lock();
        self.progress.notify_all();
        done
    }

    /// Makes a writer wait while the store is behind.
    fn slow_down(&self) {
        if self.behind.load(Ordering::Acquire) {
            self.slowed.fetch_add(1, Ordering::Relaxed);
            let mut state = self.state.lock();
            if !state.ending {
                self.progress.wait_for(&mut state, SLOWED);
            }
        }
    }

    fn write(
        &self,
        offset: u64,
        len: u64,
        write: impl FnOnce(&dyn BlockDev) -> io::Result<()>,
    ) -> io::Result<()> {
        self.check_held()?;
        self.slow_down();
        let _under_way = self.tracker.before_write(&*self.dev, offset, len)?;
        write(&*self.dev)
    }
}

impl BlockDev for Shipper {
    uxfs_disk::forward!(self => *self.inner.dev; len, read_at, will_read, will_write_bulk, has_fua, allocate, check_present, warning,
        read_only, sector_size);
    // Copies that bypass this device, and a new length, would not be shipped.
    uxfs_disk::without!(lengthen, as_file);

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data.len() as u64, |dev| dev.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.inner.write(offset, len, |dev| dev.write_vectored_at(offset, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data.len() as u64, |dev| dev.write_bulk_at(offset, data))
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data.len() as u64, |dev| dev.write_fua_at(offset, data))?;
        self.inner.flushed()
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.check_held()?;
        self.inner.dev.flush()?;
        self.inner.flushed()
    }

    fn discard(&self, offset: u64, len: u64) {
        // A hint: without the old content of what is being shipped it is not followed.
        let _ = self.inner.write(offset, len, |dev| {
            dev.discard(offset, len);
            Ok(())
        });
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.write(offset, len, |dev| dev.zero(offset, len))
    }
}
