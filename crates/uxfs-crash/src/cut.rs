//! Power cuts: the states that a recorded run may have left on the disk.

use std::sync::Arc;

use uxfs::disk::BlockDev;

use crate::pages::Pages;
use crate::record::Event;
use crate::rng::Rng;

/// A recorded run, and the disk after every flush.
pub struct Recording {
    events: Vec<Event>,
    /// The disk before the run and after each flush, with the index of the next event.
    safe: Vec<(usize, Pages)>,
    /// Unit of bytes that is written atomically.
    sector: usize,
}

/// The state after a cut.
pub struct Cut {
    /// The content of the disk.
    pub disk: Pages,
    /// Number of the event before which the power failed.
    pub at: usize,
    /// Last step that was acknowledged as durable.
    pub durable: usize,
    /// Last step that had begun.
    pub begun: usize,
}

impl Recording {
    /// A run that started with the disk `before`. Units of `sector` bytes are written atomically.
    pub fn new(before: Pages, events: Vec<Event>, sector: usize) -> Self {
        let mut safe = vec![(0, before.clone())];
        let disk = before;
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Write { offset, data, .. } => write(&disk, *offset, data),
                Event::Flush => safe.push((at + 1, disk.clone())),
                Event::Step(_) | Event::Durable(_) => {}
            }
        }
        Self { events, safe, sector }
    }

    /// Number of events.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// A random moment for a cut: before any event, half of them close to a flush, where most is at
    /// risk.
    pub fn choose(&self, rng: &mut Rng) -> usize {
        if rng.one_in(2) {
            return rng.below(self.len() as u64 + 1) as usize;
        }
        let flush = self.safe[rng.below(self.safe.len() as u64) as usize].0;
        (flush + rng.below(4) as usize).saturating_sub(2).min(self.len())
    }

    /// A random state after a cut before event `at`.
    pub fn cut(&self, at: usize, rng: &mut Rng) -> Cut {
        let index = self.safe.partition_point(|(first, _)| *first <= at) - 1;
        let (first, disk) = &self.safe[index];
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
        let last = |pick: fn(&Event) -> Option<usize>| {
            self.events[..at].iter().rev().find_map(pick).unwrap_or(0)
        };
        let durable = last(|e| if let Event::Durable(step) = e { Some(*step) } else { None });
        let begun = last(|e| if let Event::Step(step) = e { Some(*step) } else { None });
        Cut { disk, at, durable, begun }
    }
}

fn write(disk: &Pages, offset: u64, data: &[u8]) {
    // Recorded writes lie inside the device.
    let _inside = disk.write_at(offset, data);
}

/// Applies some of the writes that no flush covers, each whole or in part.
fn lose_some(disk: &Pages, pending: &[(u64, Arc<[u8]>)], sector: usize, rng: &mut Rng) {
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
            _ => rng.one_in(2),
        };
        if keep {
            kept.push(entry);
        }
    }
    // Writes to the same place may be reordered.
    if rng.one_in(3) {
        for at in (1..kept.len()).rev() {
            kept.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    for (offset, data) in kept {
        let torn = data.len() > sector && rng.one_in(4);
        if !torn {
            write(disk, *offset, data);
            continue;
        }
        let prefix = rng.one_in(2);
        let sectors = data.len().div_ceil(sector) as u64;
        let end = rng.below(sectors);
        for (at, piece) in data.chunks(sector).enumerate() {
            if if prefix { (at as u64) < end } else { rng.one_in(2) } {
                write(disk, offset + (at * sector) as u64, piece);
            }
        }
    }
}
