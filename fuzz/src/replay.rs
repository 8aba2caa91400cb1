//! Dirty logs: numbers changed in the records that recovery goes through, their checksums made right;
//! then the log is shown, replayed, and the volume checked.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use uxfs::journal::JournalOptions;
use uxfs::{Fs, NewInode, OpenOptions, XattrMode};
use uxfs_disk::BlockDev;
use uxfs_format::log::{RecordHeader, checksum};
use uxfs_format::{BASIC_BLOCK, Daddr};
use uxfs_journal::recovery::{Assembler, Log, Transaction, Walk, describe};

use crate::Input;
use crate::base::{Base, FEATURES, MOMENT, empty};
use crate::exercise::examine;
use uxfs_disk::Overlay;

/// Changes to one log.
const CHANGES: usize = 30;
/// Where a record's checksum lies.
const CRC: usize = 32;

/// A volume with a dirty log.
struct Dirty {
    base: Base,
    log: Log,
    /// First byte of the live part on the device, and its length.
    live: (u64, u64),
    /// Its records: where each lies on the device.
    records: Vec<u64>,
}

impl Dirty {
    fn new(line: &str) -> Self {
        let dev = empty(line);
        let mut options = OpenOptions::default();
        options.clock = uxfs::clock::Clock::Fixed(MOMENT);
        options.seed = Some(7);
        options.journal = JournalOptions::default();
        let fs = Fs::open(Arc::clone(&dev) as Arc<dyn BlockDev>, options);
        let fs = fs.unwrap_or_else(|e| panic!("{line}: {e}"));
        // As after a power cut: what is on the device is taken before it is closed.
        work(&fs).and_then(|()| fs.sync()).unwrap_or_else(|e| panic!("{line}: {e}"));
        let cut = Arc::new(uxfs_disk::MemDev::new(dev.len()));
        let mut buf = vec![0; 64 << 10];
        for at in (0..dev.len()).step_by(buf.len()) {
            let moved =
                dev.read_at(at, &mut buf).and_then(|()| match buf.iter().any(|b| *b != 0) {
                    true => cut.write_at(at, &buf),
                    false => Ok(()),
                });
            moved.unwrap_or_else(|e| panic!("{e}"));
        }
        let log = Log::new(&fs.superblock()).unwrap_or_else(|e| panic!("{e}"));
        drop(fs);
        let base = Base::new(cut);
        let bounds = log.find(&*base.memory).unwrap_or_else(|e| panic!("{e}"));
        let (tail, head) = (bounds.tail.block().into(), bounds.head.block().into());
        let start = base.geo.fsb_daddr(base.geo.log_start);
        let at = |block: u64| Daddr(start.0 + block).bytes();
        let mut records = Vec::new();
        let walk = Walk::new(&log, &*base.memory, tail, head);
        let mut walk = walk.unwrap_or_else(|e| panic!("{e}"));
        while let Some(record) = walk.next_record().unwrap_or_else(|e| panic!("{e}")) {
            records.push(at(record.block));
        }
        drop(walk);
        assert!(head > tail && !records.is_empty(), "{line}: {bounds:?}");
        Self { base, log, live: (at(tail), at(head) - at(tail)), records }
    }
}

/// Something of everything that is logged.
fn work(fs: &Fs) -> uxfs::Result<()> {
    let root = fs.root();
    let dir = fs.create(root, b"dir", &NewInode::dir(0o755))?;
    for number in 0..70 {
        let ino = fs.create(dir, format!("file {number}").as_bytes(), &NewInode::file(0o644))?;
        fs.write_at(ino, u64::from(number % 3) * 9000, &[number; 3000])?;
        fs.set_xattr(ino, b"user.name", &[number; 40], XattrMode::Any)?;
    }
    fs.sync()?;
    for number in (0..70).step_by(2) {
        fs.unlink(dir, format!("file {number}").as_bytes())?;
    }
    fs.symlink(dir, b"link", &[b'x'; 900], &NewInode::new(0o777)).map(drop)
}

/// The first byte picks the volume; then seven bytes for each change.
pub fn replay(data: &[u8]) {
    static BASES: OnceLock<Vec<Dirty>> = OnceLock::new();
    let bases = BASES.get_or_init(|| [FEATURES[0], FEATURES[3]].map(Dirty::new).into());
    let mut input = Input(data);
    let dirty = &bases[usize::from(input.byte()) % bases.len()];
    let overlay = Arc::new(Overlay::new(Arc::clone(&dirty.base.memory) as _, usize::MAX));
    let mut touched = BTreeSet::new();
    for _ in 0..CHANGES {
        if input.is_empty() {
            break;
        }
        let [high, middle, low, how] = input.take();
        let value: [u8; 4] = input.take();
        let len = [1, 2, 4][usize::from(how) % 3];
        let place = u64::from_be_bytes([0, 0, 0, 0, 0, high, middle, low]) % (dirty.live.1 - 4);
        let place = dirty.live.0 + place / len as u64 * len as u64;
        overlay.write_at(place, &value[..len]).unwrap_or_else(|e| panic!("{e}"));
        touched.extend(dirty.records.iter().rev().find(|at| **at <= place));
    }
    for at in touched {
        seal(&overlay, at, dirty.live.0 + dirty.live.1);
    }
    show(&dirty.log, &*overlay);
    let mut options = OpenOptions::default();
    options.clock = uxfs::clock::Clock::Fixed(MOMENT);
    options.seed = Some(7);
    if let Ok(fs) = Fs::open(Arc::clone(&overlay) as Arc<dyn BlockDev>, options) {
        let _ = fs.close();
    }
    let found = examine(&*overlay, 1);
    assert!(!data.is_empty() || found.is_none(), "{found:?}");
}

/// Makes a record's checksum right, if it is one that ends before `end`.
fn seal(dev: &Overlay, at: u64, end: u64) {
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        dev.read_at(at, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
        bytes
    };
    let block = read(at, BASIC_BLOCK);
    let header = block.first_chunk().and_then(RecordHeader::parse);
    let Some(header) = header else { return };
    let headers = header.header_blocks() as usize * BASIC_BLOCK;
    let len = u64::from(header.len);
    if at + headers as u64 + len > end {
        return;
    }
    let (headers, data) = (read(at, headers), read(at + headers as u64, len as usize));
    let sum = checksum(&headers, &data).to_le_bytes();
    dev.write_at(at + CRC as u64, &sum).unwrap_or_else(|e| panic!("{e}"));
}

/// What `uxfs log print --json` shows.
fn show(log: &Log, dev: &dyn BlockDev) {
    let Ok(bounds) = log.find(dev) else { return };
    let (tail, head) = (bounds.tail.block().into(), bounds.head.block().into());
    let Ok(mut walk) = Walk::new(log, dev, tail, head) else { return };
    let mut open = Assembler::default();
    let mut list: Vec<Value> = Vec::new();
    while let Ok(Some(record)) = walk.next_record() {
        let fed = open.feed(&record, &mut |transaction: Transaction| {
            let item = |raw: uxfs_journal::recovery::RawItem<'_>| {
                let kind = raw.kind().map_or_else(|code| code.to_string(), |k| k.name().to_owned());
                let detail = raw.parse().map_or_else(|e| e.to_string(), |item| describe(&item));
                json!({ "kind": kind, "detail": detail })
            };
            let items: Vec<Value> = transaction.items().map(item).collect();
            list.push(json!({ "bytes": transaction.bytes(), "items": items }));
            Ok(())
        });
        if fed.is_err() {
            break;
        }
    }
    let text = Value::Array(list.clone()).to_string();
    let back: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(back, Value::Array(list));
}
