//! Recovery of logs that these tests write: hostile intents, and logs that are nearly full.

use std::path::Path;
use std::sync::Arc;

use uxfs_disk::{BlockDev, FileDev, MemDev, OpenMode, Overlay};
use uxfs_format::crc;
use uxfs_format::inode::{S_IFDIR, S_IFIFO};
use uxfs_format::log::{
    AttrIntent, AttrOp, BmapOp, BmapStep, ExchangeFlags, ExchangeIntent, ExtentRun, Intent,
    IntentItem, IntentKind,
};
use uxfs_format::superblock::{CRC_OFFSET, Superblock};
use uxfs_format::{FileBlock, FsBlock, Ino};
use uxfs_journal::recovery::{Assembler, Limits, Log, State, Walk, mark_clean};

use super::{MEMORY, checkpoint, complete};
use crate::ops::NewInode;
use crate::tx::Tx;
use crate::{Error, Fs, OpenOptions, Recovery};

fn format(dev: &dyn BlockDev, words: &[(char, &str)]) {
    let mut options = uxfs_mkfs::Options::default();
    options.unsupported = true;
    for (letter, words) in words {
        options.apply(*letter, words).unwrap();
    }
    let layout = uxfs_mkfs::Layout::new(&options, dev.len()).unwrap();
    uxfs_mkfs::write(&layout, dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
}

fn open(dev: &Arc<dyn BlockDev>) -> Result<Fs, Error> {
    let options = OpenOptions { seed: Some(1), ..OpenOptions::default() };
    Fs::open(Arc::clone(dev), options)
}

/// The superblock's sector and the log of a volume.
fn log_of(dev: &dyn BlockDev) -> (Vec<u8>, Log) {
    let sector = crate::sb::read(dev).unwrap();
    let log = Log::new(Superblock::verify(&sector).unwrap()).unwrap();
    (sector, log)
}

/// Logs items at the head.
fn log_items(dev: &dyn BlockDev, items: &[Vec<Vec<u8>>]) {
    let (_, log) = log_of(dev);
    let bounds = log.find(dev).unwrap();
    mark_clean::clear_stale(&log, dev, &bounds).unwrap();
    mark_clean::write_redo(&log, dev, &bounds, items).unwrap();
}

/// The inodes of the volume for hostile intents.
struct Inodes {
    one: Ino,
    two: Ino,
    large_dir: Ino,
    small_dir: Ino,
    fifo: Ino,
    /// A file without an attribute fork.
    bare: Ino,
    /// A free block.
    free: FsBlock,
}

fn for_intents() -> (Arc<dyn BlockDev>, Inodes) {
    let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(300 << 20));
    format(&*dev, &[('i', "exchange=1")]);
    // A volume that logs changes of attributes.
    let mut sector = crate::sb::read(&*dev).unwrap();
    Superblock::view_mut(&mut sector).unwrap().features_log_incompat.set(1);
    crc::stamp(&mut sector, CRC_OFFSET);
    dev.write_at(0, &sector).unwrap();
    let fs = open(&dev).unwrap();
    let file = |name: &str, byte| {
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
        fs.write_at(ino, 0, &[byte; 40_000]).unwrap();
        ino
    };
    let (one, two) = (file("one", 1), file("two", 2));
    let dir = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755)).unwrap();
    let (large_dir, small_dir) = (dir("large"), dir("small"));
    for number in 0..200 {
        fs.create(large_dir, format!("{number}").as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    let fifo = NewInode { mode: S_IFIFO | 0o644, ..NewInode::file(0o644) };
    let fifo = fs.create(fs.root(), b"fifo", &fifo).unwrap();
    assert_eq!(fs.stat(small_dir).unwrap().mode & S_IFDIR, S_IFDIR);
    let bare = file("bare", 4);
    let mut tx = Tx::begin(&fs, 0).unwrap();
    let slot = tx.lock_inode(bare).unwrap();
    tx.core_mut(slot).forkoff = 0;
    tx.commit().unwrap();
    let gone = file("gone", 3);
    let free = fs.extents(gone).unwrap()[0].start;
    fs.unlink(fs.root(), b"gone").unwrap();
    fs.close().unwrap();
    (dev, Inodes { one, two, large_dir, small_dir, fifo, bare, free })
}

/// The volume with this intent in its log.
fn with_intent(dev: &Arc<dyn BlockDev>, kind: IntentKind, intent: Intent) -> Arc<dyn BlockDev> {
    let copy: Arc<dyn BlockDev> = Arc::new(Overlay::new(Arc::clone(dev), MEMORY));
    let item = IntentItem { kind, id: 77, intent };
    log_items(&*copy, &[item.encode()]);
    copy
}

/// No intent of a hostile log is carried out, or ends in a panic.
#[test]
fn intents_outside_of_the_possible_are_refused() {
    let (dev, inodes) = for_intents();
    let largest = (i64::MAX as u64).div_ceil(4096);
    let map = |ino, offset, len| BmapStep {
        op: BmapOp::Map,
        ino,
        run: ExtentRun { start: inodes.free, len },
        offset: FileBlock(offset),
        attr: false,
        unwritten: false,
        realtime: false,
    };
    let good = map(inodes.one, 1000, 2);
    let mappings = [
        ("an offset that overflows", BmapStep { offset: FileBlock(u64::MAX - 1), ..good }),
        ("an offset that no record holds", map(inodes.one, 1 << 54, 2)),
        ("an end behind the largest file", map(inodes.one, largest - 1, 2)),
        ("an attribute behind the largest", BmapStep { attr: true, ..map(inodes.one, 1 << 32, 1) }),
        ("a fork that is not there", BmapStep { attr: true, ..map(inodes.bare, 1000, 1) }),
        ("a directory inside its inode", map(inodes.small_dir, 0, 1)),
        ("the same, unmapped", BmapStep { op: BmapOp::Unmap, ..map(inodes.small_dir, 0, 1) }),
        ("a fifo", BmapStep { op: BmapOp::Unmap, ..map(inodes.fifo, 0, 1) }),
        ("unwritten names", BmapStep { unwritten: true, ..map(inodes.large_dir, 1000, 1) }),
        ("other blocks than it maps", BmapStep { op: BmapOp::Unmap, ..map(inodes.one, 0, 2) }),
        ("no blocks", map(inodes.one, 1000, 0)),
        ("the group's headers", BmapStep { run: ExtentRun { start: FsBlock(0), len: 1 }, ..good }),
        ("an inode outside", map(Ino(u64::MAX), 0, 1)),
        ("a free inode", map(Ino(inodes.fifo.0 + 2), 0, 1)),
    ];
    let refused = |what: &str, kind, intent: Intent| {
        for read_only in [true, false] {
            let copy = with_intent(&dev, kind, intent.clone());
            let options = OpenOptions { read_only, ..OpenOptions::default() };
            match Fs::open(copy, options) {
                Ok(_) => panic!("{what}: carried out"),
                Err(Error::Corrupt(_) | Error::NotFound) => {}
                Err(other) => panic!("{what}: {other}"),
            }
        }
    };
    for (what, step) in mappings {
        refused(what, IntentKind::Bmap, Intent::Bmap(vec![step]));
    }
    let exchange = |one, two, blocks| ExchangeIntent {
        inos: [one, two],
        generations: generations(&dev, [one, two]),
        starts: [FileBlock(0); 2],
        blocks,
        flags: ExchangeFlags::empty(),
        sizes: [u64::MAX; 2],
    };
    let good = exchange(inodes.one, inodes.two, 10);
    let set_sizes = ExchangeFlags::SET_SIZES;
    let far = [FileBlock(0), FileBlock(u64::MAX - 3)];
    let exchanges = [
        ("a start that overflows", ExchangeIntent { starts: far, ..good }),
        (
            "a length that overflows",
            ExchangeIntent { starts: [FileBlock(9); 2], blocks: u64::MAX, ..good },
        ),
        ("an end behind the largest file", ExchangeIntent { blocks: largest + 1, ..good }),
        ("a file and a directory", exchange(inodes.one, inodes.large_dir, 1)),
        ("a directory inside its inode", exchange(inodes.large_dir, inodes.small_dir, 1)),
        ("a fifo", exchange(inodes.one, inodes.fifo, 1)),
        ("negative sizes", ExchangeIntent { flags: set_sizes, ..good }),
        ("another generation", ExchangeIntent { generations: [1, 2], ..good }),
    ];
    for (what, exchange) in exchanges {
        refused(what, IntentKind::Exchange, Intent::Exchange(exchange));
    }
    let attr = AttrIntent {
        op: AttrOp::Set,
        ino: inodes.one,
        generation: 0,
        filter: 6,
        name: b"name".to_vec(),
        new_name: Vec::new(),
        value: vec![1; 12],
        new_value: Vec::new(),
    };
    refused("two namespaces", IntentKind::Attr, Intent::Attr(attr));
}

fn generations(dev: &Arc<dyn BlockDev>, inos: [Ino; 2]) -> [u32; 2] {
    let fs = Fs::open(Arc::clone(dev), OpenOptions::read_only()).unwrap();
    inos.map(|ino| fs.with_inode(ino, |inode| Ok(inode.core.generation)).unwrap())
}

/// The intents that a kernel logs to move blocks of one file to another.
#[test]
fn mappings_that_are_possible_are_moved() {
    let (dev, inodes) = for_intents();
    let fs = open(&dev).unwrap();
    let from = fs.extents(inodes.one).unwrap()[0];
    fs.close().unwrap();
    let step = |op, ino, offset| BmapStep {
        op,
        ino,
        run: ExtentRun { start: from.start.plus(2), len: 3 },
        offset: FileBlock(offset),
        attr: false,
        unwritten: false,
        realtime: false,
    };
    let (away, here) = (step(BmapOp::Unmap, inodes.one, 2), step(BmapOp::Map, inodes.two, 100));
    let copy = with_intent(&dev, IntentKind::Bmap, Intent::Bmap(vec![away, here]));
    let fs = open(&copy).unwrap();
    let blocks = |ino| fs.extents(ino).unwrap().iter().map(|extent| extent.len).collect::<Vec<_>>();
    assert_eq!((blocks(inodes.one), blocks(inodes.two)), (vec![2, 5], vec![10, 3]));
    fs.close().unwrap();
}

/// What is refused of hostile logs does not stand in the way of a sound one.
#[test]
fn an_exchange_that_is_possible_is_completed() {
    let (dev, inodes) = for_intents();
    let intent = ExchangeIntent {
        inos: [inodes.one, inodes.two],
        generations: generations(&dev, [inodes.one, inodes.two]),
        starts: [FileBlock(1), FileBlock(0)],
        blocks: 8,
        flags: ExchangeFlags::SET_SIZES,
        sizes: [40_000, 36_864],
    };
    let copy = with_intent(&dev, IntentKind::Exchange, Intent::Exchange(intent));
    let fs = open(&copy).unwrap();
    assert_eq!(fs.recovery().unwrap().intents, 1);
    let read = |ino, at| {
        let mut byte = [0];
        fs.read_at(ino, at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!([0, 4096, 9 * 4096].map(|at| read(inodes.one, at)), [1, 2, 1]);
    assert_eq!([0, 8 * 4096].map(|at| read(inodes.two, at)), [1, 2]);
    assert_eq!(fs.stat(inodes.two).unwrap().size, 36_864);
    fs.close().unwrap();
}

/// A volume on a file, and the power cut that leaves unlinked files in it whose blocks alternate with those
/// of another file.
fn with_unlinked(path: &Path, files: usize, pieces: u64) -> (Arc<dyn BlockDev>, [Ino; 2]) {
    const SIZE: u64 = 300 << 20;
    let dev: Arc<dyn BlockDev> = Arc::new(FileDev::open(path, OpenMode::Create(SIZE)).unwrap());
    format(&*dev, &[('b', "size=1k"), ('l', "size=8m"), ('i', "exchange=1")]);
    let fs = open(&dev).unwrap();
    let create =
        |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o644)).unwrap();
    let kept = [create("one"), create("two")];
    let names: Vec<_> = (0..files).map(|number| format!("gone {number}")).collect();
    let gone: Vec<_> = names.iter().map(|name| create(name)).collect();
    for piece in 0..pieces {
        for (number, ino) in (0..).zip(&gone) {
            // Holes between the pieces, so that no two blocks become one extent.
            fs.write_at(*ino, piece * 2048, &[1; 1024]).unwrap();
            let at = (piece * files as u64 + number) * 2048;
            fs.write_at(kept[piece as usize % 2], at, &[2; 1024]).unwrap();
        }
    }
    for (name, ino) in names.iter().zip(&gone) {
        fs.hold(*ino);
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    fs.journal.as_ref().unwrap().force_and_push(&fs).unwrap();
    drop(fs);
    (dev, kept)
}

/// Fills the log with one checkpoint, which holds these intents and leaves less than `free` blocks.
fn fill_log(dev: &Arc<dyn BlockDev>, free: u64, intents: &[IntentItem]) {
    let (sector, log) = log_of(&**dev);
    // Nothing before this is needed.
    log_items(&**dev, &[checkpoint::superblock(&sector)]);
    let bounds = log.find(&**dev).unwrap();
    let write = |dev: &dyn BlockDev, count: u64| {
        let mut items: Vec<_> = intents.iter().map(IntentItem::encode).collect();
        items.extend((0..count).map(|_| checkpoint::superblock(&sector)));
        mark_clean::clear_stale(&log, dev, &bounds).unwrap();
        mark_clean::write_redo(&log, dev, &bounds, &items)
    };
    // The largest number of items that fits, less what is to stay free.
    let (mut least, mut most) = (1, log.blocks());
    while least + 1 < most {
        let middle = (least + most) / 2;
        match write(&Overlay::new(Arc::clone(dev), MEMORY), middle) {
            Ok(new) if log.blocks() - new.live_blocks(&log) >= free => least = middle,
            _ => most = middle,
        }
    }
    let new = write(&**dev, least).unwrap();
    let found = log.find(&**dev).unwrap();
    assert_eq!((found.state, found.head, found.tail), (State::Dirty, new.head, new.tail));
    assert!(log.blocks() - found.live_blocks(&log) < free + 8);
}

/// The log is as full as a mount may leave it, and what recovery has to finish takes more than is free.
#[test]
fn a_nearly_full_log_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    for pending in [false, true] {
        let path = dir.path().join(format!("image {pending}"));
        let (dev, kept) = with_unlinked(&path, 8, 200);
        let intents = pending.then(|| {
            let [one, two] = kept;
            let exchange = ExchangeIntent {
                inos: kept,
                generations: generations(&dev, kept),
                starts: [FileBlock(0); 2],
                blocks: 200,
                flags: ExchangeFlags::empty(),
                sizes: [u64::MAX; 2],
            };
            assert_ne!(one, two);
            let intent = Intent::Exchange(exchange);
            IntentItem { kind: IntentKind::Exchange, id: 5, intent }
        });
        fill_log(&dev, 24, intents.as_slice());
        let fs = open(&dev).unwrap();
        let recovery = fs.recovery().unwrap();
        assert_eq!((recovery.intents, recovery.unlinked), (u64::from(pending), 8));
        fs.close().unwrap();
        uxfs_oracle::both(&path).unwrap();
    }
}

/// The rounds of a recovery are as short as one step of one file. Each is a transaction of the log.
#[test]
fn a_file_is_freed_in_several_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let (dev, _) = with_unlinked(&path, 2, 200);
    let (sector, log) = log_of(&*dev);
    let bounds = log.find(&*dev).unwrap();
    let sb = Superblock::verify(&sector).unwrap();
    let replay = uxfs_journal::recovery::replay(&dev, &log, &bounds, sb, Limits { bytes: MEMORY });
    let replay = replay.unwrap();
    let mut recovery = Recovery::of_replay(bounds, &replay.report, false);
    complete(&dev, &log, replay, &mut recovery, 1).unwrap();
    assert_eq!(recovery.unlinked, 2);
    let found = log.find(&*dev).unwrap();
    assert_eq!(found.state, State::Clean);
    let (from, to) = (bounds.head.block().into(), found.head.block().into());
    let mut walk = Walk::new(&log, &*dev, from, to).unwrap();
    let (mut open, mut rounds) = (Assembler::default(), 0);
    while let Some(record) = walk.next_record().unwrap() {
        let count = |_| {
            rounds += 1;
            Ok(())
        };
        open.feed(&record, count).unwrap();
    }
    // 200 extents, 32 in a step.
    assert!(rounds >= 2 * 6, "{rounds} rounds");
    uxfs_oracle::both(&path).unwrap();
}
