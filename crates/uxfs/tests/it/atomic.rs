//! Atomic writes: what they accept, what they refuse, and that nothing in between shows after a power cut or
//! to a reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uxfs::disk::{BlockDev, MemDev};
use uxfs::{
    AtomicRange, Error, Fallocate, Fs, NewInode, OpenOptions, SyncMode, WritebackOptions, Xflags,
};
use uxfs_format::Ino;
use uxfs_testkit::{RecordDev, Recording, Rng};

use crate::volume::{Volume, setting};

const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const EISDIR: i32 = 21;
const EFBIG: i32 = 27;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;

fn file(fs: &Fs, name: &str, content: &[u8]) -> Ino {
    let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
    fs.write_at(ino, 0, content).unwrap();
    ino
}

fn content(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut all = vec![0; fs.stat(ino).unwrap().size as usize];
    assert_eq!(fs.read_at(ino, 0, &mut all).unwrap(), all.len());
    all
}

/// Ranges of files, each with its offset and new content.
type Ranges<'a> = &'a [(Ino, u64, &'a [u8])];

/// The errno of a write; 0 if it succeeds.
fn errno(fs: &Fs, ranges: Ranges<'_>) -> i32 {
    write(fs, ranges).as_ref().err().map_or(0, Error::errno)
}

fn write(fs: &Fs, ranges: Ranges<'_>) -> Result<(), Error> {
    let mut all = Vec::new();
    for (ino, offset, data) in ranges {
        all.push(AtomicRange { ino: *ino, offset: *offset, data });
    }
    fs.write_atomic(&all)
}

/// Random ranges over holes, unwritten, shared and delayed blocks, with any alignment, against a model.
#[test]
fn ranges_of_any_kind_get_their_content() {
    for ordered in [false, true] {
        let volume = Volume::small(96, "-m rmapbt=1,reflink=1");
        let mut options = OpenOptions::default();
        options.writeback = Some(WritebackOptions::default());
        if ordered {
            options.sync = SyncMode::Ordered { loss: Duration::from_secs(5) };
        }
        let fs = volume.open_with(options);
        let mut rng = Rng::new(if ordered { 71 } else { 70 });
        let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
        for number in 0..5 {
            let start = vec![number as u8; rng.index(200_000)];
            files.push((file(&fs, &format!("file {number}"), &start), start));
        }
        for round in 0..200 {
            match rng.below(5) {
                0 => {
                    let (ino, model) = &mut files[rng.index(5)];
                    let (from, len) = (rng.index(150_000), 1 + rng.index(60_000));
                    let mode = Fallocate::PunchHole;
                    fs.fallocate(*ino, mode, from as u64, len as u64).unwrap();
                    let (from, to) = (from.min(model.len()), (from + len).min(model.len()));
                    model[from..to].fill(0);
                }
                1 => {
                    let (ino, model) = &mut files[rng.index(5)];
                    let (from, len) = (rng.below(250_000), 1 + rng.below(60_000));
                    let mode = Fallocate::Allocate { keep_size: rng.once_in(2) };
                    fs.fallocate(*ino, mode, from, len).unwrap();
                    model.resize(fs.stat(*ino).unwrap().size as usize, 0);
                }
                2 => {
                    let (from, to) = (rng.index(files.len()), rng.index(files.len()));
                    let source = files[from].1.clone();
                    if from != to && !source.is_empty() {
                        fs.truncate(files[to].0, 0).unwrap();
                        fs.clone_file(files[from].0, files[to].0).unwrap();
                        files[to].1 = source;
                    }
                }
                3 => {
                    let (ino, model) = &mut files[rng.index(5)];
                    let at = rng.index(150_000);
                    fs.write_at(*ino, at as u64, &[round as u8; 3000]).unwrap();
                    model.resize(model.len().max(at + 3000), 0);
                    model[at..at + 3000].fill(round as u8);
                }
                _ => {}
            }
            let byte = round as u8 ^ 0x55;
            let mut ranges: Vec<(usize, usize, usize)> = Vec::new();
            for _ in 0..1 + rng.index(6) {
                let (which, from) = (rng.index(files.len()), rng.index(250_000));
                let to = from + 1 + rng.index(9000);
                if ranges.iter().all(|(w, f, t)| *w != which || *t <= from || to <= *f) {
                    ranges.push((which, from, to));
                }
            }
            let data = vec![byte; 10_000];
            let arguments: Vec<(Ino, u64, &[u8])> = ranges
                .iter()
                .map(|(which, from, to)| (files[*which].0, *from as u64, &data[..to - from]))
                .collect();
            write(&fs, &arguments).unwrap();
            for (which, from, to) in ranges {
                let model = &mut files[which].1;
                model.resize(model.len().max(to), 0);
                model[from..to].fill(byte);
            }
            for (ino, model) in &files {
                assert!(content(&fs, *ino) == *model, "round {round}, ordered {ordered}");
            }
        }
        fs.close().unwrap();
        volume.judge("after atomic writes");
        let fs = volume.open();
        for (ino, model) in &files {
            assert!(content(&fs, *ino) == *model, "after closing, ordered {ordered}");
        }
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let volume = Volume::small(64, "");
    let fs = volume.open_with(OpenOptions::default());
    let (one, two) = (file(&fs, "one", &[1; 20_000]), file(&fs, "two", &[2; 20_000]));
    let fixed = file(&fs, "fixed", &[3; 20_000]);
    let old = fs.get_fsx(fixed).unwrap();
    fs.set_fsx(fixed, &uxfs::Fsx { xflags: Xflags::IMMUTABLE, ..old }).unwrap();
    let big = vec![9; AtomicRange::MOST_BYTES as usize + 1];
    let small: &[u8] = &[9; 100];
    let many: Vec<(Ino, u64, &[u8])> =
        (0..=AtomicRange::MOST as u64).map(|at| (one, at * 8192, small)).collect();
    let cases: [(&str, Ranges<'_>, i32); 8] = [
        ("nothing", &[], 0),
        ("empty ranges", &[(one, 5, &[]), (one, 5, &[])], 0),
        ("overlap", &[(one, 0, small), (two, 0, small), (one, 99, small)], EINVAL),
        ("too many", &many, EINVAL),
        ("too long", &[(one, 0, &big)], EINVAL),
        ("past the largest file", &[(one, 0, small), (two, i64::MAX as u64 - 50, small)], EFBIG),
        ("a directory", &[(one, 0, small), (fs.root(), 0, small)], EISDIR),
        ("immutable", &[(one, 0, small), (fixed, 0, small)], EPERM),
    ];
    let free = fs.free_blocks();
    for (what, ranges, want) in cases {
        assert_eq!(errno(&fs, ranges), want, "{what}");
        assert!(content(&fs, one) == [1; 20_000] && content(&fs, two) == [2; 20_000], "{what}");
        assert_eq!(fs.free_blocks(), free, "{what}");
    }
    fs.close().unwrap();
    volume.judge("after atomic writes");

    assert_eq!(errno(&volume.open_read_only(), &[(one, 0, small)]), EROFS);
    let fs = volume.open_with(OpenOptions::unlogged());
    assert!(fs.journal_options().is_none());
    assert_eq!(errno(&fs, &[(one, 0, small)]), EOPNOTSUPP);
}

/// A volume without room for new blocks refuses the write, with the old content in all files.
#[test]
fn a_full_volume_keeps_the_old_content() {
    let volume = Volume::small(64, "");
    let fs = volume.open_with(OpenOptions::default());
    let (one, two) = (file(&fs, "one", &[1; 300_000]), file(&fs, "two", &[2; 300_000]));
    let filler = file(&fs, "filler", &[]);
    for step in [1 << 20, 64 << 10, 4 << 10] {
        let data = vec![7; step];
        while fs.write_at(filler, fs.stat(filler).unwrap().size, &data).is_ok() {}
    }
    let data = vec![9; 290_000];
    let got = write(&fs, &[(one, 5, &data), (two, 5, &data)]);
    assert!(matches!(got, Err(Error::NoSpace)), "{got:?}");
    assert!(content(&fs, one) == [1; 300_000] && content(&fs, two) == [2; 300_000]);
    fs.unlink(fs.root(), b"filler").unwrap();
    write(&fs, &[(one, 5, &data), (two, 5, &data)]).unwrap();
    assert!(content(&fs, two)[5..290_005] == data[..]);
    fs.close().unwrap();
    volume.judge("after atomic writes");
}

const FILES: usize = 3;
const PLACES: [usize; 4] = [100, 8192, 70_001, 500_000];
const PIECE: usize = 6000;

/// Makes three files, then writes generation after generation, each into four places of each file.
fn generations(options: &OpenOptions, seed: u64) -> Recording<u64> {
    let before = MemDev::new(96 << 20);
    let mut mkfs = uxfs::mkfs::Options::default();
    mkfs.unsupported = true;
    let layout = uxfs::mkfs::Layout::new(&mkfs, before.len()).unwrap();
    uxfs::mkfs::write(&layout, &before, &uxfs::mkfs::WriteOptions::default()).unwrap();
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options.clone()).unwrap();
    let inos: Vec<Ino> = (0..FILES).map(|n| file(&fs, &format!("{n}"), &[1; 90_000])).collect();
    let mut rng = Rng::new(seed);
    for number in 2..=60_u8 {
        let data = [number; PIECE];
        let place = |ino: &Ino| PLACES.map(|at| (*ino, at as u64, &data[..]));
        let ranges: Vec<(Ino, u64, &[u8])> = inos.iter().flat_map(place).collect();
        write(&fs, &ranges).unwrap();
        if rng.once_in(3) {
            fs.write_at(inos[rng.index(FILES)], rng.below(60_000) + 10_000, &[1; 3000]).unwrap();
            // The places hold the generation again.
            write(&fs, &ranges).unwrap();
        }
        if rng.once_in(4) {
            fs.wait(fs.durable().unwrap()).unwrap();
            dev.mark(number.into());
        }
    }
    drop(fs);
    Recording::new(before, dev.take(), 512)
}

/// The generation that a recovered volume shows; 0 before the first.
fn shown(fs: &Fs) -> Result<u8, String> {
    let mut all = Vec::new();
    for number in 0..FILES {
        let Ok(ino) = fs.lookup(fs.root(), format!("{number}").as_bytes()) else { continue };
        for at in PLACES {
            let mut piece = [0; PIECE];
            let len = fs.read_at(ino, at as u64, &mut piece).map_err(|e| e.to_string())?;
            match piece[..len].iter().find(|byte| **byte != piece[0]) {
                Some(other) => {
                    return Err(format!("file {number}, {at}: {} and {other}", piece[0]));
                }
                None => all.push((number, at, if len == PIECE { piece[0] } else { 0 })),
            }
        }
    }
    Ok(all.first().map_or(0, |first| first.2)).and_then(|first| {
        // What the files held first is 1 or nothing.
        let plain = |byte: u8| if byte == 1 { 0 } else { byte };
        match all.iter().find(|place| plain(place.2) != plain(first)) {
            Some(other) => Err(format!("{:?} and {other:?}", all[0])),
            None => Ok(plain(first)),
        }
    })
}

/// After a power cut at any moment every place of every file shows one generation, not older than what was
/// acknowledged as durable.
#[test]
fn after_a_power_cut_all_ranges_are_of_one_write() {
    let rounds = setting("UXFS_ROUNDS", 1);
    for (mode, seed) in ["at once", "delayed", "ordered"].into_iter().zip(900..) {
        for seed in (seed..).step_by(10).take(3 * rounds as usize) {
            let mut options = OpenOptions::default();
            options.writeback = (mode != "at once").then(WritebackOptions::default);
            if mode == "ordered" {
                options.sync = SyncMode::Ordered { loss: Duration::from_secs(300) };
            }
            let run = generations(&options, seed);
            let (mut rng, mut seen) = (Rng::new(seed), std::collections::BTreeSet::new());
            for state in 0..80 {
                let at = run.choose(&mut rng);
                let disk = run.cut(at, &mut rng);
                let durable = run.marks_before(at).next().copied().unwrap_or(0);
                let fs = Fs::open(Arc::new(disk), OpenOptions::default()).unwrap();
                let found = shown(&fs);
                let right = found.as_ref().is_ok_and(|found| u64::from(*found) >= durable);
                assert!(right, "{mode}, seed {seed}, state {state}: {found:?}, durable {durable}");
                seen.extend(found);
            }
            assert!(seen.len() > 3, "{mode}, seed {seed}: only {seen:?}");
        }
    }
}

/// A reader of one file sees all its ranges of one write.
#[test]
fn readers_see_no_state_in_between() {
    let volume = Volume::small(64, "");
    let mut options = OpenOptions::default();
    options.writeback = Some(WritebackOptions::default());
    let fs = volume.open_with(options);
    let ino = file(&fs, "table", &[0; 200_000]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut all, mut changes, mut last) = (vec![0; 200_000], 0, 0);
            while !stop.load(Ordering::Acquire) {
                fs.read_at(ino, 0, &mut all).unwrap();
                let now = all[1000];
                assert!(all[1000..9000].iter().all(|byte| *byte == now));
                assert!(all[150_000..151_000].iter().all(|byte| *byte == now));
                changes += u64::from(now != last);
                last = now;
            }
            changes
        });
        for number in 1..200_u8 {
            let (long, short) = ([number; 8000], [number; 1000]);
            write(&fs, &[(ino, 1000, &long), (ino, 150_000, &short)]).unwrap();
        }
        stop.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    fs.close().unwrap();
    volume.judge("after atomic writes");
}
