//! A simulated disk as the engine's device: a store for the bytes, a model for the time, and a
//! trace of the requests.

use std::io::{self, IoSlice};
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs_models::{DeviceFault, Request};

use super::store::StoreDev;
use super::{Content, Sim, Store};

pub struct SimDev {
    sim: Arc<Sim>,
    disk: usize,
    fua: bool,
    device_fault: Option<DeviceFault>,
    store: StoreDev,
    asked: core::sync::atomic::AtomicU64,
}

impl SimDev {
    /// The disk with this number. `fua`: the engine may use forced writes.
    pub fn new(
        sim: &Arc<Sim>,
        disk: usize,
        store: Store,
        fua: bool,
        device_fault: Option<DeviceFault>,
    ) -> Self {
        let (sim, store) = (Arc::clone(sim), StoreDev::new(store));
        Self { sim, disk, fua, device_fault, store, asked: core::sync::atomic::AtomicU64::new(0) }
    }

    pub fn store(&self) -> Store {
        self.store.store()
    }

    fn ask(&self, request: Request, content: Option<Content>) {
        if uxfs_sync::current().is_some() {
            self.sim.ask(self.disk, request, content);
        }
    }

    fn nth(&self, n: u64) -> bool {
        self.asked.fetch_add(1, core::sync::atomic::Ordering::Relaxed) % n == n - 1
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        self.store.write_at(offset, data)?;
        let content = Content::new(offset, data);
        let plain = |content: Content| {
            let request = Request::write(content.at(), content.len());
            (Request { op: uxfs_models::Op::Write { fua }, ..request }, Some(content))
        };
        let (request, content) = match self.device_fault {
            Some(DeviceFault::WriteLost) if self.nth(50) => return Ok(()),
            Some(DeviceFault::WriteTorn) if data.len() > 4096 => plain(content.torn(512)),
            Some(DeviceFault::WriteMisplaced) if self.nth(50) && offset > 1 << 20 => {
                plain(Content::new(offset + 4096, data))
            }
            Some(DeviceFault::FuaDropped) if fua => {
                (Request::write(offset, data.len() as u64), Some(content))
            }
            _ => plain(content),
        };
        self.ask(request, content);
        Ok(())
    }
}

impl BlockDev for SimDev {
    uxfs::disk::emulate!(write_bulk_at);
    uxfs::disk::without!(
        discard,
        allocate,
        check_present,
        warning,
        sector_size,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn len(&self) -> u64 {
        self.store.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.ask(Request::read(offset, buf.len() as u64), None);
        self.store.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.write(
            offset,
            &pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>(),
            false,
        )
    }

    fn has_fua(&self) -> bool {
        self.fua
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.fua {
            self.write(offset, data, false)?;
            return self.flush();
        }
        self.write(offset, data, true)
    }

    fn flush(&self) -> io::Result<()> {
        match self.device_fault {
            Some(DeviceFault::FlushDropped) => {}
            Some(DeviceFault::SomeFlushesDropped) if self.nth(3) => {}
            _ => self.ask(Request::flush(), None),
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        if uxfs_sync::current().is_some() {
            self.ask(
                Request::write(offset, len),
                Some(Content::new(offset, &vec![0; len as usize])),
            );
        }
        self.store.zero(offset, len)
    }

    fn read_only(&self) -> bool {
        false
    }
}
