//! What is remembered of a directory beside its inode: never on disk, and right or harmless.
//!
//! 1. Where its blocks lie, once looked up, for maps that are a btree. Kept in step by
//!    [`crate::dabuf`], through which all blocks of directories come and go. A copy of the inode's
//!    state, such as the one that a cancelled change goes back to, starts without it.
//! 2. Offsets below which the data and the leaf part have no holes, and the data block that last
//!    had room. They are part of the state: a cancelled change puts them back.

use rustc_hash::FxHashMap;
use uxfs_format::{Daddr, FileBlock, Geometry};
use uxfs_sync::Mutex;

/// What is remembered of a directory.
#[derive(Clone, Default)]
pub(crate) struct Hints {
    /// Number of the data block that last had room for an entry.
    pub(crate) room: u32,
    /// Offsets below which there is no hole in the data part and in the leaf part; 0 if not known.
    full: [u64; 2],
    /// Where blocks lie that are in one piece.
    pub(crate) places: Places,
}

impl Hints {
    /// The part that offset `at` lies in, by the number of its hint, and the part's start.
    fn part(geo: &Geometry, at: FileBlock) -> Option<(usize, FileBlock)> {
        let (leaf, free) = (geo.dir_leaf_start(), geo.dir_free_start());
        match at {
            _ if at < leaf => Some((0, FileBlock(0))),
            _ if at < free => Some((1, leaf)),
            _ => None,
        }
    }

    /// Where to begin the search for a hole in the part that starts at `base`.
    pub(crate) fn search_from(&self, geo: &Geometry, base: FileBlock) -> FileBlock {
        match Self::part(geo, base) {
            Some((part, start)) => start.max(FileBlock(self.full[part])),
            None => base,
        }
    }

    /// The first hole of its part is at `at`.
    pub(crate) fn hole_found(&mut self, geo: &Geometry, at: FileBlock) {
        if let Some((part, _)) = Self::part(geo, at) {
            self.full[part] = at.0;
        }
    }

    /// `len` blocks at `at` were mapped.
    pub(crate) fn mapped(&mut self, geo: &Geometry, at: FileBlock, len: u64) {
        if let Some((part, _)) = Self::part(geo, at)
            && self.full[part] == at.0
        {
            self.full[part] = at.0 + len;
        }
    }

    /// The blocks at `at` were unmapped.
    pub(crate) fn unmapped(&mut self, geo: &Geometry, at: FileBlock) {
        self.places.forget(at);
        if let Some((part, _)) = Self::part(geo, at) {
            self.full[part] = self.full[part].min(at.0);
        }
    }
}

/// Where blocks lie. A copy starts empty.
#[derive(Default)]
pub(crate) struct Places(Mutex<Option<Box<FxHashMap<u64, u64>>>>);

impl Clone for Places {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Places {
    /// Where the block at offset `at` lies, if it is known.
    pub(crate) fn get(&self, at: FileBlock) -> Option<Daddr> {
        self.0.lock().as_ref()?.get(&at.0).copied().map(Daddr)
    }

    /// Remembers where the block at offset `at` lies.
    pub(crate) fn remember(&self, at: FileBlock, daddr: Daddr) {
        self.0.lock().get_or_insert_default().insert(at.0, daddr.0);
    }

    fn forget(&self, at: FileBlock) {
        if let Some(map) = self.0.lock().as_mut() {
            map.remove(&at.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_has_no_remembered_places() {
        let hints = Hints { room: 7, ..Hints::default() };
        hints.places.remember(FileBlock(3), Daddr(64));
        assert_eq!(hints.places.get(FileBlock(3)), Some(Daddr(64)));
        let copy = hints.clone();
        assert_eq!((copy.room, copy.places.get(FileBlock(3))), (7, None));
        hints.places.forget(FileBlock(3));
        assert_eq!(hints.places.get(FileBlock(3)), None);
    }
}
