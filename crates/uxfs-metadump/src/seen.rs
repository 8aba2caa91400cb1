//! The sectors of a volume that are in the dump already.
//!
//! A bit for each sector, in pages that exist only where metadata is.

use rustc_hash::FxHashMap;
use uxfs_format::Daddr;

const WORDS: usize = 8;
const PAGE: u64 = 64 * WORDS as u64;

/// A set of sectors.
#[derive(Default)]
pub(crate) struct Seen {
    pages: FxHashMap<u64, [u64; WORDS]>,
}

impl Seen {
    /// Adds `count` sectors from `daddr` on. `false` if one of them is in the set already; then none is
    /// added.
    pub(crate) fn add(&mut self, daddr: Daddr, count: u64) -> bool {
        let sectors = daddr.0..daddr.0 + count;
        if sectors.clone().any(|sector| self.has(sector)) {
            return false;
        }
        for sector in sectors {
            let (page, word, bit) = place(sector);
            self.pages.entry(page).or_default()[word] |= bit;
        }
        true
    }

    fn has(&self, sector: u64) -> bool {
        let (page, word, bit) = place(sector);
        self.pages.get(&page).is_some_and(|words| words[word] & bit != 0)
    }
}

fn place(sector: u64) -> (u64, usize, u64) {
    (sector / PAGE, (sector % PAGE / 64) as usize, 1 << (sector % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_added_once() {
        let mut seen = Seen::default();
        assert!(seen.add(Daddr(500), 40));
        assert!(!seen.add(Daddr(539), 8));
        assert!(seen.add(Daddr(540), 8), "nothing was added by what failed");
        assert!(!seen.add(Daddr(500), 1));
        assert!(seen.add(Daddr(499), 1));
        assert!(seen.add(Daddr(u64::MAX / 512), 8));
    }
}
