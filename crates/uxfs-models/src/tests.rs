//! Compares each disk with its published figures, and tests the rules of all models.

use std::collections::BTreeMap;
use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};
use uxfs_journal::Time;
use uxfs_testkit::{CountDev, Rng};

use crate::{
    Description, Disk, Done, NAMES, Op, RealTimeDev, Request, Tag, VirtualClock, VirtualDev, serve,
};

fn disk(name: &str) -> Box<dyn Disk> {
    Description::named(name).unwrap().build(7).unwrap()
}

/// The disk `name`, with lines of its description replaced.
fn changed(name: &str, lines: &[(&str, &str)]) -> Box<dyn Disk> {
    let path = format!("{}/disks/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let mut text = std::fs::read_to_string(path).unwrap();
    for (old, new) in lines {
        assert!(text.contains(old), "{name} has no line {old}");
        text = text.replace(old, new);
    }
    Description::parse(&text).unwrap().build(7).unwrap()
}

/// Keeps `depth` requests in flight until `count` have completed; returns the time in seconds.
fn run(disk: &mut dyn Disk, depth: u64, count: u64, mut next: impl FnMut(u64) -> Request) -> f64 {
    let mut begun = 0;
    let mut ended = 0;
    let mut now = Time(0);
    let mut done = Vec::new();
    while ended < count {
        while begun < count && begun - ended < depth {
            disk.submit(now, Tag(begun), next(begun));
            begun += 1;
        }
        now = disk.next_event().expect("a request is in flight").max(now);
        disk.advance(now, &mut done);
        ended += done.len() as u64;
        done.clear();
    }
    now.0 as f64 / 1e9
}

fn random(disk: &dyn Disk, op: Op, seed: u64) -> impl FnMut(u64) -> Request + use<> {
    let (mut rng, pages) = (Rng::new(seed), disk.capacity() / 4096);
    move |_| Request { op, at: rng.bits() % pages * 4096, len: 4096 }
}

fn iops(disk: &mut dyn Disk, op: Op, depth: u64, count: u64) -> f64 {
    let next = random(disk, op, 3);
    count as f64 / run(disk, depth, count, next)
}

/// Rate of a sequential stream from `at` on, in 10^6 bytes per second.
fn stream(disk: &mut dyn Disk, op: Op, at: u64, depth: u64) -> f64 {
    let (len, count) = (256 << 10, 2000);
    let seconds = run(disk, depth, count, |i| Request { op, at: at + i * len, len });
    (count * len) as f64 / seconds / 1e6
}

const WRITE: Op = Op::Write { fua: false };

#[track_caller]
fn near(what: &str, is: f64, published: f64, part: f64) {
    let off = (is - published).abs() / published;
    assert!(off <= part, "{what}: {is:.4}, published {published}: {:.0} % off", off * 100.0);
}

#[test]
fn a_7200_rpm_disk_matches_its_figures() {
    // A random read takes the average seek and half a revolution. It is slightly faster, because
    // outer cylinders have more sectors and are closer to each other than average.
    let read = iops(&mut *disk("hdd-7200"), Op::Read, 1, 3000);
    near("random reads a second", read, 1e3 / (8.5 + 8.333 / 2.0 + 0.05), 0.02);
    near("MB/s, outer edge", stream(&mut *disk("hdd-7200"), Op::Read, 0, 1), 125.0, 0.03);
    near(
        "MB/s, inner edge",
        stream(&mut *disk("hdd-7200"), Op::Read, 998_000_000_000, 1),
        60.0,
        0.03,
    );
    let off = [("write_cache = true", "write_cache = false")];
    let mut uncached = changed("hdd-7200", &off);
    let write = iops(&mut *uncached, WRITE, 1, 3000);
    near("random writes a second, cache off", write, 1e3 / (9.5 + 8.333 / 2.0 + 0.05), 0.03);
    // A writer that waits for each write misses the next sector by a revolution.
    let mut uncached = changed("hdd-7200", &off);
    let seconds = run(&mut *uncached, 1, 500, |i| Request::write(i * 4096, 4096));
    near("sequential writes a second, cache off", 500.0 / seconds, 7200.0 / 60.0, 0.03);
}

#[test]
fn a_queue_increases_throughput() {
    let alone = iops(&mut *disk("hdd-7200"), Op::Read, 1, 2000);
    let queued = iops(&mut *disk("hdd-7200"), Op::Read, 32, 2000);
    assert!(queued > 1.8 * alone, "{queued} with a queue, {alone} without");
    let mut fifo = changed("hdd-7200", &[("elevator", "fifo")]);
    let ordered = iops(&mut *fifo, Op::Read, 32, 2000);
    near("in submission order", ordered, alone, 0.02);
}

#[test]
fn a_sas_disk_of_2010_matches_its_figures() {
    let read = iops(&mut *disk("sas-15k"), Op::Read, 1, 3000);
    near("random reads a second", read, 1e3 / (3.3 + 2.0 + 0.03), 0.02);
    let write = iops(&mut *disk("sas-15k"), WRITE, 1, 3000);
    near("random writes a second", write, 1e3 / (3.8 + 2.0 + 0.03), 0.02);
    near("MB/s, outer edge", stream(&mut *disk("sas-15k"), Op::Read, 0, 1), 204.0, 0.03);
    near(
        "MB/s, inner edge",
        stream(&mut *disk("sas-15k"), Op::Read, 448_000_000_000, 1),
        122.0,
        0.03,
    );
}

#[test]
fn flash_drives_match_their_figures() {
    near("2010: us to read", 1e6 / iops(&mut *disk("ssd-2010"), Op::Read, 1, 2000), 65.0, 0.10);
    near(
        "2010: reads a second",
        iops(&mut *disk("ssd-2010"), Op::Read, 32, 50_000),
        35_000.0,
        0.05,
    );
    near("2010: MB/s read", stream(&mut *disk("ssd-2010"), Op::Read, 0, 4), 250.0, 0.15);
    near("2010: MB/s written", stream(&mut *disk("ssd-2010"), WRITE, 0, 4), 100.0, 0.10);
    near("2015: reads a second", iops(&mut *disk("ssd-2015"), Op::Read, 32, 50_000), 95_000.0, 0.1);
    near("2015: MB/s read", stream(&mut *disk("ssd-2015"), Op::Read, 0, 4), 540.0, 0.10);
    near("2015: MB/s written", stream(&mut *disk("ssd-2015"), WRITE, 0, 4), 500.0, 0.10);
    near("nvme: reads a second", iops(&mut *disk("nvme"), Op::Read, 128, 200_000), 500_000.0, 0.2);
    near("nvme: MB/s read", stream(&mut *disk("nvme"), Op::Read, 0, 16), 3500.0, 0.1);
    near("nvme-plp: us to write", 1e6 / iops(&mut *disk("nvme-plp"), WRITE, 1, 2000), 20.0, 0.1);
    let reads = iops(&mut *disk("nvme-plp"), Op::Read, 128, 200_000);
    near("nvme-plp: reads a second", reads, 460_000.0, 0.1);
    let writes = iops(&mut *disk("nvme-plp"), WRITE, 128, 200_000);
    near("nvme-plp: writes a second", writes, 175_000.0, 0.1);
    near("nvme-plp: MB/s read", stream(&mut *disk("nvme-plp"), Op::Read, 0, 16), 2800.0, 0.1);
}

#[test]
fn a_cloud_volume_bursts_until_its_credit_is_used() {
    near("on credit", iops(&mut *disk("cloud"), Op::Read, 64, 20_000), 3000.0, 0.02);
    let mut low_credit = changed("cloud", &[("5400000", "10000")]);
    let seconds = run(&mut *low_credit, 64, 100_000, {
        let mut rng = Rng::new(1);
        move |_| Request::read(rng.bits() % 1_000_000 * 4096, 4096)
    });
    // Usage above the steady rate consumes the credit.
    let burst = 10_000.0 / (3000.0 - 900.0);
    let steady = (100_000.0 - burst * 3000.0) / 900.0;
    near("seconds, once the credit is used up", seconds, burst + steady, 0.03);
    let alone = 1e6 / iops(&mut *disk("cloud"), Op::Write { fua: false }, 1, 3000);
    assert!((500.0..1000.0).contains(&alone), "{alone} us");
}

#[test]
fn a_battery_backed_cache_hides_writes_until_it_is_full() {
    let write = 1e6 / iops(&mut *disk("array-bbu"), Op::Write { fua: true }, 1, 2000);
    assert!(write < 100.0, "{write} us");
    let flush = serve(&mut *disk("array-bbu"), Time(0), Request::flush());
    assert!(flush.0 < 100_000, "{flush:?}");
    // With more writes than the cache holds, the disks determine the rate.
    let many = iops(&mut *disk("array-bbu"), WRITE, 64, 400_000);
    assert!(many < 8.0 * 600.0 * 8.0, "{many} a second");
}

#[test]
fn arrays_match_their_figures() {
    let spindle = "[disk]\nkind = \"spindle\"";
    let text =
        std::fs::read_to_string(format!("{}/disks/hdd-7200.toml", env!("CARGO_MANIFEST_DIR")));
    let text = text.unwrap();
    let array = |head: &str| {
        let head = format!("[disk]\n{head}\n[disk.disk]\nkind = \"spindle\"");
        Description::parse(&text.replace(spindle, &head)).unwrap().build(1).unwrap()
    };
    let one = iops(&mut *disk("hdd-7200"), Op::Read, 8, 4000);
    let mut mirror = array("kind = \"mirror\"\ncount = 2");
    assert_eq!(mirror.capacity(), disk("hdd-7200").capacity());
    let both = iops(&mut *mirror, Op::Read, 16, 8000);
    assert!(both > 1.8 * one, "{both} of a mirror, {one} of a disk");
    let mut stripe = array("kind = \"stripe\"\ncount = 4\nchunk_kib = 64");
    assert!(stripe.capacity() > 3 * disk("hdd-7200").capacity());
    near("a stripe's MB/s", stream(&mut *stripe, Op::Read, 0, 16), 500.0, 0.15);
    let mut concat = array("kind = \"concat\"\ncount = 3");
    assert_eq!(concat.capacity(), 3 * disk("hdd-7200").capacity());
    near("a concat's MB/s", stream(&mut *concat, Op::Read, 0, 1), 125.0, 0.03);
    let over = Request::read(disk("hdd-7200").capacity() - 4096, 8192);
    assert!(serve(&mut *concat, Time(1 << 50), over).0 > 1 << 50);
}

/// Random requests at random times: every disk completes each request once, not before its
/// submission, with the same times in a second run, and a flush never before earlier writes.
#[test]
fn every_disk_obeys_the_rules() {
    for name in NAMES {
        for seed in 0..20 {
            let first = random_run(name, seed);
            assert_eq!(first, random_run(name, seed), "{name}, seed {seed}");
        }
    }
}

fn random_run(name: &str, seed: u64) -> Vec<Done> {
    let mut disk = disk(name);
    let mut rng = Rng::new(seed);
    let capacity = disk.capacity();
    let mut arrived: BTreeMap<Tag, Time> = BTreeMap::new();
    let (mut all, mut done) = (Vec::new(), Vec::new());
    let mut now = Time(0);
    for tag in 0..400 {
        now.0 += rng.bits() % [1, 100_000, 30_000_000][(rng.bits() % 3) as usize];
        disk.advance(now, &mut done);
        let len = [512, 4096, 65_536, 3 << 20][(rng.bits() % 4) as usize];
        let near = if rng.bits().is_multiple_of(2) { 1 << 26 } else { capacity };
        let at = rng.bits() % (near - len) / 512 * 512;
        let request = match rng.bits() % 8 {
            0 => Request::flush(),
            1 => Request::write_fua(at, len),
            2..5 => Request::write(at, len),
            _ => Request::read(at, len),
        };
        arrived.insert(Tag(tag), now);
        disk.submit(now, Tag(tag), request);
    }
    while let Some(next) = disk.next_event() {
        let before = done.len();
        disk.advance(next, &mut done);
        assert!(done[before..].iter().all(|d| d.at <= next), "{name}: completed too early");
        all.append(&mut done);
        if all.len() == arrived.len() && next.0 > now.0 + 600_000_000_000 {
            panic!("{name}: never becomes idle");
        }
    }
    let completed: BTreeMap<Tag, Time> = all.iter().map(|d| (d.tag, d.at)).collect();
    assert_eq!(
        (completed.len(), all.len()),
        (400, 400),
        "{name}, seed {seed}: each request completes once"
    );
    for (tag, at) in completed {
        assert!(at >= arrived[&tag], "{name}, seed {seed}: {tag:?} completed before submission");
    }
    all
}

/// On a disk with a volatile cache, a flush after many writes takes about as long as the writes
/// would take without a cache. A second flush directly afterwards takes no time.
#[test]
fn a_flush_waits_for_the_cache() {
    let mut disk = disk("hdd-7200");
    let mut now = Time(0);
    let mut rng = Rng::new(9);
    for _ in 0..100 {
        now = serve(&mut *disk, now, Request::write(rng.bits() % 200_000_000 * 4096, 4096));
    }
    assert!(now.0 < 50_000_000, "writes into the cache: {now:?}");
    let flushed = serve(&mut *disk, now, Request::flush());
    assert!(flushed.0 - now.0 > 200_000_000, "the flush of the cache: {:?}", flushed.0 - now.0);
    let again = serve(&mut *disk, flushed, Request::flush());
    assert!(again.0 - flushed.0 < 1_000_000);
    // Force unit access waits only for its own sectors.
    let before = serve(&mut *disk, again, Request::write(0, 1 << 20));
    let fua = serve(&mut *disk, before, Request::write_fua(500 << 30, 4096));
    assert!(fua.0 - before.0 < 40_000_000, "{}", fua.0 - before.0);
}

/// A forced write may replace the data that a flush waits for: the flush waits for that write, and ends.
#[test]
fn a_flush_waits_for_a_write_that_replaces_cached_data() {
    let mut disk = disk("hdd-7200");
    let (mut done, mut ends) = (Vec::new(), BTreeMap::new());
    let cached = Request::write(1 << 30, 4096);
    disk.submit(Time(0), Tag(0), cached);
    while ends.is_empty() {
        let now = disk.next_event().unwrap();
        disk.advance(now, &mut done);
        ends.extend(done.drain(..).map(|done| (done.tag.0, done.at)));
    }
    let now = ends[&0];
    // The mechanics are far away while the flush and the write arrive.
    disk.submit(now, Tag(1), Request::read(disk.capacity() - (1 << 20), 4096));
    disk.submit(now, Tag(2), Request::flush());
    disk.submit(now, Tag(3), Request::write_fua(1 << 30, 4096));
    while ends.len() < 4 {
        let now = disk.next_event().expect("a request is in flight");
        disk.advance(now, &mut done);
        ends.extend(done.drain(..).map(|done| (done.tag.0, done.at)));
    }
    assert!(ends[&2] >= ends[&3], "{ends:?}");
}

/// Writers that fill the cache again and again, and flushes, do not hold up a read at the other end.
#[test]
fn a_stream_of_writes_does_not_starve_a_read() {
    const READ: u64 = 0;
    const FLUSH: u64 = 1;
    let mut disk = disk("hdd-7200");
    let (mut rng, mut now, mut done) = (Rng::new(1), Time(0), Vec::new());
    let far = disk.capacity() - 4096;
    let mut submit = |disk: &mut dyn Disk, now, tag| {
        let request = match tag {
            READ => Request { op: Op::Read, at: far, len: 4096 },
            FLUSH => Request::flush(),
            _ => Request { op: WRITE, at: rng.bits() % 25_000 * 4096, len: 4096 },
        };
        disk.submit(now, Tag(tag), request);
    };
    for tag in (2..10).chain([FLUSH, READ]) {
        submit(&mut *disk, now, tag);
    }
    // It waits for half a second, for two operations, and for its own.
    while now.0 < 600_000_000 {
        now = disk.next_event().unwrap().max(now);
        disk.advance(now, &mut done);
        for ended in done.drain(..) {
            if ended.tag == Tag(READ) {
                return;
            }
            submit(&mut *disk, now, ended.tag.0);
        }
    }
    panic!("the read waits since {now:?}");
}

/// A modelled device passes flushes and forced writes on to what keeps its data.
#[test]
fn flushes_reach_the_device_below() {
    let check = |dev: &dyn BlockDev, below: &CountDev<MemDev>| {
        let seen = || (below.counts().flushes, below.counts().forced);
        dev.write_at(0, &[1; 512]).unwrap();
        assert_eq!(seen(), (0, 0));
        dev.flush().unwrap();
        assert_eq!(seen(), (1, 0));
        dev.write_fua_at(512, &[2; 512]).unwrap();
        assert_eq!(seen(), (1, 1));
    };
    let below = || Arc::new(CountDev::new(MemDev::new(1 << 20)));
    let under = below();
    check(&VirtualDev::new(Arc::clone(&under), disk("nvme"), VirtualClock::default()), &under);
    let under = below();
    check(&RealTimeDev::new(Arc::clone(&under), disk("nvme")), &under);
}

#[test]
fn invalid_descriptions_are_refused() {
    assert!(Description::named("floppy").unwrap_err().to_string().contains("hdd-7200"));
    let path = format!("{}/disks/hdd-7200.toml", env!("CARGO_MANIFEST_DIR"));
    let good = std::fs::read_to_string(path).unwrap();
    for (old, new) in [
        ("rpm = 7200", "rpm = 0"),
        ("rpm = 7200", "rpm = nan"),
        ("heads = 4", "heads = 4000"),
        ("average_ms = 8.5", "average_ms = 0.1"),
        ("inner_mb_s = 60", "inner_mb_s = 600"),
        ("zones = 16", "zones = 16\ncylinders = 5"),
    ] {
        let text = good.replace(old, new);
        assert_ne!(text, good);
        assert!(Description::parse(&text).is_err(), "{new}");
    }
    for name in NAMES {
        let found = Description::named(name).unwrap();
        assert_eq!(&found.name, name);
    }
}

#[test]
fn modelled_devices_keep_data_and_take_time() {
    let clock = VirtualClock::default();
    let dev = VirtualDev::new(MemDev::new(1 << 20), disk("hdd-7200"), clock.clone());
    dev.write_at(4096, b"kept").unwrap();
    dev.flush().unwrap();
    let mut back = [0; 4];
    dev.read_at(4096, &mut back).unwrap();
    assert_eq!(&back, b"kept");
    let took = clock.now().0;
    assert!((1_000_000..50_000_000).contains(&took), "{took}");

    let dev = RealTimeDev::new(MemDev::new(1 << 20), disk("nvme"));
    std::thread::scope(|scope| {
        for part in 0..4 {
            let dev = &dev;
            scope.spawn(move || {
                for page in 0..20u64 {
                    dev.write_at((part * 20 + page) * 4096, &[part as u8; 4096]).unwrap();
                }
                dev.flush().unwrap();
            });
        }
    });
    let mut back = [0; 4096];
    dev.read_at(79 * 4096, &mut back).unwrap();
    assert_eq!(back, [3; 4096]);
}

/// Completion times of these requests, all submitted at once, on a disk behind a SATA port.
fn sata_completions(requests: &[Request]) -> Vec<u64> {
    let text = r#"
        name = "port"
        about = "a flash drive behind a SATA port"
        [disk]
        kind = "sata"
        [disk.disk]
        kind = "flash"
        capacity_gb = 10
        dies = 8
        read_us = 100
        program_us = 200
        read_mb_s = 500
        write_mb_s = 500
        command_us = 5
        issue_us = 1
        queue = 32
        cache_mib = 16
        protected = false
        flush_us = 3000
    "#;
    let mut disk = Description::parse(text).unwrap().build(1).unwrap();
    let mut ends = vec![0; requests.len()];
    for (number, request) in requests.iter().enumerate() {
        disk.submit(Time(0), Tag(number as u64), *request);
    }
    let mut done = Vec::new();
    while let Some(next) = disk.next_event() {
        disk.advance(next, &mut done);
        done.drain(..).for_each(|d: Done| ends[d.tag.0 as usize] = d.at.0);
    }
    ends
}

/// Flushes are not queued: requests behind a flush wait for its end, and the flush waits for
/// earlier requests.
#[test]
fn a_flush_blocks_the_sata_port() {
    let write = |at: u64| Request::write(at << 20, 4096);
    let ends =
        sata_completions(&[write(1), Request::flush(), write(2), Request::flush(), write(3)]);
    assert!(ends.iter().all(|end| *end > 0), "{ends:?}");
    assert!(ends.is_sorted(), "{ends:?}");
    let ms = |of: usize| ends[of] / 1_000_000;
    assert_eq!((ms(0), ms(1), ms(2), ms(3), ms(4)), (0, 3, 3, 6, 6), "{ends:?}");
    assert!(ends[2] - ends[1] >= 5_000, "the second write was sent before the flush ended");
    // Other commands are queued as without a port.
    let reads: Vec<Request> = (0..8).map(|n| Request::read(n * 4096, 4096)).collect();
    let ends = sata_completions(&reads);
    assert!(ends.iter().all(|end| *end < 250_000), "{ends:?}");
}
