//! Finds the end of the log of a volume that was unmounted, by the LSN in its superblock: in one or two reads,
//! where the search by cycle numbers takes twenty, and a scan of 2 MiB for holes. Reads cost most where the
//! volume is far away.
//!
//! The superblock is written in place shortly before the unmount record is written, so the record follows its
//! LSN. What is found this way is the end of the log if all of this holds:
//!
//! 1. From the superblock's LSN on all blocks have its cycle number, and the next block has the one before.
//! 2. The last record before that block is an unmount record that ends there. Its checksum, its LSN and the
//!    volume's UUID are right.
//!
//! Nothing in the log is newer than this record: a later record would have begun in the block behind it, which
//! is older. Records in flight behind a hole there count for nothing. And nothing before it is missing: an
//! unmount record is written when everything else is on disk, so there are no holes. In all other cases
//! [`Log::find`] searches the whole log.
//!
//! Called by [`Log::find`] and [`Log::state`].

use uxfs_disk::BlockDev;
use uxfs_format::log::{HEADER_SPAN, RECORD_SIZE_MAX, bump, cycle_of};
use uxfs_format::{BASIC_BLOCK, Lsn};

use crate::recovery::area::Log;
use crate::recovery::error::{Error, Result};
use crate::recovery::find::{Bounds, State, WINDOW};
use crate::recovery::walk::Walk;

/// Most header blocks of a record.
const HEADER_BLOCKS: u64 = (RECORD_SIZE_MAX / HEADER_SPAN) as u64;

impl Log {
    /// The end of the log, if the superblock's LSN leads to an unmount record.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn unmounted(&self, dev: &dyn BlockDev) -> Result<Option<Bounds>> {
        let (cycle, from) = (self.hint().cycle(), u64::from(self.hint().block()));
        if cycle == 0 || from >= self.blocks() {
            return Ok(None);
        }
        let count = WINDOW.min(self.blocks() - from);
        let Some(head) = self.first(dev, from, count, |block| cycle_of(block) != cycle)? else {
            return Ok(None);
        };
        if head == from || bump(self.cycle(dev, head)?) != cycle {
            return Ok(None);
        }
        match self.unmount_record(dev, cycle, head) {
            Err(Error::Damaged { .. }) => Ok(None),
            other => other,
        }
    }

    /// The unmount record of this cycle that ends at `head`.
    fn unmount_record(&self, dev: &dyn BlockDev, cycle: u32, head: u64) -> Result<Option<Bounds>> {
        let longest = HEADER_BLOCKS + (self.unit() / BASIC_BLOCK) as u64;
        let Some((last, header)) = self.header_before(dev, head, longest)? else { return Ok(None) };
        // A log has less than 2^32 blocks.
        let is_its_own =
            header.lsn == Lsn::new(cycle, last as u32) && header.fs_uuid == self.uuid();
        // mkfs writes a record without a checksum.
        let is_whole = header.crc != 0 && Walk::new(self, dev, last, head)?.first_bad()?.is_none();
        if !is_its_own || !is_whole || !self.is_unmount(dev, last, &header, head)? {
            return Ok(None);
        }
        let head = Lsn::new(cycle, head as u32);
        let record_size = header.size;
        Ok(Some(Bounds { state: State::Clean, head, tail: head, last, record_size, torn: None }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uxfs_disk::Overlay;
    use uxfs_format::log::{RecordHeader, checksum};
    use uxfs_testkit::Rng;

    use super::*;
    use crate::recovery::mark_clean;
    use crate::recovery::tests::{Volume, volume};

    const LINES: [&[(char, &str)]; 4] =
        [&[], &[('l', "su=32k")], &[('b', "size=1k"), ('l', "su=4k")], &[('l', "su=64k")]];

    /// A volume that was changed and unmounted after `turns` changes of random size: where its last change
    /// began, and the ends of its log.
    fn unmounted(line: &[(char, &str)], rng: &mut Rng, turns: u64) -> (Volume, Lsn, Bounds) {
        let volume = volume(line);
        let mut bounds = volume.log.find(&*volume.dev).unwrap();
        let mut before = bounds.head;
        for number in 0..turns {
            before = bounds.head;
            mark_clean::clear_stale(&volume.log, &*volume.dev, &bounds).unwrap();
            let items = volume.items(number, rng.below(60));
            bounds = mark_clean::write_redo(&volume.log, &*volume.dev, &bounds, &items).unwrap();
            if number + 1 == turns || rng.below(3) == 0 {
                bounds = mark_clean::write_unmount(&volume.log, &*volume.dev, &bounds).unwrap();
            }
        }
        (volume, before, bounds)
    }

    fn ends(bounds: &Bounds) -> (State, Lsn, Lsn, u64) {
        (bounds.state, bounds.head, bounds.tail, bounds.last)
    }

    #[test]
    fn the_hint_finds_what_the_search_finds() {
        let mut rng = Rng::new(1);
        let mut found = 0;
        for round in 0..60 {
            let line = LINES[round % LINES.len()];
            let turns = 1 + rng.below(25);
            let (volume, before, _) = unmounted(line, &mut rng, turns);
            let searched = volume.log.find(&*volume.dev).unwrap();
            let hinted = volume.log.with_hint(before).unmounted(&*volume.dev).unwrap();
            // Not where the last change or the end lies across the end of the log.
            if let Some(hinted) = hinted {
                assert_eq!(ends(&hinted), ends(&searched), "round {round}");
                assert_eq!(hinted.record_size, searched.record_size);
                found += 1;
            }
            // Any other LSN finds the same or nothing.
            for _ in 0..20 {
                let any = Lsn::new(
                    before.cycle().wrapping_add(rng.below(3) as u32).wrapping_sub(1),
                    rng.below(volume.log.blocks() + 9) as u32,
                );
                if let Some(hinted) = volume.log.with_hint(any).unmounted(&*volume.dev).unwrap() {
                    assert_eq!(ends(&hinted), ends(&searched), "round {round}, {any:?}");
                }
            }
        }
        assert!(found > 50, "{found} of 60");
    }

    #[test]
    fn a_damaged_record_is_no_end() {
        let mut rng = Rng::new(2);
        for line in LINES {
            let (volume, before, bounds) = unmounted(line, &mut rng, 3);
            let log = volume.log.with_hint(before);
            assert!(log.unmounted(&*volume.dev).unwrap().is_some());
            let header = RecordHeader::parse(&log.block(&*volume.dev, bounds.last).unwrap());
            let header = header.unwrap();
            let blocks = header.blocks();
            let mut refused = 0;
            for _ in 0..100 {
                let dev = Overlay::new(Arc::clone(&volume.dev), 1 << 20);
                let block = log.wrap(bounds.last + rng.below(blocks));
                let mut bytes = log.block(&dev, block).unwrap();
                bytes[rng.below(BASIC_BLOCK as u64) as usize] ^= 1 << rng.below(8);
                log.write(&dev, block, &bytes).unwrap();
                let mut record = vec![0; blocks as usize * BASIC_BLOCK];
                log.read(&dev, bounds.last, &mut record).unwrap();
                let (headers, data) =
                    record.split_at(header.header_blocks() as usize * BASIC_BLOCK);
                let is_damaged = checksum(headers, &data[..header.len as usize]) != header.crc;
                match log.unmounted(&dev).unwrap() {
                    Some(found) => {
                        assert_eq!(ends(&found), ends(&bounds), "block {block} of {line:?}");
                        assert!(!is_damaged, "block {block} of {line:?}");
                    }
                    None => refused += 1,
                }
            }
            assert!(refused > 20, "{refused} of 100 of {line:?}");
        }
    }

    #[test]
    fn a_record_with_changes_behind_it_is_no_end() {
        let mut rng = Rng::new(3);
        for line in LINES {
            let (volume, before, bounds) = unmounted(line, &mut rng, 3);
            let log = volume.log.with_hint(before);
            mark_clean::clear_stale(&log, &*volume.dev, &bounds).unwrap();
            let items = volume.items(9, 1);
            let changed = mark_clean::write_redo(&log, &*volume.dev, &bounds, &items).unwrap();
            assert!(log.unmounted(&*volume.dev).unwrap().is_none());
            let found = log.find(&*volume.dev).unwrap();
            assert_eq!((found.state, found.head), (State::Dirty, changed.head));
        }
    }

    /// An unmount record that was written elsewhere, or for another cycle, or is not sealed.
    #[test]
    fn a_record_of_another_place_is_no_end() {
        for (what, wrong) in [
            ("its block", Lsn::new(1, 40)),
            ("its cycle", Lsn::new(7, 0)),
            ("no checksum", Lsn::new(0, 0)),
        ] {
            let (volume, before, bounds) = unmounted(&[], &mut Rng::new(4), 3);
            let log = volume.log.with_hint(before);
            let header = RecordHeader::parse(&log.block(&*volume.dev, bounds.last).unwrap());
            let header = header.unwrap();
            let mut record = vec![0; header.blocks() as usize * BASIC_BLOCK];
            log.read(&*volume.dev, bounds.last, &mut record).unwrap();
            let mut lsn = Lsn::new(header.cycle, bounds.last as u32);
            match what {
                "its block" => lsn = Lsn::new(lsn.cycle(), wrong.block()),
                "its cycle" => lsn = Lsn::new(wrong.cycle(), lsn.block()),
                _ => {}
            }
            record[16..24].copy_from_slice(&lsn.0.to_be_bytes());
            let (headers, data) = record.split_at(header.header_blocks() as usize * BASIC_BLOCK);
            let crc = match what {
                "no checksum" => 0,
                _ => checksum(headers, &data[..header.len as usize]),
            };
            record[32..36].copy_from_slice(&crc.to_le_bytes());
            log.write(&*volume.dev, bounds.last, &record).unwrap();
            assert!(log.unmounted(&*volume.dev).unwrap().is_none(), "{what}");
        }
    }

    /// The block behind the record must be of the cycle before: what is newer, or much older, is not explained by
    /// an unmount.
    #[test]
    fn the_block_behind_the_record_is_of_the_cycle_before() {
        let (volume, before, bounds) = unmounted(&[], &mut Rng::new(5), 3);
        let log = volume.log.with_hint(before);
        for (cycle, fits) in [(0, true), (1, false), (2, false), (9, false)] {
            let dev = Overlay::new(Arc::clone(&volume.dev), 1 << 20);
            let mut bytes = [0; BASIC_BLOCK];
            bytes[..4].copy_from_slice(&u32::to_be_bytes(cycle));
            log.write(&dev, bounds.head.block().into(), &bytes).unwrap();
            assert_eq!(log.unmounted(&dev).unwrap().is_some(), fits, "cycle {cycle}");
        }
    }
}
