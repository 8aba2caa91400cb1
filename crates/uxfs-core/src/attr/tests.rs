//! Tests: random changes to the attributes of every kind of inode, against a map as the model, on
//! volumes made by mkfs.xfs. xfsprogs check the result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::{FileBlock, Naming, da};
use uxfs_host::FileExt;
use uxfs_oracle::{Kernel, Rng, Value, Xfsprogs, vm};

use super::*;
use crate::bmap;
use crate::tx::Tx;
use crate::{Fs, OpenOptions, XattrMode};

/// Namespace, name, and for parent pointers the value.
type Key3 = (Namespace, Vec<u8>, Vec<u8>);
type Model = BTreeMap<Key3, Vec<u8>>;

const PROTO: &str = "unused\n0 0\nd--755 0 0\n\
    reg ---644 0 0 SOURCE\n\
    extents ---644 0 0 SOURCE\n\
    dir d--755 0 0\n a ---644 0 0 SOURCE\n b ---644 0 0 SOURCE\n $\n\
    large d--755 0 0\nFILES $\n\
    link l--777 0 0 some/where\n\
    medium l--777 0 0 MEDIUM\n\
    full l--777 0 0 FULL\n\
    chr c--644 0 0 5 1\n\
    fifo p--644 0 0\n\
    $\n$\n";

const PATHS: [&str; 9] =
    ["reg", "extents", "dir", "link", "medium", "chr", "fifo", "full", "large"];

/// Protofile lines for mkfs.xfs: as many files as fit a directory in an inode of 512 bytes, with a
/// few bytes to spare.
fn files(source: &str) -> String {
    (0..19).map(|n| format!(" long-{n:04} ---644 0 0 {source}\n")).collect()
}

/// A volume with one inode of each kind.
struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    inos: Vec<Ino>,
    /// All releases of xfsprogs accept the volume as it was made.
    agreed: bool,
}

impl Volume {
    fn new(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (source, proto) = (dir.path().join("source"), dir.path().join("proto"));
        std::fs::write(&source, vec![7; 5000]).unwrap();
        let text = PROTO
            .replace("SOURCE", source.to_str().unwrap())
            .replace("FILES", &files(source.to_str().unwrap()))
            .replace("MEDIUM", &"m".repeat(250))
            .replace("FULL", &"f".repeat(330));
        std::fs::write(&proto, text).unwrap();
        let path = dir.path().join("image");
        let proto = ["-p", proto.to_str().unwrap()];
        uxfs_oracle::mkfs(&path, 300 << 20, &[options, &proto].concat());
        let ino = |name: &&str| {
            let at = format!("path /{name}");
            uxfs_oracle::db_value(&path, &[&at], "v3.inumber").parse().map(Ino).unwrap()
        };
        let inos = PATHS.iter().map(ino).collect();
        // On small volumes with large blocks the releases disagree before anything has changed.
        let agreed = Xfsprogs::Current.repair(&path).is_ok();
        Self { _dir: dir, path, inos, agreed }
    }

    fn open(&self) -> Fs {
        open(&self.path)
    }

    /// Closes the volume and checks it with xfsprogs.
    fn close(&self, fs: Fs, seed: u64) {
        fs.close().unwrap();
        let checked = match self.agreed {
            true => uxfs_oracle::both(&self.path),
            false => {
                uxfs_oracle::repair(&self.path).and_then(|()| uxfs_oracle::db_check(&self.path))
            }
        };
        checked.unwrap_or_else(|f| panic!("seed {seed}: {f}"));
    }
}

fn open(path: &Path) -> Fs {
    Fs::open(device(path), OpenOptions::default()).unwrap()
}

fn device(path: &Path) -> Arc<dyn BlockDev> {
    Arc::new(FileDev::open(path, OpenMode::Write).unwrap())
}

/// Parameters of random changes.
#[derive(Clone, Copy)]
struct Mix {
    names: u64,
    long_names: u64,
    value: u64,
    removals: u64,
}

const MIXES: [Mix; 5] = [
    Mix { names: 8, long_names: 10, value: 20, removals: 3 },
    Mix { names: 60, long_names: 4, value: 300, removals: 4 },
    Mix { names: 400, long_names: 2, value: 700, removals: 10 },
    Mix { names: 12, long_names: 3, value: 65537, removals: 3 },
    Mix { names: 400, long_names: 3, value: 40, removals: 1 },
];

fn random_key(rng: &mut Rng, mix: Mix) -> Key3 {
    let all = [Namespace::User, Namespace::User, Namespace::Trusted, Namespace::Secure];
    let number = rng.below(mix.names);
    let mut name = format!("n{number}").into_bytes();
    if number.is_multiple_of(mix.long_names) {
        let len = [100, 254, 255][number as usize % 3];
        name.resize(len, b'x');
    }
    if number % 5 == 1 {
        name = colliding(number as u8 % 64);
    }
    (all[number as usize % 4], name, Vec::new())
}

/// Changes a key to one that Linux can read: shorter, and not of `user` except on files and
/// directories.
fn to_linux_key(which: usize, (namespace, mut name, value): Key3) -> Key3 {
    name.truncate(200);
    let plain = matches!(PATHS[which], "reg" | "extents" | "dir" | "large");
    let namespace = if plain { namespace } else { namespace.max(Namespace::Trusted) };
    (namespace, name, value)
}

fn check(fs: &Fs, ino: Ino, model: &Model, seed: u64) {
    let cell = fs.inodes.get(fs, ino).unwrap();
    let inode = cell.read();
    let mut listed = Vec::new();
    list(fs, &inode, &mut |namespace, name, len| {
        listed.push((namespace, name.to_vec(), len));
        ControlFlow::Continue(())
    })
    .unwrap();
    listed.sort();
    let expected: Vec<_> = model.iter().map(|((n, k, _), v)| (*n, k.clone(), v.len())).collect();
    assert_eq!(listed, expected, "seed {seed} inode {ino}");
    for ((namespace, name, _), value) in model {
        let seen = get(fs, &inode, *namespace, name).unwrap();
        assert!(seen.as_ref() == Some(value), "seed {seed} inode {ino}: {namespace:?} {name:?}");
    }
    assert_eq!(get(fs, &inode, Namespace::User, b"not there").unwrap(), None);
}

/// Makes one change. One in eight is cancelled.
fn change(fs: &Fs, ino: Ino, model: &mut Model, rng: &mut Rng, mix: Mix, key: Key3) {
    let len = if rng.once_in(3) { rng.below(30) } else { rng.below(mix.value) } as usize;
    let value = rng.bytes(len);
    let mut tx = Tx::begin(fs, set_blocks(&fs.geo, len)).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    let removal = rng.below(mix.removals + 2) >= 2;
    if removal {
        let existed = remove(&mut tx, slot, key.0, &key.1).unwrap();
        assert_eq!(existed, model.contains_key(&key));
    } else {
        set(&mut tx, slot, key.0, &key.1, &value).unwrap();
    }
    assert!(tx.blocks_left() > 0, "the reservation is too small for {len} bytes");
    if rng.once_in(8) {
        return;
    }
    tx.commit().unwrap();
    if removal {
        model.remove(&key);
    } else {
        model.insert(key, value);
    }
}

/// Gives a file as many extents as its fork holds, so that new attributes move them into a tree.
fn fragment(fs: &Fs, ino: Ino, extents: u64) {
    for at in 0..extents {
        let mut tx = Tx::begin(fs, 20).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        bmap::alloc_all(&mut tx, slot, Fork::Data, FileBlock(10 + 2 * at), 1).unwrap();
        tx.core_mut(slot).size = (11 + 2 * at) * u64::from(fs.geo.block_size);
        tx.commit().unwrap();
    }
}

fn random_changes(options: &[&str], seed: u64) {
    let volume = Volume::new(options);
    let mut rng = Rng::new(seed);
    let mut models = vec![Model::new(); PATHS.len()];
    let fs = volume.open();
    // Either as many extents as fit into the inode, or a tree of them.
    let extents = if seed == 2 { 200 } else { fs.geo.literal_len() / 16 - 1 };
    fragment(&fs, volume.inos[1], extents as u64);
    volume.close(fs, seed);
    for round in 0..MIXES.len() * 2 {
        let fs = volume.open();
        let mix = MIXES[(round + seed as usize) % MIXES.len()];
        for (ino, model) in volume.inos.iter().zip(&mut models) {
            for step in 0..60 {
                let key = random_key(&mut rng, mix);
                change(&fs, *ino, model, &mut rng, mix, key);
                if step % 10 == 9 {
                    check(&fs, *ino, model, seed);
                }
            }
        }
        volume.close(fs, seed);
        let fs = volume.open();
        for (ino, model) in volume.inos.iter().zip(&models) {
            check(&fs, *ino, model, seed);
        }
    }
    // Remove every attribute, one by one.
    let fs = volume.open();
    for (ino, model) in volume.inos.iter().zip(&models) {
        for (namespace, name, _) in model.keys() {
            let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 0)).unwrap();
            let slot = tx.lock_inode(*ino).unwrap();
            assert!(remove(&mut tx, slot, *namespace, name).unwrap());
            tx.commit().unwrap();
        }
        let cell = fs.inodes.get(&fs, *ino).unwrap();
        assert_eq!(form(&cell.read()).unwrap(), Form::Empty, "seed {seed}");
    }
    volume.close(fs, seed);
}

#[test]
fn random_changes_at_4k() {
    random_changes(&["-m", "reflink=1"], 1);
}

#[test]
fn random_changes_at_1k_with_reverse_mappings() {
    random_changes(&["-b", "size=1k", "-m", "rmapbt=1"], 2);
}

#[test]
fn random_changes_with_large_inodes() {
    random_changes(&["-i", "size=1024,nrext64=1", "-b", "size=2k"], 3);
}

#[test]
fn random_changes_in_the_largest_blocks() {
    random_changes(&["-b", "size=64k", "-i", "size=2048"], 4);
}

#[test]
fn thousands_of_attributes_are_set_and_removed() {
    let volume = Volume::new(&["-b", "size=1k", "-m", "rmapbt=1"]);
    let fs = volume.open();
    let ino = volume.inos[0];
    let mut model = Model::new();
    let mut rng = Rng::new(7);
    for number in 0..4000u32 {
        let len = if number % 50 == 0 { 900 } else { rng.index(120) };
        let (name, value) = (format!("attribute-{number}").into_bytes(), rng.bytes(len));
        // Alternate between two inodes, so that their blocks are not contiguous.
        for ino in [ino, volume.inos[3]] {
            let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 900)).unwrap();
            let slot = tx.lock_inode(ino).unwrap();
            set(&mut tx, slot, Namespace::User, &name, &value).unwrap();
            tx.commit().unwrap();
        }
        model.insert((Namespace::User, name, Vec::new()), value);
    }
    check(&fs, ino, &model, 7);
    check(&fs, volume.inos[3], &model, 7);
    volume.close(fs, 7);
    let fs = volume.open();
    check(&fs, ino, &model, 7);
    let mut steps = 0;
    loop {
        let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 0)).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        let done = remove_all(&mut tx, slot).unwrap();
        tx.commit().unwrap();
        check(&fs, ino, &Model::new(), 7);
        steps += 1;
        if done {
            break;
        }
    }
    assert!(steps > 1, "remove_all needs several transactions");
    assert!(!fs.inodes.get(&fs, ino).unwrap().read().core.has_attr_fork());
    volume.close(fs, 7);
}

#[test]
fn equal_hashes_span_many_leaves() {
    let volume = Volume::new(&["-b", "size=1k"]);
    let fs = volume.open();
    let ino = volume.inos[3];
    let mut model = Model::new();
    let names: Vec<Vec<u8>> = (0..64).map(colliding).collect();
    for (number, name) in names.iter().enumerate() {
        let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 300)).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        let value = vec![number as u8; 200 + number];
        set(&mut tx, slot, Namespace::User, name, &value).unwrap();
        tx.commit().unwrap();
        model.insert((Namespace::User, name.clone(), Vec::new()), value);
        check(&fs, ino, &model, 0);
    }
    let hashes: Vec<u32> = names.iter().map(|n| Naming::Exact.hash(n)).collect();
    assert!(hashes.iter().all(|h| *h == hashes[0]));
    // No check here: xfs_repair requires every leaf to end with a higher hash than the one before.
    fs.close().unwrap();
    let fs = volume.open();
    for name in names.iter().rev().step_by(2).chain(names.iter().step_by(2)) {
        let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 0)).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        assert!(remove(&mut tx, slot, Namespace::User, name).unwrap());
        tx.commit().unwrap();
        model.remove(&(Namespace::User, name.clone(), Vec::new()));
        check(&fs, ino, &model, 0);
    }
    volume.close(fs, 0);
}

/// One of 64 names with the same hash.
fn colliding(number: u8) -> Vec<u8> {
    let name_hash = |name: &[u8]| Naming::Exact.hash(name);
    let mut name = vec![b'a', b'a', 0x40 | number, b'a', b'b', b'b', b'b', b'b'];
    // Each of the last four bytes adds itself to the hash, shifted by 21, 14, 7 and 0 bits. Changes
    // to the third byte overlap these bits.
    let off = name_hash(&name) ^ name_hash(b"aa@abbbb");
    let parts = [off >> 21, off >> 14, off >> 7, off];
    for (byte, part) in name[4..].iter_mut().zip(parts) {
        *byte ^= part as u8 & 0x7f;
    }
    name
}

#[test]
fn no_space_changes_nothing() {
    let volume = Volume::new(&["-b", "size=1k", "-m", "rmapbt=1"]);
    let fs = volume.open();
    let filler = volume.inos[1];
    // Leave only a little space: allocate the rest to one file, in separate transactions.
    loop {
        let want = fs.available_blocks().saturating_sub(120).min(4000);
        if want < 40 {
            break;
        }
        let mut tx = Tx::begin(&fs, want + 30).unwrap();
        let slot = tx.lock_inode(filler).unwrap();
        let size = tx.inode(slot).core.size;
        let at = fs.geo.blocks_for(size);
        if bmap::alloc_all(&mut tx, slot, Fork::Data, FileBlock(at), want).is_err() {
            break;
        }
        tx.core_mut(slot).size = (at + want) * u64::from(fs.geo.block_size);
        tx.commit().unwrap();
    }
    let mut rng = Rng::new(5);
    let mut models = vec![Model::new(); PATHS.len()];
    let mut refused = 0;
    for step in 0..1500 {
        let which = [0, 2, 3, 5][step % 4];
        let (ino, model) = (volume.inos[which], &mut models[which]);
        let key = random_key(&mut rng, MIXES[2]);
        let len = rng.index(4000);
        let value = rng.bytes(len);
        let Ok(mut tx) = Tx::begin(&fs, set_blocks(&fs.geo, len).min(rng.below(40))) else {
            refused += 1;
            continue;
        };
        let slot = tx.lock_inode(ino).unwrap();
        let done = if rng.once_in(5) {
            remove(&mut tx, slot, key.0, &key.1).map(|_| None)
        } else {
            set(&mut tx, slot, key.0, &key.1, &value).map(|()| Some(value))
        };
        match done {
            Ok(value) => {
                if let Err(error) = tx.commit() {
                    assert!(matches!(error, Error::NoSpace), "{error}");
                    refused += 1;
                    continue;
                }
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 100, "{refused} refusals");
    for (ino, model) in volume.inos.iter().zip(&models) {
        check(&fs, *ino, model, 5);
    }
    volume.close(fs, 5);
}

#[test]
fn kernels_read_attributes_set_here() {
    let configs: [&[&str]; 3] = [
        &[],
        &["-b", "size=1k", "-m", "rmapbt=1"],
        &["-i", "size=1024,nrext64=1", "-b", "size=2k"],
    ];
    let mut rng = Rng::new(11);
    let volumes: Vec<Volume> = configs.iter().map(|options| Volume::new(options)).collect();
    let mut models = vec![vec![Model::new(); PATHS.len()]; volumes.len()];
    for (volume, models) in volumes.iter().zip(&mut models) {
        let fs = volume.open();
        for (which, (ino, model)) in volume.inos.iter().zip(models).enumerate() {
            let mix = MIXES[which % MIXES.len()];
            for _ in 0..150 {
                let key = to_linux_key(which, random_key(&mut rng, mix));
                change(&fs, *ino, model, &mut rng, mix, key);
            }
        }
        volume.close(fs, 11);
    }
    let images: Vec<&Path> = volumes.iter().map(|v| v.path.as_path()).collect();
    for kernel in Kernel::ALL {
        let listings = vm::list(kernel, &images).unwrap_or_else(|f| panic!("{f}"));
        for (listing, models) in listings.iter().zip(&models) {
            for (name, model) in PATHS.iter().zip(models) {
                let entry = listing.get(format!("/{name}").as_bytes()).unwrap();
                let expected: Vec<_> = model
                    .iter()
                    .map(|((n, name, _), v)| (names::shown(*n, name).unwrap().0.into_owned(), v))
                    .collect();
                assert_eq!(entry.xattrs.len(), expected.len(), "{name}");
                for (full, value) in expected {
                    let seen = entry.xattrs.get(&full).unwrap();
                    assert!(*seen == Value::of(value), "{name} {}", full.escape_ascii());
                }
            }
        }
    }
}

#[test]
fn attributes_set_by_kernels_are_read_and_changed() {
    let configs: [&[&str]; 2] = [&["-m", "rmapbt=1"], &["-b", "size=1k", "-i", "nrext64=1"]];
    for (seed, (options, kernel)) in (20..).zip(configs.into_iter().zip(Kernel::ALL)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        uxfs_oracle::mkfs(&path, 300 << 20, options);
        let listing = vm::age(kernel, &path, seed, 1500).unwrap_or_else(|f| panic!("{f}"));
        let fs = open(&path);
        let mut rng = Rng::new(seed);
        let mut with_attrs = 0;
        for entry in listing.entries.iter().filter(|e| e.link.is_none()) {
            let cell = fs.inodes.get(&fs, Ino(entry.ino)).unwrap();
            let mut model = Model::new();
            for (full, value) in &entry.xattrs {
                // Kernels show access control lists to root under both names.
                if full.starts_with(b"trusted.SGI_ACL_") {
                    continue;
                }
                let stored = names::stored(full).unwrap();
                let raw = get(&fs, &cell.read(), stored.namespace, stored.name).unwrap().unwrap();
                let seen = stored.coding.decode(raw.clone()).unwrap();
                assert!(*value == Value::of(&seen), "seed {seed} {}", full.escape_ascii());
                model.insert((stored.namespace, stored.name.to_vec(), Vec::new()), raw);
            }
            check(&fs, Ino(entry.ino), &model, seed);
            with_attrs += usize::from(!model.is_empty());
            for step in 0..if model.is_empty() { 0 } else { 30 } {
                let mut key = random_key(&mut rng, MIXES[2]);
                if step % 3 == 0 && !model.is_empty() {
                    key = model.keys().nth(rng.index(model.len())).unwrap().clone();
                }
                change(&fs, Ino(entry.ino), &mut model, &mut rng, MIXES[2], key);
            }
            check(&fs, Ino(entry.ino), &model, seed);
        }
        assert!(with_attrs > 20, "{with_attrs} inodes with attributes");
        fs.close().unwrap();
        uxfs_oracle::both_after_old_kernel(&path).unwrap_or_else(|f| panic!("seed {seed}: {f}"));
    }
}

#[test]
fn incomplete_attributes_are_invisible_and_replaced() {
    let volume = Volume::new(&[]);
    let fs = volume.open();
    let ino = volume.inos[0];
    let mut tx = Tx::begin(&fs, 100).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    set(&mut tx, slot, Namespace::User, b"large", &[1; 3000]).unwrap();
    for (name, len) in [(&b"small"[..], 5), (b"wide", 9000), (b"gone", 5000)] {
        let key = Key::new(&fs.geo, Namespace::User, name, None).unwrap();
        let mut item = make_item(&mut tx, slot, &key, &vec![2; len]).unwrap();
        item.flags |= AttrFlags::INCOMPLETE;
        tree::insert(&mut tx, slot, item).unwrap();
    }
    tx.commit().unwrap();
    let mut model = Model::from([((Namespace::User, b"large".to_vec(), vec![]), vec![1; 3000])]);
    check(&fs, ino, &model, 0);
    let mut tx = Tx::begin(&fs, 100).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    set(&mut tx, slot, Namespace::User, b"small", b"new").unwrap();
    set(&mut tx, slot, Namespace::User, b"wide", &[3; 9000]).unwrap();
    assert!(!remove(&mut tx, slot, Namespace::User, b"gone").unwrap());
    tx.commit().unwrap();
    model.insert((Namespace::User, b"small".to_vec(), vec![]), b"new".to_vec());
    model.insert((Namespace::User, b"wide".to_vec(), vec![]), vec![3; 9000]);
    check(&fs, ino, &model, 0);
    volume.close(fs, 0);
}

/// Makes all possible changes to an inode's attributes and ignores the results.
fn try_all(path: &Path, ino: Ino, names: &[Vec<u8>], rng: &mut Rng) {
    let Ok(fs) = Fs::open(device(path), OpenOptions::default()) else { return };
    let Ok(cell) = fs.inodes.get(&fs, ino) else { return };
    let mut shown = 0;
    let _ = list(&fs, &cell.read(), &mut |_, _, _| {
        shown += 1;
        ControlFlow::Continue(())
    });
    assert!(shown < 100_000, "the list does not end");
    for name in names.iter().step_by(20) {
        let _ = get(&fs, &cell.read(), Namespace::User, name);
        for what in 0..3 {
            let Ok(mut tx) = Tx::begin(&fs, 100) else { return };
            let Ok(slot) = tx.lock_inode(ino) else { return };
            let done = match what {
                0 => set(&mut tx, slot, Namespace::User, name, &[9; 300]).is_ok(),
                1 => remove(&mut tx, slot, Namespace::User, name).is_ok(),
                _ => rng.once_in(40) && remove_all(&mut tx, slot).is_ok(),
            };
            if done && rng.once_in(2) {
                let _ = tx.commit();
            }
        }
    }
}

#[test]
fn damaged_blocks_cause_no_panic_or_endless_loop() {
    let volume = Volume::new(&["-b", "size=1k"]);
    let fs = volume.open();
    let (ino, short) = (volume.inos[0], volume.inos[2]);
    let names: Vec<Vec<u8>> = (0..400).map(|n| format!("name-{n}").into_bytes()).collect();
    for (number, name) in names.iter().enumerate() {
        let mut tx = Tx::begin(&fs, 100).unwrap();
        let [slot, other] = tx.lock_inodes([ino, short]).unwrap();
        let len = if number % 100 == 0 { 5000 } else { 30 };
        set(&mut tx, slot, Namespace::User, name, &vec![5; len]).unwrap();
        if number % 100 < 4 {
            set(&mut tx, other, Namespace::User, name, b"short").unwrap();
        }
        tx.commit().unwrap();
    }
    // The byte offsets of the attribute blocks and of the inodes.
    let cell = fs.inodes.get(&fs, ino).unwrap();
    let mut blocks = Vec::new();
    let end = bmap::last_before(&fs, &cell.read(), Fork::Attr, FileBlock(1 << 32)).unwrap();
    for at in 0..end.0 {
        if let Some(e) = bmap::lookup(&fs, &cell.read(), Fork::Attr, FileBlock(at)).unwrap() {
            blocks.push(fs.geo.fsb_daddr(e.start.plus(at - e.offset.0)).bytes());
        }
    }
    let inode_size = fs.geo.inode_size as usize;
    let inode_offsets = [ino, short].map(|ino| {
        let (buf, at) = crate::inode::read_cluster(&fs, ino).unwrap();
        buf.daddr().bytes() + at as u64
    });
    drop(cell);
    fs.close().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&volume.path).unwrap();
    let mut rng = Rng::new(99);
    for round in 0..600 {
        println!("seed 99 round {round}");
        let inode = round % 4 == 3;
        let which = rng.index(2);
        let (offset, len) = match inode {
            true => (inode_offsets[which], inode_size),
            false => (blocks[rng.index(blocks.len())], 1024),
        };
        let mut good = vec![0; len];
        file.read_exact_at(&mut good, offset).unwrap();
        let mut bad = good.clone();
        for _ in 0..1 + rng.below(3) {
            // Damage headers and entries more often than names and values.
            let at = if rng.once_in(3) { rng.index(len) } else { 56 + rng.index(140) };
            bad[at] = [rng.bits() as u8, 0, 1, 0xff, bad[at] ^ 0x80][rng.index(5)];
        }
        uxfs_format::crc::stamp(&mut bad, if inode { 100 } else { 12 });
        file.write_all_at(&bad, offset).unwrap();
        let ino = if inode { [ino, short][which] } else { ino };
        try_all(&volume.path, ino, &names, &mut rng);
        file.write_all_at(&good, offset).unwrap();
    }
}

#[test]
fn parent_pointers_are_identified_by_their_value() {
    let volume = Volume::new(&[]);
    let fs = volume.open();
    let ino = volume.inos[0];
    let parents: Vec<Ino> = (0..300u64).map(|n| Ino(128 + 3 * n + ((n % 2) << 33))).collect();
    for parent in &parents {
        let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 12)).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        add_parent(&mut tx, slot, b"same", *parent, 9).unwrap();
        set(&mut tx, slot, Namespace::User, b"same", b"x").unwrap();
        tx.commit().unwrap();
    }
    let has = |parent: Ino, generation| {
        let cell = fs.inodes.get(&fs, ino).unwrap();
        has_parent(&fs, &cell.read(), b"same", parent, generation).unwrap()
    };
    assert!(parents.iter().all(|p| has(*p, 9) && !has(*p, 8)));
    for parent in parents.iter().step_by(2) {
        let mut tx = Tx::begin(&fs, set_blocks(&fs.geo, 12)).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        assert!(remove_parent(&mut tx, slot, b"same", *parent, 9).unwrap());
        assert!(!remove_parent(&mut tx, slot, b"same", *parent, 9).unwrap());
        tx.commit().unwrap();
    }
    for (number, parent) in parents.iter().enumerate() {
        assert_eq!(has(*parent, 9), number % 2 == 1);
    }
}

/// A node that leads to one leaf again and again does not keep a reader.
#[test]
fn a_walk_over_leaves_that_form_a_cycle_ends() {
    const CRC: usize = 12;
    let volume = Volume::new(&[]);
    let (fs, ino) = (volume.open(), volume.inos[0]);
    for number in 0..400 {
        let name = format!("user.{number:04}");
        fs.set_xattr(ino, name.as_bytes(), &[7; 100], XattrMode::Any).unwrap();
    }
    assert_eq!(fs.list_xattrs(ino).unwrap().len(), 400);
    // The number of blocks is the image's to choose.
    let mut tx = Tx::begin(&fs, 0).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    tx.core_mut(slot).nblocks = fs.geo.dblocks;
    tx.commit().unwrap();
    fs.close().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&volume.path).unwrap();
    let block = |number: u32| {
        let to = [&*format!("inode {}", ino.0), &format!("ablock {number}"), "daddr"];
        let at = uxfs_oracle::db(&volume.path, &to);
        let at = at.split_whitespace().last().unwrap().parse::<u64>().unwrap() * 512;
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at).unwrap();
        (at, bytes)
    };
    let put = |(at, mut bytes): (u64, Vec<u8>)| {
        uxfs_format::crc::stamp(&mut bytes, CRC);
        file.write_all_at(&bytes, at).unwrap();
    };
    let (at, mut node) = block(0);
    assert_eq!((da::magic(&node), da::level(&node)), (da::NODE_MAGIC, 1));
    let last = da::count(&node) - 1;
    let (hash, child) = (da::hash(&node, last), da::child(&node, last));
    for entry in node[da::ENTRIES..].chunks_exact_mut(da::ENTRY_LEN) {
        entry.copy_from_slice(&da::entry(hash, child));
    }
    da::put_node_header(&mut node, da::capacity(4096), 1);
    put((at, node));
    // The leaf says that it follows itself.
    let (at, mut leaf) = block(child);
    da::FORW.set(&mut leaf, child);
    da::BACK.set(&mut leaf, child);
    put((at, leaf));
    let fs = Fs::open(device(&volume.path), OpenOptions::read_only()).unwrap();
    let error = fs.list_xattrs(ino).unwrap_err();
    assert!(error.to_string().contains("form a cycle"), "{error}");
}
