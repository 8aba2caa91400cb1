//! Interrupted recovery: the next recovery has the same result.

use std::path::Path;
use std::sync::Arc;

use uxfs::{Fs, OpenOptions};
use uxfs_disk::MemDev;
use uxfs_oracle::{Listing, Rng};
use uxfs_testkit::{RecordDev, Recording};

use super::ALL;
use crate::listing;

/// Recovers a volume, and records the writes.
fn recover(disk: &MemDev) -> (Arc<RecordDev<MemDev>>, Result<Fs, uxfs::Error>) {
    let dev = Arc::new(RecordDev::new(disk.clone()).in_pieces());
    let fs = Fs::open(Arc::<RecordDev<MemDev>>::clone(&dev), OpenOptions::default());
    (dev, fs)
}

/// Checks that the volume equals the expectation and its log is clean.
fn judge(disk: &MemDev, want: &Listing, at: &str) {
    let report = uxfs_check::check(disk, &uxfs_check::CheckOptions::default(), &|_| {}).unwrap();
    assert_eq!(report.count(uxfs_check::Severity::Error), 0, "{at}: {report}");
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    listing::list(&Fs::open(Arc::new(disk.clone()), options).unwrap()).assert_same(want, ALL);
}

/// Interrupts recovery of this image `count` times, and interrupts the next recovery again.
pub(super) fn cut_off(path: &Path, want: &Listing, seed: u64, count: u64) {
    let below = MemDev::from_bytes(&std::fs::read(path).unwrap());
    let (whole, fs) = recover(&below);
    drop(fs.unwrap());
    judge(whole.below(), want, "recovered at once");
    let whole = Recording::new(below, whole.take(), 512);
    let calls = whole.len();
    for number in 0..count {
        let at = format!("{}: seed {seed}, cut {number}", path.display());
        let mut rng = Rng::new(seed * 1000 + number);
        // Most calls write blocks in place; the others are fewer and more important.
        let end = match rng.below(3) {
            0 => calls - rng.index(calls.min(12)),
            _ => 1 + rng.index(calls),
        };
        let first = whole.cut(end, &mut rng);
        let (again, fs) = recover(&first);
        drop(fs.unwrap_or_else(|e| panic!("{at} (call {end} of {calls}): {e}")));
        judge(again.below(), want, &at);
        let again = Recording::new(first, again.take(), 512);
        if again.is_empty() {
            continue;
        }
        let second = again.cut(1 + rng.index(again.len()), &mut rng);
        let (third, fs) = recover(&second);
        drop(fs.unwrap_or_else(|e| panic!("{at}, again: {e}")));
        judge(third.below(), want, &format!("{at}, again"));
    }
}
