//! Limits of memory, space and age.

use uxfs_journal::Time;
use uxfs_testkit::Rng;

use super::{content, volume, volume_of};
use crate::{Error, WritebackOptions};

const MIB: u64 = 1 << 20;

#[test]
fn memory_stays_below_the_limit() {
    let limits = WritebackOptions {
        dirty_bytes: 2 * MIB,
        dirty_background_bytes: MIB,
        ..WritebackOptions::default()
    };
    let v = volume("", limits);
    let (large, mut rng) = (v.file("large"), Rng::new(4));
    for at in 0..20 {
        v.fs.write_at(large, at * 3 * MIB, &vec![at as u8; 3 << 20]).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let (v, seed) = (&v, rng.bits());
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for number in 0..300 {
                    let file = v.file(&format!("{thread}.{number}"));
                    let len = 1 + rng.index(60_000);
                    v.fs.write_at(file, rng.below(9000), &vec![thread; len]).unwrap();
                    if rng.once_in(10) {
                        v.fs.fsync(file).unwrap();
                    }
                }
            });
        }
    });
    let dirty = v.fs.delalloc.as_ref().unwrap();
    assert!(dirty.memory.peak() <= 2 * MIB, "{} bytes", dirty.memory.peak());
    let all = content(&v.fs, large);
    assert!(all.chunks(3 << 20).enumerate().all(|(at, part)| part.iter().all(|b| *b == at as u8)));
    v.fs.sync().unwrap();
    assert_eq!((dirty.memory.used(), dirty.all().len()), (0, 0));
    v.judge();
}

#[test]
fn writeback_excess_writes_only_the_excess() {
    let limits = WritebackOptions {
        dirty_bytes: 64 * MIB,
        dirty_background_bytes: 8 * MIB,
        ..WritebackOptions::default()
    };
    let v = volume("", limits);
    let large = v.file("large");
    for at in 0..8 {
        v.fs.write_at(large, at * MIB, &vec![at as u8; 1 << 20]).unwrap();
    }
    assert!(!v.fs.has_writeback_excess());
    v.fs.writeback_excess().unwrap();
    assert_eq!(v.fs.dirty_bytes(), 8 * MIB);
    v.fs.write_at(large, 8 * MIB, &[8]).unwrap();
    assert!(v.fs.has_writeback_excess());
    v.fs.writeback_excess().unwrap();
    let left = v.fs.dirty_bytes();
    assert!(left <= 4 * MIB && !v.fs.has_writeback_excess(), "{left} bytes");
    let all = content(&v.fs, large);
    assert!(all.chunks(1 << 20).enumerate().all(|(at, part)| part.iter().all(|b| *b == at as u8)));
    v.fs.sync().unwrap();
    v.judge();
}

#[test]
fn overwritten_parts_of_a_write_do_not_keep_its_other_parts_dirty() {
    let v = volume("", WritebackOptions::default());
    let (file, mut expected) = (v.file("f"), vec![7; 2 << 20]);
    v.fs.write_at(file, 0, &expected).unwrap();
    v.fs.write_back_file(file).unwrap();
    assert_eq!(v.fs.dirty_bytes(), 0);
    // Write over the data of the first write, some of it twice, in whole blocks and in parts.
    for (at, len, byte) in [(1 << 20, 1 << 20, 1), (MIB + 8192, 4096, 2), (MIB + 8192, 4096, 3)] {
        v.fs.write_at(file, at, &vec![byte; len]).unwrap();
        expected[at as usize..at as usize + len].fill(byte);
    }
    v.fs.write_at(file, MIB - 100, &[4; 20_000]).unwrap();
    expected[(1 << 20) - 100..(1 << 20) + 19_900].fill(4);
    assert!(content(&v.fs, file) == expected);
    // The rest of the allocation counts as a whole, and the changed blocks count in addition.
    let blocks = v.fs.dirty_bytes_of(file);
    assert!(blocks == MIB + 4096 && v.fs.dirty_bytes() > blocks, "{}", v.fs.dirty_bytes());
    v.fs.fsync(file).unwrap();
    assert_eq!(v.fs.dirty_bytes(), 0);
    assert!(content(&v.fs, file) == expected);
    v.judge();
}

#[test]
fn the_write_reports_no_space() {
    for mkfs in ["-b size=1k -m rmapbt=1", "-d agcount=2", "-m reflink=0,finobt=0,inobtcount=0"] {
        let v = volume_of(mkfs, 40, WritebackOptions::default());
        let mut files = Vec::new();
        let full = (0..10_000u64).find_map(|number| {
            let file = match v.fs.create(
                v.fs.root(),
                format!("{number}").as_bytes(),
                &crate::NewInode::file(0o644),
            ) {
                Ok(file) => file,
                Err(error) => return Some(error),
            };
            files.push((file, number));
            // Leave holes, so that there are many extents.
            let parts = (0..20).map(|part| v.fs.write_at(file, part * 9000, &[number as u8; 3000]));
            parts.collect::<Result<Vec<_>, _>>().err()
        });
        assert!(matches!(full, Some(Error::NoSpace)), "{mkfs}: {full:?}");
        v.fs.sync().unwrap_or_else(|e| panic!("{mkfs}: {e}"));
        // Overwriting works on a full volume.
        let (first, byte) = files[0];
        v.fs.write_at(first, 9000, &[byte as u8; 3000]).unwrap();
        v.fs.fsync(first).unwrap();
        let v = v.cut();
        for (file, number) in &files[..files.len() - 1] {
            let all = content(&v.fs, *file);
            assert_eq!(all.len(), 19 * 9000 + 3000, "{mkfs}");
            assert!(all.chunks(9000).all(|c| c[..3000].iter().all(|b| *b == *number as u8)));
        }
        v.judge();
    }
}

#[test]
fn ticks_write_old_data_and_data_above_the_background_limit() {
    let limits =
        WritebackOptions { dirty_background_bytes: 100 << 10, ..WritebackOptions::default() };
    let v = volume("", limits);
    let secs = |n: u64| Time(n * 1_000_000_000);
    assert_eq!(v.fs.writeback_alarm(), None);
    let (early, late) = (v.file("early"), v.file("late"));
    v.fs.write_at(early, 0, &[1; 20_000]).unwrap();
    assert_eq!(v.fs.writeback_alarm(), Some(secs(5)));
    v.fs.writeback_tick(secs(5)).unwrap();
    v.fs.write_at(late, 0, &[1; 30_000]).unwrap();
    v.fs.writeback_tick(secs(10)).unwrap();
    v.fs.writeback_tick(secs(34)).unwrap();
    assert_eq!(v.fs.dirty_bytes(), 20_480 + 32_768);
    v.fs.writeback_tick(secs(35)).unwrap();
    assert_eq!(v.fs.dirty_bytes(), 32_768);
    v.fs.writeback_tick(secs(40)).unwrap();
    assert_eq!((v.fs.dirty_bytes(), v.fs.writeback_alarm()), (0, None));
    for number in 0..10 {
        let file = v.file(&format!("{number}"));
        v.fs.write_at(file, 0, &[1; 32_768]).unwrap();
    }
    assert_eq!(v.fs.writeback_alarm(), Some(secs(40)), "at once");
    v.fs.writeback_tick(secs(41)).unwrap();
    assert!(v.fs.dirty_bytes() <= 100 << 10 && v.fs.dirty_bytes() > 0);
    v.judge();
}
