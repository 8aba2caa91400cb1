//! Full volumes: every failure is ENOSPC and leaves the volume consistent, and after everything is
//! deleted all space is free again.

use uxfs::{Error, Fs, NewInode, XattrMode};
use uxfs_format::Ino;
use uxfs_oracle::{Rng, db_value};

use crate::listing;
use crate::volume::Volume;

/// Repeats `make` until the volume is full. Returns the number of successes.
fn fill(what: &str, mut make: impl FnMut(u64) -> Result<(), Error>) -> u64 {
    let (mut done, mut failed) = (0, 0);
    for number in 0.. {
        match make(number) {
            Ok(()) => done += 1,
            Err(Error::NoSpace) => failed += 1,
            Err(e) => panic!("{what} {number}: {e}"),
        }
        // One failure is not enough: another group may have space.
        if failed > 20 {
            break;
        }
    }
    assert!(done > 0, "{what}: not one");
    done
}

/// Removes everything below a directory; no removal may fail.
fn empty(fs: &Fs, dir: Ino) {
    for (name, ino) in listing::names(fs, dir).unwrap() {
        if fs.stat(ino).unwrap().mode & 0o170000 == 0o040000 {
            empty(fs, ino);
            fs.rmdir(dir, &name).unwrap_or_else(|e| panic!("rmdir on a full volume: {e}"));
        } else {
            fs.unlink(dir, &name).unwrap_or_else(|e| panic!("unlink on a full volume: {e}"));
        }
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("entry number {number} of this directory").into_bytes()
}

type Filler = fn(&Fs, &mut Rng) -> u64;

fn files(fs: &Fs, rng: &mut Rng) -> u64 {
    fill("file", |number| {
        let ino = fs.create(fs.root(), &name(number), &NewInode::file(0o644))?;
        let data = vec![number as u8; rng.index(600_000)];
        fs.write_at(ino, rng.below(3) * 50_000, &data)
    })
}

fn inodes(fs: &Fs, _: &mut Rng) -> u64 {
    fill("empty file", |number| {
        fs.create(fs.root(), &name(number), &NewInode::file(0o644)).map(drop)
    })
}

fn directories(fs: &Fs, rng: &mut Rng) -> u64 {
    let mut all = vec![fs.root()];
    fill("directory", |number| {
        let up = all[rng.index(all.len())];
        let dir = fs.create(up, format!("{number}").as_bytes(), &NewInode::dir(0o755))?;
        all.push(dir);
        // Enough names for several directory blocks.
        for each in 0..rng.below(40) {
            fs.create(dir, &name(each), &NewInode::new(0o010644))?;
        }
        Ok(())
    })
}

fn xattrs(fs: &Fs, rng: &mut Rng) -> u64 {
    let mut all = Vec::new();
    for number in 0..20 {
        all.push(fs.create(fs.root(), &name(number), &NewInode::file(0o644)).unwrap());
    }
    fill("attribute", |number| {
        let len = [10, 500, 3000, 65_536][rng.index(4)];
        let value = rng.bytes(len);
        let full = [b"user.", &name(number)[..]].concat();
        fs.set_xattr(all[rng.index(all.len())], &full, &value, XattrMode::Any)
    })
}

fn sparse(fs: &Fs, rng: &mut Rng) -> u64 {
    let ino = fs.create(fs.root(), b"holes", &NewInode::file(0o644)).unwrap();
    let block = u64::from(fs.geo.block_size);
    fill("sparse write", |number| fs.write_at(ino, (2 * number + rng.below(2)) * block, b"data"))
}

fn links(fs: &Fs, rng: &mut Rng) -> u64 {
    fill("link", |number| {
        let target = vec![b'x'; 1 + rng.index(1023)];
        fs.symlink(fs.root(), &name(number), &target, &NewInode::new(0)).map(drop)
    })
}

fn round(line: &str, volume: &Volume, what: Filler, seed: u64) {
    let mut rng = Rng::new(seed);
    let fs = volume.open();
    let free = fs.free_blocks();
    let (inodes, inodes_free) = fs.inode_counts();
    let done = what(&fs, &mut rng);
    let left = fs.available_blocks();
    // A change of an existing file on a full volume.
    for (at, (name, ino)) in
        listing::names(&fs, fs.root()).unwrap().into_iter().take(20).enumerate()
    {
        let to = format!("renamed {at}");
        let moved = fs.rename(fs.root(), &name, fs.root(), to.as_bytes(), Default::default());
        assert!(matches!(moved, Ok(()) | Err(Error::NoSpace)), "{line}: {moved:?}");
        let stat = fs.stat(ino).unwrap();
        if stat.mode & 0o170000 == 0o100000 {
            let cut = fs.truncate(ino, stat.size / 2 + 1);
            assert!(matches!(cut, Ok(()) | Err(Error::NoSpace)), "{line}: {cut:?}");
        }
    }
    fs.close().unwrap();
    volume.judge(&format!("{line}, seed {seed}: full of {done}, {left} left"));

    // Half is removed, and the volume is filled again in pieces.
    let fs = volume.open();
    for (at, (name, ino)) in listing::names(&fs, fs.root()).unwrap().into_iter().enumerate() {
        if at % 2 == 0 && fs.stat(ino).unwrap().mode & 0o170000 != 0o040000 {
            fs.unlink(fs.root(), &name).unwrap_or_else(|e| panic!("{line}: unlink: {e}"));
        }
    }
    let big = fs.create(fs.root(), b"the big one", &NewInode::file(0o644));
    if let Ok(big) = big {
        let more = fill("more", |number| fs.write_at(big, number * 300_000, &[7; 300_000]));
        assert!(more > 0);
    }
    fs.close().unwrap();
    volume.judge(&format!("{line}, seed {seed}: filled again"));

    let fs = volume.open();
    empty(&fs, fs.root());
    fs.close().unwrap();
    volume.judge(&format!("{line}, seed {seed}: emptied"));
    let fs = volume.open();
    let lost = free.saturating_sub(fs.free_blocks());
    // Trees may keep a level more than necessary, and an inode chunk may stay.
    let chunk = u64::from(fs.geo.chunk_blocks());
    let most = u64::from(fs.geo.ag_count) * (chunk + 12);
    assert!(lost <= most, "{line}, seed {seed}: {lost} blocks lost after {done}");
    let (now, now_free) = fs.inode_counts();
    assert_eq!(now - now_free, inodes - inodes_free, "{line}, seed {seed}: inodes in use");
    fs.close().unwrap();
}

#[test]
fn full_volumes_stay_consistent() {
    let fillers: [(&str, Filler); 6] = [
        ("files", files),
        ("inodes", inodes),
        ("directories", directories),
        ("xattrs", xattrs),
        ("sparse", sparse),
        ("links", links),
    ];
    let lines = [
        (32, "-d agcount=2"),
        (32, "-b size=1k -d agcount=2 -m rmapbt=1 -i maxpct=0"),
        (40, "-d agcount=2 -i sparse=0,maxpct=0 -m reflink=0,finobt=0,inobtcount=0"),
    ];
    for (at, (mib, line)) in lines.iter().enumerate() {
        for (number, (what, filler)) in fillers.iter().enumerate() {
            let volume = Volume::small(*mib, line);
            let line = format!("{line}, {what}");
            round(&line, &volume, *filler, (10 * at + number) as u64);
        }
    }
}

#[test]
fn a_full_volume_of_the_smallest_size() {
    let volume = Volume::real(300, "-m rmapbt=1");
    round("300 MiB", &volume, files, 1);
}

/// Free extents smaller than an inode chunk: sparse chunks are allocated.
#[test]
fn inodes_in_fragmented_space() {
    for rmapbt in [0, 1] {
        let line = format!("-d agcount=2 -m rmapbt={rmapbt} -i maxpct=0");
        let volume = Volume::small(32, &line);
        let fs = volume.open();
        let mut all = Vec::new();
        // Single blocks of many files, adjacent; then most pairs of neighbours are freed, but no more.
        fill("block", |number| {
            let ino = fs.create(fs.root(), &name(number), &NewInode::file(0o644))?;
            all.push(name(number));
            fs.write_at(ino, 0, &[1; 4096])?;
            // Its place is that of its turn.
            fs.write_back_file(ino)
        });
        for chunk in all.chunks(8) {
            for name in chunk.iter().take(6) {
                // The names stay after the data, because their inodes must not become free.
                let ino = fs.lookup(fs.root(), name).unwrap();
                fs.truncate(ino, 0).unwrap();
            }
        }
        let (before, _) = fs.inode_counts();
        let made = fill("inode", |number| {
            fs.create(fs.root(), format!("{number}").as_bytes(), &NewInode::new(0o010600)).map(drop)
        });
        let (after, _) = fs.inode_counts();
        assert!(after > before + 16, "{line}: {before} inodes, {made} made, {after} now");
        assert_ne!((after - before) % 64, 0, "{line}: no part of a chunk was made");
        fs.close().unwrap();
        volume.judge(&format!("{line}: parts of chunks"));
        let fs = volume.open();
        empty(&fs, fs.root());
        fs.close().unwrap();
        volume.judge(&format!("{line}: emptied"));
    }
}

/// A file with thousands of extents, and thousands of free extents: every tree grows by levels and
/// shrinks again.
#[test]
fn trees_of_several_levels() {
    for (line, levels) in [
        ("-b size=1k -d agcount=2 -m rmapbt=1 -i maxpct=0", true),
        ("-b size=1k -d agcount=2 -m reflink=0 -i maxpct=0,nrext64=1", false),
    ] {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        let free = fs.free_blocks();
        let ino = fs.create(fs.root(), b"pieces", &NewInode::file(0o644)).unwrap();
        let other = fs.create(fs.root(), b"others", &NewInode::file(0o644)).unwrap();
        // Two files are written alternately and backwards, so that no extents merge.
        for number in (0..12_000).rev() {
            fs.write_at(ino, number * 2048, &number.to_le_bytes()).unwrap();
            fs.write_back_file(ino).unwrap();
            if number % 2 == 0 {
                fs.write_at(other, number * 2048, &number.to_le_bytes()).unwrap();
                fs.write_back_file(other).unwrap();
            }
        }
        for number in 0..9000_u64 {
            fs.create(fs.root(), &name(number), &NewInode::file(0o600)).unwrap();
        }
        fs.close().unwrap();
        volume.judge(&format!("{line}: grown"));
        let level = |commands: &[&str], field: &str| -> u64 {
            db_value(&volume.path, commands, field).parse().unwrap()
        };
        let inode = format!("inode {}", ino.0);
        assert!(level(&[&inode], "u3.bmbt.level") >= 2, "{line}: the extents' tree");
        let fs = volume.open();
        for number in 0..12_000_u64 {
            let mut found = [0; 8];
            fs.read_at(ino, number * 2048, &mut found).unwrap();
            assert_eq!(u64::from_le_bytes(found), number, "{line}: content");
        }
        // Every second free extent comes from one of the two files.
        fs.truncate(other, 0).unwrap();
        fs.close().unwrap();
        volume.judge(&format!("{line}: one of two cut"));
        let most = |field: &str, head: &str| {
            (0..2).map(|ag| level(&[&format!("{head} {ag}")], field)).max().unwrap()
        };
        assert!(most("bnolevel", "agf") >= 2 && most("cntlevel", "agf") >= 2, "{line}: free space");
        assert!(most("level", "agi") >= 2, "{line}: inodes");
        assert!(!levels || most("rmaplevel", "agf") >= 3, "{line}: reverse mappings");
        let fs = volume.open();
        for number in (0..12_000_u64).rev().step_by(3) {
            fs.write_at(ino, number * 2048 + 1024, &number.to_le_bytes()).unwrap();
        }
        fs.truncate(ino, 9000 * 2048).unwrap();
        empty(&fs, fs.root());
        fs.close().unwrap();
        volume.judge(&format!("{line}: emptied"));
        let lost = free.saturating_sub(volume.open().free_blocks());
        assert!(lost < 100, "{line}: {lost} blocks lost");
        for (field, head) in [("bnolevel", "agf"), ("cntlevel", "agf"), ("level", "agi")] {
            assert_eq!(most(field, head), 1, "{line}: {field}");
        }
    }
}

/// Freed blocks are busy until their checkpoint is durable. An allocation that needs them forces the
/// checkpoint, and gets them.
#[test]
fn freed_space_is_available_at_once() {
    for line in ["-d agcount=4 -m rmapbt=1", "-b size=1k -d agcount=2"] {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        let mut filled = Vec::new();
        for round in 0..4 {
            fill("file", |number| {
                let ino = fs.create(fs.root(), &name(number), &NewInode::file(0o644))?;
                fs.write_at(ino, 0, &[round; 40_000])
            });
            filled.push(fs.available_blocks());
            empty(&fs, fs.root());
        }
        // The space that is left on the full volume is about the same each time.
        let least = filled[0] + 16;
        assert!(filled.iter().all(|left| *left <= least), "{line}: {filled:?}");
        fs.close().unwrap();
        volume.judge(line);
    }
}

/// Threads fill a volume and free their files repeatedly: no ENOSPC while much space is free.
#[test]
fn threads_fill_and_free_a_nearly_full_volume() {
    for line in ["-d agcount=4 -m rmapbt=1", "-d agcount=2 -m rmapbt=0"] {
        let volume = Volume::small(64, line);
        let fs = volume.open();
        let all = fs.available_blocks();
        let hog = fs.create(fs.root(), b"hog", &NewInode::file(0o644)).unwrap();
        // Each thread has about 3 MiB and uses at most half.
        let block = u64::from(fs.geo.block_size);
        let len = (all * block).saturating_sub(12 << 20);
        fs.write_at(hog, 0, &vec![1; len as usize]).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let fs = &fs;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    let dir = format!("dir {thread}").into_bytes();
                    let dir = fs.create(fs.root(), &dir, &NewInode::dir(0o755)).unwrap();
                    for round in 0..12 {
                        for number in 0..12 {
                            let ino = fs.create(dir, &name(number), &NewInode::file(0o644));
                            let ino = ino.unwrap_or_else(|e| panic!("{line}, round {round}: {e}"));
                            let data = vec![thread as u8; 1 + rng.index(120_000)];
                            fs.write_at(ino, 0, &data)
                                .unwrap_or_else(|e| panic!("{line}, round {round}: {e}"));
                        }
                        empty(fs, dir);
                    }
                });
            }
        });
        empty(&fs, fs.root());
        assert!(fs.available_blocks() + 200 > all, "{line}: {} of {all}", fs.available_blocks());
        fs.close().unwrap();
        volume.judge(line);
    }
}
