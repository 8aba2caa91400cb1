//! Recovery of logs that these tests write: logs that wrap, torn logs and random logs.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev, Overlay};
use uxfs_format::log::{BufItem, BufType, CHUNK, Item, RecordHeader, checksum};
use uxfs_format::superblock::Superblock;
use uxfs_format::{BASIC_BLOCK, Daddr, Lsn};
use uxfs_testkit::Rng;

use crate::recovery::{Bounds, Limits, Log, State, mark_clean, replay};

pub(super) struct Volume {
    pub(super) dev: Arc<dyn BlockDev>,
    sb: Superblock,
    pub(super) log: Log,
}

/// A small volume whose log has a stripe unit of `unit` bytes.
pub(super) fn volume(line: &[(char, &str)]) -> Volume {
    const BYTES: u64 = 64 << 20;
    let mut options = uxfs_mkfs::Options::default();
    options.unsupported = true;
    for (letter, words) in line {
        options.apply(*letter, words).unwrap();
    }
    let layout = uxfs_mkfs::Layout::new(&options, BYTES).unwrap();
    let dev: Arc<dyn BlockDev> = Arc::new(MemDev::new(BYTES));
    uxfs_mkfs::write(&layout, &*dev, &uxfs_mkfs::WriteOptions::default()).unwrap();
    let mut sector = vec![0; 512];
    dev.read_at(0, &mut sector).unwrap();
    let sb = *Superblock::verify(&sector).unwrap();
    let log = Log::new(&sb).unwrap();
    Volume { dev, sb, log }
}

fn full_buffer_item(kind: BufType, daddr: Daddr, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut format = BufItem::new(kind, daddr, bytes.len());
    (0..bytes.len() / CHUNK).for_each(|chunk| format.set_chunk(chunk));
    Item::Buf(format, vec![(0, bytes)]).encode()
}

impl Volume {
    /// The items of a transaction that sets the volume's label and logs `bulk` inode clusters.
    pub(super) fn items(&self, label: u64, bulk: u64) -> Vec<Vec<Vec<u8>>> {
        let mut sector = vec![0; 512];
        self.dev.read_at(0, &mut sector).unwrap();
        Superblock::view_mut(&mut sector).unwrap().fname = name(label);
        let geo = uxfs_format::Geometry::new(&self.sb);
        let (block, _) = geo.cluster_of(geo.ino_agino(geo.root_ino));
        let daddr = geo.ag_daddr(geo.ino_ag(geo.root_ino), block);
        let mut cluster = vec![0; (geo.cluster_blocks() << geo.block_log) as usize];
        self.dev.read_at(daddr.bytes(), &mut cluster).unwrap();
        let mut items = vec![full_buffer_item(BufType::Superblock, Daddr(0), &sector)];
        items.extend((0..bulk).map(|_| full_buffer_item(BufType::Dino, daddr, &cluster)));
        items
    }

    fn label(&self, bounds: &Bounds) -> [u8; 12] {
        let replay = replay(&self.dev, &self.log, bounds, &self.sb, Limits::default()).unwrap();
        let mut sector = vec![0; 512];
        replay.overlay.read_at(0, &mut sector).unwrap();
        Superblock::verify(&sector).unwrap().fname
    }

    fn find(&self) -> Bounds {
        self.log.find(&*self.dev).unwrap()
    }
}

fn name(label: u64) -> [u8; 12] {
    let mut name = [0; 12];
    let text = format!("label{label}");
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// Transactions follow each other several times around the log. Each is found and replayed, and
/// each clean end is found.
#[test]
fn each_transaction_of_a_wrapping_log_is_replayed() {
    for (seed, line) in [
        (1, &[][..]),
        (2, &[('l', "su=32k")][..]),
        (3, &[('b', "size=1k"), ('l', "su=4k")][..]),
        (4, &[('l', "su=64k")][..]),
    ] {
        let volume = volume(line);
        let mut rng = Rng::new(seed);
        let mut bounds = volume.find();
        assert_eq!(bounds.state, State::Clean, "after mkfs");
        let mut written = 0;
        for number in 0.. {
            let at = format!("{line:?}, transaction {number}");
            if rng.below(3) == 0 {
                bounds = mark_clean::write_unmount(&volume.log, &*volume.dev, &bounds).unwrap();
                let found = volume.find();
                assert_eq!((found.state, found.head), (State::Clean, bounds.head), "{at}");
                bounds.record_size = [32 << 10, 64 << 10, 256 << 10][rng.below(3) as usize];
            }
            mark_clean::clear_stale(&volume.log, &*volume.dev, &bounds).unwrap();
            let items = volume.items(number, rng.below(60));
            let new = mark_clean::write_redo(&volume.log, &*volume.dev, &bounds, &items).unwrap();
            let found = volume.find();
            assert_eq!((found.state, found.head), (State::Dirty, new.head), "{at}");
            assert_eq!(found.tail, new.tail, "{at}");
            assert_eq!(volume.label(&found), name(number), "{at}");
            written += volume.log.distance(bounds.head.block().into(), new.head.block().into());
            bounds = new;
            if written > 5 * volume.log.blocks() {
                break;
            }
        }
        assert!(bounds.head.cycle() > 4);
    }
}

/// A torn transaction is not replayed, whichever part is missing. The transactions before it are.
#[test]
fn torn_transactions_are_not_replayed() {
    let volume = volume(&[('b', "size=1k")]);
    let mut rng = Rng::new(9);
    let clean = volume.find();
    mark_clean::clear_stale(&volume.log, &*volume.dev, &clean).unwrap();
    let mut bounds =
        mark_clean::write_redo(&volume.log, &*volume.dev, &clean, &volume.items(0, 3)).unwrap();
    for number in 1..200 {
        let below = Arc::clone(&volume.dev);
        let torn = Arc::new(Overlay::new(Arc::clone(&below), 1 << 30));
        // Few enough items that their writes may be in flight together.
        let items = volume.items(number, rng.below(10));
        let dev: Arc<dyn BlockDev> = Arc::<Overlay>::clone(&torn);
        mark_clean::clear_stale(&volume.log, &*dev, &bounds).unwrap();
        let new = mark_clean::write_redo(&volume.log, &*dev, &bounds, &items).unwrap();
        let (from, to) = (u64::from(bounds.head.block()), u64::from(new.head.block()));
        let len = volume.log.distance(from, to);
        // Some of its blocks were not written, or were damaged.
        for _ in 0..1 + rng.below(4) {
            let block = volume.log.wrap(from + rng.below(len));
            let mut bytes = vec![0; BASIC_BLOCK];
            volume.log.read(&*below, block, &mut bytes).unwrap();
            if rng.below(4) == 0 {
                let at = rng.below(BASIC_BLOCK as u64) as usize;
                volume.log.read(&*dev, block, &mut bytes).unwrap();
                bytes[at] ^= 1 << rng.below(8);
            }
            volume.log.write(&*dev, block, &bytes).unwrap();
        }
        let torn_volume = Volume { dev, sb: volume.sb, log: volume.log.clone() };
        let found = torn_volume.find();
        let label = torn_volume.label(&found);
        let fits = label == name(number - 1) && found.head.0 < new.head.0 || label == name(number);
        assert!(fits, "transaction {number}: {}", label.escape_ascii());
        bounds = mark_clean::write_redo(&volume.log, &*volume.dev, &bounds, &items).unwrap();
    }
}

/// A redo checkpoint was interrupted after its first records. The next one follows them, and
/// recovery replays it.
#[test]
fn a_redo_checkpoint_follows_an_interrupted_one() {
    for unit in ["", "su=32k"] {
        let line = [('l', unit)];
        let volume = volume(if unit.is_empty() { &[] } else { &line });
        let clean = volume.find();
        mark_clean::clear_stale(&volume.log, &*volume.dev, &clean).unwrap();
        let first =
            mark_clean::write_redo(&volume.log, &*volume.dev, &clean, &volume.items(0, 3)).unwrap();
        let mut bounds = first;
        for number in 1..4 {
            let below = Arc::clone(&volume.dev);
            let dev: Arc<dyn BlockDev> = Arc::new(Overlay::new(Arc::clone(&below), 1 << 30));
            let items = volume.items(number, 40);
            let new = mark_clean::write_redo(&volume.log, &*dev, &bounds, &items).unwrap();
            // All but the last record reach the disk.
            let from = u64::from(bounds.head.block());
            for ahead in 0..volume.log.distance(from, new.last) {
                let block = volume.log.wrap(from + ahead);
                let bytes = volume.log.block(&*dev, block).unwrap();
                volume.log.write(&*below, block, &bytes).unwrap();
            }
            let found = volume.find();
            assert_eq!((found.head.block(), found.tail), (new.last as u32, first.tail));
            assert_eq!(volume.label(&found), name(0), "interrupted {number} times");
            bounds = found;
        }
        mark_clean::write_redo(&volume.log, &*volume.dev, &bounds, &volume.items(9, 40)).unwrap();
        assert_eq!(volume.label(&volume.find()), name(9));
    }
}

/// Recovery terminates on a log with random damage.
#[test]
fn recovery_of_random_logs_terminates() {
    let volume = volume(&[('b', "size=1k")]);
    let mut rng = Rng::new(11);
    let clean = volume.find();
    let bounds =
        mark_clean::write_redo(&volume.log, &*volume.dev, &clean, &volume.items(0, 30)).unwrap();
    for _ in 0..400 {
        let dev: Arc<dyn BlockDev> = Arc::new(Overlay::new(Arc::clone(&volume.dev), 1 << 30));
        for _ in 0..1 + rng.below(12) {
            let block = match rng.below(3) {
                0 => rng.below(volume.log.blocks()),
                _ => rng.below(u64::from(bounds.head.block()) + 2),
            };
            let mut bytes = volume.log.block(&*dev, block).unwrap();
            let reach = if rng.below(2) == 0 { 48 } else { 512 };
            let at = rng.below(reach) as usize;
            bytes[at] = match rng.below(3) {
                0 => 0xff,
                1 => bytes[at] ^ 1,
                _ => rng.below(256) as u8,
            };
            volume.log.write(&*dev, block, &bytes).unwrap();
        }
        if let Ok(found) = volume.log.find(&*dev) {
            let _ = replay(&dev, &volume.log, &found, &volume.sb, Limits::default());
        }
    }
}

/// A last record whose tail lies outside the log counts as torn if its checksum is wrong. Otherwise
/// the log is refused.
#[test]
fn a_tail_outside_the_log_is_refused_or_torn() {
    for valid_checksum in [false, true] {
        let volume = volume(&[]);
        let clean = volume.find();
        mark_clean::clear_stale(&volume.log, &*volume.dev, &clean).unwrap();
        let items = |number| volume.items(number, 0);
        let first = mark_clean::write_redo(&volume.log, &*volume.dev, &clean, &items(0)).unwrap();
        let second = mark_clean::write_redo(&volume.log, &*volume.dev, &first, &items(1)).unwrap();
        let geo = uxfs_format::Geometry::new(&volume.sb);
        let start = geo.fsb_daddr(geo.log_start).bytes() + u64::from(first.head.block()) * 512;
        let len = (second.head.block() - first.head.block()) as usize * 512;
        let mut record = vec![0; len];
        volume.dev.read_at(start, &mut record).unwrap();
        // The block number in its tail LSN.
        record[28..32].copy_from_slice(&(volume.log.blocks() as u32 + 5).to_be_bytes());
        if valid_checksum {
            let header = RecordHeader::parse(record.first_chunk().unwrap()).unwrap();
            let (headers, data) = record.split_at(header.header_blocks() as usize * BASIC_BLOCK);
            let crc = checksum(headers, &data[..header.len as usize]);
            record[32..36].copy_from_slice(&crc.to_le_bytes());
        }
        volume.dev.write_at(start, &record).unwrap();
        match volume.log.find(&*volume.dev) {
            Ok(bounds) => {
                assert!(!valid_checksum);
                assert_eq!((bounds.head, bounds.torn.is_some()), (first.head, true));
                assert_eq!(volume.label(&bounds), name(0));
            }
            Err(error) => {
                assert!(valid_checksum, "{error}");
                assert!(error.to_string().contains("tail"), "{error}");
            }
        }
    }
}

/// The checkpoint that completes a recovery fits into any space between head and tail, because the
/// whole log is free after it.
#[test]
fn a_redo_checkpoint_fits_into_the_last_free_blocks() {
    let volume = volume(&[('l', "su=64k")]);
    let unit = (volume.log.unit() / BASIC_BLOCK) as u64;
    let clean = volume.find();
    mark_clean::clear_stale(&volume.log, &*volume.dev, &clean).unwrap();
    let with_free = |free: u64| {
        let mut full = clean;
        full.state = State::Dirty;
        let before = Lsn::new(clean.head.cycle() - 1, clean.head.block());
        full.tail = volume.log.advance(before, free);
        full
    };
    let items = volume.items(1, 0);
    let redo = |free| mark_clean::write_redo(&volume.log, &*volume.dev, &with_free(free), &items);
    assert!(matches!(redo(unit), Err(crate::recovery::Error::TooBig(_))));
    let new = redo(unit + 1).unwrap();
    let found = volume.find();
    assert_eq!((found.head, found.tail), (new.head, clean.head));
    assert_eq!(volume.label(&found), name(1));
    let end = mark_clean::write_unmount(&volume.log, &*volume.dev, &new).unwrap();
    let found = volume.find();
    assert_eq!((found.state, found.head), (State::Clean, end.head));
}

/// A whole record whose LSN is that of another block or cycle: what it logs would be stamped with it.
#[test]
fn a_record_with_the_lsn_of_another_place_is_refused() {
    for (cycles, blocks) in [(0, 1), (1, 0), (u32::MAX, 0)] {
        let volume = volume(&[]);
        let clean = volume.find();
        mark_clean::clear_stale(&volume.log, &*volume.dev, &clean).unwrap();
        let items = volume.items(1, 0);
        let new = mark_clean::write_redo(&volume.log, &*volume.dev, &clean, &items).unwrap();
        let (from, len) = (u64::from(clean.head.block()), new.head.block() - clean.head.block());
        let mut record = vec![0; len as usize * BASIC_BLOCK];
        volume.log.read(&*volume.dev, from, &mut record).unwrap();
        let header = RecordHeader::parse(record.first_chunk().unwrap()).unwrap();
        let lsn = header.lsn;
        let wrong = Lsn::new(lsn.cycle().wrapping_add(cycles), lsn.block() + blocks);
        record[16..24].copy_from_slice(&wrong.0.to_be_bytes());
        let (headers, data) = record.split_at(header.header_blocks() as usize * BASIC_BLOCK);
        let crc = checksum(headers, &data[..header.len as usize]);
        record[32..36].copy_from_slice(&crc.to_le_bytes());
        volume.log.write(&*volume.dev, from, &record).unwrap();
        let bounds = volume.find();
        let replay = replay(&volume.dev, &volume.log, &bounds, &volume.sb, Limits::default());
        match replay.map(|_| ()) {
            Err(error) => assert!(error.to_string().contains("LSN of another place"), "{error}"),
            Ok(()) => panic!("{cycles}, {blocks}: replayed"),
        }
    }
}
