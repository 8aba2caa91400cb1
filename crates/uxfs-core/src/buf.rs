//! The buffer cache: each metadata block that was read or created has one buffer.
//!
//! 1. A buffer's content is verified before it is used, and again before it is written.
//! 2. Contents change only through [`crate::tx::Tx::edit`] and related methods, which record the
//!    change.
//! 3. A buffer that an open transaction has changed is *held* (`holder` is the transaction's
//!    number) and is neither written nor evicted. One transaction at a time holds it; the locks of
//!    allocation groups and inodes ensure that.
//! 4. A dirty buffer is in the dirty set and is never evicted. Dirty buffers are written in
//!    ascending order of address.
//! 5. Clean buffers that are not in use are evicted when the cache is over its limit.
//!
//! The content lock is held briefly, never for the length of a transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use uxfs_disk::BlockDev;
use uxfs_format::bytes::{Field, Number};
use uxfs_format::verify::{self, BufKind, Owner};
use uxfs_format::{Check, Corrupt, Daddr, Place, v4};
use uxfs_sync::{Mutex, Rank, RwLock, RwLockReadGuard};

use crate::error::{Error, Result};
use crate::growing::GrowingGeometry;

/// A shared reference to a buffer.
pub type BufRef = Arc<Buf>;

/// The addresses of a buffer's pieces: usually one, more for a directory block whose filesystem
/// blocks are not contiguous.
pub type Pieces = SmallVec<[Piece; 1]>;

/// A contiguous part of a buffer on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its address.
    pub daddr: Daddr,
    /// Its length in bytes.
    pub len: u32,
}

/// A buffer's contents and their kind.
pub struct Content {
    /// Kind of structure.
    pub kind: BufKind,
    /// The bytes.
    pub bytes: Box<[u8]>,
    /// The journal's state of the buffer.
    pub(crate) log: BufLog,
}

/// The journal's state of a buffer.
#[derive(Default)]
pub(crate) struct BufLog {
    /// The last checkpoint in which it changed; 0 if none.
    pub(crate) changed: u64,
    /// Its slot in that checkpoint's list.
    pub(crate) slot: Option<u32>,
    /// One bit for every chunk that changed since the buffer was last written in place.
    pub(crate) chunks: SmallVec<[u64; 1]>,
    /// The checkpoint in which its blocks were freed; 0 if they were not.
    pub(crate) died: u64,
}

impl core::ops::Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A metadata buffer.
pub struct Buf {
    pieces: Pieces,
    len: usize,
    pub(crate) content: RwLock<Content>,
    /// ID of the transaction that has changed it; 0 if none.
    pub(crate) holder: AtomicU64,
    /// Its slot in that transaction's list.
    pub(crate) holder_slot: AtomicU32,
    dirty: AtomicBool,
    used: AtomicBool,
}

impl Buf {
    fn new(pieces: Pieces, content: Content) -> BufRef {
        Arc::new(Self {
            pieces,
            len: content.bytes.len(),
            content: RwLock::ranked(Rank::Buffer, content),
            holder: AtomicU64::new(0),
            holder_slot: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
            used: AtomicBool::new(true),
        })
    }

    /// Address of the first byte, which identifies the buffer in the cache.
    pub fn daddr(&self) -> Daddr {
        self.pieces[0].daddr
    }

    /// Its pieces.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no buffer is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The contents, for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read()
    }

    /// The kind of structure it holds.
    pub fn kind(&self) -> BufKind {
        self.content.read().kind
    }

    /// One of its numbers.
    pub fn get<T: Number>(&self, field: Field<T>) -> T {
        field.get(&self.read())
    }

    /// Its address, for messages.
    pub fn place(&self) -> Place {
        Place::Device(self.daddr())
    }

    /// Creates an error about this buffer.
    pub fn corrupt(&self, check: Check, detail: impl Into<String>) -> Error {
        Corrupt::new(self.kind().name(), self.place(), check, detail).into()
    }
}

const SHARDS: usize = 16;

/// All buffers of a volume.
pub struct Cache {
    dev: Arc<dyn BlockDev>,
    geo: Arc<GrowingGeometry>,
    shards: [Mutex<FxHashMap<u64, BufRef>>; SHARDS],
    dirty: Mutex<BTreeMap<u64, BufRef>>,
    bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
    /// Increases whenever changed contents leave the cache. Contents read from the device before
    /// that may be out of date.
    epoch: AtomicU64,
    limit: usize,
}

impl Cache {
    /// Creates an empty cache over `dev` for about `limit` bytes of clean buffers.
    pub fn new(dev: Arc<dyn BlockDev>, geo: Arc<GrowingGeometry>, limit: usize) -> Self {
        Self {
            dev,
            geo,
            shards: core::array::from_fn(|_| Mutex::ranked(Rank::BufIndex, FxHashMap::default())),
            dirty: Mutex::default(),
            bytes: AtomicUsize::new(0),
            dirty_bytes: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            limit,
        }
    }

    /// Bytes in dirty buffers.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in all buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, daddr: Daddr) -> &Mutex<FxHashMap<u64, BufRef>> {
        // Addresses of adjacent blocks differ in bits 3 and up. Spread them over the shards.
        &self.shards[(daddr.0 >> 3) as usize % SHARDS]
    }

    /// Returns the buffer at `daddr` from the cache or the device. Verifies that it is one of
    /// `kinds` and belongs to `owner`.
    ///
    /// # Errors
    /// The buffer cannot be read or fails a check.
    pub fn get(&self, daddr: Daddr, len: u32, kinds: &[BufKind], owner: Owner) -> Result<BufRef> {
        self.get_pieces(SmallVec::from_buf([Piece { daddr, len }]), kinds, owner)
    }

    /// As [`Cache::get`], for a buffer in several pieces.
    ///
    /// # Errors
    /// As [`Cache::get`].
    pub fn get_pieces(&self, pieces: Pieces, kinds: &[BufKind], owner: Owner) -> Result<BufRef> {
        loop {
            if let Some(buf) = self.lookup(&pieces) {
                let content = buf.read();
                if !kinds.contains(&content.kind) {
                    let problem = format!("is a {}", content.kind.name());
                    return Err(Error::corrupt(
                        kinds[0].name(),
                        buf.place(),
                        Check::Magic,
                        problem,
                    ));
                }
                self.check_owner(&content, content.kind, buf.daddr(), owner)?;
                drop(content);
                return Ok(buf);
            }
            let epoch = self.epoch.load(Ordering::Acquire);
            let content = self.read_verified(&pieces, kinds, owner);
            if self.epoch.load(Ordering::Acquire) != epoch {
                continue;
            }
            if let Some(buf) = self.insert_read(&pieces, content?, epoch)? {
                return Ok(buf);
            }
        }
    }

    fn read_verified(&self, pieces: &Pieces, kinds: &[BufKind], owner: Owner) -> Result<Content> {
        let daddr = pieces[0].daddr;
        let bytes = self.read_pieces(pieces)?;
        let labelled = self.geo.has_crc();
        let kind = match labelled {
            true => BufKind::identify(&bytes, kinds),
            false => v4::identify(&bytes, kinds),
        };
        let Some(kind) = kind else {
            let start: Vec<String> = bytes[..16].iter().map(|b| format!("{b:02x}")).collect();
            let problem = format!("wrong magic number (starts {})", start.concat());
            return Err(Error::corrupt(
                kinds[0].name(),
                Place::Device(daddr),
                Check::Magic,
                problem,
            ));
        };
        if labelled && !verify::checksum_matches(&bytes, kind) {
            let problem = "checksum does not match";
            return Err(Error::corrupt(
                kind.name(),
                Place::Device(daddr),
                Check::Checksum,
                problem,
            ));
        }
        let bytes = if labelled { bytes } else { v4::lift(bytes, kind) };
        verify::check(&bytes, kind, daddr, &self.geo)?;
        self.check_owner(&bytes, kind, daddr, owner)?;
        Ok(Content { kind, bytes, log: BufLog::default() })
    }

    /// Checks that the buffer belongs to `owner`, if its kind stores an owner.
    fn check_owner(&self, bytes: &[u8], kind: BufKind, daddr: Daddr, owner: Owner) -> Result<()> {
        if self.geo.has_crc() {
            verify::check_owner(bytes, kind, daddr, owner)?;
        }
        Ok(())
    }

    fn lookup(&self, pieces: &Pieces) -> Option<BufRef> {
        let shard = self.shard(pieces[0].daddr).lock();
        let buf = shard.get(&pieces[0].daddr.0)?;
        // A stale buffer of another length at the same address is not the one asked for.
        if buf.pieces != *pieces {
            return None;
        }
        buf.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(buf))
    }

    fn read_pieces(&self, pieces: &Pieces) -> Result<Box<[u8]>> {
        let len: usize = pieces.iter().map(|p| p.len as usize).sum();
        let mut bytes = vec![0; len].into_boxed_slice();
        let mut at = 0;
        for piece in pieces {
            let end = at + piece.len as usize;
            self.dev
                .read_at(piece.daddr.bytes(), &mut bytes[at..end])
                .map_err(|source| Error::Io { what: "reading", daddr: piece.daddr, source })?;
            at = end;
        }
        Ok(bytes)
    }

    /// Creates a buffer of `kind`, all zeroes, for blocks that were just allocated. Also returns
    /// the old buffer at that address, if there is one: if the allocation is cancelled, it is
    /// restored ([`Cache::put_back`]), otherwise it is dropped.
    pub(crate) fn make(&self, pieces: Pieces, kind: BufKind) -> (BufRef, Option<BufRef>) {
        let len: usize = pieces.iter().map(|p| p.len as usize).sum();
        let bytes = vec![0; len].into_boxed_slice();
        let buf = Buf::new(pieces, Content { kind, bytes, log: BufLog::default() });
        let old = self.shard(buf.daddr()).lock().insert(buf.daddr().0, Arc::clone(&buf));
        if let Some(old) = &old {
            self.bytes.fetch_sub(old.len, Ordering::Relaxed);
        }
        self.count_in(&buf);
        (buf, old)
    }

    /// Adds contents that were read since `epoch`. Returns `None` if the caller has to look the
    /// buffer up again, because another thread was faster and may have changed it since.
    fn insert_read(&self, pieces: &Pieces, content: Content, epoch: u64) -> Result<Option<BufRef>> {
        let buf = Buf::new(pieces.clone(), content);
        let key = buf.daddr().0;
        let mut shard = self.shard(buf.daddr()).lock();
        if self.epoch.load(Ordering::Acquire) != epoch {
            return Ok(None);
        }
        if let Some(there) = shard.get(&key) {
            if there.pieces == *pieces {
                return Ok(None);
            }
            if there.holder.load(Ordering::Acquire) != 0 || there.dirty.load(Ordering::Acquire) {
                return Err(
                    buf.corrupt(Check::Overlap, "overlaps another structure that was just changed")
                );
            }
            self.bytes.fetch_sub(there.len, Ordering::Relaxed);
        }
        shard.insert(key, Arc::clone(&buf));
        drop(shard);
        self.count_in(&buf);
        Ok(Some(buf))
    }

    /// Restores a buffer that [`Cache::make`] removed.
    pub(crate) fn put_back(&self, buf: BufRef) {
        self.bytes.fetch_add(buf.len, Ordering::Relaxed);
        let old = self.shard(buf.daddr()).lock().insert(buf.daddr().0, buf);
        debug_assert!(old.is_none(), "the cancelled buffer was forgotten before");
    }

    /// Counts a new buffer, and evicts some if there are too many.
    fn count_in(&self, buf: &BufRef) {
        let total = self.bytes.fetch_add(buf.len, Ordering::Relaxed) + buf.len;
        if total > self.limit.saturating_add(self.dirty_bytes()) {
            self.evict(self.shard(buf.daddr()));
        }
    }

    /// Evicts clean, unused buffers of a shard, giving each a second chance.
    fn evict(&self, shard: &Mutex<FxHashMap<u64, BufRef>>) {
        let mut freed = 0;
        shard.lock().retain(|_, buf| {
            let keep = Arc::strong_count(buf) > 1
                || buf.dirty.load(Ordering::Relaxed)
                || buf.used.swap(false, Ordering::Relaxed);
            if !keep {
                freed += buf.len;
            }
            keep
        });
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Evicts unused clean buffers above the limit, after many were written in place.
    pub(crate) fn shrink(&self) {
        // The first pass uses up the second chances.
        for shard in self.shards.iter().chain(&self.shards) {
            if self.bytes() <= self.limit.saturating_add(self.dirty_bytes()) {
                return;
            }
            self.evict(shard);
        }
    }

    /// Adds a buffer with a committed change to the dirty set.
    pub(crate) fn mark_dirty(&self, buf: &BufRef) {
        if !buf.dirty.swap(true, Ordering::AcqRel) {
            self.dirty_bytes.fetch_add(buf.len, Ordering::Relaxed);
            self.dirty.lock().insert(buf.daddr().0, Arc::clone(buf));
        }
    }

    /// Removes a buffer from the dirty set: it was written, or never will be.
    pub(crate) fn clean(&self, buf: &BufRef) {
        if buf.dirty.swap(false, Ordering::AcqRel) {
            self.epoch.fetch_add(1, Ordering::AcqRel);
            self.dirty_bytes.fetch_sub(buf.len, Ordering::Relaxed);
            let mut dirty = self.dirty.lock();
            if dirty.get(&buf.daddr().0).is_some_and(|b| Arc::ptr_eq(b, buf)) {
                dirty.remove(&buf.daddr().0);
            }
        }
    }

    /// Removes a buffer whose blocks were freed: it is never written again.
    pub(crate) fn forget(&self, buf: &BufRef) {
        let mut shard = self.shard(buf.daddr()).lock();
        if shard.get(&buf.daddr().0).is_some_and(|b| Arc::ptr_eq(b, buf)) {
            shard.remove(&buf.daddr().0);
            self.bytes.fetch_sub(buf.len, Ordering::Relaxed);
        }
        drop(shard);
        self.clean(buf);
    }

    /// The cached buffer that begins at `daddr`, of any kind.
    pub(crate) fn cached_at(&self, daddr: Daddr) -> Option<BufRef> {
        self.shard(daddr).lock().get(&daddr.0).cloned()
    }

    /// All cached buffers.
    pub(crate) fn all(&self) -> Vec<BufRef> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Writes the dirty buffers that no open transaction holds, in ascending order, adjacent ones
    /// in one write. The caller has closed the gate.
    ///
    /// # Errors
    /// The first failed write or check; what was not written stays dirty.
    pub fn write_back(&self) -> Result<()> {
        let batch: Vec<BufRef> = self.dirty.lock().values().cloned().collect();
        let mut run = Run::default();
        let mut written = Vec::with_capacity(batch.len());
        for buf in &batch {
            let mut content = buf.content.write();
            if buf.holder.load(Ordering::Acquire) != 0 || !buf.dirty.load(Ordering::Acquire) {
                continue;
            }
            let kind = content.kind;
            verify::check(&content.bytes, kind, buf.daddr(), &self.geo)?;
            verify::stamp_checksum(&mut content.bytes, kind);
            let mut at = 0;
            for piece in &buf.pieces {
                let end = at + piece.len as usize;
                run.add(&*self.dev, piece.daddr, &content.bytes[at..end])?;
                at = end;
            }
            written.push(buf);
        }
        run.put(&*self.dev)?;
        // Only now: a clean buffer may be evicted and read again, so it must be on the device
        // before.
        for buf in written {
            self.clean(buf);
        }
        Ok(())
    }
}

/// Adjacent pieces collected for one write.
#[derive(Default)]
pub(crate) struct Run {
    start: u64,
    bytes: Vec<u8>,
}

const RUN_MAX: usize = 1 << 20;

impl Run {
    pub(crate) fn add(&mut self, dev: &dyn BlockDev, daddr: Daddr, piece: &[u8]) -> Result<()> {
        let follows = self.start + self.bytes.len() as u64 == daddr.bytes();
        if !follows || self.bytes.len() + piece.len() > RUN_MAX {
            self.put(dev)?;
            self.start = daddr.bytes();
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    pub(crate) fn put(&mut self, dev: &dyn BlockDev) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = dev.write_at(self.start, &self.bytes);
        self.bytes.clear();
        written.map_err(|source| Error::Io {
            what: "writing",
            daddr: Daddr(self.start >> 9),
            source,
        })
    }
}
