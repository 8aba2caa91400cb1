//! A disk with a volatile cache and a power switch.
//!
//! 1. A read sees every write that completed.
//! 2. What was written reaches the stable device with a flush, or earlier when the cache is full. A forced write
//!    (FUA) is there when it completes. A write leaves the cache only when it, and the flush that asked for it,
//!    succeeded: one that the stable device refuses is tried again with the next flush.
//! 3. A power cut keeps or loses each sector of the cache, as the seed decides. Writes to one place never
//!    end in the wrong order, and a sector is written whole or not at all.
//! 4. Without power every request fails.
//! 5. A disk with a [`DeviceFault`] breaks one of these rules.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use uxfs_disk::{BlockDev, Overlay};
use uxfs_testkit::Rng;

use crate::DeviceFault;

/// Bytes that the disk writes whole or not at all.
const SECTOR: usize = 512;
/// How far a misplaced write goes wrong.
const PAGE: u64 = 4096;

/// A write in the cache.
struct Cached {
    offset: u64,
    data: Vec<u8>,
    /// It is on the stable device already, and written once more in its turn, so that no older write ends on
    /// top of it.
    forced: bool,
}

struct State {
    is_on: bool,
    /// In the order in which they completed.
    writes: Vec<Cached>,
    bytes: usize,
    /// The stable device with the writes of the cache.
    seen: Overlay,
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Writes that were in the cache, forced ones among them.
    pub cached: usize,
    /// Those of which nothing is left.
    pub lost: usize,
    /// Those of which a part is left.
    pub torn: usize,
}

/// A disk that loses what is in its cache when its power is cut.
pub struct SwitchedDev {
    stable: Arc<dyn BlockDev>,
    /// Bytes that the cache holds.
    room: usize,
    fault: Option<DeviceFault>,
    requests: AtomicU64,
    state: RwLock<State>,
}

impl SwitchedDev {
    /// A disk that is on, with an empty cache of `room` bytes. `stable` holds what is durable.
    pub fn new(stable: Arc<dyn BlockDev>, room: usize, fault: Option<DeviceFault>) -> Self {
        let state = State { is_on: true, writes: Vec::new(), bytes: 0, seen: over(&stable) };
        Self { stable, room, fault, requests: AtomicU64::new(0), state: RwLock::new(state) }
    }

    /// Cuts the power. What is left of the cache follows from `seed`.
    ///
    /// # Errors
    /// Those of the stable device.
    pub fn cut(&self, seed: u64) -> io::Result<Cut> {
        let mut state = self.state.write();
        if !state.is_on {
            return Ok(Cut::default());
        }
        state.is_on = false;
        let writes = state.empty(&self.stable);
        let mut rng = Rng::spread(seed);
        let mut cut = Cut { cached: writes.len(), ..Cut::default() };
        for write in &writes {
            let fate = if write.forced { 0 } else { rng.below(3) };
            let (mut kept, mut lost) = (false, false);
            for (number, sector) in write.data.chunks(SECTOR).enumerate() {
                let survives = match fate {
                    0 => true,
                    1 => false,
                    _ => rng.below(2) == 0,
                };
                (kept, lost) = (kept | survives, lost | !survives);
                if survives {
                    self.stable.write_at(write.offset + (number * SECTOR) as u64, sector)?;
                }
            }
            cut.lost += usize::from(!kept);
            cut.torn += usize::from(kept && lost);
        }
        self.stable.flush()?;
        Ok(cut)
    }

    /// Gives it power again.
    pub fn restore(&self) {
        self.state.write().is_on = true;
    }

    /// Does it have power?
    pub fn is_on(&self) -> bool {
        self.state.read().is_on
    }

    /// The number of writes in the cache, and their bytes.
    pub fn cached(&self) -> (usize, usize) {
        let state = self.state.read();
        (state.writes.len(), state.bytes)
    }

    /// Writes the cache to the stable device and flushes it, as a disk does that is switched off in good order.
    /// Without power there is nothing to write.
    ///
    /// # Errors
    /// Those of the stable device.
    pub fn end(&self) -> io::Result<()> {
        self.flush_all(&mut self.state.write())
    }

    /// Writes the cache to the stable device.
    fn destage(&self, state: &State) -> io::Result<()> {
        state.writes.iter().try_for_each(|write| self.stable.write_at(write.offset, &write.data))
    }

    fn flush_all(&self, state: &mut State) -> io::Result<()> {
        self.destage(state)?;
        self.stable.flush()?;
        state.empty(&self.stable);
        Ok(())
    }

    fn nth(&self, n: u64) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed) % n == n - 1
    }

    fn write(&self, offset: u64, data: &[u8], forced: bool) -> io::Result<()> {
        let mut state = self.state.write();
        state.check()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= self.len());
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut at, mut data) = (offset, data);
        match self.fault {
            Some(DeviceFault::WriteLost) if self.nth(50) => return Ok(()),
            Some(DeviceFault::WriteTorn) if data.len() > PAGE as usize => {
                data = &data[..data.len() - SECTOR];
            }
            Some(DeviceFault::WriteMisplaced) if self.nth(50) => {
                let wrong = at + PAGE;
                at = if wrong + data.len() as u64 <= self.len() { wrong } else { at };
            }
            _ => {}
        }
        if state.bytes + data.len() > self.room {
            self.destage(&state)?;
            state.empty(&self.stable);
        }
        let forced = forced && self.fault != Some(DeviceFault::FuaDropped);
        if forced {
            self.stable.write_fua_at(at, data)?;
        }
        state.seen.write_at(at, data)?;
        state.bytes += data.len();
        state.writes.push(Cached { offset: at, data: data.to_vec(), forced });
        Ok(())
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match self.is_on {
            true => Ok(()),
            false => Err(io::Error::other("the power of this disk is off")),
        }
    }

    /// Empties the cache; returns what was in it.
    fn empty(&mut self, stable: &Arc<dyn BlockDev>) -> Vec<Cached> {
        self.seen = over(stable);
        self.bytes = 0;
        std::mem::take(&mut self.writes)
    }
}

fn over(stable: &Arc<dyn BlockDev>) -> Overlay {
    Overlay::new(Arc::clone(stable), usize::MAX)
}

impl BlockDev for SwitchedDev {
    uxfs_disk::forward!(self => self.stable; len, check_present, warning, read_only, sector_size);
    uxfs_disk::emulate!(write_bulk_at, write_vectored_at, zero);
    uxfs_disk::without!(discard, allocate, will_read, will_write_bulk, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.state.read();
        state.check()?;
        state.seen.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, false)
    }

    fn has_fua(&self) -> bool {
        true
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, true)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.write();
        state.check()?;
        match self.fault {
            Some(DeviceFault::FlushDropped) => return Ok(()),
            Some(DeviceFault::SomeFlushesDropped) if self.nth(3) => return Ok(()),
            _ => {}
        }
        self.flush_all(&mut state)
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;
    use uxfs_testkit::{EIO, FaultDev, Op, Rule};

    use super::*;

    const LEN: u64 = 256 << 10;

    fn disk(room: usize, fault: Option<DeviceFault>) -> (SwitchedDev, Arc<MemDev>) {
        let stable = Arc::new(MemDev::new(LEN));
        (SwitchedDev::new(Arc::clone(&stable) as Arc<dyn BlockDev>, room, fault), stable)
    }

    fn content(dev: &dyn BlockDev, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        dev.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Random writes, flushes and a cut. Returns the first sector whose content no disk without a fault can
    /// have.
    fn impossible(seed: u64, fault: Option<DeviceFault>) -> Option<usize> {
        let (dev, _) = disk(usize::MAX, fault);
        let mut rng = Rng::spread(seed);
        let sectors = (LEN as usize) / SECTOR;
        // What each sector may have: what is durable first, then what was written since.
        let mut may: Vec<Vec<u8>> = vec![vec![0]; sectors];
        let mut seen = vec![0_u8; sectors];
        for number in 1..=200_u8 {
            let at = rng.index(sectors - 20);
            let len = 1 + rng.index(20);
            let forced = rng.below(6) == 0;
            let data = vec![number; len * SECTOR];
            if forced {
                dev.write_fua_at((at * SECTOR) as u64, &data).unwrap();
            } else {
                dev.write_at((at * SECTOR) as u64, &data).unwrap();
            }
            for sector in at..at + len {
                seen[sector] = number;
                if forced {
                    may[sector].clear();
                }
                may[sector].push(number);
            }
            if rng.below(12) == 0 {
                dev.flush().unwrap();
                may.iter_mut().zip(&seen).for_each(|(may, seen)| *may = vec![*seen]);
            }
        }
        let whole = content(&dev, 0, LEN as usize);
        let wrong = (0..sectors).find(|at| whole[at * SECTOR] != seen[*at]);
        if wrong.is_some() {
            return wrong;
        }
        let cut = dev.cut(seed).unwrap();
        assert!(cut.cached >= cut.lost + cut.torn);
        dev.read_at(0, &mut [0]).unwrap_err();
        dev.restore();
        let left = content(&dev, 0, LEN as usize);
        left.chunks(SECTOR).enumerate().find_map(|(at, sector)| {
            let whole = sector.iter().all(|byte| *byte == sector[0]);
            (!whole || !may[at].contains(&sector[0])).then_some(at)
        })
    }

    #[test]
    fn a_cut_leaves_what_a_disk_may_have_and_faults_are_seen() {
        for seed in 0..60 {
            assert_eq!(impossible(seed, None), None, "seed {seed}");
        }
        for (name, fault) in DeviceFault::ALL {
            let found = (0..60).any(|seed| impossible(seed, Some(fault)).is_some());
            assert!(found, "{name} was not seen");
        }
    }

    /// The image refuses a write or a flush once: what was acknowledged stays, and the next flush has it.
    #[test]
    fn what_the_stable_device_refuses_stays_in_the_cache() {
        for (refused, failed) in [(&[Op::Write][..], 0), (&[Op::Write], 1), (&[Op::Flush], 0)] {
            let stable = Arc::new(FaultDev::new(MemDev::new(LEN)));
            stable.add(Rule::on(refused).after(failed).times(1).fail(EIO));
            let dev = SwitchedDev::new(Arc::clone(&stable) as Arc<dyn BlockDev>, 1 << 20, None);
            dev.write_at(0, &[1; 512]).unwrap();
            dev.write_at(512, &[2; 512]).unwrap();
            dev.flush().unwrap_err();
            assert_eq!((content(&dev, 0, 1), content(&dev, 512, 1)), (vec![1], vec![2]));
            dev.flush().unwrap();
            assert_eq!(dev.cut(1).unwrap(), Cut::default());
            let left = [content(&*stable, 0, 1), content(&*stable, 512, 1)];
            assert_eq!(left, [[1], [2]], "{refused:?} {failed}");
        }
        // The cache is full: the write that has no room fails, and those before it stay.
        let stable = Arc::new(FaultDev::new(MemDev::new(LEN)));
        stable.add(Rule::on(&[Op::Write]).times(1).fail(EIO));
        let dev = SwitchedDev::new(Arc::clone(&stable) as Arc<dyn BlockDev>, 512, None);
        dev.write_at(0, &[1; 512]).unwrap();
        dev.write_at(512, &[2; 512]).unwrap_err();
        assert_eq!(content(&dev, 0, 1), [1]);
        dev.flush().unwrap();
        assert_eq!(content(&*stable, 0, 1), [1]);
    }

    #[test]
    fn a_full_cache_writes_by_itself_and_an_orderly_end_loses_nothing() {
        let (dev, stable) = disk(8192, None);
        dev.write_at(0, &[1; 8192]).unwrap();
        assert_eq!((dev.cached(), content(&*stable, 0, 1)), ((1, 8192), vec![0]));
        dev.write_at(8192, &[2; 512]).unwrap();
        assert_eq!((dev.cached(), content(&*stable, 0, 1)), ((1, 512), vec![1]));
        dev.end().unwrap();
        assert_eq!((dev.cached(), content(&*stable, 8192, 512)), ((0, 0), vec![2; 512]));
    }

    #[test]
    fn without_power_every_request_fails_and_nothing_changes() {
        let (dev, stable) = disk(usize::MAX, None);
        dev.write_at(0, &[1; 512]).unwrap();
        dev.flush().unwrap();
        let cut = dev.cut(1).unwrap();
        assert_eq!(cut, Cut::default());
        assert!(!dev.is_on());
        dev.write_at(0, &[2; 512]).unwrap_err();
        dev.write_fua_at(0, &[2; 512]).unwrap_err();
        dev.zero(0, 512).unwrap_err();
        dev.flush().unwrap_err();
        dev.end().unwrap();
        assert_eq!(content(&*stable, 0, 512), [1; 512]);
        dev.restore();
        assert_eq!(content(&dev, 0, 512), [1; 512]);
        dev.write_at(LEN, &[1]).unwrap_err();
    }
}
