//! What all kinds of blocks have in common: how they may change.

use uxfs_format::verify::{self, BufKind};
use uxfs_format::{Corrupt, Geometry, crc};

use super::used::Used;
use crate::names::{Kind, Names};

/// Bytes at the head of a block that hold no names, whatever kind it is: the shortest headers are those of
/// links and of values.
pub(super) const HEADER_LEN: usize = 56;

/// How blocks are changed.
pub(crate) struct Scrub<'a> {
    pub(crate) geo: &'a Geometry,
    /// Other names.
    pub(crate) names: Option<&'a Names>,
    /// Unused bytes stay.
    pub(crate) whole: bool,
}

/// What became of a block.
pub(crate) enum Outcome {
    /// It is as it is to be dumped.
    Fine,
    /// It is damaged; so many of its bytes were cleared.
    Damaged(Corrupt, usize),
}

impl Scrub<'_> {
    /// Are blocks dumped as they are?
    pub(crate) fn changes_nothing(&self) -> bool {
        self.whole && self.names.is_none()
    }

    /// Runs `change`, and stamps the checksum anew if it was right before.
    pub(super) fn sealed(&self, block: &mut [u8], kind: BufKind, change: impl FnOnce(&mut [u8])) {
        if self.changes_nothing() {
            return;
        }
        let right = verify::checksum_matches(block, kind);
        change(block);
        if right {
            verify::stamp_checksum(block, kind);
        }
    }

    /// Clears what lies outside of `used`, unless unused bytes stay.
    pub(super) fn clear(&self, block: &mut [u8], used: Used) {
        if !self.whole {
            used.clear_rest(block);
        }
    }

    /// Gives a name another name.
    pub(super) fn rename(&self, name: &mut [u8], kind: Kind) {
        if let Some(names) = self.names {
            names.replace(name, kind);
        }
    }

    /// Clears everything from `from` on if it may not be shown, and says how much that is.
    pub(crate) fn withhold(&self, block: &mut [u8], from: usize) -> usize {
        match self.names {
            Some(_) => {
                let rest = block.get_mut(from..).unwrap_or_default();
                rest.fill(0);
                rest.len()
            }
            None => 0,
        }
    }
}

/// Runs `change` on an inode, and stamps its checksum anew if it was right before.
pub(super) fn sealed_inode(raw: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let right = crc::matches(raw, uxfs_format::inode::CRC_OFFSET);
    change(raw);
    if right {
        crc::stamp(raw, uxfs_format::inode::CRC_OFFSET);
    }
}
