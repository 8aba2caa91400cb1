//! Sources that a thread reads ahead.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use uxfs_archive::{
    ArchiveError, DirOptions, DirSource, Kind, ProtoOptions, ProtoSource, ReadAhead, Source, Time,
    open,
};

use crate::tree::{Lenient, assert_same, items, make_full, read, run};

fn ahead(path: &Path) -> ReadAhead {
    let source = DirSource::new(path, DirOptions::default()).unwrap();
    assert!(source.many_files());
    ReadAhead::start(Box::new(source)).unwrap()
}

#[test]
fn what_is_read_ahead_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    make_full(dir.path());
    // Larger than all batches, and files that fill one exactly.
    fs::write(dir.path().join("large"), vec![7; 12 << 20]).unwrap();
    for number in 0..3 {
        fs::write(dir.path().join(format!("even{number}")), vec![number; 512 << 10]).unwrap();
    }
    let many = dir.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..1500 {
        fs::write(many.join(number.to_string()), vec![b'x'; number]).unwrap();
    }
    let wanted = read(dir.path());
    let mut source = ahead(dir.path());
    assert_same(&items(&mut source), &wanted, Lenient::default());
    assert!(source.progress().0 > 12 << 20);
    assert!(source.next().unwrap().is_none() && source.read(&mut [0]).unwrap() == 0);
    // `next` skips data that was not read.
    let mut source = ahead(dir.path());
    let names = std::iter::from_fn(|| source.next().unwrap().map(|entry| entry.path));
    assert!(names.eq(wanted.iter().map(|item| item.0.path.clone())));
}

#[test]
fn a_consumer_may_stop_early() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..40 {
        fs::write(dir.path().join(format!("file{number}")), vec![0; 300 << 10]).unwrap();
    }
    drop(ahead(dir.path()));
    let mut source = ahead(dir.path());
    for _ in 0..3 {
        assert!(source.next().unwrap().is_some());
    }
    drop(source);
}

#[test]
fn entries_before_an_error_arrive_and_the_error_follows() {
    let dir = tempfile::tempdir().unwrap();
    let content = dir.path().join("content");
    fs::write(&content, vec![3; 2 << 20]).unwrap();
    let proto = dir.path().join("proto");
    let good = format!("good ---644 0 0 {}", content.display());
    fs::write(&proto, format!("b\n0 0\nd--755 0 0\n{good}\nbad ---644 0 0 /absent\n$\n")).unwrap();
    let source = ProtoSource::new(&proto, ProtoOptions::at(Time::default())).unwrap();
    let mut source = ReadAhead::start(Box::new(source)).unwrap();
    assert_eq!(source.next().unwrap().unwrap().path, b"");
    assert_eq!(source.next().unwrap().unwrap().path, b"good");
    let mut total = 0;
    let error = loop {
        match source.read(&mut [0; 5000]) {
            Ok(0) => break source.next().unwrap_err(),
            Ok(count) => total += count,
            Err(error) => break error,
        }
    };
    assert_eq!(total, 2 << 20);
    assert!(error.to_string().contains("line 5"), "{error}");
}

/// The data of an archive is not passed through the thread: its place is.
#[test]
fn data_of_one_file_stays_where_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("tree.tar"));
    fs::create_dir(&tree).unwrap();
    make_full(&tree);
    run(Command::new("tar")
        .arg("-C")
        .arg(&tree)
        .args(["--sparse", "--format=pax", "-cf"])
        .args([archive.as_os_str(), ".".as_ref()]));
    let plain = || open(&archive).unwrap();
    let mut source = ReadAhead::start(plain()).unwrap();
    assert_same(&items(&mut source), &items(&mut *plain()), Lenient::default());

    let (mut source, mut wanted) = (ReadAhead::start(plain()).unwrap(), plain());
    let mut found = 0;
    while let Some(entry) = source.next().unwrap() {
        assert_eq!(wanted.next().unwrap().unwrap(), entry);
        assert_eq!(source.data_position(), wanted.data_position(), "{entry:?}");
        let Some(at) = source.data_position() else { continue };
        let Kind::File { map, .. } = &entry.kind else { panic!("{entry:?} has data") };
        let mut there = vec![0; map.data_len() as usize];
        source.file().unwrap().read_exact_at(&mut there, at).unwrap();
        // In pieces, by `read` and by `chunk`.
        let mut piece = vec![0; there.len().min(100)];
        let count = source.read(&mut piece).unwrap();
        let mut read = piece[..count].to_vec();
        loop {
            let chunk = source.chunk().unwrap();
            let count = chunk.len().min(1000);
            read.extend_from_slice(&chunk[..count]);
            source.consume(count);
            if count == 0 {
                break;
            }
        }
        assert!(read == there, "{}", entry.path.escape_ascii());
        found += 1;
    }
    assert!(found > 8 && wanted.next().unwrap().is_none(), "{found}");
}

/// An archive that ends within the data of a file is cut short with the thread too.
#[test]
fn data_that_is_cut_off_has_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("data.tar"));
    fs::write(&data, vec![5; 100_000]).unwrap();
    run(Command::new("tar").arg("-C").arg(dir.path()).arg("-cf").arg(&archive).arg("data"));
    fs::File::options().write(true).open(&archive).unwrap().set_len(50_000).unwrap();
    let mut source = ReadAhead::start(open(&archive).unwrap()).unwrap();
    assert_eq!(source.next().unwrap().unwrap().path, b"data");
    assert_eq!(source.data_position(), None);
    let mut total = 0;
    let error = loop {
        match source.read(&mut [0; 5000]) {
            Ok(0) => panic!("it ended after {total} bytes"),
            Ok(count) => total += count,
            Err(error) => break error,
        }
    };
    assert_eq!(total, 50_000 - 512);
    assert!(matches!(error, ArchiveError::Truncated { .. }), "{error}");
}

/// A source that panics.
struct Panics;

impl Source for Panics {
    fn next(&mut self) -> Result<Option<uxfs_archive::Entry>, uxfs_archive::ArchiveError> {
        panic!("on purpose")
    }
    fn read(&mut self, _: &mut [u8]) -> Result<usize, uxfs_archive::ArchiveError> {
        Ok(0)
    }
    fn chunk(&mut self) -> Result<&[u8], uxfs_archive::ArchiveError> {
        Ok(&[])
    }
    fn consume(&mut self, _: usize) {}
    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn a_thread_that_dies_is_an_error_not_an_end() {
    let mut source = ReadAhead::start(Box::new(Panics)).unwrap();
    let error = source.next().unwrap_err().to_string();
    assert!(error.contains("the thread that reads ahead stopped"), "{error}");
}
