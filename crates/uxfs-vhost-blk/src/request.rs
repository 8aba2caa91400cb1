//! A request of virtio-blk: parsed from the bytes that a guest sent, and done on a disk.
//!
//! 1. Any bytes are a request: those that make no sense get the status of an error.
//! 2. A range that is not wholly on the disk is refused before the disk is asked, and so is every
//!    change of a disk that is read-only.

use std::io;
use std::sync::Arc;

use uxfs_disk::BlockDev;

/// The unit of addresses.
pub(crate) const SECTOR: u64 = 512;
/// Most bytes of a request, and of a reply.
pub(crate) const LONGEST: usize = 8 << 20;
/// Bytes of a disk's serial number.
pub const SERIAL_LEN: usize = 20;
/// Most ranges of a request to discard or to write zeroes.
pub(crate) const RANGES_MAX: u32 = 16;
/// Most sectors of such a range.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 21;

const HEADER_LEN: usize = 16;
const RANGE_LEN: usize = 16;
/// The flag of a range that it may be discarded. It is for zeroes only, and the only one there is.
const UNMAP: u64 = 1;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Ok = 0,
    Error = 1,
    Unsupported = 2,
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// After a flush.
    Volatile,
    /// When it is answered.
    WriteThrough,
}

/// A disk, and its name.
pub(crate) struct Disk {
    dev: Arc<dyn BlockDev>,
    serial: [u8; SERIAL_LEN],
}

/// What is sent back: data, and how it went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) data: Vec<u8>,
    pub(crate) status: Status,
}

impl Reply {
    fn of(result: io::Result<()>) -> Self {
        let status = if result.is_ok() { Status::Ok } else { Status::Error };
        Self { data: Vec::new(), status }
    }

    fn refusal(status: Status) -> Self {
        Self { data: Vec::new(), status }
    }
}

impl Disk {
    pub(crate) fn new(dev: Arc<dyn BlockDev>, serial: &str) -> Self {
        let mut own = [0; SERIAL_LEN];
        own.iter_mut().zip(serial.bytes()).for_each(|(to, from)| *to = from);
        Self { dev, serial: own }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.dev.len() / SECTOR
    }

    pub(crate) fn read_only(&self) -> bool {
        self.dev.read_only()
    }

    /// Does a request. `room` is what the guest has for data of the reply.
    pub(crate) fn answer(&self, request: &[u8], room: usize, cache: Cache) -> Reply {
        let Some((header, data)) = request.split_at_checked(HEADER_LEN) else {
            return Reply::refusal(Status::Error);
        };
        let sector = number(&header[8..]);
        let kind = u32::try_from(number(&header[..4])).unwrap_or(u32::MAX);
        if matches!(kind, OUT | DISCARD | WRITE_ZEROES) && self.read_only() {
            return Reply::refusal(Status::Error);
        }
        match kind {
            IN => self.read(sector, room),
            OUT => match (self.range(sector, data.len() as u64), cache) {
                (Some(offset), Cache::Volatile) => Reply::of(self.dev.write_at(offset, data)),
                (Some(offset), Cache::WriteThrough) => {
                    Reply::of(self.dev.write_fua_at(offset, data))
                }
                (None, _) => Reply::refusal(Status::Error),
            },
            FLUSH => Reply::of(self.dev.flush()),
            GET_ID => {
                let data = self.serial[..room.min(SERIAL_LEN)].to_vec();
                Reply { data, status: Status::Ok }
            }
            DISCARD => self.each_range(data, 0, &|offset, len| {
                self.dev.discard(offset, len);
                Ok(())
            }),
            WRITE_ZEROES => self.each_range(data, UNMAP, &|offset, len| {
                self.dev.zero(offset, len)?;
                if cache == Cache::WriteThrough { self.dev.flush() } else { Ok(()) }
            }),
            _ => Reply::refusal(Status::Unsupported),
        }
    }

    fn read(&self, sector: u64, room: usize) -> Reply {
        let Some(offset) = self.range(sector, room as u64) else {
            return Reply::refusal(Status::Error);
        };
        let mut data = vec![0; room];
        match self.dev.read_at(offset, &mut data) {
            Ok(()) => Reply { data, status: Status::Ok },
            Err(_) => Reply::refusal(Status::Error),
        }
    }

    /// Where a range begins, if it is on the disk and has whole sectors.
    fn range(&self, sector: u64, len: u64) -> Option<u64> {
        let end = sector.checked_add(len / SECTOR)?;
        (len.is_multiple_of(SECTOR) && end <= self.sectors()).then(|| sector * SECTOR)
    }

    /// Does something to each of the ranges that a request lists, if all of them are on the disk
    /// and have no flags but those that are `known`.
    fn each_range(
        &self,
        list: &[u8],
        known: u64,
        work: &dyn Fn(u64, u64) -> io::Result<()>,
    ) -> Reply {
        let (ranges, rest) = list.as_chunks::<RANGE_LEN>();
        if ranges.is_empty() || !rest.is_empty() || ranges.len() > RANGES_MAX as usize {
            return Reply::refusal(Status::Error);
        }
        if ranges.iter().any(|range| number(&range[12..]) & !known != 0) {
            return Reply::refusal(Status::Unsupported);
        }
        let parsed = ranges.iter().map(|range| {
            let sectors = number(&range[8..12]);
            if sectors > u64::from(RANGE_SECTORS_MAX) {
                return None;
            }
            Some((self.range(number(&range[..8]), sectors * SECTOR)?, sectors * SECTOR))
        });
        let Some(parsed) = parsed.collect::<Option<Vec<_>>>() else {
            return Reply::refusal(Status::Error);
        };
        Reply::of(parsed.into_iter().try_for_each(|(offset, len)| work(offset, len)))
    }
}

/// A number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use uxfs_disk::MemDev;
    use uxfs_testkit::{Event, RecordDev};

    use super::*;

    const CACHE: Cache = Cache::Volatile;

    fn request(kind: u32, sector: u64, data: &[u8]) -> Vec<u8> {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        [&header, data].concat()
    }

    fn range(sector: u64, sectors: u32) -> Vec<u8> {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat()
    }

    /// A disk of 8 sectors and a half.
    fn disk() -> (Disk, Arc<RecordDev<MemDev>>) {
        let dev = Arc::new(RecordDev::new(MemDev::new(8 * SECTOR + 256)));
        (Disk::new(Arc::clone(&dev) as Arc<dyn BlockDev>, "a serial number that is too long"), dev)
    }

    #[test]
    fn each_kind_of_request_reaches_the_disk() {
        let (disk, dev) = disk();
        let done = |reply: Reply| assert_eq!(reply, Reply { data: Vec::new(), status: Status::Ok });
        done(disk.answer(&request(OUT, 2, &[7; 1024]), 0, CACHE));
        done(disk.answer(&request(FLUSH, 0, &[]), 0, CACHE));
        done(disk.answer(&request(WRITE_ZEROES, 0, &range(3, 1)), 0, CACHE));
        done(disk.answer(&request(DISCARD, 0, &[range(0, 1), range(7, 1)].concat()), 0, CACHE));
        let read = disk.answer(&request(IN, 2, &[]), 1024, CACHE);
        assert_eq!(read.data, [[7; 512], [0; 512]].concat());
        let id = disk.answer(&request(GET_ID, 0, &[]), SERIAL_LEN, CACHE);
        assert_eq!(id.data, b"a serial number that");
        let events = dev.take();
        assert!(matches!(&events[0], Event::Write { offset: 1024, .. }), "{events:?}");
        assert_eq!(events[1], Event::Flush);
        assert!(matches!(&events[2], Event::Write { offset: 1536, .. }), "{events:?}");
        assert_eq!(events.len(), 3);
    }

    /// Each range with these flags.
    fn flagged(sector: u64, flags: u32) -> Vec<u8> {
        let mut range = range(sector, 1);
        range[12..].copy_from_slice(&flags.to_le_bytes());
        range
    }

    #[test]
    fn flags_of_ranges_that_are_unknown_are_unsupported() {
        let (disk, dev) = disk();
        for (kind, flags, status) in [
            (DISCARD, 0, Status::Ok),
            (DISCARD, 1, Status::Unsupported),
            (DISCARD, 2, Status::Unsupported),
            (DISCARD, 1 << 31, Status::Unsupported),
            (WRITE_ZEROES, 2, Status::Unsupported),
            (WRITE_ZEROES, 3, Status::Unsupported),
        ] {
            let list = [range(0, 1), flagged(1, flags)].concat();
            let reply = disk.answer(&request(kind, 0, &list), 0, CACHE);
            assert_eq!(reply.status, status, "{kind} with {flags}");
        }
        assert!(dev.take().is_empty());
        // Zeroes that may be a hole.
        let reply = disk.answer(&request(WRITE_ZEROES, 0, &flagged(1, 1)), 0, CACHE);
        assert_eq!(reply.status, Status::Ok);
        assert!(matches!(dev.take()[..], [Event::Write { offset: 512, .. }]));
    }

    /// A disk of which nothing is changed.
    struct ReadOnly(MemDev);

    impl BlockDev for ReadOnly {
        uxfs_disk::forward!(self => self.0; len, read_at, write_at, write_vectored_at, write_bulk_at,
            write_fua_at, zero, flush, discard, will_read, will_write_bulk, has_fua, allocate, lengthen,
            as_file, check_present, warning, sector_size);

        fn read_only(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_read_only_disk_refuses_every_change() {
        let disk = Disk::new(Arc::new(ReadOnly(MemDev::new(8 * SECTOR))), "serial");
        for kind in [DISCARD, WRITE_ZEROES] {
            let reply = disk.answer(&request(kind, 0, &range(0, 1)), 0, CACHE);
            assert_eq!(reply.status, Status::Error, "{kind}");
        }
        let reply = disk.answer(&request(OUT, 0, &[1; 512]), 0, CACHE);
        assert_eq!(reply.status, Status::Error);
        assert_eq!(disk.answer(&request(IN, 0, &[]), 512, CACHE).data, [0; 512]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_changes_nothing() {
        let (disk, dev) = disk();
        let zeroes = |list: &[u8]| request(WRITE_ZEROES, 0, list);
        for (bytes, room) in [
            (Vec::new(), 0),
            (vec![0; 15], 512),
            (request(IN, 8, &[]), 512),
            (request(IN, u64::MAX, &[]), 512),
            (request(IN, 0, &[]), 511),
            (request(OUT, 7, &[1; 1024]), 0),
            (request(OUT, 0, &[1; 100]), 0),
            (request(OUT, u64::MAX / 512 + 2, &[1; 512]), 0),
            (zeroes(&[]), 0),
            (zeroes(&[0; 15]), 0),
            (zeroes(&range(0, u32::MAX)), 0),
            (zeroes(&[range(0, 1), range(8, 1)].concat()), 0),
            (zeroes(&range(0, 1).repeat(17)), 0),
        ] {
            assert_eq!(disk.answer(&bytes, room, CACHE).status, Status::Error, "{bytes:?}");
        }
        assert_eq!(disk.answer(&request(99, 0, &[]), 0, CACHE).status, Status::Unsupported);
        assert!(dev.take().is_empty());
    }
}
