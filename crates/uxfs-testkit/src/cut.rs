//! Power cuts: the states that a recorded run may have left on the disk.
//!
//! 1. A state holds all writes before the last flush before the cut, and all forced writes before
//!    the cut.
//! 2. Of the other writes before the cut, any may be missing, be there in part, and be reordered. A
//!    sector is there whole or not at all.
//! 3. A state holds nothing that was written after the cut.

use std::ops::Range;

use uxfs_disk::{BlockDev, MemDev};

use crate::{Event, Rng};

/// Most copies of the disk that a recording keeps. Between two of them, writes are applied again.
const COPIES_MAX: usize = 256;

/// A recorded run, and the disk after its flushes.
pub struct Recording<M = ()> {
    events: Vec<Event<M>>,
    /// The index of the first event, and of the event after each flush.
    durable: Vec<usize>,
    /// The disk before some of these events, by their index.
    copies: Vec<(usize, MemDev)>,
    /// Unit of bytes that is written atomically.
    sector: usize,
}

/// A write that no flush covered and that reached the disk all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Survivor {
    /// Index of the write among the events.
    pub event: usize,
    /// The sectors of the write that reached the disk; `None` for all.
    pub sectors: Option<Vec<Range<usize>>>,
}

impl Survivor {
    /// All of a write.
    pub fn whole(event: usize) -> Self {
        Self { event, sectors: None }
    }
}

impl<M> Recording<M> {
    /// A run that started with the disk `before`. Units of `sector` bytes are written atomically.
    pub fn new(before: MemDev, events: Vec<Event<M>>, sector: usize) -> Self {
        let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
        let step = flushes.div_ceil(COPIES_MAX).max(1);
        let mut durable = vec![0];
        let mut copies = vec![(0, before.clone())];
        let disk = before;
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Write { offset, data, .. } => write(&disk, *offset, data),
                Event::Flush => {
                    durable.push(at + 1);
                    if durable.len() % step == 0 {
                        copies.push((at + 1, disk.clone()));
                    }
                }
                Event::Mark(_) => {}
            }
        }
        Self { events, durable, copies, sector }
    }

    /// The same run on a disk that writes units of `sector` bytes atomically.
    #[must_use]
    pub fn with_sector(mut self, sector: usize) -> Self {
        self.sector = sector;
        self
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

    /// Bytes that are written atomically.
    pub fn sector(&self) -> usize {
        self.sector
    }

    /// The marks before event `at`, latest first.
    pub fn marks_before(&self, at: usize) -> impl Iterator<Item = &M> {
        self.events[..at].iter().rev().filter_map(|event| match event {
            Event::Mark(mark) => Some(mark),
            _ => None,
        })
    }

    /// The events that no flush covers when the power fails before event `at`.
    pub fn window(&self, at: usize) -> Range<usize> {
        let index = self.durable.partition_point(|first| *first <= at) - 1;
        self.durable[index]..at
    }

    /// The writes that a cut before event `at` puts at risk.
    pub fn at_risk(&self, at: usize) -> Vec<usize> {
        let plain = |at: &usize| matches!(self.events[*at], Event::Write { fua: false, .. });
        self.window(at).filter(plain).collect()
    }

    /// The number of sectors of a write; 0 for other events.
    pub fn sectors(&self, event: usize) -> usize {
        match &self.events[event] {
            Event::Write { data, .. } => data.len().div_ceil(self.sector),
            _ => 0,
        }
    }

    /// A random moment for a cut: before any event, half of them close to a flush, where most is at
    /// risk.
    pub fn choose(&self, rng: &mut Rng) -> usize {
        if rng.once_in(2) {
            return rng.below(self.len() as u64 + 1) as usize;
        }
        let flush = self.durable[rng.below(self.durable.len() as u64) as usize];
        (flush + rng.below(4) as usize).saturating_sub(2).min(self.len())
    }

    /// A random state after a cut before event `at`.
    pub fn cut(&self, at: usize, rng: &mut Rng) -> MemDev {
        self.state(at, &self.survivors(at, rng))
    }

    /// The writes of a random state after a cut before event `at`.
    pub fn survivors(&self, at: usize, rng: &mut Rng) -> Vec<Survivor> {
        let pending = self.at_risk(at);
        let mode = rng.below(6);
        let missing = rng.below(pending.len().max(1) as u64) as usize;
        let mut kept: Vec<usize> = Vec::new();
        for (at, &event) in pending.iter().enumerate() {
            let keep = match mode {
                0 => true,
                1 => false,
                2 => at < missing,
                3 => at != missing,
                4 => at == missing,
                _ => rng.once_in(2),
            };
            if keep {
                kept.push(event);
            }
        }
        // Writes to the same place may be reordered.
        if rng.once_in(3) {
            for at in (1..kept.len()).rev() {
                kept.swap(at, rng.below(at as u64 + 1) as usize);
            }
        }
        kept.into_iter().map(|event| self.torn_at_times(event, rng)).collect()
    }

    /// A write, whole or some sectors of it.
    fn torn_at_times(&self, event: usize, rng: &mut Rng) -> Survivor {
        let Event::Write { data, .. } = &self.events[event] else { return Survivor::whole(event) };
        let torn = data.len() > self.sector && rng.once_in(4);
        if !torn {
            return Survivor::whole(event);
        }
        let prefix = rng.once_in(2);
        let sectors = self.sectors(event);
        let end = rng.below(sectors as u64) as usize;
        let mut kept: Vec<Range<usize>> = Vec::new();
        for at in 0..sectors {
            if if prefix { at < end } else { rng.once_in(2) } {
                match kept.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => kept.push(at..at + 1),
                }
            }
        }
        Survivor { event, sectors: Some(kept) }
    }

    /// The disk after a cut before event `at` when exactly these of the writes at risk reached it, in
    /// this order.
    pub fn state(&self, at: usize, survivors: &[Survivor]) -> MemDev {
        let window = self.window(at);
        let index = self.copies.partition_point(|(first, _)| *first <= window.start) - 1;
        let (first, disk) = &self.copies[index];
        let disk = disk.clone();
        let apply = |event: &Event<M>| {
            if let Event::Write { offset, data, .. } = event {
                write(&disk, *offset, data);
            }
        };
        self.events[*first..window.start].iter().for_each(apply);
        for Survivor { event, sectors } in survivors {
            let Event::Write { offset, data, .. } = &self.events[*event] else { continue };
            let all = std::slice::from_ref(&(0..usize::MAX));
            for range in sectors.as_deref().unwrap_or(all) {
                let bytes = |sectors: usize| sectors.saturating_mul(self.sector).min(data.len());
                let (start, end) = (bytes(range.start), bytes(range.end));
                write(&disk, offset + start as u64, &data[start..end]);
            }
        }
        // Later writes to the same place are then lost, which is allowed.
        let forced = |event: &&Event<M>| matches!(event, Event::Write { fua: true, .. });
        self.events[window].iter().filter(forced).for_each(apply);
        disk
    }
}

fn write(disk: &MemDev, offset: u64, data: &[u8]) {
    // Recorded writes lie inside the device.
    let _inside = disk.write_at(offset, data);
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

    #[test]
    fn a_state_holds_exactly_the_survivors_in_their_order() {
        let run = run();
        assert_eq!((run.window(7), run.at_risk(7)), (3..7, vec![3, 5, 6]));
        assert_eq!((run.sectors(3), run.sectors(2), run.window(2)), (2, 0, 0..2));
        let one = Survivor { event: 3, sectors: Some(std::iter::once(1..2).collect()) };
        assert_eq!(sectors(&run.state(7, &[])), [1, 0, 0, 3, 0, 0]);
        assert_eq!(sectors(&run.state(7, &[one, Survivor::whole(5)])), [1, 0, 2, 3, 4, 0]);
        let swapped = [Survivor::whole(6), Survivor::whole(5)];
        assert_eq!(sectors(&run.state(7, &swapped)), [1, 0, 0, 3, 4, 0]);
    }

    /// Few copies of the disk are kept, and the states do not show it.
    #[test]
    fn states_between_two_copies_are_complete() {
        let before = MemDev::new(SECTOR as u64);
        let dev = RecordDev::<_, ()>::new(before.clone());
        for byte in 0..COPIES_MAX * 5 {
            dev.write_at(byte as u64 % 512, &[byte as u8]).unwrap();
            dev.flush().unwrap();
        }
        let run = Recording::new(before.clone(), dev.take(), SECTOR);
        assert!(run.copies.len() <= COPIES_MAX + 1);
        let shown = |disk: &MemDev| {
            let mut bytes = [0; SECTOR];
            disk.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let expected = before;
        for at in (0..run.len()).step_by(2) {
            assert_eq!(shown(&run.state(at, &[])), shown(&expected), "before event {at}");
            expected.write_at(at as u64 / 2 % 512, &[(at / 2) as u8]).unwrap();
        }
    }
}
