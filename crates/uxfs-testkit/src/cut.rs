//! Power cuts: the states that a recorded run may have left on the disk.
//!
//! 1. A state holds all writes before the last flush before the cut, and all forced writes before
//!    the cut.
//! 2. Of the other writes before the cut, any may be missing, be there in part, and be reordered. A
//!    sector is there whole or not at all.
//! 3. A state holds nothing that was written after the cut.

use std::sync::Arc;

use uxfs_disk::{BlockDev, MemDev};

use crate::{Event, Rng};

/// A recorded run, and the disk after every flush.
pub struct Recording<M = ()> {
    events: Vec<Event<M>>,
    /// The disk before the run and after each flush, with the index of the next event.
    durable: Vec<(usize, MemDev)>,
    /// Unit of bytes that is written atomically.
    sector: usize,
}

impl<M> Recording<M> {
    /// A run that started with the disk `before`. Units of `sector` bytes are written atomically.
    pub fn new(before: MemDev, events: Vec<Event<M>>, sector: usize) -> Self {
        let mut durable = vec![(0, before.clone())];
        let disk = before;
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Write { offset, data, .. } => write(&disk, *offset, data),
                Event::Flush => durable.push((at + 1, disk.clone())),
                Event::Mark(_) => {}
            }
        }
        Self { events, durable, sector }
    }

    /// Number of events. A cut may fall before each of them, and after the last.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Did nothing happen?
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn events(&self) -> &[Event<M>] {
        &self.events
    }

    /// The marks before event `at`, latest first.
    pub fn marks_before(&self, at: usize) -> impl Iterator<Item = &M> {
        self.events[..at].iter().rev().filter_map(|event| match event {
            Event::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// A random moment for a cut: before any event, half of them close to a flush, where most is at
    /// risk.
    pub fn choose(&self, rng: &mut Rng) -> usize {
        if rng.once_in(2) {
            return rng.below(self.len() as u64 + 1) as usize;
        }
        let flush = self.durable[rng.below(self.durable.len() as u64) as usize].0;
        (flush + rng.below(4) as usize).saturating_sub(2).min(self.len())
    }

    /// A random state after a cut before event `at`.
    pub fn cut(&self, at: usize, rng: &mut Rng) -> MemDev {
        let index = self.durable.partition_point(|(first, _)| *first <= at) - 1;
        let (first, disk) = &self.durable[index];
        let disk = disk.clone();
        let (mut pending, mut forced) = (Vec::new(), Vec::new());
        for event in &self.events[*first..at] {
            if let Event::Write { offset, data, fua } = event {
                let which = if *fua { &mut forced } else { &mut pending };
                which.push((*offset, Arc::clone(data)));
            }
        }
        lose_some(&disk, &pending, self.sector, rng);
        // Later writes to the same place are then lost, which is allowed.
        forced.iter().for_each(|(offset, data)| write(&disk, *offset, data));
        disk
    }
}

fn write(disk: &MemDev, offset: u64, data: &[u8]) {
    // Recorded writes lie inside the device.
    let _inside = disk.write_at(offset, data);
}

/// Applies some of the writes that no flush covers, each whole or in part.
fn lose_some(disk: &MemDev, pending: &[(u64, Arc<[u8]>)], sector: usize, rng: &mut Rng) {
    let mode = rng.below(6);
    let missing = rng.below(pending.len().max(1) as u64) as usize;
    let mut kept: Vec<&(u64, Arc<[u8]>)> = Vec::new();
    for (at, entry) in pending.iter().enumerate() {
        let keep = match mode {
            0 => true,
            1 => false,
            2 => at < missing,
            3 => at != missing,
            4 => at == missing,
            _ => rng.once_in(2),
        };
        if keep {
            kept.push(entry);
        }
    }
    // Writes to the same place may be reordered.
    if rng.once_in(3) {
        for at in (1..kept.len()).rev() {
            kept.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    for (offset, data) in kept {
        let torn = data.len() > sector && rng.once_in(4);
        if !torn {
            write(disk, *offset, data);
            continue;
        }
        let prefix = rng.once_in(2);
        let sectors = data.len().div_ceil(sector) as u64;
        let end = rng.below(sectors);
        for (at, piece) in data.chunks(sector).enumerate() {
            if if prefix { (at as u64) < end } else { rng.once_in(2) } {
                write(disk, offset + (at * sector) as u64, piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::RecordDev;

    const SECTOR: usize = 512;

    /// One byte of each of the sectors that the run below writes.
    fn sectors(disk: &MemDev) -> [u8; 6] {
        let mut bytes = vec![0; 6 * SECTOR];
        disk.read_at(0, &mut bytes).unwrap();
        let sectors: Vec<&[u8]> = bytes.chunks(SECTOR).collect();
        assert!(sectors.iter().all(|s| s.iter().all(|b| *b == s[0])), "a sector is torn");
        core::array::from_fn(|at| sectors[at][0])
    }

    /// Sector 0 is flushed; 1 and 2 are one write; 3 is forced; 4 is written twice; then a mark;
    /// sector 5 is written after it.
    fn run() -> Recording<&'static str> {
        let before = MemDev::new(6 * SECTOR as u64);
        let dev = RecordDev::new(before.clone()).with_fua(true);
        let at = |sector: usize| (sector * SECTOR) as u64;
        dev.write_at(0, &[1; SECTOR]).unwrap();
        dev.mark("first");
        dev.flush().unwrap();
        dev.write_at(at(1), &[2; 2 * SECTOR]).unwrap();
        dev.write_fua_at(at(3), &[3; SECTOR]).unwrap();
        dev.write_at(at(4), &[4; SECTOR]).unwrap();
        dev.write_at(at(4), &[5; SECTOR]).unwrap();
        dev.mark("second");
        dev.write_at(at(5), &[6; SECTOR]).unwrap();
        Recording::new(before, dev.take(), SECTOR)
    }

    #[test]
    fn durable_writes_are_in_every_state_and_others_may_be_missing() {
        let run = run();
        let mark = 7;
        let mut rng = Rng::new(1);
        let states: BTreeSet<_> = (0..4000).map(|_| sectors(&run.cut(mark, &mut rng))).collect();
        assert!(states.iter().all(|state| (state[0], state[3], state[5]) == (1, 3, 0)));
        // The write of two sectors: both, each alone, none.
        let pairs: BTreeSet<_> = states.iter().map(|state| (state[1], state[2])).collect();
        assert_eq!(pairs, BTreeSet::from([(0, 0), (0, 2), (2, 0), (2, 2)]));
        // The sector that was written twice: either, as writes are reordered, or none.
        assert_eq!(states.iter().map(|s| s[4]).collect::<BTreeSet<_>>(), [0, 4, 5].into());
        assert_eq!(states.len(), 12, "every combination");
    }

    #[test]
    fn before_the_flush_even_the_first_write_may_be_missing() {
        let (run, mut rng) = (run(), Rng::new(2));
        let states: BTreeSet<_> = (0..200).map(|_| sectors(&run.cut(2, &mut rng))[0]).collect();
        assert_eq!(states, [0, 1].into());
        assert_eq!(sectors(&run.cut(3, &mut rng)), [1, 0, 0, 0, 0, 0]);
        assert_eq!(sectors(&run.cut(0, &mut rng)), [0; 6]);
    }

    #[test]
    fn marks_and_moments() {
        let (run, mut rng) = (run(), Rng::new(3));
        assert_eq!(run.marks_before(run.len()).collect::<Vec<_>>(), [&"second", &"first"]);
        assert_eq!(run.marks_before(7).collect::<Vec<_>>(), [&"first"]);
        assert_eq!(run.marks_before(1).count(), 0);
        let chosen: BTreeSet<_> = (0..1000).map(|_| run.choose(&mut rng)).collect();
        assert_eq!(chosen, (0..=run.len()).collect());
        assert!(!run.is_empty() && run.events().len() == run.len());
    }

    /// The same seed, the same state.
    #[test]
    fn a_seed_repeats_its_states() {
        let run = run();
        let states = |seed| {
            let mut rng = Rng::new(seed);
            (0..50).map(|_| sectors(&run.cut(9, &mut rng))).collect::<Vec<_>>()
        };
        assert_eq!(states(4), states(4));
        assert_ne!(states(4), states(5));
    }
}
