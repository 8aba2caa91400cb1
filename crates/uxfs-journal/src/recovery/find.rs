//! Finds the head of the log, where the next record goes, and the tail, where replay starts.
//!
//! The first word of every block holds its cycle number; the head is where the cycle number drops.
//! The last writes before a crash may have reached the disk in any order, or in part. Therefore:
//!
//! 1. A block within [`WINDOW`] before the head that has an older cycle number is a hole. The head
//!    moves back to the first hole.
//! 2. If the last record does not end exactly at the head, it is incomplete. The head moves back to
//!    its start.
//! 3. The checksums of the last [`IN_FLIGHT`] records are checked. The head moves back to the first
//!    record whose checksum does not match.
//!
//! The log of a volume that was unmounted may be found by its superblock's LSN instead (`unmounted.rs`).
//!
//! Damage in older records is an error. The one exception is a tail so close to the head that a
//! torn write may have hit it: it moves forward to the next intact record.

use uxfs_disk::BlockDev;
use uxfs_disk::fault::{Fault, planted};
use uxfs_format::log::{RECORD_SIZE_MAX, RecordHeader, is_unmount};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::recovery::area::Log;
use crate::recovery::error::{Error, Result};
use crate::recovery::walk::Walk;

/// Most records that a writer has in flight.
pub(crate) const IN_FLIGHT: u64 = 8;
/// Basic blocks of the longest record.
const RECORD_BLOCKS: u64 = RECORD_SIZE_MAX as u64 / BASIC_BLOCK as u64;
/// Blocks before the head in which holes are possible.
pub(crate) const WINDOW: u64 = IN_FLIGHT * RECORD_BLOCKS;

/// Whether a log needs replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The last record is an unmount record.
    Clean,
    /// The log needs replay.
    Dirty,
}

/// Head and tail of a log.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Whether the log needs replay.
    pub state: State,
    /// LSN of the next record.
    pub head: Lsn,
    /// The first record to replay. Equal to `head` in a clean log.
    pub tail: Lsn,
    /// Block of the last record.
    pub last: u64,
    /// Log buffer size of the last record's writer, which determines the number of header blocks.
    pub record_size: u32,
    /// Block at which an incomplete record was cut off, if there was one.
    pub torn: Option<u64>,
}

impl Bounds {
    /// Number of blocks between tail and head, which recovery needs.
    pub fn live_blocks(&self, log: &Log) -> u64 {
        log.distance(self.tail.block().into(), self.head.block().into())
    }
}

impl Log {
    /// Finds head and tail.
    ///
    /// # Errors
    /// If the device fails, or the log holds no record, or damage that a torn write does not
    /// explain.
    pub fn find(&self, dev: &dyn BlockDev) -> Result<Bounds> {
        if let Some(bounds) = self.unmounted(dev)? {
            return Ok(bounds);
        }
        let written = self.head_by_cycles(dev)?;
        let head = self.cut_partial(dev, written)?;
        let mut bounds = self.ends_at(dev, head)?;
        // Remains of an incomplete record after the head must not be taken for valid later.
        bounds.torn = (head != written).then_some(head);
        if bounds.state == State::Clean {
            return Ok(bounds);
        }
        let mut sound = self.in_flight(dev, &bounds)?;
        let bad = self.first_bad(dev, sound, bounds.head.block().into())?;
        if let Some(bad) = bad.filter(|_| !planted(Fault::TornAccepted)) {
            bounds = self.ends_at(dev, bad)?;
            bounds.torn = Some(bad);
            if bounds.state == State::Clean {
                return Ok(bounds);
            }
            if bounds.head.block() == bounds.tail.block() {
                return Err(Error::damaged(bad, "no record before its head is sound"));
            }
            // The record that is now the last one may name another tail.
            sound = bad;
        }
        self.check_order(&bounds)?;
        self.verify_tail(dev, &mut bounds, sound)?;
        Ok(bounds)
    }

    /// Whether the log needs replay. Looks no further back than the last complete record.
    ///
    /// # Errors
    /// If the device fails, or the log holds no record.
    pub fn state(&self, dev: &dyn BlockDev) -> Result<State> {
        if let Some(bounds) = self.unmounted(dev)? {
            return Ok(bounds.state);
        }
        let head = self.cut_partial(dev, self.head_by_cycles(dev)?)?;
        Ok(self.ends_at(dev, head)?.state)
    }

    /// The head according to the cycle numbers.
    fn head_by_cycles(&self, dev: &dyn BlockDev) -> Result<u64> {
        let (first, last) = (self.cycle(dev, 0)?, self.cycle(dev, self.blocks() - 1)?);
        if first == 0 {
            return Err(Error::damaged(0, "it holds no record"));
        }
        let of = |cycle: u32| {
            move |block: &[u8; BASIC_BLOCK]| uxfs_format::log::cycle_of(block) == cycle
        };
        // All blocks have one cycle: the head is at the end, unless there is a hole of the cycle
        // before.
        let (head, hole) = match first == last {
            true => (self.blocks(), last.wrapping_sub(1)),
            false => (self.fall(dev, last)?, last),
        };
        let window = WINDOW.min(self.blocks());
        if let Some(start) = head.checked_sub(window) {
            let found = self.first(dev, start, window, of(hole))?;
            return Ok(self.wrap(found.unwrap_or(head)));
        }
        if last != 0 {
            let behind = window - head;
            let start = self.blocks() - behind;
            if let Some(found) = self.first(dev, start, behind, of(hole.wrapping_sub(1)))? {
                return Ok(found);
            }
        }
        Ok(self.wrap(self.first(dev, 0, head, of(hole))?.unwrap_or(head)))
    }

    /// Are there blocks ahead of the head of a clean log that recovery would take for valid once
    /// records are written before them: the remains of an incomplete record behind a hole?
    ///
    /// # Errors
    /// If the device fails.
    pub fn is_stale_ahead(&self, dev: &dyn BlockDev, bounds: &Bounds) -> Result<bool> {
        let (head, cycle) = (u64::from(bounds.head.block()), bounds.head.cycle());
        let of = |cycle: u32| {
            move |block: &[u8; BASIC_BLOCK]| uxfs_format::log::cycle_of(block) == cycle
        };
        let window = WINDOW.min(self.blocks());
        let straight = window.min(self.blocks() - head);
        if self.first(dev, head, straight, of(cycle))?.is_some() {
            return Ok(true);
        }
        let next = uxfs_format::log::bump(cycle);
        Ok(self.first(dev, 0, window - straight, of(next))?.is_some())
    }

    /// The block at which the cycle number drops to `last`, by binary search.
    fn fall(&self, dev: &dyn BlockDev, last: u32) -> Result<u64> {
        let (mut before, mut from) = (0, self.blocks() - 1);
        while before + 1 < from {
            let middle = before + (from - before) / 2;
            if self.cycle(dev, middle)? == last {
                from = middle;
            } else {
                before = middle;
            }
        }
        Ok(from)
    }

    /// The head, or the start of the record before it if that does not end there.
    fn cut_partial(&self, dev: &dyn BlockDev, head: u64) -> Result<u64> {
        let Some((at, header)) = self.header_before(dev, head, RECORD_BLOCKS)? else {
            return Err(Error::damaged(head, "no record was found before its head"));
        };
        Ok(if header.blocks() == self.distance(at, head) { head } else { at })
    }

    /// Head and tail according to the last record before `head`.
    fn ends_at(&self, dev: &dyn BlockDev, head: u64) -> Result<Bounds> {
        let Some((last, header)) = self.header_before(dev, head, self.blocks())? else {
            return Err(Error::damaged(head, "no record was found before its head"));
        };
        // A log has less than 2^32 blocks.
        let at = Lsn::new(header.cycle, last as u32);
        let head = self.advance(
            at,
            match self.distance(last, head) {
                0 => self.blocks(),
                distance => distance,
            },
        );
        let clean = self.is_unmount(dev, last, &header, head.block().into())?;
        // A volume may get a new UUID while its log is clean. But the device of an external log may be that of
        // another volume, which would lose what it holds.
        if (!clean || self.is_external()) && header.fs_uuid != self.uuid() {
            return Err(Error::damaged(last, "its last record is another volume's"));
        }
        Ok(Bounds {
            state: if clean { State::Clean } else { State::Dirty },
            head,
            tail: if clean { head } else { header.tail_lsn },
            last,
            record_size: header.size,
            torn: None,
        })
    }

    pub(super) fn is_unmount(
        &self,
        dev: &dyn BlockDev,
        at: u64,
        header: &RecordHeader,
        head: u64,
    ) -> Result<bool> {
        if header.num_ops != 1 || self.wrap(at + header.blocks()) != head {
            return Ok(false);
        }
        let mut first = self.block(dev, self.wrap(at + u64::from(header.header_blocks())))?;
        header.restore_first_word(&mut first);
        Ok(is_unmount(&first))
    }

    /// The first of the last records before the head, which may have been in flight.
    fn in_flight(&self, dev: &dyn BlockDev, bounds: &Bounds) -> Result<u64> {
        let head = u64::from(bounds.head.block());
        // The record that names the tail may be damaged itself. Then only that record is checked.
        let tail = u64::from(bounds.tail.block());
        let (tail, count) = match tail < self.blocks() {
            true => (tail, IN_FLIGHT),
            false => (bounds.last, 1),
        };
        let mut from = head;
        for _ in 0..count {
            let within = self.distance(tail, from);
            match self.header_before(dev, from, within)? {
                Some((at, _)) => from = at,
                None => break,
            }
        }
        Ok(from)
    }

    /// The first record from `from` to `to` with a wrong checksum.
    fn first_bad(&self, dev: &dyn BlockDev, from: u64, to: u64) -> Result<Option<u64>> {
        match Walk::new(self, dev, from, to) {
            Ok(walk) => walk.first_bad(),
            Err(Error::Damaged { block, .. }) => Ok(Some(block)),
            Err(error) => Err(error),
        }
    }

    /// Checks that head and tail have the same cycle, or that the head is one cycle ahead.
    fn check_order(&self, bounds: &Bounds) -> Result<()> {
        let (head, tail) = (bounds.head, bounds.tail);
        let behind = head.cycle().wrapping_sub(tail.cycle());
        let fits = u64::from(tail.block()) < self.blocks()
            && match behind {
                0 => tail.block() <= head.block(),
                1 => head.block() <= tail.block(),
                _ => false,
            };
        if fits {
            return Ok(());
        }
        let problem = format!(
            "its head at {}:{} and its tail at {}:{} do not go together",
            head.cycle(),
            head.block(),
            tail.cycle(),
            tail.block()
        );
        Err(Error::damaged(head.block().into(), problem))
    }

    /// Checks the checksums from the tail on, up to the records from `sound` to the head, which are known to be
    /// sound. Where a torn write at the head may have hit the tail, the tail moves forward.
    fn verify_tail(&self, dev: &dyn BlockDev, bounds: &mut Bounds, sound: u64) -> Result<()> {
        let head = u64::from(bounds.head.block());
        let reach = IN_FLIGHT * u64::from(bounds.record_size).div_ceil(BASIC_BLOCK as u64);
        let mut tail = u64::from(bounds.tail.block());
        loop {
            // A tail that moved may be one of the sound records.
            let is_before = self.distance(tail, sound) <= self.distance(tail, head);
            let to = if is_before { sound } else { head };
            let Some(bad) = self.first_bad(dev, tail, to)? else { break };
            // Behind the head, as far as records that were on their way may have reached.
            if self.distance(head, bad) > reach {
                return Err(Error::damaged(bad, "a record that replay needs is damaged"));
            }
            let next = self.next_header(dev, self.wrap(bad + 1), head)?;
            tail = next.ok_or_else(|| Error::damaged(bad, "no record behind its tail is sound"))?;
        }
        if tail != u64::from(bounds.tail.block()) {
            let moved = self.distance(bounds.tail.block().into(), tail);
            bounds.tail = self.advance(bounds.tail, moved);
        }
        Ok(())
    }

    /// The first record header from `from` on, before `head`.
    fn next_header(&self, dev: &dyn BlockDev, from: u64, head: u64) -> Result<Option<u64>> {
        let magic = |block: &[u8; BASIC_BLOCK]| RecordHeader::parse(block).is_some();
        let count = self.distance(from, head);
        let straight = count.min(self.blocks() - from);
        if let Some(found) = self.first(dev, from, straight, magic)? {
            return Ok(Some(found));
        }
        self.first(dev, 0, count - straight, magic)
    }
}
