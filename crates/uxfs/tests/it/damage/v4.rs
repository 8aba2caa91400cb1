//! Damage to volumes of version 4, which has no checksums.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uxfs::{Fs, OpenOptions, Result, export};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_oracle::{Kernel, Rng};

use super::device;
use super::{hurt, visit_all};
use crate::kernel::age;
use crate::volume::{Volume, device, setting};
use crate::watchdog::Watchdog;

/// An image as bytes.
fn load(volume: &Volume) -> Arc<Vec<u8>> {
    let dev = device(&volume.path, OpenMode::Read);
    let mut image = vec![0; usize::try_from(dev.len()).unwrap()];
    let mut buf = vec![0; 64 << 10];
    for (at, place) in (0..).step_by(buf.len()).zip(image.chunks_mut(64 << 10)) {
        dev.read_at(at, &mut buf[..place.len()]).unwrap();
        if buf.iter().any(|b| *b != 0) {
            place.copy_from_slice(&buf[..place.len()]);
        }
    }
    Arc::new(image)
}

/// Where structures start, and their lengths: the superblock, inodes, blocks of all kinds.
fn targets(image: &[u8], block: usize, dir_block: usize, inode: usize) -> [Vec<(usize, usize)>; 2] {
    let mut found = [vec![(0, 512)], Vec::new()];
    for at in (0..image.len()).step_by(256) {
        let len = match (&image[at..at + 4], &image[at + 8..at + 10]) {
            (b"XD2B" | b"XD2D" | b"XD2F", _) => dir_block,
            (b"BMAP", _) => block,
            (_, [0xd2, 0xf1 | 0xff]) => dir_block,
            (_, [0xfe, 0xbe] | [0xfb, 0xee]) => block,
            ([b'I', b'N', _, _], _) if at % inode == 0 => inode,
            _ => continue,
        };
        found[usize::from(len != inode)].push((at, len));
    }
    found
}

fn use_it(dev: Arc<dyn BlockDev>) -> Result<()> {
    let mut options = OpenOptions::read_only();
    options.norecovery = true;
    options.cache_bytes = 1 << 20;
    let fs = Fs::open(dev, options)?;
    visit_all(&fs);
    let _ = export::export(&fs, fs.root(), std::io::sink());
    fs.close()
}

#[test]
fn damage_to_version_4_is_an_error_without_a_panic() {
    let lines = [
        ("-m crc=0 -b size=1k -n size=4k,ftype=0", 1024, 4096, 256),
        ("-m crc=0 -i size=512", 4096, 4096, 512),
    ];
    let mut bad = Vec::new();
    for (which, (line, block, dir_block, inode)) in (0u64..).zip(lines) {
        let volume = Volume::real(300, line);
        let base = 1 + setting("UXFS_SEED", 0) * 1_000_000 + 10_000_000 + which * 100_000;
        age(Kernel::Stable, &volume, base, 700);
        let image = load(&volume);
        let copied = device::base(&image);
        let targets = targets(&image, block, dir_block, inode);
        println!("{line}: {} inodes, {} blocks", targets[0].len(), targets[1].len());
        assert!(targets.iter().all(|some| some.len() > 50), "{line}: too little to hurt");
        let dog = Watchdog::new(line.into());
        for each in 0..250 * setting("UXFS_ROUNDS", 1) {
            let seed = base + each;
            if setting("UXFS_ONLY", seed) != seed {
                continue;
            }
            dog.step(seed);
            let mut rng = Rng::new(seed);
            let dev = device::copy(&copied);
            for _ in 0..1 + rng.below(12) {
                let some = &targets[rng.index(2)];
                let (at, len) = some[rng.index(some.len())];
                let mut bytes = vec![0; len];
                dev.read_at(at as u64, &mut bytes).unwrap();
                hurt(&mut rng, &mut bytes);
                dev.write_at(at as u64, &bytes).unwrap();
            }
            if catch_unwind(AssertUnwindSafe(|| use_it(dev))).is_err() {
                eprintln!("seed {seed} ({line}): panic");
                bad.push(seed);
            }
        }
    }
    assert!(bad.is_empty(), "{} of the damaged volumes: panic: seeds {bad:?}", bad.len());
}
