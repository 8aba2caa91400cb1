//! Targets of symbolic links. Each component of a path gets the name that a file of this name gets, so
//! links still lead where they led.

use uxfs_format::Daddr;
use uxfs_format::symlink::{HEADER_LEN, SymlinkHeader};
use uxfs_format::verify::{self, BufKind};

use super::rules::{Outcome, Scrub};
use crate::names::Kind;

impl Scrub<'_> {
    /// Changes a target.
    pub(super) fn target(&self, target: &mut [u8]) {
        target
            .split_mut(|byte| *byte == b'/')
            .for_each(|component| self.rename(component, Kind::File));
    }

    /// Changes the blocks of one target: each run of blocks, which has one header, with its address.
    pub(crate) fn link(&self, runs: &mut [(Daddr, Vec<u8>)]) -> Outcome {
        for at in 0..runs.len() {
            let (daddr, run) = &runs[at];
            let checked = verify::check(run, BufKind::Symlink, *daddr, self.geo);
            if let Err(problem) = checked {
                let withheld = runs.iter_mut().map(|(_, run)| self.withhold(run, HEADER_LEN)).sum();
                return Outcome::Damaged(problem, withheld);
            }
        }
        let part = |run: &[u8]| {
            let bytes = SymlinkHeader::view(run).bytes.get() as usize;
            HEADER_LEN..(HEADER_LEN.saturating_add(bytes)).min(run.len())
        };
        let mut target: Vec<u8> =
            runs.iter().flat_map(|(_, run)| &run[part(run)]).copied().collect();
        self.target(&mut target);
        let mut rest = target.as_slice();
        for (_, run) in runs {
            self.sealed(run, BufKind::Symlink, |run| {
                let range = part(run);
                let (own, behind) = rest.split_at(range.len());
                rest = behind;
                if !self.whole {
                    run[range.end..].fill(0);
                }
                run[range].copy_from_slice(own);
            });
        }
        Outcome::Fine
    }
}
