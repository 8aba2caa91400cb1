//! How large a new image must be to hold a tree.

use std::path::Path;

use uxfs_archive::{Kind, Source};

use super::{ImportError, ImportOptions};

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

/// Opens the source, and says how large the image is to be: as asked, or as the source needs, for
/// which it is read twice.
pub(super) fn open_sized(options: &ImportOptions) -> Result<(Box<dyn Source>, u64), ImportError> {
    let source = uxfs_archive::open(&options.source)?;
    if let Some(size) = options.size {
        return Ok((source, size));
    }
    if let Ok(meta) = std::fs::metadata(&options.image)
        && !meta.is_file()
    {
        // A device has the size it has.
        let device = super::open_device(&options.image, uxfs_disk::OpenMode::Read)?;
        return Ok((source, uxfs_disk::BlockDev::len(&device)));
    }
    if options.source == Path::new("-") {
        let problem = "a stream on standard input can be read only once: give --size";
        return Err(ImportError::Usage(problem.into()));
    }
    let block = u64::from(options.mkfs.block_size.unwrap_or(4096));
    let inode = u64::from(options.mkfs.inode.size.unwrap_or(512));
    let needed = measure(source, block, inode)?;
    let headroom = match options.headroom {
        Headroom::Percent(percent) => needed / 100 * u64::from(percent),
        Headroom::Bytes(bytes) => bytes,
    };
    let log = (needed / 2048).min(2 << 30);
    let total = needed.saturating_add(headroom).saturating_add(FIXED + log);
    let total = total.max(SMALLEST).next_multiple_of(1 << 20);
    Ok((uxfs_archive::open(&options.source)?, total))
}

/// Bytes that the tree takes on a volume, generously.
fn measure(mut source: Box<dyn Source>, block: u64, inode: u64) -> Result<u64, ImportError> {
    let mut total = 0u64;
    while let Some(entry) = source.next()? {
        // The inode with its share of the trees, and the name in its directory (entry, leaf
        // entry, blocks two thirds full).
        let mut bytes = inode + inode / 16 + (entry.path.len() as u64 + 32) * 2;
        match &entry.kind {
            Kind::File { map, .. } => {
                for (_, len) in map.segments() {
                    bytes = bytes.saturating_add(len.div_ceil(block).saturating_mul(block));
                }
                bytes += map.segments().len() as u64 * 16;
            }
            Kind::Dir => bytes += block,
            Kind::Symlink { target } if target.len() as u64 > inode - 176 => {
                bytes += 1024u64.next_multiple_of(block);
            }
            _ => {}
        }
        for (name, value) in entry.meta.xattrs.iter() {
            bytes += (name.len() + value.len() + 16) as u64 * 3 / 2;
            if value.len() as u64 > inode / 4 {
                bytes += 2 * block;
            }
        }
        total = total.saturating_add(bytes);
    }
    // Space is found in pieces: allow for what splitting over groups costs.
    Ok(total.saturating_add(total / 50))
}
