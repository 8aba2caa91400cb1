//! Damaged, truncated and hostile archives.

use std::fs;
use std::path::Path;
use std::process::Command;

use uxfs_archive::{ArchiveError, Kind, open};
use uxfs_oracle::Rng;

use crate::tree::{self, run};

/// Reads everything; returns the number of entries and bytes and the warnings, or the error.
fn walk(path: &Path, by_chunk: bool) -> Result<(u64, u64, Vec<String>), ArchiveError> {
    let mut source = open(path)?;
    let (mut entries, mut bytes) = (0, 0);
    let mut buffer = vec![0; 4096];
    while let Some(entry) = source.next()? {
        entries += 1;
        let before = bytes;
        loop {
            let count = if by_chunk { source.chunk()?.len() } else { source.read(&mut buffer)? };
            if by_chunk {
                source.consume(count);
            }
            bytes += count as u64;
            if count == 0 {
                break;
            }
        }
        if let Kind::File { size, map } = &entry.kind {
            assert_eq!(bytes - before, map.data_len());
            assert!(map.segments().iter().all(|(offset, length)| offset + length <= *size));
        }
    }
    assert!(source.next()?.is_none());
    Ok((entries, bytes, source.warnings()))
}

fn checksummed(mut block: Vec<u8>) -> Vec<u8> {
    block.resize(512, 0);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn header(name: &str, flag: u8, size: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = flag;
    block[257..265].copy_from_slice(b"ustar\x0000");
    checksummed(block)
}

fn entry(name: &str, flag: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, flag, data.len() as u64);
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn error_of(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    walk(file.path(), false).unwrap_err().to_string()
}

#[track_caller]
fn assert_error(parts: &[Vec<u8>], words: &[&str]) {
    let error = error_of(&[parts.concat(), vec![0; 1024]].concat());
    for word in words {
        assert!(error.contains(word), "'{word}' in: {error}");
    }
}

#[test]
fn harmful_entries_are_refused() {
    let file = |name: &str| entry(name, b'0', b"x");
    assert_error(&[file("a/../../etc/passwd")], &["a/../../etc/passwd", "'..'"]);
    assert_error(&[file("./")[..0].to_vec(), entry("./", b'2', b"")], &["target"]);
    assert_error(&[entry(".", b'0', b"x")], &["root is not a directory"]);
    assert_error(&[header("p", b'x', 7 << 30)], &["PAX header of 7516192768 bytes"]);
    assert_error(&[header("l", b'L', 5 << 20)], &["GNU long name of 5242880 bytes"]);
    assert_error(&[entry("x", b'x', b"12 path=a/..\n"), file("y")], &["PAX record"]);
    assert_error(&[entry("x", b'x', b"13 path=a/..\n"), file("y")], &["'a/..'"]);
    assert_error(&[entry("x", b'x', b"11 uid=-12\n"), file("y")], &["uid"]);
    let big = format!("{} SCHILY.xattr.user.a={}\n", 65_537 + 6 + 20 + 1, "v".repeat(65_537));
    assert_error(&[entry("x", b'x', big.as_bytes()), file("y")], &["user.a", "65536"]);
    let acl = b"47 SCHILY.acl.access=user:no-such-user-here:rw\n";
    assert_error(&[entry("x", b'x', acl), file("y")], &["no-such-user-here", "--numeric-owner"]);
    assert_error(&[file("good"), vec![b'?'; 512]], &["byte 1024", "'good'", "checksum"]);
    let map = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.realsize=99\n";
    let claims = |text: &[u8]| {
        let block = [text, &vec![0; 512 - text.len()]].concat();
        vec![entry("x", b'x', map), entry("y", b'0', &block)]
    };
    assert_error(&claims(b"99999999\n"), &["segments"]);
    assert_error(&claims(b"1\n0\n100\n"), &["beyond the size 99"]);
    assert_error(&claims(b"1\n0\n50\n"), &["50 bytes of data, but 0 are stored"]);
    assert_error(
        &[entry("x", b'x', b"30 size=18446744073709551615\n"), file("y")],
        &["PAX record"],
    );
    assert_error(&[entry("x", b'x', b"29 size=18446744073709551615\n"), file("y")], &["size"]);
    let huge = [entry("x", b'x', b"28 size=9223372036854774000\n"), file("y")];
    assert_error(&huge, &["cut short", "'y'"]);
    let mut star = header("s", b'S', 0);
    star[508..512].copy_from_slice(b"tar\0");
    assert_error(&[checksummed(star)], &["star's sparse format", "'s'"]);
}

#[test]
fn more_harmful_entries_are_refused() {
    let file = |name: &str| entry(name, b'0', b"x");
    let record = |text: &[u8]| {
        // The length includes its own digits.
        let mut length = text.len() + 3;
        while format!("{length} ").len() + text.len() + 1 != length {
            length += 1;
        }
        let text = [format!("{length} ").as_bytes(), text, b"\n"].concat();
        entry("x", b'x', &text)
    };
    // Invalid names and targets.
    assert_error(&[record(b"path=a\0b"), file("y")], &["NUL"]);
    assert_error(&[record(b"linkpath=a\0b"), entry("y", b'2', b"")], &["NUL"]);
    assert_error(&[record(b"linkpath=../../x"), entry("y", b'1', b"")], &["target", "'..'"]);
    let long = [&b"path="[..], &b"d/".repeat(2 << 20 | 1)].concat();
    assert_error(&[record(&long), file("y")], &["path"]);
    let long = [&b"linkpath="[..], &b"d/".repeat(2 << 20 | 1)].concat();
    assert_error(&[record(&long), entry("y", b'1', b"")], &["linkpath"]);
    let name = [&b"SCHILY.xattr.user."[..], &b"n".repeat(256), b"=1"].concat();
    assert_error(&[record(&name), file("y")], &["name"]);
    // Sparse maps: overlapping, descending, beyond the end, odd number of values, without a size.
    let map = |map: &str| {
        let keys = [
            record(b"GNU.sparse.size=1000000"),
            record(b"GNU.sparse.numblocks=2"),
            record(format!("GNU.sparse.map={map}").as_bytes()),
        ];
        // One header with all three records.
        let text: Vec<u8> = keys.iter().flat_map(|key| body(key)).collect();
        [entry("x", b'x', &text), file("y")]
    };
    assert_error(&map("0,4096,4095,1"), &["overlaps"]);
    assert_error(&map("8192,1,0,1"), &["overlaps"]);
    assert_error(&map("0,1,999999,2"), &["beyond the size 1000000"]);
    assert_error(&map("18446744073709551615,2,0,1"), &["beyond the size"]);
    assert_error(&map("0,1,2"), &["odd number"]);
    assert_error(&map("0,2"), &["2 bytes of data, but 1 are stored"]);
    assert_error(&[record(b"GNU.sparse.map=0,1"), file("y")], &["without GNU.sparse.size"]);
    // What a few bytes of a compressed archive could make large.
    let numbers = "0,".repeat(3 << 20);
    assert_error(
        &[record(format!("GNU.sparse.map={numbers}").as_bytes()), file("y")],
        &["segments"],
    );
    let names: Vec<u8> = body(&record(b"SCHILY.xattr.user.a=")).repeat(100_001);
    assert_error(&[entry("x", b'x', &names), file("y")], &["extended attributes"]);
    let list = [&b"SCHILY.acl.access=user:"[..], &b":".repeat(1 << 20)].concat();
    let error = error_of(&[record(&list), file("y")].concat());
    assert!(error.contains("ACL entry of 1048581 bytes") && error.len() < 1000, "{error}");
    // Only extended headers, without an entry.
    let flood: Vec<Vec<u8>> = (0..65).map(|_| record(b"comment=x")).collect();
    assert_error(&flood, &["extended headers"]);
    let flood: Vec<Vec<u8>> = (0..65).map(|_| entry("g", b'g', b"12 comment=\n")).collect();
    assert_error(&flood, &["extended headers"]);
    let flood: Vec<Vec<u8>> = (0..65).map(|_| entry("V", b'V', b"")).collect();
    assert_error(&flood, &["extended headers"]);
}

/// The text of the only record in a header that `record` made.
fn body(header: &[u8]) -> Vec<u8> {
    let end = header.iter().rposition(|byte| *byte != 0).unwrap();
    header[512..=end].to_vec()
}

#[test]
fn streams_end_at_their_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, packed) = (dir.path().join("t.tar"), dir.path().join("t.tar.zst"));
    let tail = |len: usize| [entry("f", b'0', &[7; 100_000]), vec![0; len]].concat();
    let read = |path: &Path, limit: u64| {
        let mut source = open(path)?;
        source.set_limit(limit);
        let mut entries = 0;
        while source.next()?.is_some() {
            entries += 1;
        }
        Ok::<_, ArchiveError>(entries)
    };
    fs::write(&plain, tail(9 << 20)).unwrap();
    run(Command::new("zstd").args(["-q", "-f", "-o"]).arg(&packed).arg(&plain));
    assert_eq!(read(&packed, 16 << 20).unwrap(), 1);
    let error = read(&packed, 4 << 20).unwrap_err().to_string();
    assert!(error.contains("unpacks to more"), "{error}");
    // The limit does not apply to a plain file.
    assert_eq!(read(&plain, 1).unwrap(), 1);
}

#[test]
fn input_that_is_no_tar_is_reported_as_such() {
    for (bytes, word) in [
        (&b""[..], "is empty"),
        (b"hello", "shorter"),
        (&[b'x'; 600], "not a tar archive"),
        (b"BZh91AY&SY....", "bzip2"),
        (b"\x04\x22\x4d\x18....", "lz4"),
        (b"\x1f\x8b", "gzip"),
        (b"\xfd7zXZ\0..............", "xz"),
        (b"\x28\xb5\x2f\xfd..............", "zstd"),
    ] {
        let error = error_of(bytes);
        assert!(error.contains(word), "{error}");
    }
}

/// A small archive with every feature that the reader supports.
fn sample(dir: &Path, format: &str) -> Vec<u8> {
    let (root, archive) = (dir.join("tree"), dir.join("sample.tar"));
    if !root.exists() {
        fs::create_dir(&root).unwrap();
        tree::make_full(&root);
        fs::remove_file(root.join("dir/file-70000")).unwrap();
        fs::remove_file(root.join("sparse-a")).unwrap();
        fs::remove_file(root.join("sparse-b")).unwrap();
        fs::write(root.join("dir/data"), [7; 3000]).unwrap();
        let segments: Vec<_> = (0..40).map(|n| n * 65536).collect();
        let file = fs::File::create(root.join("sparse-many")).unwrap();
        for offset in segments {
            std::os::unix::fs::FileExt::write_all_at(&file, b"s", offset).unwrap();
        }
        file.sync_all().unwrap();
    }
    if format == "ours" {
        tree::write(open(&root).unwrap().as_mut(), &archive);
    } else {
        let mut tar = Command::new("tar");
        let format = format.replace("SNAPSHOT", &dir.join("snapshot").to_string_lossy());
        tar.args(format.split(' ')).args(["-S", "--acls", "--xattrs", "-cf"]).arg(&archive);
        run(tar.arg("-C").arg(&root).arg("."));
    }
    fs::read(&archive).unwrap()
}

#[test]
fn a_truncated_archive_is_never_accepted_as_complete() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = sample(dir.path(), "ours");
    let path = dir.path().join("cut.tar");
    let whole = bytes.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(512);
    for cut in (1..whole).step_by(700).chain((512..whole).step_by(2048)) {
        fs::write(&path, &bytes[..cut]).unwrap();
        match walk(&path, cut % 2 == 0) {
            Err(ArchiveError::Truncated { offset, .. }) => assert_eq!(offset, cut as u64),
            Err(ArchiveError::NotTar { .. }) => assert!(cut < 512),
            Ok((_, _, warnings)) => {
                assert_eq!(cut % 512, 0);
                assert!(warnings.iter().any(|w| w.contains("no end marker")), "{warnings:?}");
            }
            Err(other) => panic!("cut at {cut}: {other}"),
        }
    }
}

#[test]
fn damage_in_compressed_streams_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("t.tar");
    let original = sample(dir.path(), "ours");
    fs::write(&plain, &original).unwrap();
    for tool in ["gzip", "xz", "zstd"] {
        let args: &[&str] = if tool == "zstd" { &["-c", "--check"] } else { &["-c"] };
        let good = run(Command::new(tool).args(args).arg(&plain));
        let path = dir.path().join(tool);
        let walk_bytes = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            walk(&path, true)
        };
        assert!(walk_bytes(&good).is_ok());
        // The last bytes are the compression's checksum, behind the tar's end marker.
        for cut in [1, 4, 9, good.len() / 2] {
            let error = walk_bytes(&good[..good.len() - cut]).unwrap_err().to_string();
            assert!(error.contains(tool), "{error}");
        }
        // After a bit flip, the decompressed bytes may still be the same; that is no damage.
        let decompressed = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            run(Command::new(tool).arg("-dc").stdin(fs::File::open(&path).unwrap()))
        };
        let flips = (1..60).map(|n| good.len() / 60 * n).chain([good.len() - 3]);
        let taken = flips.filter(|at| {
            let mut bad = good.clone();
            bad[*at] ^= 0x10;
            let taken = walk_bytes(&bad).is_ok();
            assert!(!taken || decompressed(&bad) == original, "{tool} at {at}");
            taken
        });
        let taken = taken.count();
        assert!(taken <= 6, "{tool}: {taken} of 60 flips were not detected");
        let garbage = [&good[..], b"some garbage"].concat();
        match (tool, walk_bytes(&garbage)) {
            ("gzip", Ok((_, _, warnings))) => assert!(warnings[0].contains("garbage")),
            (_, Err(error)) => assert!(error.to_string().contains(tool), "{error}"),
            (_, Ok(_)) => panic!("{tool} with garbage"),
        }
    }
}

#[test]
fn all_kinds_of_archive_ends_are_handled() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let end_of = |bytes: &[u8]| {
        fs::write(file.path(), bytes).unwrap();
        walk(file.path(), false).unwrap()
    };
    let one = entry("f", b'0', b"x");
    for (tail, word) in [
        (vec![], "no end marker"),
        (vec![0; 512], "lone zero block"),
        ([vec![0; 512], one.clone()].concat(), "lone zero block"),
        ([vec![0; 1024], one.clone()].concat(), "behind the end marker"),
    ] {
        let (entries, bytes, warnings) = end_of(&[one.clone(), tail].concat());
        assert_eq!((entries, bytes), (1, 1));
        assert!(warnings[0].contains(word), "{warnings:?}");
    }
    assert_eq!(end_of(&[one.clone(), vec![0; 10240]].concat()), (1, 1, vec![]));
    assert_eq!(end_of(&[0; 1024]), (0, 0, vec![]));
    // A hard link and a directory of V7 with a size, with and without data behind it.
    let dir = header("d/", 0, 600);
    let mut link = header("h", b'1', 600);
    link[157] = b'f';
    let link = checksummed(link);
    for none in [link, dir] {
        let with = [one.clone(), none.clone(), vec![b'd'; 600], vec![0; 424], one.clone()];
        let without = [one.clone(), none, one.clone()];
        for parts in [&with[..], &without] {
            assert_eq!(end_of(&[parts.concat(), vec![0; 1024]].concat()), (3, 2, vec![]));
        }
    }
}

/// A random byte, often one with a meaning in archives.
fn byte(random: &mut Rng) -> u8 {
    const OFTEN: &[u8] = b"\0\x80\xff0189 =\n\r,:./xgLKS12345678V-";
    if random.once_in(3) {
        random.bits().to_le_bytes()[0]
    } else {
        OFTEN[random.index(OFTEN.len())]
    }
}

fn mutate(sample: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..1 + random.index(8) {
        let blocks = bytes.len() / 512;
        let at = random.index(blocks) * 512;
        match random.index(10) {
            0 => bytes.truncate(at.max(512)),
            1 => {
                let block = bytes[at..at + 512].to_vec();
                let to = random.index(blocks) * 512;
                bytes.splice(to..to, block);
            }
            2 => drop(bytes.drain(at..at + 512)),
            // The numbers and the type of a header.
            3..=5 => bytes[at + 100 + random.index(60)] = byte(random),
            6 => bytes[at + 380 + random.index(116)] = byte(random),
            _ => bytes[at + random.index(512)] = byte(random),
        }
        if bytes.len() < 1024 {
            return bytes;
        }
        let at = at.min(bytes.len() / 512 * 512 - 512);
        // Correct the checksum in most cases, or it would stop nearly all mutations.
        if random.index(8) > 0 && bytes[at + 257..at + 262] == *b"ustar" {
            let fixed = checksummed(bytes[at..at + 512].to_vec());
            bytes[at..at + 512].copy_from_slice(&fixed);
        }
    }
    bytes
}

#[test]
fn mutated_archives_cause_no_panic_and_no_endless_loop() {
    let seed = std::env::var("UXFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = seed.unwrap_or(u64::from(clock));
    println!("reproduce with: UXFS_SEED={seed} cargo test -p uxfs-archive mutated");
    let mut random = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let formats = ["ours", "--format=gnu", "--format=pax --sparse-version=0.0"];
    let mut samples: Vec<_> = formats.iter().map(|format| sample(dir.path(), format)).collect();
    for format in ["--format=pax --sparse-version=0.1", "--format=gnu -g SNAPSHOT -V label"] {
        samples.push(sample(dir.path(), format));
    }
    let path = dir.path().join("mutated.tar");
    let (mut whole, mut refused) = (0, 0);
    for turn in 0..10_000 {
        let bytes = mutate(&samples[turn % samples.len()], &mut random);
        fs::write(&path, &bytes).unwrap();
        let result = walk(&path, turn % 2 == 0);
        // Removed first, since some file systems flush an overwritten file.
        fs::remove_file(&path).unwrap();
        match result {
            Ok((entries, data, _)) => {
                assert!(entries <= bytes.len() as u64 / 512 && data <= bytes.len() as u64);
                whole += 1;
            }
            Err(error) => {
                assert!(error.to_string().len() < 2000);
                refused += 1;
            }
        }
    }
    // Both occur often, so the mutations are neither harmless nor all caught by the first check.
    assert!(whole > 500 && refused > 500, "{whole} read, {refused} refused");
}
