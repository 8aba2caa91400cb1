//! The states of a workload's disk after a power cut, with what the workload knew by then.

use uxfs_disk::MemDev;
use uxfs_testkit::Rng;

/// A workload's marks between the events of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It began this step.
    Step(usize),
    /// Everything up to this step was acknowledged as durable.
    Durable(usize),
}

/// An event of a workload's device.
pub type Event = uxfs_testkit::Event<Mark>;
/// A workload's device.
pub type RecordDev = uxfs_testkit::RecordDev<MemDev, Mark>;
/// A workload's run.
pub type Recording = uxfs_testkit::Recording<Mark>;

/// The random numbers of a workload and its power cuts. They differ from those that other tools
/// draw from the same seed.
pub fn rng(seed: u64) -> Rng {
    Rng::keyed(seed, 0x6a09_e667_f3bc_c909)
}

/// The state after a cut.
pub struct Cut {
    pub disk: MemDev,
    /// Number of the event before which the power failed.
    pub at: usize,
    /// Last step that was acknowledged as durable.
    pub durable: usize,
    /// Last step that had begun.
    pub begun: usize,
}

impl Cut {
    /// A random state after a cut before event `at`.
    pub fn of(run: &Recording, at: usize, rng: &mut Rng) -> Self {
        let disk = run.cut(at, rng);
        let last = |pick: fn(&Mark) -> Option<usize>| run.marks_before(at).find_map(pick);
        let durable = last(|mark| if let Mark::Durable(step) = mark { Some(*step) } else { None });
        let begun = last(|mark| if let Mark::Step(step) = mark { Some(*step) } else { None });
        Self { disk, at, durable: durable.unwrap_or(0), begun: begun.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use uxfs_disk::BlockDev;

    use super::*;

    #[test]
    fn a_cut_reports_only_marks_before_it() {
        let before = MemDev::new(4096);
        let dev = RecordDev::new(before.clone());
        dev.mark(Mark::Step(1));
        dev.write_at(0, &[1]).unwrap();
        dev.mark(Mark::Step(2));
        dev.mark(Mark::Durable(1));
        dev.flush().unwrap();
        let run = Recording::new(before, dev.take(), 512);
        let known = |at| {
            let cut = Cut::of(&run, at, &mut rng(1));
            (cut.at, cut.begun, cut.durable)
        };
        assert_eq!([0, 1, 3, 4].map(known), [(0, 0, 0), (1, 1, 0), (3, 2, 0), (4, 2, 1)]);
    }
}
