//! Hostile images: whatever they contain, the check ends soon.

use std::time::Duration;

use uxfs_check::{CheckOptions, check};
use uxfs_disk::BlockDev;
use uxfs_format::crc;
use uxfs_oracle::Rng;

use crate::exercise::timed;
use crate::structures::find;
use crate::volume::{Volume, fill, setting};

/// Damages many structures at once, with correct checksums; the damage accumulates.
#[test]
fn accumulated_damage_never_panics() {
    let volume = Volume::small(64, "-b size=1024 -m rmapbt=1");
    let fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    let seed = setting("UXFS_SEED", 1);
    let mut rng = Rng::new(seed);
    let mut options = CheckOptions::default();
    options.max_findings = 1000;
    for round in 0..setting("UXFS_ROUNDS", 12) {
        let dev = volume.load();
        let structures = find(&dev);
        for _ in 0..200 {
            let structure = structures[1 + rng.index(structures.len() - 1)];
            let mut bytes = vec![0; structure.len];
            dev.read_at(structure.at, &mut bytes).unwrap();
            for _ in 0..=rng.below(4) {
                let at = rng.index(bytes.len());
                bytes[at] = if rng.once_in(2) { rng.bits() as u8 } else { 0xff };
            }
            if let Some(field) = structure.crc() {
                crc::stamp(&mut bytes, field);
            }
            dev.write_at(structure.at, &bytes).unwrap();
            // Put a copy of another structure at this address.
            if rng.once_in(20) {
                let other = structures[1 + rng.index(structures.len() - 1)];
                dev.write_at(other.at, &bytes[..bytes.len().min(other.len)]).unwrap();
            }
        }
        let mut time = Duration::ZERO;
        let report = timed(&mut time, || check(&dev, &options, &|_| {}));
        assert!(report.is_ok_and(|r| !r.is_clean()), "seed {seed}, round {round}");
        // Processor time, part of which is used by other tests in this process.
        assert!(time < Duration::from_secs(120), "seed {seed}, round {round}: {time:?}");
    }
}

/// Random bytes in the first sector.
#[test]
fn random_superblocks_never_panic() {
    let volume = Volume::small(64, "");
    let dev = volume.load();
    let mut sound = vec![0; 512];
    dev.read_at(0, &mut sound).unwrap();
    let mut rng = Rng::new(setting("UXFS_SEED", 1));
    let mut options = CheckOptions::default();
    options.max_findings = 1000;
    for _ in 0..300 {
        let mut sector = sound.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.index(300);
            sector[at] = rng.bits() as u8;
        }
        crc::stamp(&mut sector, 224);
        dev.write_at(0, &sector).unwrap();
        let _ = check(&dev, &options, &|_| {});
    }
}

/// With a small memory limit the report says that it is incomplete, and is not wrong.
#[test]
fn the_memory_limit_is_kept_and_reported() {
    let volume = Volume::small(64, "");
    let fs = volume.open();
    fill(&fs);
    fs.close().unwrap();
    let dev = volume.load();
    for kib in [1, 20, 40, 60, 80, 100] {
        let mut options = CheckOptions::default();
        options.memory_limit = kib << 10;
        let report = check(&dev, &options, &|_| {}).unwrap();
        assert!(report.is_clean(), "{kib} KiB: {report}");
        assert_eq!(report.incomplete, report.has(uxfs_check::code::LIMIT), "{kib} KiB: {report}");
        assert_eq!(report.exit_code(), if report.incomplete { 8 } else { 0 });
        assert!(report.incomplete || kib > 1);
    }
}
