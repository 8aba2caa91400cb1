//! The halves of an archive: what two readers yield is what one does, wherever the middle lies.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use uxfs_archive::{Entry, Kind, Meta, SparseMap, TarWriter, open};

const BLOCK: usize = 512;

fn file(path: &str, size: usize) -> (Entry, Vec<u8>) {
    let kind = Kind::File { size: size as u64, map: SparseMap::whole(size as u64) };
    (Entry { path: path.into(), kind, meta: Meta::default() }, vec![b'u'; size])
}

fn archive(files: &[(Entry, Vec<u8>)]) -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new());
    for (entry, data) in files {
        tar.entry(entry, &mut Cursor::new(data)).unwrap();
    }
    tar.finish().unwrap()
}

/// Files of which each needs extended headers, behind one of this many blocks.
fn files(lead: usize) -> Vec<(Entry, Vec<u8>)> {
    let mut all = vec![file("lead", lead * BLOCK)];
    all.extend((0..20).map(|n| file(&format!("{}/{n}", "long".repeat(70)), n * 100)));
    all
}

/// The entries that one reader yields, those of two, and whether the halves met.
fn read(bytes: &[u8], dir: &Path) -> (Vec<Entry>, Vec<Entry>, bool) {
    let path = dir.join("archive");
    fs::write(&path, bytes).unwrap();
    let rest = |source: &mut dyn uxfs_archive::Source| {
        std::iter::from_fn(|| source.next().unwrap()).collect::<Vec<_>>()
    };
    let whole = rest(&mut *open(&path).unwrap());
    let mut front = open(&path).unwrap();
    let back = front.back_half(0);
    let mut halves = rest(&mut *front);
    let met = front.met_back_half();
    if met {
        let front_again = rest(&mut *front);
        let behind = rest(&mut *back.unwrap());
        assert_eq!(front_again, behind, "the front half goes on where the back half begins");
        halves.extend(behind);
    }
    (whole, halves, met)
}

#[test]
fn the_middle_is_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let mut ends = [0; 2];
    for lead in 0..120 {
        let (whole, halves, met) = read(&archive(&files(lead)), dir.path());
        assert_eq!(whole, halves, "{lead} blocks before");
        ends[usize::from(met)] += 1;
    }
    // The middle is in a name's own header sometimes, and mostly elsewhere.
    assert!(ends[0] > 0 && ends[1] > 60, "{ends:?}");
}

#[test]
fn an_archive_in_an_archive_has_no_half() {
    let dir = tempfile::tempdir().unwrap();
    let (mut entry, _) = file("inner.tar", 0);
    let inner = archive(&files(3));
    let size = inner.len() as u64;
    entry.kind = Kind::File { size, map: SparseMap::whole(size) };
    let (whole, halves, met) = read(&archive(&[(entry, inner), file("last", 10)]), dir.path());
    assert_eq!((whole.len(), met), (2, false));
    assert_eq!(whole, halves);
}

/// The values of a global header are those of all later entries.
#[test]
fn global_headers_reach_both_halves() {
    let dir = tempfile::tempdir().unwrap();
    let record = b"17 uname=somebody\n";
    let record = [format!("{} ", record.len()).as_bytes(), &record[3..]].concat();
    let mut header = [0; BLOCK];
    header[..6].copy_from_slice(b"global");
    header[124..136].copy_from_slice(format!("{:011o}\0", record.len()).as_bytes());
    header[156] = b'g';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend(&record);
    bytes.resize(2 * BLOCK, 0);
    bytes.extend(archive(&files(0)));
    let (whole, halves, met) = read(&bytes, dir.path());
    assert!(!met && whole.iter().all(|entry| entry.meta.uname == b"somebody"), "{whole:?}");
    assert_eq!(whole, halves);
}

#[test]
fn small_and_compressed_archives_have_no_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive");
    let bytes = archive(&files(100));
    fs::write(&path, &bytes).unwrap();
    assert!(open(&path).unwrap().back_half(bytes.len() as u64).is_some());
    assert!(open(&path).unwrap().back_half(bytes.len() as u64 + 1).is_none());
    assert!(std::process::Command::new("gzip").arg(&path).status().unwrap().success());
    assert!(open(&dir.path().join("archive.gz")).unwrap().back_half(0).is_none());
}
