//! A volume in a file or on a block device.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uxfs_host::{FileExt, is_block_device};

use crate::bulk::Bulk;
use crate::flusher::Flusher;
use crate::holes::{self, Holes};
use crate::lock::Locked;
use crate::presence::Presence;
use crate::{BlockDev, DIRECT_ALIGN, host, lock, storage, sys};

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only. Other readers may open the volume, writers may not.
    Read,
    /// Read and write. No other process may open the volume.
    Write,
    /// Like `Write`, but the file is created, or truncated, with this length in bytes. A block
    /// device keeps its own length.
    Create(u64),
}

/// A volume in a regular file or on a block device.
pub struct FileDev {
    file: Locked,
    len: AtomicU64,
    read_only: bool,
    regular: bool,
    sector: u32,
    /// The same file opened for direct I/O, if the host supports it; opened at first use.
    direct: OnceLock<Option<File>>,
    /// Bulk data of a regular file on its way to the disk.
    bulk: Bulk,
    flusher: Flusher,
    /// The holes of a sparse file that is open for writing.
    holes: Option<Holes>,
    presence: Presence,
}

/// May `data` be written at `offset` by direct I/O?
fn is_aligned(offset: u64, data: &[u8]) -> bool {
    offset.is_multiple_of(DIRECT_ALIGN as u64)
        && data.len().is_multiple_of(DIRECT_ALIGN)
        && data.as_ptr().addr().is_multiple_of(DIRECT_ALIGN)
}

impl FileDev {
    /// Opens `path` and locks it.
    ///
    /// # Errors
    /// The errors of opening; [`io::ErrorKind::ResourceBusy`] if another process has the volume
    /// open, or if it is opened for writing while the kernel has it mounted or otherwise in use.
    pub fn open(path: &Path, mode: OpenMode) -> io::Result<Self> {
        let write = mode != OpenMode::Read;
        let device = std::fs::metadata(path).is_ok_and(|meta| is_block_device(meta.file_type()));
        // On a block device O_EXCL is the kernel's own claim. A mount, or a device that contains
        // this one, holds the claim.
        let claim = write && device;
        let mut options = OpenOptions::new();
        options.read(true).write(write).create(matches!(mode, OpenMode::Create(_))).truncate(false);
        let file = lock::open(path, || storage::open(path, &mut options, claim))?;
        let file = Locked::new(file, write, path)?;
        if write {
            lock::refuse_mounted(&file)?;
        }
        let kind = file.metadata()?.file_type();
        if let OpenMode::Create(len) = mode
            && kind.is_file()
        {
            file.set_len(0)?;
            file.set_len(len)?;
        }
        // The metadata of a block device does not include its length; the seek position does.
        let len = (&*file).seek(SeekFrom::End(0))?;
        let (direct, bulk) = (OnceLock::new(), Bulk::default());
        let sector = if device { sys::sector_size(&file) } else { 512 };
        let regular = kind.is_file();
        let holes = if write && regular { Holes::of(&file, len) } else { None };
        let presence = Presence::new(regular, len);
        let len = AtomicU64::new(len);
        let flusher = Flusher::new(&file, write)?;
        Ok(Self {
            file,
            len,
            read_only: !write,
            regular,
            sector,
            direct,
            bulk,
            flusher,
            holes,
            presence,
        })
    }

    /// Fails if the kernel has the file or device mounted, directly or through a loop device. Opening for
    /// writing checks this itself; whoever copies a volume must know, too.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`], with the place of the mount.
    pub fn check_unmounted(&self) -> io::Result<()> {
        lock::refuse_mounted(&self.file)
    }

    fn direct(&self) -> Option<&File> {
        self.direct.get_or_init(|| sys::direct(&self.file)).as_ref()
    }

    /// Writes with `write`, then fills the hole around the written range if that pays.
    fn write_with(
        &self,
        offset: u64,
        len: usize,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.presence.check(&self.file)?;
        let Some(holes) = &self.holes else { return write() };
        let writing = holes.writing();
        write()?;
        drop(writing);
        holes.written(&self.file, || self.direct(), offset, len);
        Ok(())
    }

    /// Is it a regular file rather than a block device?
    pub fn is_regular(&self) -> bool {
        self.regular
    }
}

impl BlockDev for FileDev {
    crate::without!(will_write_bulk);

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn lengthen(&self, least: u64) -> io::Result<u64> {
        self.presence.check(&self.file)?;
        let mut now = (&*self.file).seek(SeekFrom::End(0))?;
        if now < least {
            if !self.regular {
                let text = format!("the device has {now} bytes, not {least}: lengthen it first");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            host::check_limit(least)?;
            self.file.set_len(least)?;
            now = least;
        }
        self.presence.grew(now);
        self.holes.iter().for_each(|holes| holes.grew(now));
        Ok(self.len.fetch_max(now, Ordering::AcqRel).max(now))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.presence.check_known()?;
        let read = self.file.read_exact_at(buf, offset);
        read.map_err(|error| self.presence.explain(&self.file, error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_with(offset, data.len(), || self.file.write_all_at(data, offset))
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.write_with(offset, len, || sys::write_pieces(&self.file, offset, pieces))
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.regular {
            self.write_at(offset, data)?;
            self.bulk.written(&self.file, offset, data.len());
            return Ok(());
        }
        if is_aligned(offset, data)
            && let Some(direct) = self.direct()
            && self.write_with(offset, data.len(), || direct.write_all_at(data, offset)).is_ok()
        {
            return Ok(());
        }
        // Direct I/O failed; an ordinary write reports the definitive result.
        self.write_at(offset, data)
    }

    fn has_fua(&self) -> bool {
        sys::HAS_FUA
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.flusher.check()?;
        // The host forces out only these bytes, not all dirty pages in its page cache.
        self.write_with(offset, data.len(), || sys::write_forced(&self.file, offset, data))?;
        self.holes.iter().for_each(Holes::flushed);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flusher.flush(self.read_only)?;
        self.presence.check(&self.file)?;
        self.holes.iter().for_each(Holes::flushed);
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            uxfs_host::will_need(&self.file, offset, len);
        }
    }

    fn discard(&self, offset: u64, len: u64) {
        self.holes.iter().for_each(|holes| holes.punched(offset, len));
        // Only a hint: if the host cannot punch holes, nothing is lost.
        let _ = sys::punch(&self.file, offset, len);
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.presence.check(&self.file)?;
        self.holes.iter().for_each(|holes| holes.punched(offset, len));
        if self.regular && sys::punch(&self.file, offset, len).is_ok() {
            return Ok(());
        }
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(zeroes.len() as u64) as usize;
            self.file.write_all_at(&zeroes[..piece], offset + done)?;
            done += piece as u64;
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.regular || len == 0 {
            return Ok(());
        }
        self.presence.check(&self.file)?;
        host::check_limit(offset + len)?;
        if sys::reserve(&self.file, offset, len)? {
            return Ok(());
        }
        // The host has no call for it: allocate by writing zeroes into the holes.
        holes::fill_all(&self.file, offset, offset + len)
    }

    fn check_present(&self) -> io::Result<()> {
        self.presence.check(&self.file).map(|_| ())
    }

    fn warning(&self) -> Option<String> {
        self.presence.warning(&self.file)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn sector_size(&self) -> u32 {
        self.sector
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_and_readers_share() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let first = FileDev::open(&path, OpenMode::Create(1 << 20)).unwrap();
        let second = FileDev::open(&path, OpenMode::Write).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        drop(first);
        let _one = FileDev::open(&path, OpenMode::Read).unwrap();
        let _two = FileDev::open(&path, OpenMode::Read).unwrap();
        assert!(FileDev::open(&path, OpenMode::Write).is_err());
    }

    // Only children of Unix programs hold their parent's open files until exec.
    #[cfg(unix)]
    #[test]
    fn a_closed_file_can_be_reopened_while_programs_are_started() {
        use std::process::Command;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::Duration;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            let opened = (0..500).try_for_each(|_| {
                let dev = FileDev::open(&path, OpenMode::Create(1 << 20))?;
                std::thread::sleep(Duration::from_micros(200));
                drop(dev);
                io::Result::Ok(())
            });
            over.store(true, Ordering::Relaxed);
            opened.unwrap();
        });
    }

    #[test]
    fn a_file_is_lengthened_or_its_new_length_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("grown.img");
        let dev = FileDev::open(&path, OpenMode::Create(4 << 20)).unwrap();
        dev.write_at((4 << 20) - 4096, &[1; 4096]).unwrap();
        assert_eq!(dev.lengthen(0).unwrap(), 4 << 20);
        assert_eq!((dev.lengthen(6 << 20).unwrap(), dev.len()), (6 << 20, 6 << 20));
        // Shorter is no change.
        assert_eq!(dev.lengthen(5 << 20).unwrap(), 6 << 20);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        assert_eq!((dev.len(), dev.lengthen(0).unwrap(), dev.len()), (6 << 20, 8 << 20, 8 << 20));
        dev.write_at((8 << 20) - 512, &[2; 512]).unwrap();
        // The new length is the one that must stay.
        file.set_len(7 << 20).unwrap();
        assert!(host::is_lost(&dev.write_at(0, &[3; 512]).unwrap_err()));
        assert!(host::is_lost(&dev.lengthen(9 << 20).unwrap_err()));
        assert_eq!(file.metadata().unwrap().len(), 7 << 20);
    }

    #[test]
    fn vectored_writes_are_contiguous() {
        let dir = tempfile::tempdir().unwrap();
        let dev = FileDev::open(&dir.path().join("v.img"), OpenMode::Create(1 << 16)).unwrap();
        let pieces: Vec<Vec<u8>> = (0..1000).map(|i| vec![i as u8; 1 + i % 50]).collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
        dev.write_vectored_at(100, &slices).unwrap();
        let all = pieces.concat();
        let mut back = vec![0; all.len()];
        dev.read_at(100, &mut back).unwrap();
        assert_eq!(back, all);
        dev.write_fua_at(40_000, &all[..9000]).unwrap();
        let mut forced = vec![0; 9000];
        dev.read_at(40_000, &mut forced).unwrap();
        assert_eq!(forced, all[..9000]);
        dev.zero(100, 50).unwrap();
        dev.read_at(100, &mut back[..60]).unwrap();
        assert!(back[..50].iter().all(|b| *b == 0));
        assert_eq!(back[50..60], all[50..60]);
    }
}
