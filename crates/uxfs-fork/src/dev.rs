//! A child as a device.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use uxfs_disk::{BlockDev, FileDev, OpenMode};

use crate::base::Base;
use crate::chunks::Chunks;
use crate::deltas::{self, Content, Page, Tail};
use crate::head::{Head, State};
use crate::{BLOCK, damaged};

/// Bytes of changes in memory at which the device flushes by itself.
const DIRTY_MAX: usize = 64 << 20;

/// A child of a base.
pub struct ForkDev {
    file: FileDev,
    base: Arc<dyn BlockDev>,
    len: u64,
    chunks: Chunks,
    blocks: RwLock<Blocks>,
    tail: Mutex<Tail>,
}

/// What differs from the base.
struct Blocks {
    /// Changed since the last flush began.
    dirty: BTreeMap<u64, Page>,
    /// Changed before, and being appended.
    flushing: Arc<BTreeMap<u64, Page>>,
    content: Content,
}

impl Blocks {
    fn in_memory(&self, block: u64) -> Option<&Page> {
        self.dirty.get(&block).or_else(|| self.flushing.get(&block))
    }
}

/// Makes a child of the disk `base`, whose file is at `base_path`, in the new file `path`. A `base_path` with
/// `://` is the address of a disk that never changes.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is a file; those of the host.
pub fn create(path: &Path, base_path: &Path, base: &dyn BlockDev) -> io::Result<()> {
    let identity = Base::of(base_path, uxfs_host::dir_of(path), base)?;
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(|error| io::Error::other(error.to_string()))?;
    let head = Head { state: State::InUse, number: 0, start: 0, durable: 0, name, base: identity };
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let made =
        deltas::make(&file, head).and_then(|()| uxfs_host::sync_dir(uxfs_host::dir_of(path)));
    if made.is_err() {
        // The first error is reported.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Gives a child another file as its base, whose disk has the same content.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if length or first bytes differ; those of the host.
pub fn rebase(path: &Path, base_path: &Path, base: &dyn BlockDev) -> io::Result<()> {
    let fork = FileDev::open(path, OpenMode::Write)?;
    let file = file_of(&fork)?;
    let mut head = Head::read(file)?;
    refuse_committing(&head)?;
    let identity = Base::of(base_path, uxfs_host::dir_of(path), base)?;
    if identity.len != head.base.len || identity.head != head.base.head {
        let text = "is not the base that the fork was made of: its length or superblock differ";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    head.base = identity;
    head.write(file)
}

/// The base of the child at `path`: its path on this machine, or its address.
///
/// # Errors
/// If the file is not a fork; those of the host.
pub fn base_of(path: &Path) -> io::Result<PathBuf> {
    Ok(Head::read(&File::open(path)?)?.base.found_from(uxfs_host::dir_of(path)))
}

fn file_of(dev: &FileDev) -> io::Result<&File> {
    dev.as_file().ok_or_else(|| damaged("it is not in a file"))
}

fn refuse_committing(head: &Head) -> io::Result<()> {
    match head.state {
        State::InUse => Ok(()),
        State::Committing => {
            let text = "its commit was interrupted: run uxfs commit again";
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

/// A child's file, its base, and what is in the file.
pub(crate) struct Opened {
    pub(crate) base_path: PathBuf,
    pub(crate) content: Content,
    pub(crate) tail: Tail,
}

/// Reads the file of the child at `path`.
pub(crate) fn open_file(file: &File, path: &Path) -> io::Result<Opened> {
    let head = Head::read(file)?;
    let base_path = head.base.found_from(uxfs_host::dir_of(path));
    let (content, tail) = deltas::find(file, head)?;
    Ok(Opened { base_path, content, tail })
}

/// The blocks in which the child at `path` may differ from its base, ascending, as runs of first block and
/// number of blocks. A child that a process writes to is refused.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the file is damaged; those of the host.
pub fn changes(path: &Path) -> io::Result<Vec<(u64, u64)>> {
    let dev = FileDev::open(path, OpenMode::Read)?;
    let content = open_file(file_of(&dev)?, path)?.content;
    Ok(content.map.runs().map(|(first, count, _)| (first, count)).collect())
}

impl ForkDev {
    /// Opens the child in `file`, which was opened at `path`. `open_base` opens the base for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is damaged, or the base is not what it was;
    /// [`io::ErrorKind::NotFound`] if there is no base; those of the host.
    pub fn open(
        file: FileDev,
        path: &Path,
        open_base: &dyn Fn(&Path) -> io::Result<Arc<dyn BlockDev>>,
    ) -> io::Result<Self> {
        let Opened { base_path, content, tail } = open_file(file_of(&file)?, path)?;
        refuse_committing(&tail.head)?;
        let base = open_base(&base_path).map_err(|error| {
            io::Error::new(error.kind(), format!("its base {}: {error}", base_path.display()))
        })?;
        tail.head.base.check(&base_path, &*base)?;
        if !file.read_only() {
            // A power cut may have left the beginning of a delta.
            file_of(&file)?.set_len(tail.end())?;
        }
        let len = base.len();
        let flushing = Arc::default();
        let blocks = RwLock::new(Blocks { dirty: BTreeMap::new(), flushing, content });
        Ok(Self { file, base, len, chunks: Chunks::default(), blocks, tail: Mutex::new(tail) })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read_locked(&self, blocks: &Blocks, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = file_of(&self.file)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (block, skip) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let take = (BLOCK - skip).min(buf.len() - done);
            let part = &mut buf[done..done + take];
            match (blocks.in_memory(block), blocks.content.map.get(block)) {
                (Some(Some(data)), _) => part.copy_from_slice(&data[skip..skip + take]),
                (Some(None), _) => part.fill(0),
                (None, Some(source)) => {
                    blocks.content.read(file, &self.chunks, source, skip, part)?;
                }
                (None, None) => {
                    // Everything up to the next changed block is read from the base at once.
                    let next = [
                        blocks.dirty.range(block..).next().map(|(next, _)| *next),
                        blocks.flushing.range(block..).next().map(|(next, _)| *next),
                        blocks.content.map.next(block),
                    ];
                    let next = next.into_iter().flatten().min().unwrap_or(u64::MAX);
                    let until = next.saturating_mul(BLOCK as u64) - at;
                    let take = (buf.len() - done).min(usize::try_from(until).unwrap_or(usize::MAX));
                    self.base.read_at(at, &mut buf[done..done + take])?;
                    done += take;
                    continue;
                }
            }
            done += take;
        }
        Ok(())
    }

    /// A block as it is. Behind the device's end it is zero.
    fn load(&self, blocks: &Blocks, block: u64) -> io::Result<Box<[u8; BLOCK]>> {
        let mut data = Box::new([0; BLOCK]);
        let at = block * BLOCK as u64;
        let len = (self.len - at).min(BLOCK as u64) as usize;
        self.read_locked(blocks, at, &mut data[..len])?;
        Ok(data)
    }

    /// Changes a range. `fill` gives each block's part its new content: the offset of the part in the range.
    fn change(
        &self,
        offset: u64,
        len: u64,
        mut fill: impl FnMut(u64, &mut [u8]),
        zeroes: bool,
    ) -> io::Result<()> {
        self.check(offset, len)?;
        if self.file.read_only() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let mut done = 0;
        while done < len {
            if self.blocks.read().dirty.len() * BLOCK >= DIRTY_MAX {
                self.flush()?;
            }
            let step = (len - done).min(1 << 20);
            // Room first: a change that was taken can be flushed.
            let new = (step / BLOCK as u64 + 2) as usize;
            {
                let mut tail = self.tail.lock();
                let held = self.blocks.read().dirty.len();
                tail.reserve(file_of(&self.file)?, held + new)?;
            }
            let mut blocks = self.blocks.write();
            let mut part = 0;
            while part < step {
                let at = offset + done + part;
                let (block, skip) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
                let take = ((BLOCK - skip) as u64).min(step - part) as usize;
                let whole = take == BLOCK;
                if whole && zeroes {
                    blocks.dirty.insert(block, None);
                } else {
                    let mut data = match blocks.dirty.remove(&block) {
                        Some(Some(data)) => data,
                        Some(None) => Box::new([0; BLOCK]),
                        None if whole => Box::new([0; BLOCK]),
                        None => self.load(&blocks, block)?,
                    };
                    fill(done + part, &mut data[skip..skip + take]);
                    blocks.dirty.insert(block, Some(data));
                }
                part += take as u64;
            }
            done += step;
        }
        Ok(())
    }
}

impl BlockDev for ForkDev {
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at);
    uxfs_disk::without!(has_fua, will_write_bulk, allocate, lengthen, as_file);

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.read_locked(&self.blocks.read(), offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let fill = |at: u64, part: &mut [u8]| {
            let at = at as usize;
            part.copy_from_slice(&data[at..at + part.len()]);
        };
        self.change(offset, data.len() as u64, fill, false)
    }

    fn flush(&self) -> io::Result<()> {
        if self.file.read_only() {
            return self.check_present();
        }
        let file = file_of(&self.file)?;
        let mut tail = self.tail.lock();
        let pages = {
            let mut blocks = self.blocks.write();
            if blocks.dirty.is_empty() {
                return Ok(());
            }
            blocks.flushing = Arc::new(std::mem::take(&mut blocks.dirty));
            Arc::clone(&blocks.flushing)
        };
        let appended = tail.append(file, pages.iter().map(|(block, page)| (*block, page)));
        let mut blocks = self.blocks.write();
        let flushed = std::mem::take(&mut blocks.flushing);
        drop(pages);
        match appended {
            Ok(layer) => blocks.content.push(layer),
            Err(error) => {
                // What was not appended stays changed.
                for (block, page) in Arc::unwrap_or_clone(flushed) {
                    blocks.dirty.entry(block).or_insert(page);
                }
                return Err(error);
            }
        }
        if let Some(content) = tail.rewrite_if_due(file, &blocks.content, &self.chunks)? {
            blocks.content = content;
        }
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) {
        // The base has its blocks in any case, and what a delta holds is given back by a rewrite.
    }

    fn will_read(&self, offset: u64, len: u64) {
        // Most of it is the base's.
        self.base.will_read(offset, len);
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(offset, len, |_, part| part.fill(0), true)
    }

    fn check_present(&self) -> io::Result<()> {
        self.base.check_present()
    }

    fn warning(&self) -> Option<String> {
        self.base.warning().map(|warning| format!("its base: {warning}"))
    }

    fn read_only(&self) -> bool {
        self.file.read_only()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }
}

impl Drop for ForkDev {
    fn drop(&mut self) {
        if self.file.read_only() {
            return;
        }
        // Who needs to know whether it succeeds has flushed before.
        if self.flush().is_ok()
            && let Ok(file) = file_of(&self.file)
        {
            let _ = self.tail.lock().close(file);
        }
    }
}
