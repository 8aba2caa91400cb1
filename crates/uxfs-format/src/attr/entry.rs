//! Limits, flags and hash that attribute entries of all three forms have in common.

use crate::error::{Check, Problem};
use crate::hash::{name_hash, parent_hash};
use crate::types::Ino;

/// Longest name in bytes, without the namespace prefix.
pub const MAX_NAME: usize = 255;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 65536;
/// Length of the value of a parent pointer: inode number and generation.
pub const PARENT_VALUE_LEN: usize = 12;

bitflags::bitflags! {
    /// The flags of an entry. At most one namespace bit is set; no namespace bit means `user`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AttrFlags: u8 {
        /// The value is stored beside the name; leaf entries only.
        const LOCAL = 0x01;
        /// Namespace `trusted`.
        const ROOT = 0x02;
        /// Namespace `security`.
        const SECURE = 0x04;
        /// A parent pointer.
        const PARENT = 0x08;
        /// An operation is setting or removing the attribute; readers skip it.
        const INCOMPLETE = 0x80;
    }
}

impl AttrFlags {
    /// The bits that name the namespace.
    pub const NAMESPACES: Self = Self::ROOT.union(Self::SECURE).union(Self::PARENT);

    /// The namespace alone.
    pub const fn namespace(self) -> Self {
        self.intersection(Self::NAMESPACES)
    }

    /// Checks that all bits are known and that at most one namespace bit is set.
    pub(super) fn check(self) -> Result<(), Problem> {
        if !Self::all().contains(self) || self.namespace().bits().count_ones() > 1 {
            return Err(Check::Flags.failed(format!("entry with flags {:#04x}", self.bits())));
        }
        Ok(())
    }
}

/// Hash by which leaf blocks sort attributes.
pub fn hash(flags: AttrFlags, name: &[u8], value: &[u8]) -> u32 {
    match value {
        [a, b, c, d, e, f, g, h, ..] if flags.contains(AttrFlags::PARENT) => {
            parent_hash(name, Ino(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])))
        }
        _ => name_hash(name),
    }
}
