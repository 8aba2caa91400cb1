//! Full volumes, failing devices, damaged maps and races: no operation hangs or panics, and no change
//! is lost.

mod space;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use uxfs_disk::{BlockDev, FileDev, OpenMode};
use uxfs_format::btree::BmapNode;
use uxfs_format::btree::RmapOwner;
use uxfs_format::inode::{Fork, ForkFormat};
use uxfs_format::verify::{BufKind, Owner as BufOwner};
use uxfs_format::{AgBlock, AgNo, Extent, FileBlock};
use uxfs_testkit::{Answer, ETIMEDOUT, FaultDev, Op, Rng, Rule};

use crate::alloc::{self, Owner, Want};
use crate::buf::{Piece, Pieces};
use crate::inode::Changed;
use crate::inode::InodeState;
use crate::journal::{Journal, JournalOptions, Op as OpKind, RollPolicy};
use crate::ops::{Content, Fallocate, NewInode, SetAttr};
use crate::tx::Tx;
use crate::{Error, Fs, OpenOptions, bmap};

struct Volume {
    _dir: tempfile::TempDir,
    path: PathBuf,
    dev: Arc<FaultDev<FileDev>>,
    fs: Fs,
}

/// Without the log, changes stay in memory until a sync writes them in place.
fn unlogged() -> OpenOptions {
    OpenOptions::unlogged()
}

fn open(path: &std::path::Path) -> (Arc<FaultDev<FileDev>>, Fs) {
    open_with(path, unlogged())
}

fn open_with(path: &std::path::Path, options: OpenOptions) -> (Arc<FaultDev<FileDev>>, Fs) {
    let dev = Arc::new(FaultDev::new(FileDev::open(path, OpenMode::Write).unwrap()));
    let options = OpenOptions { seed: Some(1), ..options };
    let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options).unwrap();
    (dev, fs)
}

fn volume(options: &[&str]) -> Volume {
    volume_with(options, unlogged())
}

fn volume_with(options: &[&str], open: OpenOptions) -> Volume {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    uxfs_oracle::mkfs(&path, 512 << 20, options);
    let (dev, fs) = open_with(&path, open);
    Volume { _dir: dir, path, dev, fs }
}

/// Allocates all free space of a group, in extents of at most `max` blocks.
fn alloc_all_free(fs: &Fs, ag: AgNo, max: u32, rng: &mut Rng) -> Vec<(AgBlock, u32)> {
    let mut taken = Vec::new();
    loop {
        let mut tx = Tx::begin(fs, 0).unwrap();
        tx.lock_ag(ag).unwrap();
        for _ in 0..100 {
            let near = AgBlock(rng.below(fs.geo.ag_blocks.into()) as u32);
            let want = Want { max, near, ..Want::default() };
            let owner = Owner::Special(RmapOwner::INOBT);
            match alloc::alloc_in(&mut tx, ag, &want, owner).unwrap() {
                Some(extent) => taken.push(extent),
                None => {
                    tx.commit().unwrap();
                    return taken;
                }
            }
        }
        tx.commit().unwrap();
    }
}

fn free_extents(fs: &Fs, ag: AgNo, extents: &[(AgBlock, u32)]) {
    for some in extents.chunks(50) {
        let mut tx = Tx::begin_freeing(fs, 5).unwrap();
        for (start, len) in some {
            alloc::free_later(&mut tx, ag, *start, *len, RmapOwner::INOBT);
        }
        tx.commit().unwrap();
    }
}

/// A block that a tree frees moves to the free list first, and from there to free space. No data may
/// be written into it before that change is durable.
#[test]
fn blocks_that_leave_the_free_list_are_busy() {
    let volume = volume_with(&["-b", "size=1024"], OpenOptions::default());
    let fs = &volume.fs;
    let mut rng = Rng::new(5);
    let ag = AgNo(0);
    let (odd, even): (Vec<_>, Vec<_>) =
        alloc_all_free(fs, ag, 1, &mut rng).into_iter().partition(|e| e.0.0 % 2 == 1);
    odd.chunks(8).for_each(|some| free_extents(fs, ag, some));
    fs.sync().unwrap();
    let trees = |tx: &Tx<'_>| tx.agf(ag).btreeblks.get() + tx.agf(ag).flcount.get();
    let mut tx = Tx::begin(fs, 0).unwrap();
    tx.lock_ag(ag).unwrap();
    let before = trees(&tx);
    tx.expire_busy(ag);
    assert_eq!(tx.ag(ag).busy.blocks(), 0);
    drop(tx);
    // Merged holes need fewer records, so the trees shrink and free blocks.
    even.chunks(8).for_each(|some| free_extents(fs, ag, some));
    let mut tx = Tx::begin(fs, 0).unwrap();
    tx.lock_ag(ag).unwrap();
    let shrunk = before - trees(&tx);
    assert!(shrunk > 50, "the trees freed {shrunk} blocks");
    let freed = even.len() as u64 + u64::from(shrunk);
    // A tree may have allocated some of them again.
    assert!(tx.ag(ag).busy.blocks() >= freed);
}

#[test]
fn a_full_group_can_be_freed_completely() {
    for options in [&["-b", "size=1024", "-m", "rmapbt=1"][..], &["-m", "finobt=1"]] {
        let volume = volume(options);
        let fs = &volume.fs;
        let free = fs.free_blocks();
        let mut rng = Rng::new(3);
        let whole = alloc_all_free(fs, AgNo(0), 1 << 20, &mut rng);
        // Holes of one block make the trees grow in an almost full group.
        let (start, len) = *whole.iter().max_by_key(|e| e.1).unwrap();
        let rest: Vec<_> = whole.iter().copied().filter(|e| e.0 != start).collect();
        let len = len.min(24_000);
        let mut singles: Vec<_> = (0..len).map(|i| (start.plus(i), 1)).collect();
        let over = whole.iter().find(|e| e.0 == start).unwrap().1 - len;
        let tail = (over > 0).then_some((start.plus(len), over));
        let (odd, even): (Vec<_>, Vec<_>) = singles.drain(..).partition(|e| e.0.0 % 2 == 1);
        free_extents(fs, AgNo(0), &odd);
        let again = alloc_all_free(fs, AgNo(0), 1, &mut rng);
        let mut all: Vec<_> = even.into_iter().chain(again).chain(rest).chain(tail).collect();
        for at in (1..all.len()).rev() {
            all.swap(at, rng.index(at + 1));
        }
        free_extents(fs, AgNo(0), &all);
        assert_eq!(fs.free_blocks(), free);
        volume.fs.close().unwrap();
        drop(volume.dev);
        uxfs_oracle::both(&volume.path).unwrap_or_else(|f| panic!("{options:?}: {f}"));
    }
}

#[test]
fn sparse_inode_chunks_are_allocated_in_fragmented_free_space() {
    for options in [&["-m", "rmapbt=1"][..], &["-i", "size=2048"], &["-m", "finobt=0"]] {
        let volume = volume(options);
        let fs = &volume.fs;
        let mut rng = Rng::new(4);
        let (chunk, part) = (fs.geo.chunk_blocks(), fs.geo.sparse_align);
        let mut taken = Vec::new();
        for ag in (0..fs.geo.ag_count).map(AgNo) {
            let whole = alloc_all_free(fs, ag, 1 << 20, &mut rng);
            let (start, len) = *whole.iter().max_by_key(|e| e.1).unwrap();
            let mut kept: Vec<_> = whole.into_iter().filter(|e| e.0 != start).collect();
            // In the range of each aligned chunk, only the first or the second sparse part is free.
            let mut at = start;
            let mut pieces = Vec::new();
            while at.0 + 2 * chunk < start.0 + len.min(4000) {
                let next = AgBlock((at.0 + 1).next_multiple_of(chunk));
                let free = next.plus(if rng.once_in(2) { part } else { 0 });
                kept.push((at, free.0 - at.0));
                pieces.push((free, part));
                at = free.plus(part);
            }
            kept.push((at, start.0 + len - at.0));
            free_extents(fs, ag, &pieces);
            taken.push((ag, kept));
        }
        let mut names = Vec::new();
        while let name = format!("file{}", names.len()).into_bytes()
            && names.len() < 4000
        {
            match fs.create(fs.root(), &name, &NewInode::file(0o600)) {
                Ok(_) => names.push(name),
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(names.len() > 500, "{} files", names.len());
        for (ag, kept) in taken {
            free_extents(fs, ag, &kept);
        }
        // Frees some chunks completely; of others, free inodes remain that later files use.
        for name in names.iter().filter(|_| rng.below(40) != 0) {
            fs.unlink(fs.root(), name).unwrap();
        }
        for number in 0..3000 {
            let name = format!("new{number}");
            fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
        }
        volume.fs.close().unwrap();
        drop(volume.dev);
        uxfs_oracle::both(&volume.path).unwrap_or_else(|f| panic!("{options:?}: {f}"));
    }
}

#[test]
fn on_a_full_volume_files_are_overwritten_and_removed() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let root = fs.root();
    let file = fs.create(root, b"file", &NewInode::file(0o644)).unwrap();
    fs.write_at(file, 0, &[1; 10_000]).unwrap();
    let left = fs.available_blocks();
    fs.reserve(left).unwrap();
    fs.write_at(file, 100, &[2; 5000]).unwrap();
    assert!(matches!(fs.write_at(file, 20_000, &[3; 5000]), Err(Error::NoSpace)));
    assert!(matches!(fs.create(root, b"other", &NewInode::file(0o644)), Err(Error::NoSpace)));
    fs.truncate(file, 5000).unwrap();
    fs.unlink(root, b"file").unwrap();
    fs.apply(left, crate::mount::Counters::default(), 0);
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
}

#[test]
fn blocks_beyond_eof_read_as_zeroes_when_the_file_grows() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let data = [(0, 16 << 10)];
    let content = Content::Data { size: 16 << 10, segments: &data };
    for grow in [true, false] {
        let name = format!("file{grow}").into_bytes();
        let new = NewInode::file(0o644);
        let (ino, segments) = fs.build(fs.root(), &name, &new, &[], content).unwrap();
        fs.dev.write_at(segments[0].device.unwrap(), &[7; 16 << 10]).unwrap();
        // As after preallocation: the file maps blocks beyond its end.
        let mut tx = Tx::begin(fs, 0).unwrap();
        let slot = tx.lock_inode(ino).unwrap();
        tx.core_mut(slot).size = 100;
        tx.commit().unwrap();
        if grow {
            fs.truncate(ino, 15_000).unwrap();
        } else {
            fs.write_at(ino, 14_000, &[1; 1000]).unwrap();
        }
        let mut bytes = vec![9; 15_000];
        assert_eq!(fs.read_at(ino, 0, &mut bytes).unwrap(), 15_000);
        assert!(bytes[..100].iter().all(|b| *b == 7));
        assert!(bytes[100..14_000].iter().all(|b| *b == 0));
    }
}

#[test]
fn a_failed_flush_shuts_the_volume_down() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    fs.create(fs.root(), b"a", &NewInode::file(0o644)).unwrap();
    let rule = volume.dev.add(Rule::on(&[Op::Flush]).fail(ETIMEDOUT));
    assert!(matches!(fs.sync(), Err(Error::Io { .. })));
    volume.dev.remove(rule);
    assert!(matches!(fs.sync(), Err(Error::Shutdown(_))));
    assert!(matches!(fs.balance(), Ok(())), "there is nothing to write");
    assert!(matches!(fs.create(fs.root(), b"b", &NewInode::file(0o644)), Err(Error::Shutdown(_))));
}

#[test]
fn reuse_of_blocks_freed_in_memory_marks_the_superblock_first() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let root = fs.root();
    let file = fs.create(root, b"file", &NewInode::file(0o644)).unwrap();
    fs.write_at(file, 0, &[1; 100_000]).unwrap();
    fs.sync().unwrap();
    let incompat = || uxfs_oracle::db_value(&volume.path, &["sb 0"], "features_incompat");
    let before = incompat();
    fs.write_at(file, 0, &[2; 100_000]).unwrap();
    assert_eq!(incompat(), before, "nothing was freed yet");
    fs.unlink(root, b"file").unwrap();
    let other = fs.create(root, b"other", &NewInode::file(0o644)).unwrap();
    fs.write_at(other, 0, &[3; 100_000]).unwrap();
    assert_ne!(incompat(), before);
    fs.sync().unwrap();
    assert_eq!(incompat(), before);
}

/// An inode in memory with these extents. It is not on the volume.
fn inode(fs: &Fs, extents: &[Extent]) -> InodeState {
    let mut inode = InodeState::new(fs.root(), Default::default(), &fs.geo);
    inode.core.mode = uxfs_format::inode::S_IFREG;
    inode.core.format = ForkFormat::Extents;
    inode.core.nextents = extents.len() as u64;
    for (at, extent) in extents.iter().enumerate() {
        inode.literal[16 * at..16 * at + 16].copy_from_slice(&extent.pack());
    }
    inode
}

#[test]
fn damaged_maps_neither_hang_nor_panic() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let start = fs.inode_goal(fs.root());
    let extent = |offset, len| Extent { offset: FileBlock(offset), start, len, unwritten: false };
    let unsorted = inode(fs, &[extent(100, 4), extent(8, 4), extent(50, 4), extent(20, 4)]);
    for at in 0..200 {
        let at = FileBlock(at);
        let _ = bmap::at_or_after(fs, &unsorted, Fork::Data, at).map(|e| {
            assert!(e.is_none_or(|e| e.end() > at));
        });
        let _ = bmap::before(fs, &unsorted, Fork::Data, at).map(|e| {
            assert!(e.is_none_or(|e| e.offset < at));
        });
        let _ = bmap::first_unused(fs, &unsorted, Fork::Data, 1, at);
    }
    // An extent beyond the largest file size.
    let file = fs.create(fs.root(), b"far", &NewInode::file(0o644)).unwrap();
    let mut tx = Tx::begin(fs, 0).unwrap();
    let slot = tx.lock_inode(file).unwrap();
    let far = inode(fs, &[extent(1 << 53, 4)]);
    let state = tx.inode_mut(slot, Changed::DATA);
    state.literal[..16].copy_from_slice(&far.literal[..16]);
    (state.core.nextents, state.core.nblocks, state.core.size) = (1, 4, 100_000);
    tx.commit().unwrap();
    assert_eq!(fs.read_at(file, 0, &mut [1; 100_000]).unwrap(), 100_000);
    assert_eq!(fs.segments(file).unwrap().len(), 1);
    // A fork too short for the new mapping.
    let mut tx = Tx::begin(fs, 10).unwrap();
    let slot = tx.lock_inode(file).unwrap();
    let core = tx.core_mut(slot);
    (core.nextents, core.nblocks, core.forkoff) = (0, 0, 1);
    let mapped = bmap::alloc_all(&mut tx, slot, Fork::Data, FileBlock(0), 1);
    assert!(matches!(mapped, Err(Error::Corrupt(_))));
}

#[test]
fn a_cancelled_transaction_restores_a_replaced_buffer() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let mut tx = Tx::begin(fs, 0).unwrap();
    tx.lock_ag(AgNo(0)).unwrap();
    let agf = Arc::clone(&tx.ag(AgNo(0)).headers().agf);
    tx.edit_agf(AgNo(0), |agf| agf.btreeblks.set(1));
    tx.commit().unwrap();
    let dirty = fs.bufs.dirty_bytes();
    let mut tx = Tx::begin(fs, 0).unwrap();
    let piece = Piece { daddr: agf.daddr(), len: 4096 };
    tx.make_buf(Pieces::from_buf([piece]), BufKind::DirBlock);
    drop(tx);
    let cached = fs.bufs.cached_at(agf.daddr()).unwrap();
    assert!(Arc::ptr_eq(&cached, &agf));
    assert_eq!(fs.bufs.dirty_bytes(), dirty);
}

#[test]
fn inodes_of_a_freed_chunk_are_not_found() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let new = NewInode::file(0o644);
    let create = |number: u64| {
        let name = format!("f{number}").into_bytes();
        let ino = fs.create(fs.root(), &name, &new).unwrap();
        fs.write_at(ino, 0, &[1; 5000]).unwrap();
        ino
    };
    let inos: Vec<_> = (0..200).map(create).collect();
    fs.sync().unwrap();
    for number in 0..200 {
        fs.unlink(fs.root(), format!("f{number}").as_bytes()).unwrap();
    }
    for ino in inos {
        assert!(matches!(fs.stat(ino), Err(Error::NotFound)));
        assert!(matches!(fs.write_at(ino, 5000, &[2; 5000]), Err(Error::NotFound)));
    }
    let inos: Vec<_> = (0..200).map(create).collect();
    fs.sync().unwrap();
    assert!(inos.iter().all(|ino| fs.stat(*ino).unwrap().size == 5000));
    volume.fs.close().unwrap();
    drop(volume.dev);
    uxfs_oracle::both(&volume.path).unwrap();
    let (_dev, fs) = open(&volume.path);
    assert!(inos.iter().all(|ino| fs.stat(*ino).unwrap().size == 5000));
}

/// A thread with a stale inode number locks the free inode, to find that it is free, while another
/// thread allocates it.
#[test]
fn a_free_inode_locked_by_a_reader_can_be_allocated() {
    let volume = volume(&[]);
    let fs = &volume.fs;
    let file = |name: &[u8]| fs.create(fs.root(), name, &NewInode::file(0o600)).unwrap();
    let [_, freed] = [b"stays", b"going"].map(|name| file(name));
    let cell = fs.inodes.get(fs, freed).unwrap();
    fs.unlink(fs.root(), b"going").unwrap();
    let locked = cell.write();
    assert_eq!(locked.core.mode, 0);
    std::thread::scope(|scope| {
        let created = scope.spawn(|| file(b"new"));
        // Gives the thread time to reach the lock. If it does not, the test passes without a race.
        std::thread::sleep(Duration::from_millis(100));
        drop(locked);
        assert_eq!(created.join().unwrap(), freed);
    });
}

/// Inode 128 is the root directory, 131 the first file.
#[test]
fn an_inode_in_use_is_not_allocated_if_its_record_is_wrong() {
    let wrong = [
        ("0x7fffffffffffffff", 63, "inode 128 is damaged: is in use by what asks for a new one"),
        ("0x7ffffffffffffff8", 60, "inode 131 is damaged: is in use, against its chunk's record"),
    ];
    for (free, count, problem) in wrong {
        let Volume { fs, path, _dir, dev } = volume(&["-m", "finobt=0"]);
        let file = fs.create(fs.root(), b"file", &NewInode::file(0o600)).unwrap();
        fs.close().unwrap();
        drop(dev);
        let (free, count) = (
            format!("write -d recs[1].free {free}"),
            format!("write -d recs[1].freecount {count}"),
        );
        uxfs_oracle::db_write(&path, &["agi 0", "addr root", &free, &count]);
        let fs = open(&path).1;
        fs.stat(file).unwrap();
        let error = fs.create(fs.root(), b"new", &NewInode::file(0o600)).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_slow_reader_does_not_restore_old_metadata() {
    let first = volume(&[]);
    let new = NewInode::file(0o644);
    let inos = [&b"a"[..], b"b"].map(|name| first.fs.create(first.fs.root(), name, &new).unwrap());
    first.fs.close().unwrap();
    drop(first.dev);
    let (dev, fs) = open(&first.path);
    let (block, _) = fs.geo.cluster_of(fs.geo.ino_agino(inos[0]));
    // The thread that reads the cluster waits before it returns the bytes.
    let at = fs.geo.ag_daddr(AgNo(0), block).bytes();
    let barriers = Arc::new([Barrier::new(2), Barrier::new(2)]);
    let [has_read, may_return] = &*barriers;
    let pair = Arc::clone(&barriers);
    dev.add(Rule::on(&[Op::Read]).within(at..at + 1).times(1).afterwards(move |_| {
        for barrier in &*pair {
            barrier.wait();
        }
        Answer::Pass
    }));
    let uid = |uid| crate::SetAttr { uid: Some(uid), ..Default::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| fs.stat(inos[0]).unwrap());
        has_read.wait();
        fs.set_attr(inos[0], &uid(7)).unwrap();
        fs.sync().unwrap();
        may_return.wait();
    });
    // A change of the neighbour writes the whole cluster again.
    fs.set_attr(inos[1], &uid(8)).unwrap();
    fs.close().unwrap();
    drop(dev);
    let (_dev, fs) = open(&first.path);
    assert_eq!(inos.map(|ino| fs.stat(ino).unwrap().uid), [7, 8]);
}

#[test]
fn readers_and_a_writer_see_one_buffer() {
    let volume = volume(&[]);
    // A tiny cache: buffers and inodes are evicted all the time.
    let options = OpenOptions { cache_bytes: 1 << 12, ..unlogged() };
    let dev = Arc::clone(&volume.dev) as Arc<dyn BlockDev>;
    drop(volume.fs);
    let fs = Fs::open(dev, options).unwrap();
    let root = fs.root();
    let inos: Vec<_> = (0..3000)
        .map(|i| fs.create(root, format!("f{i}").as_bytes(), &NewInode::file(0o644)).unwrap())
        .collect();
    fs.sync().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (fs, inos, stop) = (&fs, &inos, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    fs.stat(inos[rng.index(inos.len())]).unwrap();
                }
            });
        }
        let mut rng = Rng::new(9);
        let mut uids = vec![0; inos.len()];
        for round in 1..60 {
            for _ in 0..100 {
                let at = rng.index(inos.len());
                let change = crate::SetAttr { uid: Some(round), ..Default::default() };
                fs.set_attr(inos[at], &change).unwrap();
                uids[at] = round;
            }
            fs.sync().unwrap();
            for _ in 0..200 {
                let at = rng.index(inos.len());
                assert_eq!(fs.stat(inos[at]).unwrap().uid, uids[at]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        for (ino, uid) in inos.iter().zip(uids) {
            assert_eq!(fs.stat(*ino).unwrap().uid, uid);
        }
    });
    let agf = fs.geo.agf_daddr(AgNo(0));
    let got = fs.bufs.get(agf, fs.geo.sector_size, &[BufKind::Agi], BufOwner::Ag(AgNo(0)));
    assert!(got.is_err(), "an AGF is no AGI");
}

fn in_memory() -> Fs {
    let dev: Arc<dyn BlockDev> = Arc::new(uxfs_disk::MemDev::new(400 << 20));
    let layout = uxfs_mkfs::Layout::new(&uxfs_mkfs::Options::default(), dev.len()).unwrap();
    uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
    Fs::open(dev, unlogged()).unwrap()
}

/// Found by fuzzing.
#[test]
fn an_inode_with_a_block_count_overflow_is_corrupt() {
    let fs = in_memory();
    let ino = fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
    let mut tx = Tx::begin(&fs, 0).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    tx.core_mut(slot).nblocks = u64::MAX;
    tx.commit().unwrap();
    let error = fs.write_at(ino, 0, b"data").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

/// Found by fuzzing: while a file is emptied its tree shrinks until it fits the inode, and one of the
/// remaining records has no blocks.
#[test]
fn an_empty_extent_is_not_copied_into_the_inode() {
    let fs = in_memory();
    let ino = fs.create(fs.root(), b"file", &NewInode::file(0o644)).unwrap();
    for n in 0..40 {
        fs.write_at(ino, n * 8192, b"data").unwrap();
    }
    let mut tx = Tx::begin(&fs, 0).unwrap();
    let slot = tx.lock_inode(ino).unwrap();
    assert_eq!(tx.inode(slot).core.format, ForkFormat::Btree);
    let root = tx.inode(slot).fork(Fork::Data);
    let block = BmapNode::root(root.len()).ptr(0).get(root);
    let daddr = fs.geo.fsb_daddr(block);
    let kind = BufKind::Btree(uxfs_format::btree::TreeKind::Bmap);
    let leaf = fs.bufs.get(daddr, 4096, &[kind], BufOwner::Volume).unwrap();
    // The first record's length is its last 21 bits.
    let second = 72 + 16;
    let mut bytes = tx.edit(&leaf, second + 13..second + 16);
    bytes[0] &= 0xe0;
    bytes[1..].fill(0);
    drop(bytes);
    tx.commit().unwrap();
    let error = fs.unlink(fs.root(), b"file").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

/// Takes all free log space. Returns its size.
fn hog(journal: &Journal) -> u64 {
    let powers = (0..u64::BITS).rev().map(|power| 1 << power);
    powers.filter(|bytes| journal.grant_small(*bytes)).sum()
}

/// A chain of transactions waits for log space while others hold all of it. It gets the space that
/// its own intents hold, once it relogs them.
#[test]
fn a_chain_that_waits_for_log_space_relogs_its_intents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    uxfs_oracle::mkfs(&path, 512 << 20, &["-m", "rmapbt=1"]);
    let dev = Arc::new(FaultDev::new(FileDev::open(&path, OpenMode::Write).unwrap()));
    let mut journal =
        JournalOptions { roll_policy: RollPolicy::Always, ..JournalOptions::default() };
    journal.pipeline.size_max = 8 << 20;
    let options = OpenOptions { journal, seed: Some(1), ..OpenOptions::default() };
    let fs = Arc::new(Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options).unwrap());
    let root = fs.root();
    let file = fs.create(root, b"pieces", &NewInode::file(0o644)).unwrap();
    for piece in 0..30 {
        fs.write_at(file, piece * 8192, &[1; 4096]).unwrap();
    }
    fs.sync().unwrap();
    // Many changes in the checkpoint of the first link, logged behind its intents.
    for number in 0..12_000 {
        fs.create(root, format!("file {number}").as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    let journal = fs.journal.as_ref().unwrap();
    let all = hog(journal);
    journal.release(fs.log_link(OpKind::Extents));
    // From now on, every flush reserves all free log space.
    let reserved = Arc::new(AtomicU64::new(all - fs.log_link(OpKind::Extents)));
    let (total, weak) = (Arc::clone(&reserved), Arc::downgrade(&fs));
    let rule = dev.add(Rule::on(&[Op::Flush]).before(move |_| {
        if let Some(fs) = weak.upgrade() {
            let hogged = fs.journal.as_ref().map_or(0, hog);
            total.fetch_add(hogged, Ordering::Relaxed);
        }
        Answer::Pass
    }));
    let before = journal.new_intent();
    fs.fallocate(file, Fallocate::PunchHole, 0, 30 * 8192).unwrap();
    dev.remove(rule);
    // Each of the 30 extents needs two steps, and causes a third.
    assert!(journal.new_intent() - before > 90, "{}", journal.new_intent() - before);
    journal.release(reserved.load(Ordering::Relaxed));
    assert!(fs.extents(file).unwrap().is_empty());
    assert_eq!(fs.stats().logspace_overruns, 0);
    Arc::into_inner(fs).unwrap().close().unwrap();
    uxfs_oracle::repair(&path).unwrap();
}

/// Inodes that lie far apart go into their clusters in turns, so that no more buffers than the cache may
/// have become dirty at once.
#[test]
fn dirty_inodes_are_written_a_cache_at_a_time() {
    let cache_bytes = 4 << 20;
    let v = volume_with(&[], OpenOptions { cache_bytes, ..unlogged() });
    let most = v.fs.most_dirty();
    let mut far = Vec::new();
    for dir in 0..600 {
        let dir =
            v.fs.create(v.fs.root(), format!("d{dir}").as_bytes(), &NewInode::dir(0o755)).unwrap();
        far.push(dir);
        for name in 0..64 {
            v.fs.create(dir, format!("{name}").as_bytes(), &NewInode::file(0o644)).unwrap();
        }
    }
    v.fs.write_all().unwrap();
    for dir in &far {
        let change = SetAttr { permissions: Some(0o700), ..SetAttr::default() };
        v.fs.set_attr(*dir, &change).unwrap();
    }
    assert_eq!(v.fs.inodes.dirty_count(), far.len());
    let mut turns = 1;
    while v.fs.inodes.flush(&v.fs, most).unwrap() {
        assert!((most..most + (64 << 10)).contains(&v.fs.bufs.dirty_bytes()));
        v.fs.bufs.write_back().unwrap();
        turns += 1;
    }
    assert!(turns > 1, "the inodes lie too near each other");
    v.fs.write_all().unwrap();
    assert!(far.iter().all(|dir| v.fs.stat(*dir).unwrap().mode & 0o777 == 0o700));
    let Volume { _dir, path, fs, .. } = v;
    fs.close().unwrap();
    uxfs_oracle::repair(&path).unwrap();
}
