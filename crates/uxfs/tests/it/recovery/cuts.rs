//! Recovery that is itself cut off: the next one comes to the same end.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use uxfs::disk::{BlockDev, OpenMode, Overlay};
use uxfs::{Fs, OpenOptions};
use uxfs_oracle::{Listing, Rng};

use super::ALL;
use crate::listing;
use crate::volume;

/// Most bytes that a test changes.
const LIMIT: usize = 1 << 30;

/// A request to a device.
enum Call {
    Write(u64, Vec<u8>),
    Flush,
}

/// An image with changes in memory, which remembers how they came about.
pub(super) struct Recording {
    state: Overlay,
    calls: Mutex<Vec<Call>>,
}

impl BlockDev for Recording {
    uxfs_disk::emulate!(write_vectored_at, write_bulk_at, write_fua_at, zero);
    uxfs_disk::without!(has_fua, discard, allocate, check_present, warning, sector_size, as_file);

    fn len(&self) -> u64 {
        self.state.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.state.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.calls.lock().unwrap().push(Call::Write(offset, data.to_vec()));
        self.state.write_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.calls.lock().unwrap().push(Call::Flush);
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}

impl Recording {
    /// A state that a cut may leave: all up to a flush, and of what follows up to `end` any part.
    fn cut(&self, below: &Arc<dyn BlockDev>, end: usize, rng: &mut Rng) -> Overlay {
        let state = Overlay::new(Arc::clone(below), LIMIT);
        let calls = self.calls.lock().unwrap();
        let sure = calls[..end].iter().rposition(|call| matches!(call, Call::Flush)).unwrap_or(0);
        for (number, call) in calls[..end].iter().enumerate() {
            let Call::Write(offset, data) = call else { continue };
            // Torn at a basic block: its first part, its last, or none of it arrived.
            let torn = 512 * rng.index(data.len() / 512 + 1);
            match rng.below(5) {
                _ if number < sure => state.write_at(*offset, data).unwrap(),
                0 => {}
                1 => state.write_at(*offset, &data[..torn]).unwrap(),
                2 => state.write_at(*offset + torn as u64, &data[torn..]).unwrap(),
                _ => state.write_at(*offset, data).unwrap(),
            }
        }
        state
    }
}

pub(super) fn record(below: &Arc<dyn BlockDev>) -> (Arc<Recording>, Result<Fs, uxfs::Error>) {
    let state = Overlay::new(Arc::clone(below), LIMIT);
    let dev = Arc::new(Recording { state, calls: Mutex::default() });
    let fs = Fs::open(Arc::<Recording>::clone(&dev), OpenOptions::default());
    (dev, fs)
}

/// Is the volume as it should be, its log clean?
fn judge(dev: &Recording, want: &Listing, at: &str) {
    let report = uxfs_check::check(dev, &uxfs_check::CheckOptions::default(), &|_| {}).unwrap();
    assert_eq!(report.count(uxfs_check::Severity::Error), 0, "{at}: {report}");
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    let below: Arc<dyn BlockDev> = Arc::new(volume_of(dev));
    listing::list(&Fs::open(below, options).unwrap()).assert_same(want, ALL);
}

/// The present state, to be read.
fn volume_of(dev: &Recording) -> Overlay {
    let copy = Overlay::new(Arc::clone(dev.state.below()), LIMIT);
    let put = |at: u64, _: &[u8], new: &[u8]| copy.write_at(at, new);
    dev.state.for_changes(put).unwrap();
    copy
}

/// Cuts recovery of this image off, `count` times, and the recovery of what is left once more.
pub(super) fn cut_off(path: &Path, want: &Listing, seed: u64, count: u64) {
    let below: Arc<dyn BlockDev> = Arc::new(volume::device(path, OpenMode::Read));
    let (whole, fs) = record(&below);
    drop(fs.unwrap());
    judge(&whole, want, "recovered at once");
    let calls = whole.calls.lock().unwrap().len();
    for number in 0..count {
        let at = format!("{}: seed {seed}, cut {number}", path.display());
        let mut rng = Rng::new(seed * 1000 + number);
        // Most calls write blocks in place; the others are fewer and matter more.
        let end = match rng.below(3) {
            0 => calls - rng.index(calls.min(12)),
            _ => 1 + rng.index(calls),
        };
        let first: Arc<dyn BlockDev> = Arc::new(whole.cut(&below, end, &mut rng));
        let (again, fs) = record(&first);
        drop(fs.unwrap_or_else(|e| panic!("{at} (call {end} of {calls}): {e}")));
        judge(&again, want, &at);
        let calls = again.calls.lock().unwrap().len();
        if calls == 0 {
            continue;
        }
        let end = 1 + rng.index(calls);
        let second: Arc<dyn BlockDev> = Arc::new(again.cut(&first, end, &mut rng));
        let (third, fs) = record(&second);
        drop(fs.unwrap_or_else(|e| panic!("{at}, again: {e}")));
        judge(&third, want, &format!("{at}, again"));
    }
}
