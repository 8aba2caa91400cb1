//! Images that qemu-img made, and damaged ones.

use std::process::Command;

use super::*;
use crate::{FileDev, OpenMode};

const MIB: u64 = 1 << 20;

fn qemu_img(dir: &Path, args: &[&str]) {
    let out = Command::new("qemu-img").args(args).current_dir(dir).output();
    let out = out.unwrap_or_else(|e| panic!("qemu-img: {e}: install qemu-utils (./test does)"));
    assert!(out.status.success(), "qemu-img {args:?}: {out:?}");
}

fn open(path: &Path, write: bool) -> io::Result<Qcow2Dev> {
    let file = std::fs::OpenOptions::new().read(true).write(write).open(path)?;
    Qcow2Dev::open(&file, path, write)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

#[test]
fn qemu_reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    for options in ["", "cluster_size=512", "cluster_size=2M", "compat=0.10", "refcount_bits=1"] {
        let options = format!("size=64M{}{options}", if options.is_empty() { "" } else { "," });
        qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", &options, "a.qcow2"]);
        let dev = open(&path, true).unwrap();
        assert_eq!(dev.len(), 64 * MIB);
        let mut model = vec![0; 64 << 20];
        for turn in 0..60u64 {
            let (at, len) = (turn * 7_919_333 % (60 << 20), 1 + turn as usize * 3571);
            let data = pattern(turn, len);
            match turn % 5 {
                4 => {
                    dev.zero(at, len as u64).unwrap();
                    model[at as usize..][..len].fill(0);
                }
                _ => {
                    dev.write_at(at, &data).unwrap();
                    model[at as usize..][..len].copy_from_slice(&data);
                }
            }
            if turn % 20 == 19 {
                dev.flush().unwrap();
            }
        }
        assert!(dev.write_at(64 * MIB - 1, &[0; 2]).is_err());
        let mut back = vec![0; model.len()];
        dev.read_at(0, &mut back).unwrap();
        assert!(back == model, "{options}");
        dev.flush().unwrap();
        drop(dev);
        qemu_img(dir.path(), &["check", "-q", "a.qcow2"]);
        qemu_img(dir.path(), &["convert", "-f", "qcow2", "-O", "raw", "a.qcow2", "a.raw"]);
        assert!(std::fs::read(dir.path().join("a.raw")).unwrap() == model, "{options}");
        // The compressed image has the same content.
        qemu_img(dir.path(), &["convert", "-c", "-O", "qcow2", "a.raw", "c.qcow2"]);
        open(&dir.path().join("c.qcow2"), false).unwrap().read_at(0, &mut back).unwrap();
        assert!(back == model, "{options}, compressed");
    }
}

#[test]
fn backing_files_are_read_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let base = pattern(1, 8 << 20);
    std::fs::write(dir.path().join("base.raw"), &base).unwrap();
    let create = |args: &[&str]| qemu_img(dir.path(), &[&["create", "-q"], args].concat());
    create(&["-f", "qcow2", "-b", "base.raw", "-F", "raw", "mid.qcow2"]);
    create(&["-f", "qcow2", "-b", "mid.qcow2", "-F", "qcow2", "top.qcow2", "16M"]);
    let top = dir.path().join("top.qcow2");
    let dev = open(&top, true).unwrap();
    dev.write_at(100_000, b"changed").unwrap();
    dev.flush().unwrap();
    let mut model = base.clone();
    model.resize(16 << 20, 0);
    model[100_000..100_007].copy_from_slice(b"changed");
    let mut back = vec![1; 16 << 20];
    dev.read_at(0, &mut back).unwrap();
    assert!(back == model);
    // A backing file in use cannot be opened for writing.
    let busy = FileDev::open(&dir.path().join("base.raw"), OpenMode::Write).err().unwrap();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    drop(dev);
    assert!(std::fs::read(dir.path().join("base.raw")).unwrap() == base);
    qemu_img(dir.path(), &["check", "-q", "top.qcow2"]);
}

/// What was cut off, and what a backing file holds, does not come back.
#[test]
fn a_disk_gets_another_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    std::fs::write(dir.path().join("base.raw"), pattern(1, 48 << 20)).unwrap();
    let based = ["-b", "base.raw", "-F", "raw"];
    for (options, base) in [
        ("cluster_size=64k", &[][..]),
        ("cluster_size=2M", &[]),
        ("compat=0.10", &[]),
        ("cluster_size=64k", &based),
    ] {
        let create = [&["create", "-q", "-f", "qcow2", "-o", options], base, &["a.qcow2", "16M"]];
        qemu_img(dir.path(), &create.concat());
        let mut dev = open(&path, true).unwrap();
        dev.write_at(0, &pattern(2, 16 << 20)).unwrap();
        let mut model = pattern(2, 16 << 20);
        // 5 MiB and 12 KiB is no whole number of clusters.
        for len in [5 * MIB + 12288, 4096 * MIB, 17 * MIB, 17 * MIB, 40 * MIB] {
            dev.set_len(len).unwrap();
            assert_eq!(dev.len(), len);
            model.resize(len.min(64 * MIB) as usize, 0);
            let mut back = vec![1; model.len()];
            dev.read_at(0, &mut back).unwrap();
            assert!(back == model, "{options}, {len}");
            dev.write_at(len - 512, &[7; 512]).unwrap();
            dev.flush().unwrap();
            if len <= 64 * MIB {
                model[len as usize - 512..].fill(7);
            }
        }
        drop(dev);
        qemu_img(dir.path(), &["check", "-q", "a.qcow2"]);
        qemu_img(dir.path(), &["convert", "-O", "raw", "a.qcow2", "a.raw"]);
        assert!(std::fs::read(dir.path().join("a.raw")).unwrap() == model, "{options}");
    }
}

/// Opening a FIFO without a writer would block forever.
#[test]
fn a_fifo_as_backing_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let args = ["create", "-q", "-u", "-f", "qcow2", "-b", "fifo", "-F", "raw", "a.qcow2", "4M"];
    qemu_img(dir.path(), &args);
    let error = open(&dir.path().join("a.qcow2"), false).err().unwrap();
    assert!(error.to_string().contains("fifo: is a FIFO"), "{error}");
}

#[test]
fn backing_files_elsewhere_and_loops_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let create = |name: &str, base: &str| {
        qemu_img(
            dir.path(),
            &["create", "-q", "-u", "-f", "qcow2", "-b", base, "-F", "raw", name, "4M"],
        );
    };
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("secret"), vec![7; 4 << 20]).unwrap();
    std::os::unix::fs::symlink("../secret", dir.path().join("sub/innocent")).unwrap();
    for base in ["/etc/passwd", "../secret", "innocent"] {
        create("sub/a.qcow2", base);
        let error = open(&dir.path().join("sub/a.qcow2"), false).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{base}: {error}");
        assert!(error.to_string().contains("outside of its own directory"), "{error}");
    }
    for (name, base) in [("one.qcow2", "two.qcow2"), ("two.qcow2", "one.qcow2")] {
        let args = ["create", "-q", "-u", "-f", "qcow2", "-b", base, "-F", "qcow2", name, "4M"];
        qemu_img(dir.path(), &args);
    }
    let error = open(&dir.path().join("one.qcow2"), false).err().unwrap();
    assert!(error.to_string().contains("chain that loops"), "{error}");
}

#[test]
fn unsupported_features_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    let cases = [
        ("compression_type=zstd", "compression by zstd"),
        ("extended_l2=on", "subclusters"),
        ("data_file=data.raw", "external data file"),
    ];
    for (option, words) in cases {
        let options = format!("size=4M,{option}");
        qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", &options, "a.qcow2"]);
        let error = open(&path, false).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a.qcow2", "4M"]);
    qemu_img(dir.path(), &["snapshot", "-c", "one", "a.qcow2"]);
    assert!(open(&path, true).err().unwrap().to_string().contains("internal snapshots"));
    assert!(open(&path, false).is_ok());
}

/// Damages every byte of the header and of each table in turn. The result may be an error or other
/// content, but no panic, and no table larger than the file.
#[test]
fn damaged_images_are_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    let options = "size=4M,cluster_size=4096";
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", options, "a.qcow2"]);
    let dev = open(&path, true).unwrap();
    dev.write_at(0, &pattern(5, 300_000)).unwrap();
    dev.flush().unwrap();
    drop(dev);
    let whole = std::fs::read(&path).unwrap();
    let mut buf = vec![0; 4 << 20];
    let tables = (4096..whole.len().min(28_000)).step_by(71);
    let offsets =
        (0..112).chain(tables).chain((4096..4160).chain(8192..8256).chain(12_288..12_352));
    for at in offsets {
        for new in [0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
            let mut bytes = whole.clone();
            bytes[at] = new;
            std::fs::write(&path, &bytes).unwrap();
            let Ok(dev) = open(&path, true) else { continue };
            let len = dev.len().min(buf.len() as u64) as usize;
            let _ = dev.read_at(0, &mut buf[..len]);
            let _ = dev.write_at(0, &buf[..len.min(70_000)]);
            let _ = dev.flush();
        }
    }
}

/// Found by fuzzing: if the reference counts did not cover the image's own tables, a write
/// overwrote the tables and then searched for space endlessly. Such an image is read-only.
#[test]
fn reference_counts_must_cover_the_images_own_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    for bits in [1, 4, 16, 64] {
        let options = format!("size=1M,cluster_size=512,refcount_bits={bits}");
        qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", &options, "a.qcow2"]);
        open(&path, true).unwrap().write_at(5000, &[1; 3000]).unwrap();
        let sound = std::fs::read(&path).unwrap();
        let table = u64::from_be_bytes(*sound[48..].first_chunk().unwrap()) as usize;
        let block = u64::from_be_bytes(*sound[table..].first_chunk().unwrap()) as usize;
        // No refcount block; a block elsewhere; one outside the file; all counts zero.
        for (at, bytes) in [
            (table, &[0; 8][..]),
            (table, &(block as u64 + 8).to_be_bytes()),
            (table + 8, &(1u64 << 40).to_be_bytes()),
            (block, &[0; 8]),
        ] {
            let mut damaged = sound.clone();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            std::fs::write(&path, &damaged).unwrap();
            assert!(open(&path, false).is_ok(), "{bits} bits, at {at}");
            let refused = open(&path, true).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{bits} bits, at {at}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn allocated_clusters_keep_their_content_and_reserve_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let base = pattern(5, 3 << 20);
    std::fs::write(dir.path().join("base.raw"), &base).unwrap();
    let over = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.raw", "a.qcow2", "64M"];
    qemu_img(dir.path(), &over);
    let path = dir.path().join("a.qcow2");
    let dev = open(&path, true).unwrap();
    dev.write_at(9 * MIB + 5, b"there").unwrap();
    dev.allocate(2 * MIB, 30 * MIB).unwrap();
    dev.flush().unwrap();
    let stored = std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(stored >= 30 * MIB, "{stored}");
    let mut model = vec![0; 64 << 20];
    model[..base.len()].copy_from_slice(&base);
    model[(9 << 20) + 5..][..5].copy_from_slice(b"there");
    let mut back = vec![1; model.len()];
    dev.read_at(0, &mut back).unwrap();
    assert!(back == model);
    drop(dev);
    qemu_img(dir.path(), &["check", "-q", "a.qcow2"]);
}

#[test]
fn a_truncated_image_file_fails() {
    let dir = tempfile::tempdir().unwrap();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a.qcow2", "64M"]);
    let path = dir.path().join("a.qcow2");
    let dev = open(&path, true).unwrap();
    dev.write_at(0, &pattern(1, 4 << 20)).unwrap();
    dev.flush().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(MIB).unwrap();
    let error = dev.read_at(3 * MIB, &mut [0; 512]).unwrap_err();
    assert!(crate::host::is_lost(&error), "{error}");
    assert!(crate::host::is_lost(&dev.write_at(0, &[1]).unwrap_err()));
    assert!(crate::host::is_lost(&dev.flush().unwrap_err()));
}

#[test]
fn new_images_of_the_same_length_are_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    let new = || {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        create_qcow2(file, &path, 64 * MIB).unwrap();
        qemu_img(dir.path(), &["check", "-q", "a.qcow2"]);
        std::fs::read(&path).unwrap()
    };
    let first = new();
    assert!(first.windows(9).any(|name| name == b"dirty bit" || name == b"dirty\0\0\0\0"));
    assert!((0..8).all(|_| new() == first));
}

/// Writes four pieces in an order, after their places were fixed in the order of their numbers.
fn written(dir: &Path, order: [u64; 4], placed: bool) -> Vec<u8> {
    let path = dir.join("b.qcow2");
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    create_qcow2(file, &path, 64 * MIB).unwrap();
    let dev = open(&path, true).unwrap();
    // Pieces that begin and end within clusters, two of them in one.
    let range = |number: u64| (number * 3 * MIB + 8192 * number, 2 * MIB as usize - 4096);
    if placed {
        (0..4).map(range).for_each(|(at, len)| dev.will_write_bulk(at, len as u64));
    }
    for number in order {
        let (at, len) = range(number);
        dev.write_bulk_at(at, &pattern(number, len)).unwrap();
    }
    for number in 0..4 {
        let (at, len) = range(number);
        let mut back = vec![0; len];
        dev.read_at(at, &mut back).unwrap();
        assert!(back == pattern(number, len));
    }
    dev.flush().unwrap();
    drop(dev);
    qemu_img(dir, &["check", "-q", "b.qcow2"]);
    std::fs::read(&path).unwrap()
}

#[test]
fn bulk_data_lies_where_its_places_were_fixed() {
    let dir = tempfile::tempdir().unwrap();
    let in_order = written(dir.path(), [0, 1, 2, 3], false);
    assert!(written(dir.path(), [3, 1, 0, 2], true) == in_order);
    assert!(
        written(dir.path(), [3, 1, 0, 2], false) != in_order,
        "the order of writes changes nothing"
    );
}

/// Writers of the parts of one cluster do not overwrite each other with its zeroes.
#[test]
fn parts_of_new_clusters_are_written_side_by_side() {
    const CLUSTER: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    create_qcow2(file, &path, 64 * MIB).unwrap();
    let dev = open(&path, true).unwrap();
    let part = |number: u64| pattern(number, 4096);
    // Threads meet at each cluster, and each writes a part of it; nothing writes the fourth part.
    let meet = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (dev, meet) = (&dev, &meet);
            scope.spawn(move || {
                for number in 0..500 {
                    let at = number * 2 * CLUSTER + thread * CLUSTER / 4;
                    meet.wait();
                    match thread {
                        2 => dev.write_bulk_at(at, &part(thread + number)).unwrap(),
                        _ => dev.write_at(at, &part(thread + number)).unwrap(),
                    }
                }
            });
        }
    });
    for number in 0..500 {
        let mut back = vec![1; CLUSTER as usize];
        dev.read_at(number * 2 * CLUSTER, &mut back).unwrap();
        let mut model = vec![0; CLUSTER as usize];
        for thread in 0..3u64 {
            model[(thread * CLUSTER / 4) as usize..][..4096]
                .copy_from_slice(&part(thread + number));
        }
        assert!(back == model, "cluster {number}");
    }
    dev.flush().unwrap();
    drop(dev);
    qemu_img(dir.path(), &["check", "-q", "a.qcow2"]);
}
