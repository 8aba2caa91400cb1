//! Correct traces pass. A trace that breaks a rule is caught, and by that rule.

use std::sync::Arc;

use uxfs::journal::JournalOptions;
use uxfs::{Fs, NewInode, OpenOptions, XattrMode, mkfs};
use uxfs_disk::BlockDev;
use uxfs_format::log::{MAGIC, RecordHeader, checksum};

use uxfs_disk::MemDev;
use uxfs_testkit::{FaultDev, Op};

use super::{Rule, RuledDev, Violation};
use crate::cut::{Event, RecordDev};

const VOLUME: u64 = 48 << 20;

fn make(line: &str) -> MemDev {
    let mut options = mkfs::Options::default();
    options.unsupported = true;
    let words: Vec<&str> = line.split_whitespace().collect();
    for pair in words.chunks(2) {
        options.apply(pair[0].chars().nth(1).unwrap(), pair[1]).unwrap();
    }
    let layout = mkfs::Layout::new(&options, VOLUME).unwrap();
    let disk = MemDev::new(VOLUME);
    mkfs::write(&layout, &disk, &mkfs::WriteOptions::default()).unwrap();
    disk
}

fn options(size_max: u64) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.seed = Some(7);
    let mut journal = JournalOptions::default();
    journal.pipeline.size_max = size_max;
    options.journal = journal;
    options
}

/// Creates, writes and removes files and sets attributes, until the log has wrapped several times.
fn work(fs: &Fs, rounds: u64) {
    for round in 0..rounds {
        let dir =
            fs.create(fs.root(), format!("d{round}").as_bytes(), &NewInode::dir(0o755)).unwrap();
        for number in 0..40u64 {
            let name = format!("file {number} with a name of some length").into_bytes();
            let ino = fs.create(dir, &name, &NewInode::file(0o644)).unwrap();
            fs.write_at(ino, 0, &vec![number as u8 + 1; 5000 * (number as usize % 4)]).unwrap();
            if number % 8 == 0 {
                fs.set_xattr(ino, b"user.a", &[3; 3000], XattrMode::Any).unwrap();
            }
            if number % 3 == 0 {
                fs.unlink(dir, &name).unwrap();
            }
        }
        if round % 4 == 3 {
            fs.sync().unwrap();
        }
        if round > 2 && round % 2 == 0 {
            let old = format!("d{}", round - 2).into_bytes();
            let dir = fs.lookup(fs.root(), &old).unwrap();
            for number in 0..40u64 {
                let name = format!("file {number} with a name of some length").into_bytes();
                let _missing = fs.unlink(dir, &name);
            }
            fs.rmdir(fs.root(), &old).unwrap();
        }
    }
}

/// A correct trace: the disk before it, and the events.
fn trace(line: &str, size_max: u64, rounds: u64) -> (MemDev, Vec<Event>) {
    let before = make(line);
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let ruled = Arc::new(RuledDev::new(Arc::<RecordDev>::clone(&dev)));
    let fs = Fs::open(Arc::<RuledDev>::clone(&ruled), options(size_max)).unwrap();
    work(&fs, rounds);
    fs.close().unwrap();
    ruled.verdict().unwrap();
    assert!(ruled.checkpoints() > 2, "{} checkpoints", ruled.checkpoints());
    (before, dev.take())
}

/// The first violation in a trace.
fn violation(before: &MemDev, events: &[Event]) -> Option<Violation> {
    let ruled = RuledDev::new(Arc::new(before.clone()));
    for event in events {
        let done = match event {
            Event::Write { offset, data, .. } => ruled.write_at(*offset, data),
            Event::Flush => ruled.flush(),
            _ => Ok(()),
        };
        if done.is_err() {
            break;
        }
    }
    ruled.violation()
}

/// The byte range of the log.
struct LogRange {
    start: u64,
    end: u64,
}

fn log_range(before: &MemDev) -> LogRange {
    let fs = Fs::open(Arc::new(before.clone()), OpenOptions::read_only()).unwrap();
    let start = fs.geo.fsb_daddr(fs.geo.log_start).bytes();
    LogRange { start, end: start + (u64::from(fs.geo.log_blocks) << fs.geo.block_log) }
}

impl LogRange {
    fn is_log(&self, event: &Event) -> bool {
        matches!(event, Event::Write { offset, .. } if (self.start..self.end).contains(offset))
    }

    fn header(&self, event: &Event) -> Option<RecordHeader> {
        match event {
            Event::Write { data, .. } if self.is_log(event) => {
                RecordHeader::parse(data.first_chunk()?)
            }
            _ => None,
        }
    }
}

/// Changes the header of the record at the start of a write, and updates its checksum.
fn edit(event: &mut Event, change: impl Fn(&mut RecordHeader)) {
    let Event::Write { data, .. } = event else { panic!("not a write") };
    let mut bytes = data.to_vec();
    let mut header = RecordHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    change(&mut header);
    let head = header.header_blocks() as usize * 512;
    header.put(bytes.first_chunk_mut().unwrap());
    let (headers, rest) = bytes.split_at(head);
    let crc = checksum(headers, &rest[..header.len as usize]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    *data = bytes.into();
}

/// Breaks a trace at each event for which `break_at` returns a changed trace, at most 40 times.
/// Returns how many were caught by `rule`, and how many were tried. Fails if another rule caught one.
fn caught_by(
    rule: Rule,
    trace: &(MemDev, Vec<Event>),
    mut break_at: impl FnMut(usize, &[Event], &LogRange) -> Option<Vec<Event>>,
) -> (usize, usize) {
    let log = log_range(&trace.0);
    let (mut caught, mut tried) = (0, 0);
    for at in 0..trace.1.len() {
        let Some(events) = break_at(at, &trace.1, &log) else { continue };
        if tried == 40 {
            break;
        }
        tried += 1;
        match violation(&trace.0, &events) {
            Some(found) if found.rule == rule => caught += 1,
            // A gap in the log may be caught by a write in place first.
            Some(found) if rule == Rule::Order && found.rule == Rule::InPlace => caught += 1,
            Some(other) => panic!("at event {at}, {rule:?} was broken, but found was: {other}"),
            None => {}
        }
    }
    (caught, tried)
}

#[test]
fn correct_traces_pass() {
    for line in [
        "-l size=6m",
        "-b size=1k -l size=6m",
        "-m rmapbt=1 -n size=8k -i size=1024 -l size=16m",
        "-s size=4096 -b size=4k -m reflink=0,finobt=0,inobtcount=0 -l size=16m",
    ] {
        for size_max in [4 << 10, 256 << 10] {
            println!("{line}, checkpoints of {size_max} bytes");
            let (before, events) = trace(line, size_max, 12);
            assert!(violation(&before, &events).is_none(), "{line}");
        }
    }
}

/// Rule 1: a write in place is moved before the flush of its checkpoint, or a byte is changed that was
/// not logged.
#[test]
fn early_or_unlogged_writes_in_place_are_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 14);
    let magics: [(&[u8], usize); 6] = [
        (b"XAGF", 208),
        (b"XAGI", 320),
        (b"AB3B", 24),
        (b"AB3C", 24),
        (b"IAB3", 24),
        (b"XDB3", 16),
    ];
    let in_place = |events: &[Event], at: usize, log: &LogRange| match &events[at] {
        Event::Write { data, .. } if !log.is_log(&events[at]) => {
            let (_, lsn) = magics.iter().find(|(magic, _)| data.starts_with(magic))?;
            Some(u64::from_be_bytes(*data[*lsn..].first_chunk()?))
        }
        _ => None,
    };
    // Directly after the record that logs it, before the flush.
    let (caught, tried) = caught_by(Rule::InPlace, &trace, |at, events, log| {
        let lsn = in_place(events, at, log)?;
        let to = events.iter().position(|e| log.header(e).is_some_and(|h| h.lsn.0 == lsn))?;
        let mut events = events.to_vec();
        let early = events.remove(at);
        events.insert(to + 1, early);
        Some(events)
    });
    assert!(caught > 0 && caught == tried, "{caught} of {tried}");
    let (caught, tried) = caught_by(Rule::InPlace, &trace, |at, events, log| {
        in_place(events, at, log)?;
        let mut events = events.to_vec();
        let Event::Write { data, .. } = &mut events[at] else { return None };
        let mut bytes = data.to_vec();
        bytes[60] ^= 1;
        *data = bytes.into();
        Some(events)
    });
    assert!(caught > 0 && caught == tried, "{caught} of {tried}");
}

/// Rule 2: data that a checkpoint maps is not written, or the flush between data and record is
/// omitted.
#[test]
fn missing_or_unflushed_data_is_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 8);
    let is_data = |event: &Event, log: &LogRange| match event {
        Event::Write { data, .. } if !log.is_log(event) => {
            data.len() >= 4096 && data[0] != 0 && data[..4096].iter().all(|b| *b == data[0])
        }
        _ => false,
    };
    let mut lost = 0;
    let mut tried = 0;
    let log = log_range(&trace.0);
    for at in 0..trace.1.len() {
        if !is_data(&trace.1[at], &log) || tried > 40 {
            continue;
        }
        tried += 1;
        let mut events = trace.1.clone();
        events.remove(at);
        // No rule is broken if the file was removed before any checkpoint mapped it.
        if let Some(found) = violation(&trace.0, &events) {
            assert_eq!(found.rule, Rule::DataFirst, "{found}");
            lost += 1;
        }
    }
    assert!(lost > 10 && lost * 2 > tried, "{lost} of {tried}");
    // The flush between data and record.
    let (caught, tried) = caught_by(Rule::DataFirst, &trace, |at, events, log| {
        let flush = matches!(events[at], Event::Flush);
        let data = at > 0 && is_data(&events[at - 1], log);
        if !flush || !data || !log.is_log(events.get(at + 1)?) {
            return None;
        }
        let mut events = events.to_vec();
        events.remove(at);
        Some(events)
    });
    assert!(caught > 0 && caught == tried, "{caught} of {tried}");
}

/// Rule 3: data overwrites metadata in use.
#[test]
fn data_over_metadata_is_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 6);
    let mut metadata = None;
    let (caught, tried) = caught_by(Rule::Reuse, &trace, |at, events, log| {
        if let Event::Write { offset, data, .. } = &events[at]
            && !log.is_log(&events[at])
            && data.starts_with(b"XAGF")
        {
            metadata = Some(*offset);
        }
        let over = metadata.filter(|_| at % 16 == 0)?;
        let mut events = events.to_vec();
        let data = vec![0x55; 4096].into();
        events.insert(at + 1, Event::Write { offset: over, data, fua: false });
        Some(events)
    });
    assert!(caught > 0, "{caught} of {tried}");
}

/// Rule 3: data is written into blocks between the record that frees them and the flush that makes
/// the record durable.
#[test]
fn data_in_blocks_whose_freeing_is_not_durable_is_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 8);
    let (before, events) = &trace;
    let log = log_range(before);
    let mut files = Vec::new();
    let mut caught = 0;
    for at in 0..events.len() {
        if let Event::Write { offset, data, .. } = &events[at]
            && data.len() >= 4096
            && data[..4096].iter().all(|byte| *byte == data[0])
        {
            files.push(*offset);
        }
        let gap = log.is_log(&events[at]) && matches!(events.get(at + 1), Some(Event::Flush));
        if !gap || files.len() < 120 || caught > 4 {
            continue;
        }
        // The rounds remove the files of earlier rounds, so skip the newest.
        for offset in files.iter().rev().skip(60).take(60).step_by(3) {
            let mut events = events.to_vec();
            let data = vec![0x55; 4096].into();
            events.insert(at + 1, Event::Write { offset: *offset, data, fua: false });
            if let Some(found) = violation(before, &events) {
                // If the file still exists, the new data counts as not flushed.
                assert!(matches!(found.rule, Rule::Reuse | Rule::DataFirst), "{found}");
                caught += usize::from(found.rule == Rule::Reuse);
            }
        }
    }
    assert!(caught > 4, "{caught}");
}

/// Rule 7: a write after a failure.
#[test]
fn writes_after_a_failure_are_caught() {
    let (before, events) = trace("-m reflink=0 -l size=6m", 16 << 10, 4);
    let log = log_range(&before);
    let record = events.iter().position(|event| log.is_log(event)).unwrap();
    let writes =
        events[..record].iter().filter(|event| matches!(event, Event::Write { .. })).count();
    let failing = FaultDev::new(before.clone());
    failing.add(uxfs_testkit::Rule::on(Op::WRITES).after(writes as u64).times(1).fail(5));
    let ruled = RuledDev::new(Arc::new(failing));
    let mut failed = false;
    for event in &events {
        let done = match event {
            Event::Write { offset, data, .. } => ruled.write_at(*offset, data),
            Event::Flush => ruled.flush(),
            _ => continue,
        };
        if failed {
            assert_eq!(ruled.violation().unwrap().rule, Rule::Stopped);
            return;
        }
        failed = done.is_err();
    }
    panic!("no write failed");
}

/// Rule 4: the tail in a header is moved forward to its own record, or a write in place or its flush
/// is omitted.
#[test]
fn tails_ahead_of_unwritten_metadata_are_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 14);
    let (caught, tried) = caught_by(Rule::Tail, &trace, |at, events, log| {
        let header = log.header(&events[at])?;
        if header.num_ops == 1 || header.tail_lsn == header.lsn {
            return None;
        }
        let mut events = events.to_vec();
        edit(&mut events[at], |header| header.tail_lsn = header.lsn);
        Some(events)
    });
    assert!(caught > 0 && caught == tried, "{caught} of {tried}");
    let (caught, tried) = caught_by(Rule::Tail, &trace, |at, events, log| {
        match &events[at] {
            Event::Write { data, .. } if !log.is_log(&events[at]) && data.starts_with(b"IN") => {}
            _ => return None,
        }
        let mut events = events.to_vec();
        events.remove(at);
        Some(events)
    });
    assert!(caught > 0, "{caught} of {tried}");
    // Writes in place are not flushed before the next record, whose tail lies after them.
    let trace = many_files("-m reflink=0 -l size=6m", 16 << 10);
    let (caught, tried) = caught_by(Rule::Tail, &trace, |at, events, log| {
        let in_place = |event: &Event| matches!(event, Event::Write { .. }) && !log.is_log(event);
        if !in_place(&events[at]) || !matches!(events.get(at + 1)?, Event::Flush) {
            return None;
        }
        let next = at + events[at..].iter().position(|event| log.is_log(event))?;
        let kept =
            |(n, event): &(usize, &Event)| !matches!(event, Event::Flush if (at..next).contains(n));
        Some(events.iter().enumerate().filter(kept).map(|(_, event)| event.clone()).collect())
    });
    assert!(caught > 0, "{caught} of {tried}");
}

/// A trace that only creates files.
fn many_files(line: &str, size_max: u64) -> (MemDev, Vec<Event>) {
    let before = make(line);
    let dev = Arc::new(RecordDev::new(before.clone()).in_pieces());
    let fs = Fs::open(Arc::<RecordDev>::clone(&dev), options(size_max)).unwrap();
    for number in 0..16_000 {
        let name = format!("a file with quite a long name, number {number}");
        fs.create(fs.root(), name.as_bytes(), &NewInode::file(0o600)).unwrap();
    }
    fs.sync().unwrap();
    let events = dev.take();
    assert!(violation(&before, &events).is_none());
    (before, events)
}

/// Rule 5: all flushes are omitted.
#[test]
fn a_log_without_flushes_is_caught() {
    let (before, events) = many_files("-m reflink=0 -l size=16m", 4 << 20);
    let events: Vec<Event> =
        events.into_iter().filter(|event| !matches!(event, Event::Flush)).collect();
    assert_eq!(violation(&before, &events).unwrap().rule, Rule::Window);
}

/// Rule 6: a record is omitted, written twice, damaged, or has the wrong cycle.
#[test]
fn records_out_of_order_are_caught() {
    let trace = trace("-m reflink=0 -l size=6m", 16 << 10, 6);
    type Break = fn(&mut Vec<Event>, usize);
    let breaks: [Break; 4] = [
        |events, at| drop(events.remove(at)),
        |events, at| events.insert(at, events[at].clone()),
        |events, at| {
            let Event::Write { data, .. } = &mut events[at] else { return };
            let mut bytes = data.to_vec();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            *data = bytes.into();
        },
        |events, at| edit(&mut events[at], |header| header.cycle += 1),
    ];
    for (number, change) in breaks.iter().enumerate() {
        let (caught, tried) = caught_by(Rule::Order, &trace, |at, events, log| {
            log.header(&events[at])?;
            let later = events[at + 1..].iter().any(|event| log.is_log(event));
            if !later {
                return None;
            }
            let mut events = events.to_vec();
            change(&mut events, at);
            Some(events)
        });
        assert!(caught > 0 && caught == tried, "change {number}: {caught} of {tried}");
    }
    assert_eq!(MAGIC.to_be_bytes(), [0xfe, 0xed, 0xba, 0xbe]);
}
