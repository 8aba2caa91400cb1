//! Damaged logs: no panic, and a volume that opens is sound.

use std::path::Path;
use std::sync::Arc;

use uxfs::{Fs, OpenOptions};
use uxfs_disk::{BlockDev, OpenMode, Overlay};
use uxfs_format::log::{RecordHeader, checksum};
use uxfs_journal::recovery::Log;
use uxfs_oracle::Rng;

use crate::volume;

const BLOCK: usize = 512;

/// The log of an image, as on the device.
struct Raw {
    start: u64,
    blocks: u64,
    /// The block where replay begins, and the number of blocks it reads.
    tail: u64,
    live: u64,
}

fn look(dev: &Arc<dyn BlockDev>) -> Raw {
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    let fs = Fs::open(Arc::clone(dev), options).unwrap();
    let log = Log::new(&fs.superblock()).unwrap();
    let bounds = log.find(&**dev).unwrap();
    Raw {
        start: fs.geo.fsb_daddr(fs.geo.log_start).bytes(),
        blocks: log.blocks(),
        tail: bounds.tail.block().into(),
        live: bounds.live_blocks(&log),
    }
}

impl Raw {
    fn place(&self, block: u64) -> u64 {
        self.start + block % self.blocks * BLOCK as u64
    }

    /// Corrects the checksum of the record that contains block `at`.
    fn reseal(&self, dev: &Overlay, at: u64) {
        for back in 0..520 {
            let start = at + self.blocks - back;
            let mut block = [0; BLOCK];
            dev.read_at(self.place(start), &mut block).unwrap();
            let Some(header) = RecordHeader::parse(&block) else { continue };
            let blocks = header.blocks().min(600);
            let mut bytes = vec![0; blocks as usize * BLOCK];
            for (number, part) in (0..).zip(bytes.chunks_mut(BLOCK)) {
                dev.read_at(self.place(start + number), part).unwrap();
            }
            let head = header.header_blocks() as usize * BLOCK;
            let (headers, data) = bytes.split_at(head.min(bytes.len()));
            let crc = checksum(headers, &data[..data.len().min(header.len as usize)]);
            dev.write_at(self.place(start) + 32, &crc.to_le_bytes()).unwrap();
            return;
        }
    }
}

/// Damages the log of this image, `count` times.
pub(super) fn damage(path: &Path, seed: u64, count: u64) {
    let below: Arc<dyn BlockDev> = Arc::new(volume::device(path, OpenMode::Read));
    let raw = look(&below);
    let (mut opened, mut refused) = (0, 0);
    for number in 0..count {
        let mut rng = Rng::new(seed * 10_000 + number);
        let dev = Overlay::new(Arc::clone(&below), 1 << 30);
        let resealed = number % 2 == 1;
        for _ in 0..1 + rng.below(3) {
            let block = raw.tail + rng.below(raw.live);
            // In a record's data, the first bytes matter most.
            let reach = if rng.once_in(2) { 64 } else { BLOCK as u64 };
            let at = raw.place(block) + rng.below(reach);
            let value = match rng.below(4) {
                0 => vec![0],
                1 => vec![0xff],
                _ => rng.bytes(1),
            };
            dev.write_at(at, &value).unwrap();
            if resealed {
                raw.reseal(&dev, block);
            }
        }
        let dev = Arc::new(dev);
        let at = format!("{}: seed {seed}, damage {number}", path.display());
        match Fs::open(Arc::<Overlay>::clone(&dev), OpenOptions::default()) {
            Err(error) => {
                assert!(!error.to_string().is_empty(), "{at}");
                refused += 1;
            }
            Ok(fs) => {
                // A record near the head that does not match its checksum is taken for torn, as XFS
                // does; if it had been whole, what it said is lost, and headers or inodes that were
                // logged behind it are all that could tell.
                let torn = fs.recovery().is_some_and(|recovery| recovery.bounds.torn.is_some());
                drop(fs);
                opened += 1;
                // With a matching checksum, the content may be anything.
                if !resealed && !torn {
                    let options = uxfs_check::CheckOptions::default();
                    let report = uxfs_check::check(&*dev, &options, &|_| {}).unwrap();
                    assert_eq!(report.count(uxfs_check::Severity::Error), 0, "{at}: {report}");
                }
            }
        }
    }
    println!("{}: {opened} damaged logs opened, {refused} refused", path.display());
}
