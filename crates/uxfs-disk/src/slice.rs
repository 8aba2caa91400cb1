//! A part of a device that acts as a device of its own: a partition, or the range behind an offset.
//!
//! 1. A slice never accesses bytes outside its range. Every transfer is checked against the end
//!    before it reaches the device, and fails as a whole.
//! 2. The lock is the lock of the whole underlying device: two processes cannot write two parts of
//!    one disk at the same time.
//! 3. The underlying device judges alignment by its own addresses. Bulk writes to a slice that
//!    starts at an unaligned sector go through the page cache.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::BlockDev;

/// A part of a device.
pub struct Slice {
    dev: Arc<dyn BlockDev>,
    start: u64,
    len: u64,
}

impl Slice {
    /// The range of `len` bytes of `dev` from byte `start` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the range extends beyond the device.
    pub fn new(dev: Arc<dyn BlockDev>, start: u64, len: u64) -> io::Result<Self> {
        let end = start.checked_add(len);
        if end.is_none_or(|end| end > dev.len()) {
            let problem = format!(
                "bytes {start}+{len} are not all on the device, which has {} bytes",
                dev.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(Self { dev, start, len })
    }

    /// The range of `dev` from byte `start` to its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if `start` lies beyond the device's end.
    pub fn from(dev: Arc<dyn BlockDev>, start: u64) -> io::Result<Self> {
        let len = dev.len().saturating_sub(start);
        Self::new(dev, start, len)
    }

    /// Converts a transfer's offset to an offset of the underlying device.
    fn device_offset(&self, offset: u64, len: u64) -> io::Result<u64> {
        match offset.checked_add(len) {
            // Cannot overflow: the slice ends inside the device.
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("bytes {offset}+{len} lie beyond the end of a part of {} bytes", self.len),
            )),
        }
    }
}

impl BlockDev for Slice {
    crate::without!(lengthen, as_file);

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(self.device_offset(offset, buf.len() as u64)?, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_at(self.device_offset(offset, data.len() as u64)?, data)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.dev.write_vectored_at(self.device_offset(offset, len)?, pieces)
    }

    fn write_bulk_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_bulk_at(self.device_offset(offset, data.len() as u64)?, data)
    }

    fn has_fua(&self) -> bool {
        self.dev.has_fua()
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.dev.write_fua_at(self.device_offset(offset, data.len() as u64)?, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }

    fn discard(&self, offset: u64, len: u64) {
        if let Ok(at) = self.device_offset(offset, len) {
            self.dev.discard(at, len);
        }
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Ok(at) = self.device_offset(offset, len) {
            self.dev.will_read(at, len);
        }
    }

    fn will_write_bulk(&self, offset: u64, len: u64) {
        if let Ok(at) = self.device_offset(offset, len) {
            self.dev.will_write_bulk(at, len);
        }
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dev.zero(self.device_offset(offset, len)?, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dev.allocate(self.device_offset(offset, len)?, len)
    }

    fn check_present(&self) -> io::Result<()> {
        self.dev.check_present()
    }

    fn warning(&self) -> Option<String> {
        self.dev.warning()
    }

    fn read_only(&self) -> bool {
        self.dev.read_only()
    }

    fn sector_size(&self) -> u32 {
        self.dev.sector_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, DIRECT_ALIGN, FileDev, MemDev, OpenMode};

    #[test]
    fn transfers_stay_inside_the_slice() {
        let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(4096));
        dev.write_at(0, &[7; 4096]).unwrap();
        let slice = Slice::new(Arc::clone(&dev), 1000, 500).unwrap();
        slice.write_at(0, &[1; 500]).unwrap();
        slice.zero(100, 50).unwrap();
        let pieces = [IoSlice::new(&[2; 10]), IoSlice::new(&[3; 10])];
        slice.write_vectored_at(480, &pieces).unwrap();
        for (at, len) in [(0, 501), (499, 2), (500, 1), (u64::MAX, 1), (1 << 63, 1)] {
            let data = vec![9; len];
            assert!(slice.write_at(at, &data).is_err(), "{at}+{len}");
            assert!(slice.write_bulk_at(at, &data).is_err(), "{at}+{len}");
            assert!(slice.write_fua_at(at, &data).is_err(), "{at}+{len}");
            assert!(slice.write_vectored_at(at, &[IoSlice::new(&data)]).is_err(), "{at}+{len}");
            assert!(slice.zero(at, len as u64).is_err(), "{at}+{len}");
            assert!(slice.read_at(at, &mut data.clone()).is_err(), "{at}+{len}");
            slice.discard(at, len as u64);
        }
        assert!(slice.zero(400, u64::MAX).is_err());
        let mut all = vec![0; 4096];
        dev.read_at(0, &mut all).unwrap();
        assert!(all[..1000].iter().chain(&all[1500..]).all(|b| *b == 7));
        assert!(all[1100..1150].iter().all(|b| *b == 0));
        assert_eq!(all[1480..1500], [[2; 10], [3; 10]].concat());
    }

    #[test]
    fn a_slice_beyond_the_device_is_refused() {
        let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(4096));
        assert!(Slice::new(Arc::clone(&dev), 0, 4096).is_ok());
        for (start, len) in [(1, 4096), (4097, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(Slice::new(Arc::clone(&dev), start, len).is_err(), "{start}+{len}");
        }
        assert_eq!(Slice::from(Arc::clone(&dev), 96).unwrap().len(), 4000);
        assert!(Slice::from(dev, 4097).is_err());
    }

    /// Bulk writes to slices at any start succeed, with the page cache or without.
    #[test]
    fn bulk_writes_work_at_unaligned_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bulk.img");
        let dev: Arc<dyn BlockDev> =
            Arc::new(FileDev::open(&path, OpenMode::Create(1 << 20)).unwrap());
        for start in [0, 512, 4096, 34 * 512, 2048 * 512 / 2] {
            let slice = Slice::from(Arc::clone(&dev), start).unwrap();
            let mut data = AlignedBuf::new(4 * DIRECT_ALIGN);
            data.fill((start / 512) as u8);
            slice.write_bulk_at(DIRECT_ALIGN as u64, &data).unwrap();
            let mut back = vec![0; data.len()];
            dev.read_at(start + DIRECT_ALIGN as u64, &mut back).unwrap();
            assert_eq!(back, &data[..], "{start}");
        }
    }
}
