//! Dumps of xfsdump: what the kernel showed of their volume, what xfsrestore lists, and damage.
//!
//! `tests/dumps/README.md` says how the dumps were made.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use uxfs_archive::{ArchiveError, Entry, Fsx, Kind, Source, open, open_dump_to_list};
use uxfs_oracle::Rng;

fn packed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps").join(name)
}

/// A dump, unpacked.
fn dump(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = fs::File::open(packed(name)).unwrap();
    zstd::Decoder::new(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn text(name: &str) -> String {
    fs::read_to_string(packed(name)).unwrap()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file
}

type Everything = (Vec<(Entry, Vec<u8>)>, Vec<String>);

/// Everything of a source: entries with their data without holes, and the warnings.
fn read(mut source: Box<dyn Source>) -> Result<Everything, ArchiveError> {
    let mut entries = Vec::new();
    while let Some(entry) = source.next()? {
        let mut data = Vec::new();
        loop {
            let chunk = source.chunk()?;
            let count = chunk.len();
            data.extend_from_slice(chunk);
            source.consume(count);
            if count == 0 {
                break;
            }
        }
        if let Kind::File { map, .. } = &entry.kind {
            assert_eq!(map.data_len(), data.len() as u64);
        }
        entries.push((entry, data));
    }
    assert!(source.next()?.is_none());
    Ok((entries, source.warnings()))
}

fn read_bytes(bytes: &[u8]) -> Result<Everything, ArchiveError> {
    read(open(file(bytes).path())?)
}

fn content(entry: &Entry, data: &[u8]) -> String {
    match &entry.kind {
        Kind::File { size, map } => {
            let mut whole = vec![0; *size as usize];
            let mut rest = data;
            for (at, len) in map.segments() {
                let (part, more) = rest.split_at(*len as usize);
                whole[*at as usize..][..part.len()].copy_from_slice(part);
                rest = more;
            }
            let sum = whole.iter().enumerate();
            let sum: u64 = sum.map(|(at, byte)| u64::from(*byte) * (at as u64 % 65521 + 1)).sum();
            format!("{size}:{}", sum as u32)
        }
        Kind::Symlink { target } => String::from_utf8(target.clone()).unwrap(),
        Kind::Char { major, minor } | Kind::Block { major, minor } => format!("{major}:{minor}"),
        _ => "-".into(),
    }
}

/// The entries in the form of `tree.txt`, sorted.
fn tree((entries, warnings): &Everything) -> Vec<String> {
    assert!(warnings.is_empty(), "{warnings:?}");
    let path = |path: &[u8]| match path {
        b"" => "/".to_owned(),
        path => String::from_utf8(path.to_vec()).unwrap(),
    };
    let mut files: BTreeMap<&[u8], (&Entry, &[u8])> = BTreeMap::new();
    let mut links: BTreeMap<&[u8], u32> = BTreeMap::new();
    for (entry, data) in entries {
        let first = match &entry.kind {
            Kind::Hardlink { target } => target,
            _ => &entry.path,
        };
        *links.entry(first).or_default() += 1;
        let file =
            if *first == entry.path { (entry, data.as_slice()) } else { files[first.as_slice()] };
        assert!(files.insert(&entry.path, file).is_none());
    }
    let mut lines = Vec::new();
    for (entry, _) in entries {
        let (of, data) = files[entry.path.as_slice()];
        let bits = match of.kind {
            Kind::File { .. } => 0o100_000,
            Kind::Dir => 0o040_000,
            Kind::Symlink { .. } => 0o120_000,
            Kind::Char { .. } => 0o020_000,
            Kind::Block { .. } => 0o060_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::Hardlink { .. } => unreachable!(),
        };
        let links = match of.kind {
            Kind::Dir => "-".into(),
            _ => links[of.path.as_slice()].to_string(),
        };
        let hex = |value: &[u8]| value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let xattrs = of.meta.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| format!("{}={}", name.escape_ascii(), hex(value)));
        let xattrs: Vec<_> = xattrs.collect();
        let xattrs = if xattrs.is_empty() { "-".into() } else { xattrs.join(",") };
        let time = i128::from(of.meta.mtime.sec) * 1_000_000_000 + i128::from(of.meta.mtime.nsec);
        let (mode, uid, gid) = (bits | of.meta.mode, of.meta.uid, of.meta.gid);
        let name = path(&entry.path);
        let content = content(of, data);
        lines.push(format!("{name} {mode:o} {links} {uid} {gid} {time} {content} {xattrs}"));
    }
    lines.sort();
    lines
}

fn wanted() -> Vec<String> {
    let mut lines: Vec<String> = text("tree.txt").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn dumps_have_what_the_kernel_showed() {
    for name in ["three.zst", "two.zst"] {
        // Compressed, which is read once, and plain, which is read in place.
        assert_eq!(tree(&read(open(&packed(name)).unwrap()).unwrap()), wanted(), "{name}");
        assert_eq!(tree(&read_bytes(&dump(name)).unwrap()), wanted(), "{name}");
    }
}

#[test]
fn holes_flags_hints_and_projects_are_kept() {
    let (entries, _) = read_bytes(&dump("three.zst")).unwrap();
    let of = |path: &str| &entries.iter().find(|(e, _)| e.path == path.as_bytes()).unwrap().0;
    let Kind::File { size, map } = &of("sparse").kind else { panic!() };
    assert_eq!((*size, map.segments()), (1 << 20, &[(299_008, 4096)][..]));
    let Kind::File { size, map } = &of("hole").kind else { panic!() };
    assert_eq!((*size, map.data_len()), (10 << 20, 0));
    for (path, flags, extsize, project) in [
        ("dir/numbers", 0, 0, 42),
        ("empty", 0x1000, 65536, 70000),
        ("hint", 0x800, 32768, 0),
        ("noatime", 0x40, 0, 0),
        ("still", 0x8, 0, 0),
        ("hello", 0, 0, 0),
    ] {
        assert_eq!(of(path).meta.fsx, Fsx { flags, extsize, project }, "{path}");
    }
}

#[test]
fn names_are_those_of_xfsrestore() {
    for (name, list) in [("three.zst", "list.txt"), ("increment.zst", "increment.txt")] {
        let (entries, _) = read(open_dump_to_list(&packed(name)).unwrap()).unwrap();
        let files = entries.iter().filter(|(entry, _)| entry.kind != Kind::Dir);
        let names = files.map(|(entry, _)| String::from_utf8(entry.path.clone()).unwrap() + "\n");
        let (mut ours, list) = (names.collect::<Vec<_>>(), text(list));
        let mut theirs: Vec<_> = list.split_inclusive('\n').map(str::to_owned).collect();
        // Of an increment, xfsrestore lists the names of a file in another order.
        if name == "increment.zst" {
            ours.sort();
            theirs.sort();
        }
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn streams_are_put_together() {
    let [one, two] = ["stream-0.zst", "stream-1.zst"].map(dump);
    assert_eq!(tree(&read_bytes(&[&one[..], &two].concat()).unwrap()), wanted());
    let missing = read_bytes(&one).unwrap_err().to_string();
    assert!(missing.contains("in 2 stream(s), and the end of stream 1 is missing"), "{missing}");
    let missing = read_bytes(&two).unwrap_err().to_string();
    assert!(missing.contains("media file 0 of stream 1 of 2, not with the first"), "{missing}");
    let other = read_bytes(&[&one[..], &dump("three.zst")].concat()).unwrap_err().to_string();
    assert!(
        other.contains(&format!("byte {}", one.len())) && other.contains("another dump"),
        "{other}"
    );
}

#[track_caller]
fn refused(bytes: &[u8], words: &[&str]) {
    let error = read_bytes(bytes).map(|(entries, _)| entries.len()).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "'{word}' in: {error}");
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Changes a word of a header whose checksum is at `sum`, which stays right.
fn change(bytes: &mut [u8], sum: usize, at: usize, value: u32) {
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (old, checksum) = (word(bytes, at), word(bytes, sum));
    put(bytes, at, value);
    put(bytes, sum, checksum.wrapping_add(old).wrapping_sub(value));
}

/// Where the global header's checksum is, and the first directory's header and names.
const SUM: usize = 0xc;
const DIR: usize = 0x5000;
const NAMES: usize = DIR + 256;

#[test]
fn headers_that_lie_are_refused() {
    let sound = dump("three.zst");
    let changed = |sum: usize, at: usize, value: u32| {
        let mut bytes = sound.clone();
        change(&mut bytes, sum, at, value);
        bytes
    };
    refused(&changed(SUM, 8, 4), &["byte 0", "format 4"]);
    refused(&changed(SUM, 8, 1), &["format 1"]);
    refused(&changed(SUM, 0x408, 2), &["tape"]);
    refused(&changed(SUM, 0x400, 3), &["in 3 stream(s), and the end of stream 1 is missing"]);
    refused(&changed(SUM, 0x400, u32::MAX), &["numbers of the dump's streams"]);
    refused(&changed(SUM, 0xb38, 1), &["media file 1 of stream 0"]);
    refused(&changed(SUM, 0xf48, 3), &["increment (level 3)"]);
    refused(&changed(SUM, 0xfb0, u32::MAX), &["map of inodes"]);
    refused(&changed(SUM, 0xfb4, 1000), &["cut short"]);
    refused(&changed(SUM, 0xf5c, 129), &["root directory, inode 129, is not there"]);
    refused(&dump("increment.zst"), &["increment (level 1)", "xfsrestore -r"]);
    refused(&changed(NAMES + 12, NAMES + 4, 128), &["root directory, inode 128, has a name"]);
    // Two directories change places, so one is in itself.
    let mut bytes = sound.clone();
    let [dir, below] = [&b"dir\0"[..], b"below\0"]
        .map(|name| bytes.windows(name.len()).position(|part| part == name).unwrap() - 18);
    for at in [0, 4, 8] {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let (one, other) = (word(dir + at), word(below + at));
        change(&mut bytes, dir + 12, dir + at, other);
        change(&mut bytes, below + 12, below + at, one);
    }
    refused(&bytes, &["is inside itself"]);
    // A directory with two names.
    let mut bytes = sound.clone();
    for at in [0, 4, 8] {
        let word = u32::from_be_bytes(bytes[dir + at..][..4].try_into().unwrap());
        change(&mut bytes, below + 12, below + at, word);
    }
    refused(&bytes, &["has 2 names"]);
    let mut bytes = sound.clone();
    bytes.truncate(sound.len() - 256);
    refused(&bytes, &["cut short", &format!("byte {}", bytes.len())]);
    let place = |bytes: &[u8]| sound.windows(bytes.len()).position(|part| part == bytes).unwrap();
    // Headers of 32 and 16 bytes are before the data and before the name.
    let (extent, attr) = (place(b"hello\n") - 32, place(b"s\0three") - 16);
    for (at, what) in [
        (extent + 30, "extent header"),
        (attr + 11, "an attribute"),
        (0x10, "media file's header"),
        (DIR + 30, "file header"),
        (NAMES + 7, "checksum of a name"),
    ] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        refused(&bytes, &["checksum", what, "byte"]);
    }
}

#[test]
fn truncated_dumps_are_never_whole() {
    let sound = dump("three.zst");
    for len in (9..sound.len()).step_by(509) {
        let error = read_bytes(&sound[..len]).unwrap_err().to_string();
        assert!(len < 512 || error.contains("cut short"), "{len}: {error}");
    }
}

/// From a seed: bytes changed anywhere, and in headers with checksums that stay right.
#[test]
fn random_damage_ends_in_an_error_or_a_tree() {
    let seed = std::env::var("UXFS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let rounds = std::env::var("UXFS_ROUNDS").map_or(400, |rounds| rounds.parse().unwrap());
    let (mut errors, mut trees) = (0, 0);
    for round in 0..rounds {
        let mut rng = Rng::new(seed + round);
        let mut bytes = dump(if rng.once_in(2) { "three.zst" } else { "two.zst" });
        for _ in 0..=rng.below(4) {
            if rng.once_in(2) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.below(256) as u8;
                continue;
            }
            // Two words move the sum of a header back and forth.
            let at = 0x5000 + rng.below((bytes.len() - 0x5000) as u64 / 4 - 70) as usize * 4;
            let other = at + 4 * (1 + rng.below(60) as usize);
            change(&mut bytes, other, at, rng.below(1 << 32) as u32 >> rng.below(32));
        }
        match read_bytes(&bytes) {
            Ok(_) => trees += 1,
            Err(_) => errors += 1,
        }
    }
    println!("seed {seed}: {errors} errors, {trees} trees");
    assert!(errors > 0 && trees > 0);
}
