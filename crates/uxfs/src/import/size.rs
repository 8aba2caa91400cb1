//! How large a new image must be to hold a tree.

use std::io;
use std::path::Path;

use uxfs_archive::{Entry, Kind, Source};

use super::origin::Origin;
use super::{ImportError, ImportOptions};
use crate::volume;

/// What to leave free in an image whose size is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// So many percent of what the tree takes.
    Percent(u32),
    /// So many bytes.
    Bytes(u64),
}

impl Default for Headroom {
    fn default() -> Self {
        Self::Percent(10)
    }
}

/// The least volume that mkfs makes.
const SMALLEST: u64 = 300 << 20;
/// Log and headers of a volume of that size, and what the trees of free space keep aside.
const FIXED: u64 = 72 << 20;

/// How large the image is to be: as asked, or as the source needs, which is read for that.
pub(super) fn of_image(options: &ImportOptions, origin: &Origin) -> Result<u64, ImportError> {
    if let Some(size) = options.size {
        return Ok(size);
    }
    if let Some(len) = fixed(options)? {
        return Ok(len);
    }
    let mut room = host_room(&options.image);
    if let Ok(meta) = std::fs::metadata(&options.image) {
        // It is going to be made anew.
        room = room.saturating_add(std::os::unix::fs::MetadataExt::blocks(&meta) * 512);
    }
    if let Some(name) = origin.stream() {
        let problem = format!("{name} can be read only once: give --size");
        return Err(ImportError::Usage(problem));
    }
    let mut tree = Measure {
        block: u64::from(options.mkfs.block_size.unwrap_or(4096)),
        inode: u64::from(options.mkfs.inode.size.unwrap_or(512)),
        total: 0,
        data: 0,
        room,
    };
    for number in 0..origin.len() {
        tree.add(origin.open(number)?)?;
    }
    let needed = tree.needed();
    let headroom = match options.headroom {
        Headroom::Percent(percent) => needed / 100 * u64::from(percent),
        Headroom::Bytes(bytes) => bytes,
    };
    let log = (needed / 2048).min(2 << 30);
    let total = needed.saturating_add(headroom).saturating_add(FIXED + log);
    let total = total.max(SMALLEST).checked_next_multiple_of(1 << 20);
    total.ok_or_else(|| ImportError::Usage("the tree is larger than any volume".into()))
}

/// Bytes of a device or part of a disk, which has the size it has; `None` for a file.
pub(super) fn fixed(options: &ImportOptions) -> Result<Option<u64>, ImportError> {
    match volume::fixed_len(&options.image, &options.place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.place.is_whole() => {
            Ok(None)
        }
        other => other.map_err(ImportError::host(&options.image)),
    }
}

/// Bytes that the host's file system has left where an image is to lie.
fn host_room(image: &Path) -> u64 {
    let dir = image.parent().filter(|dir| !dir.as_os_str().is_empty());
    let stat = rustix::fs::statvfs(dir.unwrap_or(Path::new(".")));
    stat.map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Adds up what trees take on a volume, generously.
struct Measure {
    block: u64,
    inode: u64,
    total: u64,
    /// Bytes of data alone.
    data: u64,
    /// Bytes that the host has room for.
    room: u64,
}

impl Measure {
    /// # Errors
    /// What stands in the way of reading it; more data than the host has room for, which a small
    /// archive can claim.
    fn add(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(super::bound(self.room));
        while let Some(entry) = source.next()? {
            self.total = self.total.saturating_add(self.entry(&entry));
            if let Kind::File { map, .. } = &entry.kind {
                self.data = self.data.saturating_add(map.data_len());
            }
            if self.data > self.room {
                let problem = format!(
                    "the tree has {} bytes or more of data, and there is room for {} where the \
                     image is to lie: make room, or give --size",
                    self.data, self.room
                );
                return Err(ImportError::Usage(problem));
            }
        }
        Ok(())
    }

    fn entry(&self, entry: &Entry) -> u64 {
        let (block, inode) = (self.block, self.inode);
        // The inode with its share of the trees, and the name in its directory (entry, leaf
        // entry, blocks two thirds full).
        let mut bytes = inode + inode / 16 + (entry.path.len() as u64 + 32) * 2;
        match &entry.kind {
            Kind::File { map, .. } => {
                for (_, len) in map.segments() {
                    let blocks = len.div_ceil(block);
                    bytes = bytes.saturating_add(blocks.saturating_mul(block));
                }
                bytes = bytes.saturating_add(map.segments().len() as u64 * 16);
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

    /// Bytes of all of it.
    fn needed(&self) -> u64 {
        // Space is found in pieces: allow for what splitting over groups costs.
        self.total.saturating_add(self.total / 50)
    }
}
