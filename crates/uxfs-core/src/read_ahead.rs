//! Read-ahead of files that are read in sequence and lie in several places.
//!
//! The host reads ahead within a device. It does not know where the next extent of a file begins, so each
//! extent of a split file would be waited for anew. Here the device gets a hint ([`BlockDev::will_read`])
//! before the reader arrives.
//!
//! 1. An extent is announced here once, from its beginning and at most [`LEAD`] bytes of it. The host reads the rest
//!    ahead by itself, and so what continues on the device where the extent before it ends.
//! 2. All of this is a hint: it fails no read.
//!
//! Called by [`Fs::read_at`].

use uxfs_disk::BlockDev;

use crate::fs::Fs;
use crate::inode::InodeState;
use crate::streams::AHEAD;

/// Most bytes of an extent that are announced.
const LEAD: u64 = 2 << 20;

impl Fs {
    /// Takes note of a read of a file of `size` bytes, and announces what follows in it.
    pub(crate) fn read_ahead(&self, inode: &InodeState, start: u64, end: u64, size: u64) {
        if end <= start || end >= size {
            return;
        }
        let Some((from, to)) = self.streams.read(inode.ino, start, end, size) else { return };
        // The byte before `from` tells whether an extent is under way there.
        let mut at = from - 1;
        let mut before = None;
        while at < to {
            // The reader will meet the error, if it comes so far.
            let Ok(segment) = self.segment(inode, at, at.saturating_add(AHEAD).min(size)) else {
                return;
            };
            if let Some(device) = segment.device {
                if at >= from && before != Some(device) {
                    self.device_of(&segment).will_read(device, segment.len.min(LEAD));
                }
                before = Some(device + segment.len);
            }
            at += segment.len;
        }
        self.streams.announced(inode.ino, at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uxfs_disk::MemDev;
    use uxfs_sync::Mutex;

    use super::*;
    use crate::OpenOptions;
    use crate::ops::NewInode;
    use crate::streams::{LEAST, STEP};

    /// A device in memory that notes the hints it gets.
    struct Hinted {
        below: MemDev,
        hints: Mutex<Vec<(u64, u64)>>,
    }

    impl BlockDev for Hinted {
        uxfs_disk::forward!(self => self.below; len, lengthen, read_at, write_at, write_vectored_at, write_bulk_at,
            has_fua, write_fua_at, flush, discard, will_write_bulk, zero, allocate, check_present, warning, read_only,
            sector_size, as_file);

        fn will_read(&self, offset: u64, len: u64) {
            self.hints.lock().push((offset, len));
        }
    }

    #[test]
    fn the_extents_of_a_split_file_are_announced_before_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        uxfs_oracle::mkfs(&path, 512 << 20, &[]);
        let below = MemDev::new(512 << 20);
        below.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
        let dev = Arc::new(Hinted { below, hints: Mutex::new(Vec::new()) });
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, OpenOptions::unlogged()).unwrap();
        let root = fs.root();
        let [split, other] =
            [b"split", b"other"].map(|name| fs.create(root, name, &NewInode::file(0o644)).unwrap());
        let part = vec![7; 600 << 10];
        for n in 0..40 {
            fs.write_at(split, n * part.len() as u64, &part).unwrap();
            fs.write_at(other, n * part.len() as u64, &part).unwrap();
        }
        let extents = fs.segments(split).unwrap();
        assert!(extents.len() > 20, "the file is not split: {extents:?}");
        let mut buf = vec![0; 128 << 10];
        let mut missed = Vec::new();
        let size = 40 * part.len() as u64;
        for offset in (0..size).step_by(buf.len()) {
            for extent in
                extents.iter().filter(|e| (offset..offset + buf.len() as u64).contains(&e.offset))
            {
                let known = (extent.device.unwrap(), extent.len.min(LEAD));
                if !dev.hints.lock().contains(&known) {
                    missed.push(extent.offset);
                }
            }
            fs.read_at(split, offset, &mut buf).unwrap();
        }
        assert!(missed.iter().all(|offset| *offset < LEAST + 2 * STEP), "{missed:?}");
        let mut hints = std::mem::take(&mut *dev.hints.lock());
        hints.sort_unstable();
        assert!(hints.windows(2).all(|pair| pair[0] != pair[1]), "announced twice: {hints:?}");
        // A file in one extent needs no hints.
        let whole = fs.create(root, b"whole", &NewInode::file(0o644)).unwrap();
        fs.write_at(whole, 0, &vec![1; 32 << 20]).unwrap();
        assert_eq!(fs.segments(whole).unwrap().len(), 1);
        for offset in (0..32 << 20).step_by(buf.len()) {
            fs.read_at(whole, offset, &mut buf).unwrap();
        }
        assert_eq!(*dev.hints.lock(), []);
    }
}
