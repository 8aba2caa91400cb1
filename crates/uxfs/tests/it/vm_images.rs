//! Disks in VMDK, VHDX and dynamic VHD images, damaged at random: an error or other content, but no panic, no
//! endless read and no memory without bound. `uxfs-cli/tests/it/disks.rs` reads volumes in undamaged ones.
//! uxfs's own reader, that of dynamic VHD, reads the bytes that qemu-img reads.

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
        "vpc -o subformat=dynamic",
        "vpc -o subformat=dynamic,force_size=on",
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

/// Runs qemu-img.
fn qemu_img(args: &str, paths: &[&Path]) {
    let mut command = Command::new(uxfs_oracle::program("qemu-img", "qemu-utils"));
    command.args(args.split(' ')).args(paths);
    assert!(command.status().unwrap().success(), "qemu-img {args}");
}

/// Disks of all kinds of lengths, with and without holes, as qemu-img writes them and reads them back.
#[test]
fn dynamic_vhd_images_are_those_of_qemu() {
    let dir = tempfile::tempdir().unwrap();
    let [raw, image, back] = ["raw", "image", "back"].map(|name| dir.path().join(name));
    let mut rng = Rng::new(20_261_129);
    for len in [512, (2 << 20) - 512, 2 << 20, (4 << 20) + 512, (37 << 20) + 1536, 2_500_001_280] {
        for size in ["off", "on"] {
            let file = File::create(&raw).unwrap();
            file.set_len(len).unwrap();
            for _ in 0..rng.index(12) {
                let mut piece = vec![0; rng.index(300_000).min(len as usize)];
                rng.fill(&mut piece);
                file.write_all_at(&piece, rng.below(len - piece.len() as u64 + 1)).unwrap();
            }
            let options = format!("convert -f raw -O vpc -o subformat=dynamic,force_size={size}");
            qemu_img(&options, &[&raw, &image]);
            qemu_img("convert -f vpc -O raw", &[&image, &back]);
            let expected = File::open(&back).unwrap();
            let disk = device::open(&image, OpenMode::Read, &Location::whole()).unwrap();
            assert_eq!(disk.len(), expected.metadata().unwrap().len(), "{len}, {size}");
            if size == "on" {
                assert_eq!(disk.len(), len);
            }
            let same = |at: u64, len: usize| {
                let (mut ours, mut theirs) = (vec![0xaa; len], vec![0; len]);
                disk.read_at(at, &mut ours).unwrap();
                expected.read_exact_at(&mut theirs, at).unwrap();
                assert!(ours == theirs, "{len} bytes at {at} of {}, {size}", disk.len());
            };
            let step = 3 * (1 << 20) + 77;
            for at in (0..disk.len().min(64 << 20)).step_by(step) {
                same(at, step.min((disk.len() - at) as usize));
            }
            for _ in 0..200 {
                let at = rng.below(disk.len());
                same(at, rng.index(100_000).min((disk.len() - at) as usize));
            }
            assert!(disk.read_at(disk.len() - 1, &mut [0; 2]).is_err());
            assert!(disk.write_at(0, &[1]).is_err() && disk.read_only());
        }
    }
}

/// Writes the checksum of all bytes but its own.
fn stamp(part: &mut [u8], at: usize) {
    part[at..at + 4].fill(0);
    let sum: u32 = part.iter().map(|byte| u32::from(*byte)).sum();
    part[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// Fields of footer, header and table with right checksums behind them.
#[test]
fn damaged_dynamic_vhd_images_with_right_checksums_do_no_harm() {
    /// Footer and header.
    const HEADS: usize = 1536;
    let dir = tempfile::tempdir().unwrap();
    let [raw, path] = ["raw", "image"].map(|name| dir.path().join(name));
    let mut content = vec![0; DISK];
    content[PIECE..2 * PIECE].fill(DATA);
    content[DISK - 512..].fill(DATA);
    fs::write(&raw, &content).unwrap();
    qemu_img("convert -f raw -O vpc -o subformat=dynamic,force_size=on", &[&raw, &path]);
    let good = fs::read(&path).unwrap();
    assert!(good[..512] == good[good.len() - 512..] && good[512..].starts_with(b"cxsparse"));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut rng = Rng::new(20_261_130);
    let (mut refused, mut other, count) = (0, 0, 2000 * setting("UXFS_ROUNDS", 1));
    // What is read, and the 8 bytes of the table for the two blocks.
    let fields = [16..24, 48..56, 60..64, 528..536, 536..540, 540..544, 544..548, 1536..1544];
    for round in 0..count {
        let mut bytes = good[..HEADS + 8].to_vec();
        for _ in 0..=rng.index(2) {
            let field = fields[rng.index(fields.len())].clone();
            match rng.index(3) {
                0 => bytes[field.start + rng.index(field.len())] = rng.below(256) as u8,
                1 => bytes[field.start + rng.index(field.len())] ^= 1 << rng.index(8),
                _ => bytes[field].fill([0, 0xff][rng.index(2)]),
            }
        }
        stamp(&mut bytes[..512], 64);
        stamp(&mut bytes[512..HEADS], 36);
        file.write_all_at(&bytes, 0).unwrap();
        file.write_all_at(&bytes[..512], good.len() as u64 - 512).unwrap();
        match read(&path) {
            None => refused += 1,
            Some(found) if found != content => other += 1,
            Some(_) => {}
        }
        if round % 100 == 0 {
            file.write_all_at(&good, 0).unwrap();
            assert!(read(&path).unwrap() == content);
        }
    }
    assert!(refused > count / 2 && other > count / 100, "{refused} refused, {other} others");
}
