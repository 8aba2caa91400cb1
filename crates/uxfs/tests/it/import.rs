//! Imports from directories and archives, compared with their source through the library and by the
//! kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use uxfs::import::{Headroom, ImportError, ImportOptions, ImportSource, ImportSummary, run};
use uxfs::{Error, Fs, OpenOptions};
use uxfs_archive::{Entry, Kind, Meta, SparseMap, TarWriter, Time};
use uxfs_disk::OpenMode;
use uxfs_format::acl::Acl;
use uxfs_oracle::{ContentSum, Fields, Kernel, Listing, Rng, Value, lister, program};

use crate::{listing, names, volume};

/// An entry of an archive and its data without holes.
struct Item {
    entry: Entry,
    data: Vec<u8>,
}

fn item(rng: &mut Rng, path: impl Into<Vec<u8>>, kind: Kind) -> Item {
    let data = match &kind {
        Kind::File { map, .. } => rng.bytes(map.data_len() as usize),
        _ => Vec::new(),
    };
    let mut meta = Meta {
        mode: if matches!(kind, Kind::Symlink { .. }) { 0o777 } else { rng.below(0o10000) as u32 },
        uid: rng.below(100_000) as u32,
        gid: rng.below(1 << 32) as u32,
        mtime: Time {
            sec: rng.below(1 << 32) as i64 - (1 << 30),
            nsec: rng.below(1_000_000_000) as u32,
        },
        ..Meta::default()
    };
    if matches!(kind, Kind::File { .. } | Kind::Dir) && rng.once_in(3) {
        meta.xattrs.push((b"user.note".to_vec(), names::xattr_value(rng)));
        meta.xattrs.push((b"trusted.x".to_vec(), rng.bytes(300)));
        // Archives do not store an access list that is equal to the mode.
        let list = std::iter::repeat_with(|| names::acl(rng, 5));
        let mut list = list.map(|raw| Acl::from_linux(&raw).unwrap().unwrap());
        let list = list.find(|list| !list.is_minimal()).unwrap();
        meta.mode = meta.mode & 0o7000 | u32::from(list.permissions());
        meta.xattrs.push((b"system.posix_acl_access".to_vec(), list.to_linux()));
        meta.xattrs.sort();
    }
    Item { entry: Entry { path: path.into(), kind, meta }, data }
}

fn file(rng: &mut Rng, path: impl Into<Vec<u8>>, size: u64) -> Item {
    item(rng, path, Kind::File { size, map: SparseMap::whole(size) })
}

/// A tree with everything that an archive can hold.
fn everything(seed: u64) -> Vec<Item> {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let mut all = vec![item(rng, "", Kind::Dir)];
    all.push(item(rng, "empty dir", Kind::Dir));
    for (number, size) in [0, 1, 511, 4096, 4097, 70_000, 3_000_000].into_iter().enumerate() {
        all.push(file(rng, format!("file{number}"), size));
    }
    let (size, segments) = (1 << 33, [(0, 4096), (1 << 20, 8192), ((1 << 33) - 4096, 4096)]);
    let map = SparseMap::from_segments(size, segments).unwrap();
    all.push(item(rng, "sparse", Kind::File { size, map }));
    let map = SparseMap::from_segments(50_000, [(512, 512), (5000, 100), (40_000, 9000)]).unwrap();
    all.push(item(rng, "sparse, not in blocks", Kind::File { size: 50_000, map }));
    all.push(item(rng, "all hole", Kind::File { size: 1 << 30, map: SparseMap::default() }));
    for len in [1, 59, 60, 400, 1023] {
        all.push(item(rng, format!("link{len}"), Kind::Symlink { target: vec![b'l'; len] }));
    }
    all.push(item(rng, "char", Kind::Char { major: 4, minor: 64 }));
    all.push(item(rng, "block", Kind::Block { major: 259, minor: 70_000 }));
    all.push(item(rng, "fifo", Kind::Fifo));
    all.push(file(rng, [b'n'; 255], 5));
    all.push(file(rng, *b"bytes \x01\x80\xff\n\\", 6));
    let mut capable = file(rng, "capable", 20);
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    capable.entry.meta.xattrs = vec![(b"security.capability".to_vec(), capability.to_vec())];
    all.push(capable);
    let mut deep = b"deep".to_vec();
    for level in 0..40 {
        all.push(item(rng, deep.clone(), Kind::Dir));
        deep.extend_from_slice(format!("/{}{level}", "level".repeat(8)).as_bytes());
    }
    all.push(file(rng, deep, 10));
    for dir in 0..30 {
        all.push(item(rng, format!("dir{dir}"), Kind::Dir));
        for each in 0..dir * 4 {
            let size = rng.below(9000);
            all.push(file(rng, format!("dir{dir}/a file {each}"), size));
        }
    }
    for (number, target) in ["file5", "char", "link59", "dir20/a file 3"].into_iter().enumerate() {
        all.push(item(rng, format!("hard{number}"), Kind::Hardlink { target: target.into() }));
    }
    all
}

fn write_tar(path: &Path, items: &[Item]) {
    let mut tar = TarWriter::new(File::create(path).unwrap());
    for item in items {
        tar.entry(&item.entry, &mut Cursor::new(&item.data)).unwrap();
    }
    tar.finish().unwrap();
}

/// The expected content after importing these; later entries replace earlier ones.
fn wanted(items: &[Item]) -> Listing {
    let mut inodes: BTreeMap<u64, uxfs_oracle::Entry> = BTreeMap::new();
    let mut paths: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (number, item) in items.iter().enumerate() {
        let mut path = b"/".to_vec();
        path.extend_from_slice(&item.entry.path);
        let number = number as u64;
        if let Kind::Hardlink { target } = &item.entry.kind {
            let ino = paths[&[b"/", &target[..]].concat()];
            paths.insert(path, ino);
            continue;
        }
        inodes.insert(number, wanted_entry(item, number));
        paths.insert(path, number);
    }
    let mut listing = Listing::default();
    for (path, ino) in &paths {
        let mut entry = inodes[ino].clone();
        entry.path.clone_from(path);
        entry.nlink = paths.values().filter(|other| *other == ino).count() as u32;
        listing.entries.push(entry);
    }
    listing.finish();
    listing
}

fn wanted_entry(item: &Item, ino: u64) -> uxfs_oracle::Entry {
    use uxfs_oracle::Kind as K;
    let meta = &item.entry.meta;
    let (kind, size, rdev, target) = match &item.entry.kind {
        Kind::File { size, .. } => (K::File, *size, None, None),
        Kind::Dir | Kind::Hardlink { .. } => (K::Dir, 0, None, None),
        Kind::Symlink { target } => (K::Symlink, target.len() as u64, None, Some(target.clone())),
        Kind::Char { major, minor } => (K::Char, 0, Some((*major, *minor)), None),
        Kind::Block { major, minor } => (K::Block, 0, Some((*major, *minor)), None),
        Kind::Fifo => (K::Fifo, 0, None, None),
        Kind::Socket => (K::Socket, 0, None, None),
    };
    let time = uxfs_oracle::Time { seconds: meta.mtime.sec, nanos: meta.mtime.nsec };
    uxfs_oracle::Entry {
        path: Vec::new(),
        kind,
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        nlink: 1,
        size,
        ino,
        blocks: 0,
        mtime: time,
        atime: time,
        ctime: time,
        btime: time,
        rdev,
        target,
        content: sum(item),
        data: Vec::new(),
        link: None,
        xattrs: meta.xattrs.iter().map(|(n, v)| (n.clone(), Value::of(v))).collect(),
    }
}

/// The checksum of a file's content, assembled block by block from its segments.
fn sum(item: &Item) -> Option<u64> {
    let Kind::File { size, map } = &item.entry.kind else { return None };
    const BLOCK: u64 = ContentSum::BLOCK as u64;
    let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut from = 0;
    for (start, len) in map.segments() {
        let mut at = *start;
        while at < start + len {
            let block = blocks
                .entry(at / BLOCK)
                .or_insert_with(|| vec![0; (size - at / BLOCK * BLOCK).min(BLOCK) as usize]);
            let step = (BLOCK - at % BLOCK).min(start + len - at) as usize;
            let inside = (at % BLOCK) as usize;
            block[inside..inside + step].copy_from_slice(&item.data[from..from + step]);
            (from, at) = (from + step, at + step as u64);
        }
    }
    let mut sum = ContentSum::default();
    for (number, block) in &blocks {
        sum.add(number * BLOCK, block);
    }
    Some(sum.finish())
}

fn import(source: &Path, image: &Path, size: Option<u64>) -> Result<ImportSummary, ImportError> {
    let mut options = ImportOptions::new(source, image);
    options.size = size;
    options.mkfs.unsupported = true;
    run(&options, &mut |_| {})
}

fn open(image: &Path) -> Result<Fs, Error> {
    let dev = volume::device(image, OpenMode::Read);
    Fs::open(std::sync::Arc::new(dev), OpenOptions::read_only())
}

fn judge(image: &Path, at: &str) -> Listing {
    uxfs_oracle::both(image).unwrap_or_else(|f| panic!("{at}: {f}"));
    listing::list(&open(image).unwrap_or_else(|e| panic!("{at}: {e}")))
}

const TREE: Fields = Fields::TREE;

#[test]
fn archives_are_imported_completely_from_every_compression() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("t.tar");
    let items = everything(1);
    write_tar(&tar, &items);
    let expected = wanted(&items);
    let mut kept = Vec::new();
    for (number, wrap) in ["", "gzip", "xz", "zstd"].into_iter().enumerate() {
        let source = if wrap.is_empty() { tar.clone() } else { packed(wrap, &tar) };
        let image = dir.path().join(format!("{number}.img"));
        let summary = import(&source, &image, (number == 0).then_some(400 << 20)).unwrap();
        assert!(summary.created && summary.warnings.is_empty(), "{wrap}: {summary:?}");
        assert_eq!(summary.entries, items.len() as u64, "{wrap}");
        expected.assert_same(&judge(&image, wrap), TREE);
        kept.push(image);
    }
    let images: Vec<&Path> = kept.iter().map(PathBuf::as_path).take(2).collect();
    for (image, theirs) in images.iter().zip(listing::of_kernel(Kernel::Stable, &images)) {
        expected.assert_same(&theirs, TREE);
        listing::list(&open(image).unwrap()).assert_same(&theirs, Fields::ALL - Fields::SPACE);
    }
}

/// Compresses a file. Returns the path of the result.
fn packed(program_name: &str, file: &Path) -> PathBuf {
    let out = file.with_extension(program_name);
    let done = Command::new(program(program_name, program_name))
        .arg("-c")
        .arg(file)
        .stdout(File::create(&out).unwrap())
        .status()
        .unwrap();
    assert!(done.success(), "{program_name}");
    out
}

/// A directory on the host, as far as an ordinary user can make one.
fn host_tree(root: &Path) {
    let mut rng = Rng::new(9);
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    for (number, size) in [0, 10, 5000, 300_000].into_iter().enumerate() {
        fs::write(root.join(format!("f{number}")), rng.bytes(size)).unwrap();
    }
    fs::set_permissions(root.join("f1"), PermissionsExt::from_mode(0o4751)).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 24).unwrap();
    sparse.write_all_at(&rng.bytes(4096), 1 << 20).unwrap();
    fs::hard_link(root.join("f2"), root.join("sub/hard")).unwrap();
    symlink("some/where", root.join("sub/link")).unwrap();
    symlink("x".repeat(900), root.join("long link")).unwrap();
    let made = Command::new("mkfifo").arg(root.join("fifo")).status().unwrap();
    assert!(made.success());
    for number in 0..600 {
        fs::write(root.join(format!("sub/many {number}")), format!("{number}")).unwrap();
    }
    fs::write(root.join("n".repeat(255)), b"long").unwrap();
}

#[test]
fn a_directory_and_its_tar_archives_import_alike() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    host_tree(&root);
    let host = lister::list(&root).unwrap();
    let image = dir.path().join("dir.img");
    import(&root, &image, None).unwrap();
    host.assert_same(&judge(&image, "directory"), TREE);
    for format in ["gnu", "posix"] {
        let tar = dir.path().join(format!("{format}.tar"));
        let done = Command::new(program("tar", "tar"))
            .args(["--sparse", &format!("--format={format}"), "-cf"])
            .args([&tar, Path::new("-C"), &root, Path::new(".")])
            .status()
            .unwrap();
        assert!(done.success());
        let image = dir.path().join(format!("{format}.img"));
        import(&tar, &image, None).unwrap();
        let fields = if format == "gnu" { TREE - Fields::MTIME } else { TREE };
        host.assert_same(&judge(&image, format), fields);
    }
}

/// Import into an existing volume: other files stay, files with the same name are replaced.
#[test]
fn an_import_adds_to_an_existing_volume() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("t.img");
    uxfs_oracle::mkfs(&image, 400 << 20, &["-m", "rmapbt=1"]);
    let (tar, again) = (dir.path().join("one.tar"), dir.path().join("two.tar"));
    let one = everything(2);
    write_tar(&tar, &one);
    let summary = import(&tar, &image, None).unwrap();
    assert!(!summary.created);
    wanted(&one).assert_same(&judge(&image, "first"), TREE);
    // The same names with other content, some as other kinds of files, and new ones.
    let mut two = everything(3);
    let mut rng = Rng::new(4);
    for item in &mut two {
        let other = match &item.entry.path[..] {
            b"file3" => Kind::Fifo,
            b"block" | b"char" => Kind::Symlink { target: b"was a device".to_vec() },
            b"fifo" => Kind::Block { major: 1, minor: 2 },
            _ => continue,
        };
        *item = self::item(&mut rng, item.entry.path.clone(), other);
    }
    two.retain(|item| !matches!(item.entry.kind, Kind::Hardlink { .. }));
    two.push(item(&mut rng, "hard0", Kind::Socket));
    two.push(file(&mut rng, "hard1", 100));
    two.push(file(&mut rng, "hard2", 100));
    two.push(file(&mut rng, "hard3", 100));
    two.push(item(&mut rng, "new dir", Kind::Dir));
    two.push(file(&mut rng, "new dir/new", 8192));
    // Attributes of directories that stay are added to.
    two.retain(|item| item.entry.kind != Kind::Dir || item.entry.path == b"new dir");
    let both: Vec<Item> = {
        let mut again = TarWriter::new(File::create(&again).unwrap());
        for item in &two {
            // Pax has no sockets; other kinds are unchanged.
            if item.entry.kind != Kind::Socket {
                again.entry(&item.entry, &mut Cursor::new(&item.data)).unwrap();
            }
        }
        again.finish().unwrap();
        one.into_iter().chain(two.into_iter().filter(|i| i.entry.kind != Kind::Socket)).collect()
    };
    import(&again, &image, None).unwrap();
    // Directories with new entries have new times.
    wanted(&both).assert_same(&judge(&image, "second"), TREE - Fields::MTIME);
    let theirs = listing::of_kernel(Kernel::Current, &[&image]).remove(0);
    wanted(&both).assert_same(&theirs, TREE - Fields::MTIME);
}

/// Layers: the kernel sees the merged tree, and directories with the times of the layers.
#[test]
fn layers_are_applied_over_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper, image) =
        (dir.path().join("lower.tar"), dir.path().join("upper.tar"), dir.path().join("t.img"));
    let one = everything(7);
    write_tar(&lower, &one);
    let mut rng = Rng::new(8);
    let rng = &mut rng;
    let two = vec![
        file(rng, "dir28/new", 5000),
        file(rng, "dir27", 70_000),
        item(rng, "file3", Kind::Dir),
        file(rng, "file3/inside", 100),
        item(rng, "dir26", Kind::Dir),
        item(rng, "link60", Kind::Fifo),
        item(rng, "new link", Kind::Hardlink { target: b"file5".to_vec() }),
        item(rng, "fifo", Kind::Hardlink { target: b"char".to_vec() }),
        file(rng, "file4", 9000),
    ];
    let whiteouts =
        ["dir28/.wh..wh..opq", ".wh.dir29", ".wh.file4", ".wh.nothing", "dir25/.wh.a file 7"];
    let mut all = two.iter().map(|i| (i.entry.clone(), i.data.clone())).collect::<Vec<_>>();
    for path in whiteouts {
        let entry = file(rng, path, 0).entry;
        all.push((entry, Vec::new()));
    }
    let mut tar = TarWriter::new(File::create(&upper).unwrap());
    for (entry, data) in &all {
        tar.entry(entry, &mut Cursor::new(data)).unwrap();
    }
    tar.finish().unwrap();
    let gone = |path: &[u8]| {
        path.starts_with(b"dir29")
            || path.starts_with(b"dir28/")
            || path.starts_with(b"dir27")
            || [&b"file3"[..], b"file4", b"dir25/a file 7", b"fifo", b"link60"].contains(&path)
    };
    let mut items: Vec<Item> = one.into_iter().filter(|i| !gone(&i.entry.path)).collect();
    // Directories in both layers have the attributes of the upper one and keep their entries.
    items.retain(|i| i.entry.path != b"dir26");
    items.extend(two);
    let source = ImportSource::Layers(vec![lower, upper]);
    run(&ImportOptions::from_source(source, &image), &mut |_| {}).unwrap();
    wanted(&items).assert_same(&judge(&image, "layers"), TREE);
    let theirs = listing::of_kernel(Kernel::Current, &[&image]).remove(0);
    wanted(&items).assert_same(&theirs, TREE);
}

/// A layer that replaces a link by a directory hides nothing where the link leads.
#[test]
fn whiteouts_never_go_through_links() {
    let dir = tempfile::tempdir().unwrap();
    let (lower, upper, image) =
        (dir.path().join("lower.tar"), dir.path().join("upper.tar"), dir.path().join("t.img"));
    let mut rng = Rng::new(31);
    let rng = &mut rng;
    let link = |rng: &mut Rng, path: &str, target: &str| {
        item(rng, path, Kind::Symlink { target: target.as_bytes().to_vec() })
    };
    let one = vec![
        item(rng, "", Kind::Dir),
        item(rng, "run", Kind::Dir),
        item(rng, "run/sub", Kind::Dir),
        file(rng, "run/kept", 100),
        file(rng, "run/sub/kept", 100),
        item(rng, "var", Kind::Dir),
        link(rng, "var/run", "../run"),
        link(rng, "mid", "/run"),
        file(rng, "plain", 10),
    ];
    write_tar(&lower, &one);
    let two = vec![
        item(rng, "var/run", Kind::Dir),
        file(rng, "var/run/new", 200),
        item(rng, "mid", Kind::Dir),
        item(rng, "mid/sub", Kind::Dir),
    ];
    let mut tar = TarWriter::new(File::create(&upper).unwrap());
    for item in &two {
        tar.entry(&item.entry, &mut Cursor::new(&item.data)).unwrap();
    }
    for path in [
        "var/run/.wh..wh..opq",
        "mid/.wh.kept",
        "mid/sub/.wh..wh..opq",
        "plain/.wh.x",
        "none/.wh.x",
    ] {
        tar.entry(&file(rng, path, 0).entry, &mut Cursor::new(b"")).unwrap();
    }
    tar.finish().unwrap();
    let replaced = |path: &[u8]| [&b"var/run"[..], b"mid"].contains(&path);
    let mut items: Vec<Item> = one.into_iter().filter(|i| !replaced(&i.entry.path)).collect();
    items.extend(two);
    let source = ImportSource::Layers(vec![lower, upper]);
    run(&ImportOptions::from_source(source, &image), &mut |_| {}).unwrap();
    wanted(&items).assert_same(&judge(&image, "links"), TREE);
}

/// Many directories, each in an inode cluster of its own, whose times are set when all is there.
#[test]
fn the_times_of_many_directories_are_set_a_cache_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, image) = (dir.path().join("t.tar"), dir.path().join("t.img"));
    let mut rng = Rng::new(5);
    let mut items = vec![item(&mut rng, "", Kind::Dir)];
    for number in 0..600 {
        items.push(item(&mut rng, format!("d{number}"), Kind::Dir));
        items.extend((0..70).map(|n| item(&mut rng, format!("d{number}/{n}"), Kind::Fifo)));
    }
    write_tar(&tar, &items);
    let mut options = ImportOptions::new(&tar, &image);
    options.open.cache_bytes = 4 << 20;
    run(&options, &mut |_| {}).unwrap();
    wanted(&items).assert_same(&judge(&image, "many"), TREE);
}

/// An archive to which files were appended has repeated names; the last entry counts.
#[test]
fn the_last_of_repeated_names_counts() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut items = vec![item(&mut rng, "", Kind::Dir)];
        for _ in 0..1500 {
            let size = [4096, 8192, 60_000, 300_000][rng.index(4)];
            let path = format!("f{}", rng.below(40));
            items.push(file(&mut rng, path, size));
        }
        let (tar, image) = (dir.path().join("t.tar"), dir.path().join("t.img"));
        write_tar(&tar, &items);
        let _ = fs::remove_file(&image);
        // Compressed, so that data is streamed, or uncompressed, so that it is copied.
        let source = if seed % 2 == 0 { tar } else { packed("gzip", &tar) };
        // Small, so that freed blocks are soon reused.
        import(&source, &image, Some(40 << 20)).unwrap();
        wanted(&items).assert_same(&judge(&image, &format!("seed {seed}")), TREE);
    }
}

#[test]
fn truncated_archives() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, image) = (dir.path().join("t.tar"), dir.path().join("t.img"));
    let items = everything(5);
    write_tar(&tar, &items);
    let whole = fs::read(&tar).unwrap();
    let base = dir.path().join("base.img");
    uxfs_oracle::mkfs(&base, 300 << 20, &[]);
    import(&tar, &base, None).unwrap();
    let before = judge(&base, "before");
    for (number, (keep, flip)) in
        [(0, false), (300, false), (whole.len() / 3, false), (whole.len() / 2, true), (700, true)]
            .into_iter()
            .enumerate()
    {
        let at = format!("{keep} bytes of {}, {flip}", whole.len());
        let mut broken = whole.clone();
        if flip {
            let end = (keep + 200_000).min(broken.len());
            broken[keep..end].fill(0xee);
        } else {
            broken.truncate(keep);
        }
        let source = dir.path().join(format!("{number}.tar"));
        fs::write(&source, broken).unwrap();
        // A new image does not stay.
        let _ = fs::remove_file(&image);
        let error = import(&source, &image, Some(300 << 20)).expect_err(&at);
        assert!(!error.to_string().is_empty());
        assert!(!image.exists(), "{at}: an unfinished image is left behind");
        // An existing image is unchanged, or marked as needing repair.
        fs::copy(&base, &image).unwrap();
        import(&source, &image, None).expect_err(&at);
        match open(&image) {
            Ok(fs) => {
                before.assert_same(&listing::list(&fs), Fields::ALL - Fields::SPACE);
                drop(fs);
                judge(&image, &at);
            }
            Err(Error::Unsupported(why)) => assert!(why.contains("repair"), "{at}: {why}"),
            Err(e) => panic!("{at}: {e}"),
        }
    }
}

#[test]
fn trees_that_are_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let (tar, image) = (dir.path().join("t.tar"), dir.path().join("t.img"));
    let mut rng = Rng::new(6);
    let items: Vec<Item> = (0..30).map(|n| file(&mut rng, format!("f{n}"), 10_000_000)).collect();
    write_tar(&tar, &items);
    let error = import(&tar, &image, Some(300 << 20)).unwrap_err();
    assert!(matches!(error, ImportError::Entry { source: Error::NoSpace, .. }), "{error}");
    assert!(!image.exists(), "an unfinished image is left behind");
    // The computed size is exactly enough.
    let mut options = ImportOptions::new(&tar, &image);
    options.headroom = Headroom::Bytes(0);
    run(&options, &mut |_| {}).unwrap();
    wanted(&items).get(b"/f29").unwrap();
    uxfs_oracle::both(&image).unwrap_or_else(|f| panic!("{f}"));
}
