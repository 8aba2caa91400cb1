//! The place of the disk under test: its content is exchanged while nothing is mounted.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use uxfs_disk::BlockDev;

/// A disk that stands for another. All that are put into it have one length.
pub(crate) struct Slot(RwLock<Arc<dyn BlockDev>>);

impl Slot {
    pub(crate) fn new(disk: Arc<dyn BlockDev>) -> Self {
        Self(RwLock::new(disk))
    }

    pub(crate) fn put(&self, disk: Arc<dyn BlockDev>) {
        *self.0.write() = disk;
    }

    fn disk(&self) -> Arc<dyn BlockDev> {
        Arc::clone(&self.0.read())
    }
}

impl BlockDev for Slot {
    uxfs_disk::forward!(self => *self.disk(); len, read_at, read_only, sector_size, has_fua);
    uxfs_disk::emulate!(write_bulk_at, write_vectored_at);
    uxfs_disk::without!(
        allocate,
        check_present,
        warning,
        lengthen,
        as_file,
        will_read,
        will_write_bulk
    );

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk().write_at(offset, data)
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk().write_fua_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk().flush()
    }

    fn discard(&self, offset: u64, len: u64) {
        self.disk().discard(offset, len);
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk().zero(offset, len)
    }
}
