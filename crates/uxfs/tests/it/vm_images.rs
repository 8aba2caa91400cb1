//! Disks in VMDK and VHDX images, damaged at random: an error or other content, but no panic, no endless
//! read and no memory without bound. `uxfs-cli/tests/it/disks.rs` reads undamaged ones.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use uxfs::volume::{self as device, Location};
use uxfs_disk::{BlockDev, OpenMode};
use uxfs_oracle::Rng;

use crate::volume::setting;

/// All data bytes, so that the others are tables.
const DATA: u8 = 0xa5;
const DISK: usize = 4 << 20;
const PIECE: usize = 64 << 10;

/// The disk's content, or `None` if something could not be read.
fn read(path: &Path) -> Option<Vec<u8>> {
    let disk = device::open(path, OpenMode::Read, &Location::whole()).ok()?;
    let mut all = Vec::new();
    let mut buf = vec![0; PIECE];
    let mut sound = true;
    for at in (0..disk.len().min(2 * DISK as u64)).step_by(PIECE) {
        let len = (disk.len() - at).min(PIECE as u64) as usize;
        sound &= disk.read_at(at, &mut buf[..len]).is_ok();
        all.extend_from_slice(&buf[..len]);
    }
    sound.then_some(all)
}

#[test]
fn damaged_vm_images_are_errors_or_other_content() {
    let dir = tempfile::tempdir().unwrap();
    let qemu_img = uxfs_oracle::program("qemu-img", "qemu-utils");
    let raw = dir.path().join("raw");
    let mut rng = Rng::new(20_261_125);
    let mut content = vec![0; DISK];
    for _ in 0..6 {
        let at = rng.index(DISK - PIECE);
        content[at..at + PIECE].fill(DATA);
    }
    fs::write(&raw, &content).unwrap();
    for options in [
        "vmdk -o subformat=monolithicSparse",
        "vmdk -o subformat=streamOptimized",
        "vhdx -o block_size=1M",
        "vhdx -o subformat=fixed",
    ] {
        let image = dir.path().join("image");
        let mut convert = Command::new(&qemu_img);
        convert.args(["convert", "-f", "raw", "-O"]).args(options.split(' '));
        assert!(convert.arg(&raw).arg(&image).status().unwrap().success(), "{options}");
        assert!(read(&image).unwrap().starts_with(&content), "{options}");
        let bytes = fs::read(&image).unwrap();
        let used: Vec<usize> =
            (0..bytes.len()).filter(|at| ![0, DATA].contains(&bytes[*at])).collect();
        let file = File::options().write(true).open(&image).unwrap();
        let mut refused = 0;
        let count = 150 * setting("UXFS_ROUNDS", 1);
        for _ in 0..count {
            let mut changed = Vec::new();
            for _ in 0..=rng.index(3) {
                let at = (used[rng.index(used.len())] + rng.index(9)).min(bytes.len() - 1);
                file.write_all_at(&[rng.below(256) as u8], at as u64).unwrap();
                changed.push(at);
            }
            refused += u64::from(read(&image).is_none());
            for at in changed {
                file.write_all_at(&bytes[at..=at], at as u64).unwrap();
            }
        }
        assert!(refused > count / 20, "{options}: {refused} of {count} refused");
        assert!(read(&image).unwrap().starts_with(&content), "{options}");
    }
}
