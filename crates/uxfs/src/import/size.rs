//! Computes the size of a new image that is to hold a tree.
//!
//! 1. The result is that of reading the source once, from beginning to end. A large archive in a file is read
//!    by two threads, each its half; if the halves do not meet, one thread reads all of it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use uxfs_archive::{Entry, Kind, Source};

use super::error::ImportError;
use super::limit::unpack_limit;
use super::options::ImportOptions;
use super::origin::Origin;
use super::tree::is_whiteout;
use crate::volume;

/// Space to leave free in an image whose size is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// This many percent of what the tree takes.
    Percent(u32),
    /// This many bytes.
    Bytes(u64),
}

impl Default for Headroom {
    fn default() -> Self {
        Self::Percent(10)
    }
}

/// The smallest volume that mkfs creates.
const SMALLEST: u64 = 300 << 20;
/// Log and headers of a volume of that size, and blocks reserved for the free-space trees.
const FIXED: u64 = 72 << 20;

/// Bytes of an archive that two threads read.
const HALVES_LEAST: u64 = 32 << 20;

/// What a SELinux label may take, with its name and what it displaces from the inode.
const LABEL: u64 = 160;

/// The size of the image in bytes: as requested, or computed by reading the source once.
pub(super) fn of_image(options: &ImportOptions, origin: &mut Origin) -> Result<u64, ImportError> {
    if let Some(size) = options.size {
        return Ok(size);
    }
    if let Some(len) = fixed(options)? {
        return Ok(len);
    }
    let mut free = host_room(&options.image);
    if let Ok(meta) = std::fs::metadata(&options.image) {
        // The existing file is going to be overwritten.
        free = free.saturating_add(uxfs_host::Stat::of(&meta).stored);
    }
    if let Some(name) = origin.stream() {
        let problem = format!("{name} can be read only once: give --size");
        return Err(ImportError::Usage(problem));
    }
    let mut measure = Measure {
        block: u64::from(options.mkfs.block_size.unwrap_or(4096)),
        inode: u64::from(options.mkfs.inode.size.unwrap_or(512)),
        label: options.labels.as_ref().map_or(0, |_| LABEL),
        total: 0,
        data: 0,
        free,
    };
    for number in 0..origin.len() {
        if !measure.add(origin.open(number)?, HALVES_LEAST)? {
            origin.note_no_whiteouts(number);
        }
    }
    let needed = measure.needed();
    let headroom = match options.headroom {
        Headroom::Percent(percent) => (needed / 100).saturating_mul(u64::from(percent)),
        Headroom::Bytes(bytes) => bytes,
    };
    let log = (needed / 2048).min(2 << 30);
    let total = needed.saturating_add(headroom).saturating_add(FIXED + log);
    let total = total.max(SMALLEST).checked_next_multiple_of(1 << 20);
    total.ok_or_else(|| ImportError::Usage("the tree is larger than any volume".into()))
}

/// The size of a device or part of a disk, which cannot change; `None` for a file.
pub(super) fn fixed(options: &ImportOptions) -> Result<Option<u64>, ImportError> {
    match volume::fixed_len(&options.image, &options.location) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.location.is_whole() => {
            Ok(None)
        }
        other => other.map_err(ImportError::host(&options.image)),
    }
}

/// Free bytes of the host's file system that is to hold the image.
fn host_room(image: &Path) -> u64 {
    uxfs_host::free_room(uxfs_host::dir_of(image)).unwrap_or(u64::MAX)
}

/// Adds up the space that trees take on a volume. The estimate is generous.
#[derive(Clone, Copy)]
struct Measure {
    block: u64,
    inode: u64,
    /// Bytes of each file's SELinux label.
    label: u64,
    total: u64,
    /// Bytes of file data alone.
    data: u64,
    /// Free bytes on the host.
    free: u64,
}

impl Measure {
    /// Adds a layer, by two threads if it is an archive of at least `halves` bytes. Returns whether it has
    /// whiteouts, if it is one that can have them.
    ///
    /// # Errors
    /// Errors of reading the source; more data than the host has room for, which a small archive
    /// can claim.
    fn add(&mut self, mut source: Box<dyn Source>, halves: u64) -> Result<bool, ImportError> {
        source.set_limit(unpack_limit(self.free));
        let never = AtomicBool::new(false);
        let Some(mut back) = source.back_half(halves) else {
            return self.add_entries(&mut *source, &never);
        };
        let (mut other, end) = (Self { total: 0, data: 0, ..*self }, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("uxfs-size".into());
            let back = thread.spawn_scoped(scope, || {
                other.add_entries(&mut *back, &end).map(|hides| (other, hides))
            });
            let front = self.add_entries(&mut *source, &never);
            let met = source.met_back_half();
            end.store(!met, Ordering::Release);
            let mut hides = front?;
            if !met {
                return Ok(hides);
            }
            // An error is that of one reader.
            match back.ok().and_then(|back| back.join().ok()?.ok()) {
                Some((back, more)) if self.data.saturating_add(back.data) <= self.free => {
                    self.total = self.total.saturating_add(back.total);
                    self.data = self.data.saturating_add(back.data);
                    hides |= more;
                }
                _ => hides |= self.add_entries(&mut *source, &never)?,
            }
            Ok(hides)
        })
    }

    /// Adds the entries of a source until `end` is set.
    fn add_entries(
        &mut self,
        source: &mut dyn Source,
        end: &AtomicBool,
    ) -> Result<bool, ImportError> {
        let mut hides = false;
        while let Some(entry) = source.next()? {
            if end.load(Ordering::Relaxed) {
                break;
            }
            hides |= is_whiteout(&entry);
            self.total = self.total.saturating_add(self.entry(&entry));
            if let Kind::File { map, .. } = &entry.kind {
                self.data = self.data.saturating_add(map.data_len());
            }
            if self.data > self.free {
                let problem = format!(
                    "the tree has {} bytes or more of data, but the image's file system has {} \
                     bytes free: make room, or give --size",
                    self.data, self.free
                );
                return Err(ImportError::Usage(problem));
            }
        }
        Ok(hides)
    }

    fn entry(&self, entry: &Entry) -> u64 {
        let (block, inode) = (self.block, self.inode);
        // The inode with its share of the inode trees, and the name in its directory (entry, leaf
        // entry, blocks two thirds full).
        let mut bytes = inode + inode / 16 + self.label + (entry.path.len() as u64 + 32) * 2;
        match &entry.kind {
            Kind::File { map, .. } => {
                for (_, len) in map.segments() {
                    let blocks = len.div_ceil(block);
                    bytes = bytes.saturating_add(blocks.saturating_mul(block));
                }
                bytes = bytes.saturating_add(map.segments().len() as u64 * 16);
                bytes = bytes.saturating_add(entry.meta.reserve);
            }
            Kind::Dir => bytes += block,
            Kind::Symlink { target } if target.len() as u64 > inode.saturating_sub(176) => {
                bytes += 1024u64.next_multiple_of(block);
            }
            _ => {}
        }
        for (name, value) in &entry.meta.xattrs {
            let mut len = (name.len() + value.len() + 16) as u64 * 3 / 2;
            if value.len() as u64 > inode / 4 {
                len += 2 * block;
            }
            bytes = bytes.saturating_add(len);
        }
        bytes
    }

    /// The total in bytes.
    fn needed(&self) -> u64 {
        // Space is found in pieces: add what splitting over groups costs.
        self.total.saturating_add(self.total / 50)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use uxfs_archive::{Meta, SparseMap, TarWriter};

    use super::*;

    fn archive(path: &Path, names: &[&str]) {
        let mut tar = TarWriter::new(std::fs::File::create(path).unwrap());
        for (number, name) in names.iter().enumerate() {
            let size = 700 * number as u64;
            let kind = Kind::File { size, map: SparseMap::whole(size) };
            let entry = Entry { path: (*name).into(), kind, meta: Meta::default() };
            tar.entry(&entry, &mut Cursor::new(vec![1; size as usize])).unwrap();
        }
        tar.finish().unwrap();
    }

    fn measure(path: &Path, halves: u64, free: u64) -> (Result<bool, String>, u64, u64) {
        let (block, inode) = (4096, 512);
        let mut measure = Measure { block, inode, label: 0, total: 0, data: 0, free };
        let hides = measure.add(uxfs_archive::open(path).unwrap(), halves);
        (hides.map_err(|error| error.to_string()), measure.total, measure.data)
    }

    #[test]
    fn two_threads_count_as_one_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        for (last, hides) in [("k", false), (".wh.k", true)] {
            archive(&path, &[&names[..], &[last]].concat());
            let one = measure(&path, u64::MAX, u64::MAX);
            assert_eq!(one.0, Ok(hides));
            assert_eq!(one.2, 700 * 55);
            assert_eq!(measure(&path, 0, u64::MAX), one);
            // Each half has room, both have not; then the front half has none.
            for free in [one.2 - 1, 1000] {
                let one = measure(&path, u64::MAX, free);
                assert!(one.0.is_err());
                assert_eq!(measure(&path, 0, free), one);
            }
            // A truncated back half.
            let len = std::fs::metadata(&path).unwrap().len();
            std::fs::File::options().write(true).open(&path).unwrap().set_len(len - 6000).unwrap();
            let one = measure(&path, u64::MAX, u64::MAX);
            assert!(one.0.is_err());
            assert_eq!(measure(&path, 0, u64::MAX), one);
        }
    }
}
