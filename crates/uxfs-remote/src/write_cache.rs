//! Blocks of a volume in a store that were changed on this machine, on its disk: the device of a writer from
//! afar, below the shipper.
//!
//! Two files: the blocks, each at its own place in a sparse file as long as the image; and a map,
//! in which a bit says for each block that it counts. All other blocks are those of a checkpoint in
//! the store.
//!
//! 1. The cache belongs to one writer and its successors on this machine. Blocks without a bit are
//!    the same in every checkpoint of these writers from the one on that is read, so a later one
//!    may be read instead.
//! 2. A bit is on stable storage only after its block is. So after a power cut a block is as it was written
//!    at some moment since the last flush, or at it; never something else.
//! 3. A bit is taken away only when the store has the block as it is, and a checkpoint that has it
//!    is being read. Its room is given back only after that is on stable storage. Never is an
//!    earlier checkpoint read afterwards.
//!
//! Used by [`crate::hold`] and by the shipper of a held volume.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use uxfs_delta::Manifest;
use uxfs_disk::{BlockDev, FileDev, OpenMode};

use crate::bits::Bits;
use crate::cache_head::{CacheHead, HEADS_LEN, bytes_of, words_of};
use crate::fault::{Fault, planted};
use crate::{CacheOptions, Checkpoint, Remote, RemoteDev, Result};

const BLOCK: u64 = crate::publisher::BLOCK as u64;

/// Bytes of the map that are written at once, and the words in them.
const PAGE: u64 = 4096;
const PAGE_WORDS: usize = PAGE as usize / 8;

/// The files of a write cache.
#[derive(Clone)]
pub struct CacheFiles {
    /// As long as the image.
    pub blocks: Arc<dyn BlockDev>,
    /// [`CacheFiles::map_len`] bytes.
    pub map: Arc<dyn BlockDev>,
}

impl CacheFiles {
    /// Bytes of the map of an image of so many bytes.
    pub fn map_len(image_len: u64) -> u64 {
        HEADS_LEN + image_len.div_ceil(BLOCK).div_ceil(8).next_multiple_of(PAGE)
    }

    /// The cache in a directory, for an image of so many bytes; it is made if it is missing.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] if another process uses it; [`io::ErrorKind::InvalidData`] if it is another
    /// volume's, or only its map is left; those of the host.
    pub fn in_dir(dir: &Path, image_len: u64) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let is_there =
            |name: &str| std::fs::metadata(dir.join(name)).is_ok_and(|meta| meta.len() > 0);
        let open = |name: &str, len: u64| -> io::Result<Arc<dyn BlockDev>> {
            let path = dir.join(name);
            let mode = if is_there(name) { OpenMode::Write } else { OpenMode::Create(len) };
            let file = FileDev::open(&path, mode)?;
            if file.len() != len {
                let text = "has another length than the volume: it belongs to another one";
                return Err(wrong(format!("{} {text}", path.display())));
            }
            Ok(Arc::new(file))
        };
        let map = open("map", Self::map_len(image_len))?;
        if !is_there("blocks") && bits_in(&*map, image_len)?.count() > 0 {
            // New blocks are zeroes, which the map would take for what was written.
            let text = "is missing, and the map beside it says that it held changes: put it back, or remove the \
                        directory to go on without them";
            return Err(wrong(format!("{} {text}", dir.join("blocks").display())));
        }
        let blocks = open("blocks", image_len)?;
        uxfs_host::sync_dir(dir)?;
        Ok(Self { blocks, map })
    }
}

/// Where the next blocks are looked for whose room can be given back.
type Hand = u64;

pub(crate) struct WriteCache {
    files: CacheFiles,
    remote: Arc<Remote>,
    writer: [u8; 16],
    reading: CacheOptions,
    /// Bytes of blocks from which on room is given back.
    most: u64,
    base: RwLock<Arc<RemoteDev>>,
    present: Bits,
    /// Pages of the map in which bits changed.
    unsaved: Mutex<BTreeSet<u64>>,
    /// Held while the map is written.
    saving: Mutex<Hand>,
    /// Held for reading while a block is used; for writing while blocks are given back.
    gate: RwLock<()>,
    /// Held while a block is written for the first time.
    filling: Mutex<()>,
}

/// The bits of a map.
pub(crate) fn bits_of(files: &CacheFiles) -> io::Result<Bits> {
    bits_in(&*files.map, files.blocks.len())
}

fn bits_in(map: &dyn BlockDev, image_len: u64) -> io::Result<Bits> {
    let blocks = image_len.div_ceil(BLOCK);
    let mut bytes = vec![0; blocks.div_ceil(64) as usize * 8];
    map.read_at(HEADS_LEN, &mut bytes)?;
    let bits = Bits::new(blocks);
    bits.put(&words_of(&bytes));
    Ok(bits)
}

/// Empties a cache, durably. Its head stays as it is.
pub(crate) fn empty(files: &CacheFiles) -> io::Result<()> {
    files.map.zero(HEADS_LEN, files.map.len() - HEADS_LEN)?;
    files.map.flush()?;
    files.blocks.discard(0, files.blocks.len());
    Ok(())
}

/// Enters a writer into the head of a cache, durably.
pub(crate) fn enter(files: &CacheFiles, head: &mut CacheHead, writer: [u8; 16]) -> io::Result<()> {
    head.enter(writer);
    head.write(&*files.map)
}

impl WriteCache {
    /// The cache of a writer that holds the volume, over a checkpoint of it.
    pub(crate) fn new(
        files: CacheFiles,
        present: Bits,
        remote: Arc<Remote>,
        writer: [u8; 16],
        base: Arc<Checkpoint>,
        (reading, most): (CacheOptions, u64),
    ) -> Self {
        Self {
            base: RwLock::new(Arc::new(RemoteDev::new(base, reading.clone()))),
            files,
            remote,
            writer,
            reading,
            most,
            present,
            unsaved: Mutex::default(),
            saving: Mutex::default(),
            gate: RwLock::default(),
            filling: Mutex::default(),
        }
    }

    /// The runs of blocks that are in the cache.
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        self.present.runs()
    }

    /// Forgets all blocks. Nothing reads or writes the device any more, and the store has what it holds.
    pub(crate) fn empty(&self) -> io::Result<()> {
        empty(&self.files)
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn base(&self) -> Arc<RemoteDev> {
        Arc::clone(&self.base.read())
    }

    fn read_base(&self, at: u64, part: &mut [u8]) -> io::Result<()> {
        let mut base = self.base();
        loop {
            match base.read_at(at, part) {
                // The checkpoint was removed, as old ones are. A later one has the same blocks.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let tried = number_of(&base);
                    // Perhaps another reader has moved on meanwhile.
                    if self.move_base()? <= tried {
                        return Err(error);
                    }
                    base = self.base();
                }
                other => return other,
            }
        }
    }

    /// Reads from the last checkpoint from now on, unless it is another writer's. Returns the
    /// number of the one that is read.
    fn move_base(&self) -> Result<u64> {
        let read = number_of(&self.base());
        let newest = self.remote.newest()?.map(|(newest, _)| newest);
        let later = |newest: &Manifest| newest.writer == self.writer && newest.number > read;
        let Some(newest) = newest.filter(later) else { return Ok(number_of(&self.base())) };
        let checkpoint = Checkpoint::open(Arc::clone(&self.remote), newest)?;
        let later = Arc::new(RemoteDev::new(checkpoint, self.reading.clone()));
        let mut base = self.base.write();
        // Another thread may have found a later one, in which blocks are that were given back since.
        if number_of(&base) < number_of(&later) {
            *base = later;
        }
        Ok(number_of(&base))
    }

    /// Is a block written only in part by a write to `offset..end`?
    fn is_partial(&self, block: u64, offset: u64, end: u64) -> bool {
        let (from, to) = (block * BLOCK, ((block + 1) * BLOCK).min(self.len()));
        offset > from || end < to
    }

    /// The present content of blocks that are not in the cache and will be written in part.
    fn fills(
        &self,
        touched: &RangeInclusive<u64>,
        offset: u64,
        end: u64,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let edges = BTreeSet::from([*touched.start(), *touched.end()]);
        let wanted =
            |block: &u64| self.is_partial(*block, offset, end) && !self.present.has(*block);
        let fill = |block: u64| {
            let at = block * BLOCK;
            let mut content = vec![0; (self.len() - at).min(BLOCK) as usize];
            self.read_base(at, &mut content)?;
            Ok((block, content))
        };
        edges.into_iter().filter(wanted).map(fill).collect()
    }

    fn write(
        &self,
        offset: u64,
        len: u64,
        put: impl Fn(&dyn BlockDev) -> io::Result<()>,
    ) -> io::Result<()> {
        self.check(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let end = offset + len;
        let touched = offset / BLOCK..=(end - 1) / BLOCK;
        loop {
            // What is fetched is fetched without a lock.
            let fills = self.fills(&touched, offset, end)?;
            let _used = self.gate.read();
            if touched.clone().all(|block| self.present.has(block)) {
                return put(&*self.files.blocks);
            }
            let _filling = self.filling.lock();
            let is_filled = |block: u64| fills.iter().any(|(filled, _)| *filled == block);
            let lacks = |block: u64| {
                self.is_partial(block, offset, end) && !self.present.has(block) && !is_filled(block)
            };
            if touched.clone().any(lacks) {
                // It was given back since.
                continue;
            }
            for (block, content) in &fills {
                if !self.present.has(*block) {
                    self.files.blocks.write_at(block * BLOCK, content)?;
                }
            }
            put(&*self.files.blocks)?;
            let new: BTreeSet<u64> =
                touched.filter(|block| self.present.set(*block)).map(page_of).collect();
            self.unsaved.lock().extend(new);
            return Ok(());
        }
    }

    /// Makes all blocks durable, then the bits that changed.
    fn save(&self, _saving: &Hand) -> io::Result<()> {
        let pages = std::mem::take(&mut *self.unsaved.lock());
        // The bits of blocks that are written from now on are not among these.
        let words: Vec<Vec<u64>> = pages
            .iter()
            .map(|page| self.present.words(*page as usize * PAGE_WORDS, PAGE_WORDS))
            .collect();
        let mut saved = Ok(());
        if !planted(Fault::MapFirst) {
            saved = self.files.blocks.flush();
        }
        if !pages.is_empty() {
            saved = saved.and_then(|()| self.write_pages(&pages, &words));
        }
        if planted(Fault::MapFirst) {
            saved = saved.and_then(|()| self.files.blocks.flush());
        }
        saved.inspect_err(|_| self.unsaved.lock().extend(&pages))
    }

    fn write_pages(&self, pages: &BTreeSet<u64>, words: &[Vec<u64>]) -> io::Result<()> {
        for (page, words) in pages.iter().zip(words) {
            self.files.map.write_at(HEADS_LEN + page * PAGE, &bytes_of(words))?;
        }
        self.files.map.flush()
    }

    /// Gives the room of blocks back that the store has as they are, if there are too many. `last` is the
    /// writer's last checkpoint.
    ///
    /// # Errors
    /// Those of the store and of the disk. Every block is then still there, or read from the store.
    pub(crate) fn shrink(&self, last: u64, is_pending: impl Fn(u64) -> bool) -> Result<()> {
        if self.present.count() * BLOCK <= self.most {
            return Ok(());
        }
        // Only the last checkpoint has all that was shipped. If another writer has put one since, an earlier
        // one is read.
        if self.move_base()? < last {
            return Ok(());
        }
        let mut hand = self.saving.lock();
        let given = self.take_away(&mut hand, is_pending);
        self.save(&hand).map_err(crate::Error::Image)?;
        let _unused = self.gate.write();
        for block in given.into_iter().filter(|block| !self.present.has(*block)) {
            self.files.blocks.discard(block * BLOCK, BLOCK.min(self.len() - block * BLOCK));
        }
        Ok(())
    }

    /// Takes the bits of blocks away until half of the room is used, from the hand on.
    fn take_away(&self, hand: &mut Hand, is_pending: impl Fn(u64) -> bool) -> Vec<u64> {
        let _unused = self.gate.write();
        let mut given = Vec::new();
        let mut rounds = 0;
        while self.present.count() * BLOCK > self.most / 2 && rounds < 2 {
            let Some(block) = self.present.next(*hand) else {
                (*hand, rounds) = (0, rounds + 1);
                continue;
            };
            *hand = block + 1;
            if !is_pending(block) || planted(Fault::GivenBackEarly) {
                self.present.clear(block);
                given.push(block);
            }
        }
        self.unsaved.lock().extend(given.iter().map(|block| page_of(*block)));
        given
    }
}

fn number_of(base: &RemoteDev) -> u64 {
    base.checkpoint().manifest().number
}

/// The page of the map that holds the bit of a block.
fn page_of(block: u64) -> u64 {
    block / (8 * PAGE)
}

impl BlockDev for WriteCache {
    uxfs_disk::emulate!(write_fua_at);
    uxfs_disk::without!(has_fua, will_write_bulk, read_only, sector_size, lengthen, as_file);
    uxfs_disk::forward!(self => self.files.blocks; len, allocate, check_present, warning);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let (mut at, end) = (offset, offset + buf.len() as u64);
        while at < end {
            let used = self.gate.read();
            let first = at / BLOCK;
            let is_present = self.present.has(first);
            let last = end.div_ceil(BLOCK);
            let next = (first..last).find(|block| self.present.has(*block) != is_present);
            let to = next.map_or(end, |next| next * BLOCK).min(end);
            let part = &mut buf[(at - offset) as usize..(to - offset) as usize];
            if is_present {
                self.files.blocks.read_at(at, part)?;
            } else {
                drop(used);
                self.read_base(at, part)?;
            }
            at = to;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data.len() as u64, |blocks| blocks.write_at(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.write(offset, len, |blocks| blocks.write_vectored_at(offset, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data.len() as u64, |blocks| blocks.write_bulk_at(offset, data))
    }

    fn flush(&self) -> io::Result<()> {
        self.save(&self.saving.lock())
    }

    fn discard(&self, offset: u64, len: u64) {
        // A hint: what is not discarded stays as it is.
        let _ = self.write(offset, len, |blocks| {
            blocks.discard(offset, len);
            Ok(())
        });
    }

    fn will_read(&self, _offset: u64, _len: u64) {
        // What comes from the store is fetched in windows that grow by themselves.
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write(offset, len, |blocks| blocks.zero(offset, len))
    }
}
