//! The header sectors of a group.

use uxfs_format::agf::Agf;
use uxfs_format::agi::Agi;
use uxfs_format::superblock::{self, Superblock};
use uxfs_format::verify::BufKind;
use uxfs_format::{AgBlock, Daddr, agfl, verify};

use super::rules::{HEADER_LEN, Outcome, Scrub};
use super::used::Used;

/// The bytes of a header sector that mean something.
pub(super) fn used(sector: &[u8], kind: BufKind) -> Used {
    let len = match kind {
        BufKind::Agf => size_of::<Agf>(),
        BufKind::Agi => size_of::<Agi>(),
        _ => Superblock::view(sector).map_or(0, |sb| superblock::used_len(sb.incompat())),
    };
    Used::up_to(len)
}

impl Scrub<'_> {
    /// Changes a list of free blocks, whose bounds are in the group's AGF. Slots that are not in use
    /// become null. Without bounds all slots stay: they hold no names.
    pub(crate) fn free_list(&self, sector: &mut [u8], daddr: Daddr, agf: Option<&Agf>) -> Outcome {
        if let Err(problem) = verify::check(sector, BufKind::Agfl, daddr, self.geo) {
            return Outcome::Damaged(problem, self.withhold(sector, HEADER_LEN));
        }
        let Some(agf) = agf.filter(|_| !self.whole) else { return Outcome::Fine };
        self.sealed(sector, BufKind::Agfl, |sector| {
            let slots = agfl::slots(sector.len());
            let (first, count) = (agf.flfirst.get(), agf.flcount.get());
            for slot in 0..slots {
                let behind =
                    (u64::from(slot) + u64::from(slots) - u64::from(first)) % u64::from(slots);
                if behind >= count.into() {
                    agfl::slot_at(slot).set(sector, AgBlock::NULL);
                }
            }
            let end = agfl::slot_at(slots).offset();
            sector.get_mut(end..).unwrap_or_default().fill(0);
        });
        Outcome::Fine
    }
}
