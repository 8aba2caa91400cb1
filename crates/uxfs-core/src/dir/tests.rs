//! Random changes to a directory, against a map as the model, on volumes made by mkfs.xfs;
//! xfsprogs judge the result. All names lead to one file, whose link count counts them.

use core::ops::ControlFlow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_oracle::Rng;

use super::*;
use crate::OpenOptions;

/// Names and where they lead.
type Model = BTreeMap<Vec<u8>, Ino>;

/// A volume with a directory and a file.
struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    dir: Ino,
    file: Ino,
}

const PROTO: &str = "unused\n0 0\nd--755 0 0\nfile ---644 0 0 SOURCE\ndir d--755 0 0\n$\n$\n";

impl Volume {
    fn new(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, proto) = (dir.path().join("source"), dir.path().join("proto"));
        std::fs::write(&source, "x").unwrap();
        std::fs::write(&proto, PROTO.replace("SOURCE", source.to_str().unwrap())).unwrap();
        let path = dir.path().join("image");
        let proto = ["-p", proto.to_str().unwrap()];
        uxfs_oracle::mkfs(&path, 512 << 20, &[options, &proto].concat());
        let ino = |at: &str| {
            let value = uxfs_oracle::db_value(&path, &[&format!("path {at}")], "v3.inumber");
            value.parse().map(Ino).unwrap()
        };
        Self { dir: ino("/dir"), file: ino("/file"), _dir: dir, path }
    }

    fn open(&self) -> Fs {
        open(&self.path)
    }
}

fn open(path: &Path) -> Fs {
    let dev: Arc<dyn BlockDev> = Arc::new(FileDev::open(path, OpenMode::Write).unwrap());
    Fs::open(dev, OpenOptions { seed: Some(1), ..OpenOptions::default() }).unwrap()
}

/// Writes everything back.
fn close(fs: Fs) {
    fs.inodes.flush(&fs).unwrap();
    fs.bufs.write_back().unwrap();
    let sector = fs.edit_superblock(|_| {});
    fs.dev.write_at(0, &sector).unwrap();
}

/// What names look like.
#[derive(Clone, Copy, Debug)]
enum Names {
    /// Short, much alike.
    Short,
    /// Of all lengths.
    Mixed,
    /// All of one hash, by the thousand.
    OneHash,
}

fn name(rng: &mut Rng, names: Names, of: u64) -> Vec<u8> {
    let number = rng.below(of);
    match names {
        Names::Short => format!("file{number}").into_bytes(),
        Names::Mixed => {
            let mut name = format!("{number}-").into_bytes();
            let len = 1 + (number * 7919) as usize % 255;
            name.resize(name.len().max(len), b'x' ^ (number % 7) as u8);
            name
        }
        Names::OneHash => {
            // In eight bytes, bits of the third and fourth cancel out those of the last.
            let group = |bits: u64| {
                let bit = |at: u64| ((bits >> at) & 1) as u8;
                let mut g = *b"aaaaaaaa";
                g[2] ^= bit(0);
                g[3] ^= bit(1) << 4 | bit(2) << 5 | bit(3) << 6;
                g[7] ^= bit(0) << 3 | bit(1) | bit(2) << 1 | bit(3) << 2;
                g
            };
            (0..3).flat_map(|i| group(number >> (4 * i))).collect()
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Taste {
    names: Names,
    /// So many different names.
    of: u64,
    /// Steps of each phase: growing, changing, shrinking.
    steps: [u64; 2],
}

/// Enters or removes a random name, or makes it lead elsewhere; sometimes takes it all back.
fn step(fs: &Fs, volume: &Volume, model: &mut Model, rng: &mut Rng, taste: Taste, removals: u64) {
    let blocks = insert_blocks(&fs.geo);
    let mut tx = Tx::begin(fs, blocks).unwrap();
    let [dir, file] = tx.lock_inodes([volume.dir, volume.file]).unwrap();
    let mut name = name(rng, taste.names, taste.of);
    let remove = rng.below(100) < removals;
    if remove && !model.contains_key(&name) {
        match model.range(name.clone()..).next().or_else(|| model.iter().next()) {
            Some((near, _)) => name = near.clone(),
            None => return,
        }
    }
    let known = model.get(&name).copied();
    let found = lookup(fs, tx.inode(dir), &name).unwrap().map(|found| found.0);
    assert_eq!(found, known, "{:?}", String::from_utf8_lossy(&name));
    let keep = !rng.once_in(16);
    match (known, remove) {
        (None, false) => {
            insert(&mut tx, dir, &name, volume.file, FileType::Regular).unwrap();
            tx.core_mut(file).nlink += 1;
            if keep {
                model.insert(name, volume.file);
            }
        }
        (Some(ino), true) => {
            assert_eq!(super::remove(&mut tx, dir, &name).unwrap(), Some(ino));
            tx.core_mut(file).nlink -= 1;
            if keep {
                model.remove(&name);
            }
        }
        (None, true) => assert_eq!(super::remove(&mut tx, dir, &name).unwrap(), None),
        (Some(_), false) => {
            replace(&mut tx, dir, &name, volume.file, FileType::Unknown).unwrap();
            replace(&mut tx, dir, &name, volume.file, FileType::Regular).unwrap();
        }
    }
    if keep {
        tx.commit().unwrap();
    }
}

/// Reads the whole directory, in several goes, and compares.
fn check(fs: &Fs, volume: &Volume, model: &Model, rng: &mut Rng) {
    let cell = fs.inodes.get(fs, volume.dir).unwrap();
    let inode = cell.read();
    let mut seen = Model::new();
    let mut from = 0;
    loop {
        let (mut left, before) = (1 + rng.below(2000), from);
        read_dir(fs, &inode, from, &mut |entry| {
            assert!(entry.next > from);
            from = entry.next;
            match entry.name {
                b"." => assert_eq!(entry.ino, volume.dir),
                b".." => assert_eq!(entry.ino, fs.geo.root_ino),
                _ => {
                    assert_eq!(entry.ftype, FileType::Regular);
                    assert_eq!(seen.insert(entry.name.to_vec(), entry.ino), None);
                }
            }
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        if from == before {
            break;
        }
    }
    assert!(seen == *model, "{} entries, should be {}", seen.len(), model.len());
    assert_eq!(is_empty(fs, &inode).unwrap(), model.is_empty());
    assert_eq!(parent(fs, &inode).unwrap(), fs.geo.root_ino);
    for name in model.keys().filter(|_| rng.once_in(8)) {
        assert!(lookup(fs, &inode, name).unwrap().is_some());
    }
    for (dot, ino) in [(&b"."[..], volume.dir), (b"..", fs.geo.root_ino)] {
        assert_eq!(lookup(fs, &inode, dot).unwrap(), Some((ino, FileType::Directory)));
    }
}

fn form_name(fs: &Fs, ino: Ino) -> &'static str {
    let cell = fs.inodes.get(fs, ino).unwrap();
    match form(fs, &cell.read()).unwrap() {
        Form::Short => "short",
        Form::Block(_) => "block",
        Form::Leaf(_) => "leaf",
        Form::Node(_) => "node",
    }
}

fn judge(volume: &Volume, taste: Taste, entries: usize) -> core::result::Result<(), uxfs_oracle::Finding> {
    if matches!(taste.names, Names::OneHash) && entries > 100 {
        // xfs_repair of this time does not believe in two leaves that end in one hash.
        return uxfs_oracle::db_check(&volume.path);
    }
    uxfs_oracle::both(&volume.path)
}

/// Grows a directory, changes it, shrinks it to nothing, and has it judged on the way. Gives the
/// forms it had.
fn life(options: &[&str], taste: Taste, seed: u64) -> Vec<&'static str> {
    println!("options {options:?}, {taste:?}, seed {seed}");
    let volume = Volume::new(options);
    let mut rng = Rng::new(seed);
    let mut model = Model::new();
    let mut forms = Vec::new();
    let mut fs = volume.open();
    let phases = [(taste.steps[0], 15), (taste.steps[1], 50), (taste.steps[0] * 2, 95)];
    for (steps, removals) in phases {
        for _ in 0..steps {
            step(&fs, &volume, &mut model, &mut rng, taste, removals);
            let form = form_name(&fs, volume.dir);
            if forms.last() != Some(&form) {
                forms.push(form);
            }
        }
        if removals == 95 {
            while !model.is_empty() {
                step(&fs, &volume, &mut model, &mut rng, taste, 100);
            }
            assert_eq!(form_name(&fs, volume.dir), "short");
        }
        check(&fs, &volume, &model, &mut rng);
        close(fs);
        judge(&volume, taste, model.len()).unwrap_or_else(|f| panic!("{f}"));
        fs = volume.open();
        check(&fs, &volume, &model, &mut rng);
    }
    forms
}

#[test]
fn short_and_block_forms() {
    for seed in 0..4 {
        let taste = Taste { names: Names::Mixed, of: 30, steps: [60, 200] };
        let forms = life(&[], taste, seed);
        assert!(forms.starts_with(&["short", "block"]), "{forms:?}");
    }
}

#[test]
fn leaf_form() {
    for (seed, names) in [Names::Short, Names::Mixed, Names::OneHash].into_iter().enumerate() {
        let taste = Taste { names, of: 500, steps: [500, 2000] };
        let forms = life(&["-m", "rmapbt=1"], taste, seed as u64);
        assert!(forms.contains(&"leaf") && !forms.contains(&"node"), "{forms:?}");
    }
}

#[test]
fn node_form_in_small_blocks() {
    // Blocks of 1 KiB, where leaves and nodes fill up soon, and directory blocks of several.
    for (seed, size) in [(1, "4k"), (2, "8k")] {
        let taste = Taste { names: Names::Short, of: 30_000, steps: [15_000, 8000] };
        let size = format!("size={size}");
        let forms = life(&["-b", "size=1k", "-n", &size], taste, seed);
        assert!(forms.contains(&"node"), "{forms:?}");
    }
}

#[test]
fn node_form() {
    let taste = Taste { names: Names::Mixed, of: 20_000, steps: [12_000, 8000] };
    assert!(life(&[], taste, 1).contains(&"node"));
    let taste = Taste { names: Names::Short, of: 40_000, steps: [14_000, 8000] };
    assert!(life(&["-n", "size=64k", "-i", "nrext64=1"], taste, 2).contains(&"node"));
}

#[test]
fn names_of_one_hash_over_many_leaves() {
    let taste = Taste { names: Names::OneHash, of: 4096, steps: [4000, 3000] };
    assert!(life(&["-b", "size=1k"], taste, 3).contains(&"node"));
    assert!(life(&[], taste, 4).contains(&"node"));
}
