//! Damaged volumes and failing devices: errors, no panic, no endless loop, and a marked volume when it
//! may be inconsistent.

pub(crate) mod device;
mod fault;
mod v4;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uxfs::{Fs, NewInode, OpenOptions, Result, XattrMode, mkfs};
use uxfs_disk::{BlockDev, MemDev};
use uxfs_format::inode::{S_IFIFO, S_IFMT, S_IFREG};
use uxfs_oracle::Rng;

use crate::edit::{self, Editor};
use crate::volume::{MIB, setting};
use crate::watchdog::Watchdog;
use crate::{listing, names};

/// The bytes of a volume with every form of every structure.
pub(crate) fn rich(line: &str, mib: u64) -> Arc<Vec<u8>> {
    let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(mib * MIB));
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        options.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
    }
    let layout = mkfs::Layout::new(&options, mib * MIB).unwrap();
    mkfs::write(&layout, &*dev, &mkfs::WriteOptions::default()).unwrap();
    let fs = Fs::open(Arc::clone(&dev), OpenOptions::default()).unwrap();
    fill(&fs).unwrap();
    fs.close().unwrap();
    let mut bytes = vec![0; (mib * MIB) as usize];
    dev.read_at(0, &mut bytes).unwrap();
    Arc::new(bytes)
}

fn fill(fs: &Fs) -> Result<()> {
    let mut rng = Rng::new(7);
    let block = u64::from(fs.geo.block_size);
    // Directories in shortform, block, leaf and node form.
    for (number, count) in [3, 40, 150, 1500].into_iter().enumerate() {
        let name = format!("dir{number}");
        let dir = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755))?;
        for each in 0..count {
            let name = format!("a file with a rather long name {each}");
            let mode = [S_IFREG, S_IFREG, S_IFIFO][each % 3] | 0o600;
            fs.create(dir, name.as_bytes(), &NewInode::new(mode))?;
        }
        fs.symlink(dir, b"short", b"target", &NewInode::new(0))?;
        fs.symlink(dir, b"long", &[b'y'; 1000], &NewInode::new(0))?;
    }
    // Files with few and many extents, holes, and attributes in all forms.
    for (number, pieces) in [0, 1, 5, 60, 900].into_iter().enumerate() {
        let file = fs.create(fs.root(), format!("f{number}").as_bytes(), &NewInode::file(0o644))?;
        for piece in 0..pieces {
            fs.write_at(file, 2 * piece * block, &[number as u8; 100])?;
        }
        for attr in 0..[0, 2, 30, 300, 5][number] {
            let value = names::xattr_value(&mut rng);
            fs.set_xattr(file, format!("user.k{attr}").as_bytes(), &value, XattrMode::Any)?;
        }
    }
    for each in (0..1500).step_by(2) {
        let dir = fs.resolve(b"/dir3", true)?;
        let name = format!("a file with a rather long name {each}");
        fs.unlink(dir, name.as_bytes())?;
    }
    Ok(())
}

/// A structure's place, and the offset of its checksum.
struct Target {
    offset: usize,
    len: usize,
    crc: usize,
}

/// Finds the volume's metadata by the magic numbers.
fn targets(image: &[u8], block: usize, inode: usize) -> Vec<Target> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < image.len() {
        let head = &image[at..at + 16];
        let hit = match (&head[..4], &head[8..10]) {
            (b"XAGF", _) => Some((512, 216)),
            (b"XAGI", _) => Some((512, 312)),
            (b"XAFL", _) => Some((512, 32)),
            (b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC", _) => Some((block, 52)),
            (b"BMA3", _) => Some((block, 64)),
            (b"XDB3" | b"XDD3" | b"XDF3", _) => Some((block, 4)),
            (b"XARM" | b"XSLM", _) => Some((block, 12)),
            ([b'I', b'N', _, _], _) => Some((inode, 100)),
            (_, [0x3d, 0xf1 | 0xff] | [0x3e, 0xbe] | [0x3b, 0xee]) => Some((block, 12)),
            _ => None,
        };
        if let Some((len, crc)) = hit {
            found.push(Target { offset: at, len, crc });
        }
        at += 512;
    }
    found
}

/// Overwrites some bytes of a structure.
fn hurt(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..1 + rng.below(3) {
        // The header is hit more often.
        let len = if rng.once_in(3) { bytes.len() } else { bytes.len().min(200) };
        let at = rng.index(len);
        let wide = (1 << rng.below(4)).min(bytes.len() - at);
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at..at + wide].fill(0xff),
            2 => bytes[at..at + wide].fill(0),
            3 => bytes[at] = bytes[at].wrapping_add(1),
            4 => bytes[at..at + wide].copy_from_slice(&rng.bytes(wide)),
            _ => {
                let from = rng.index(bytes.len() - wide);
                bytes.copy_within(from..from + wide, at);
            }
        }
    }
}

/// Runs all operations on a volume, as far as possible.
fn use_it(dev: Arc<dyn BlockDev>, rng: &mut Rng) -> Result<()> {
    let mut options = OpenOptions::default();
    options.cache_bytes = 1 << 20;
    let fs = Fs::open(dev, options)?;
    let _ = listing::try_list(&fs);
    visit_all(&fs);
    match Editor::new(&fs, rng) {
        Ok(mut editor) => {
            for _ in 0..120 {
                let _ = editor.step();
            }
        }
        Err(_) => edit_root(&fs, rng),
    }
    let _ = fs.sync();
    // Whole trees are removed last.
    if let Ok(all) = edit::walk(&fs) {
        for found in all.iter().rev().take(400) {
            let _ = fs.unlink(found.dir, &found.name);
            let _ = fs.rmdir(found.dir, &found.name);
        }
    }
    fs.close()
}

/// Reads every file; damage of one file does not hide the others.
fn visit_all(fs: &Fs) {
    let mut todo = vec![fs.root()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(dir) = todo.pop() {
        if !seen.insert(dir) {
            continue;
        }
        for (name, ino) in listing::names(fs, dir).unwrap_or_default() {
            let _ = fs.lookup(dir, &name);
            let Ok(stat) = fs.stat(ino) else { continue };
            match stat.mode & S_IFMT {
                0o040000 => todo.push(ino),
                0o120000 => drop(fs.readlink(ino)),
                S_IFREG => {
                    let _ = fs.segments(ino);
                    let mut buf = vec![0; 1 << 16];
                    for at in [0, stat.size / 2, stat.size.saturating_sub(100)] {
                        let _ = fs.read_at(ino, at, &mut buf);
                    }
                }
                _ => {}
            }
            for name in fs.list_xattrs(ino).unwrap_or_default() {
                let _ = fs.get_xattr(ino, &name);
            }
        }
    }
}

fn edit_root(fs: &Fs, rng: &mut Rng) {
    for number in 0..40 {
        let name = format!("new {number}");
        if let Ok(ino) = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)) {
            let _ = fs.write_at(ino, rng.below(1 << 20), &[1; 5000]);
            let _ = fs.set_xattr(ino, b"user.x", &[2; 3000], XattrMode::Any);
        }
    }
}

#[test]
fn damaged_metadata_is_an_error_without_a_panic() {
    let dog = Watchdog::new("damaged metadata".into());
    let base = 1 + setting("UXFS_SEED", 0) * 1_000_000;
    let count = 300 * setting("UXFS_ROUNDS", 1);
    let lines = [
        ("-d agcount=2 -m rmapbt=1", 48, 4096, 512),
        ("-b size=1k -d agcount=2 -i nrext64=1 -m reflink=0", 48, 1024, 512),
        ("-b size=2k -i size=1024,sparse=0 -m finobt=0,inobtcount=0", 64, 2048, 1024),
    ];
    let mut bad = Vec::new();
    for (which, (line, mib, block, inode)) in lines.into_iter().enumerate() {
        let image = rich(line, mib);
        let copied = device::base(&image);
        let targets = targets(&image, block, inode);
        assert!(targets.len() > 1000, "{line}: {} structures found", targets.len());
        for each in 0..count {
            let seed = base + 100_000 * which as u64 + each;
            let only = setting("UXFS_ONLY", seed);
            if only != seed {
                continue;
            }
            dog.step(seed);
            let mut rng = Rng::new(seed);
            let dev = device::copy(&copied);
            for _ in 0..1 + rng.below(3) {
                // Rare kinds as often as inodes.
                let some: Vec<&Target> = match rng.below(3) {
                    0 => targets.iter().collect(),
                    1 => targets.iter().filter(|t| t.len != inode || t.crc != 100).collect(),
                    _ => targets
                        .iter()
                        .filter(|t| t.len == 512 && t.crc > 100 || t.crc == 52)
                        .collect(),
                };
                let target = some[rng.index(some.len())];
                let mut bytes = vec![0; target.len];
                dev.read_at(target.offset as u64, &mut bytes).unwrap();
                hurt(&mut rng, &mut bytes);
                if !rng.once_in(5) {
                    uxfs_format::crc::stamp(&mut bytes, target.crc);
                }
                dev.write_at(target.offset as u64, &bytes).unwrap();
            }
            if catch_unwind(AssertUnwindSafe(|| use_it(dev, &mut rng))).is_err() {
                eprintln!("seed {seed} ({line}): panic");
                bad.push(seed);
            }
        }
    }
    assert!(bad.is_empty(), "{} of the damaged volumes: panic: seeds {bad:?}", bad.len());
}
