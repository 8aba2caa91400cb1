//! Limits, flags and hash that attribute entries of all three forms have in common.

use crate::bytes::Field;
use crate::error::{Check, Problem};
use crate::hash::name_hash;
use crate::naming::Naming;
use crate::types::Ino;

/// Longest name in bytes, without the namespace prefix.
pub const MAX_NAME: usize = 255;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 65536;
/// Length of the value of a parent pointer: inode number and generation.
pub const PARENT_VALUE_LEN: usize = 12;
const PARENT_INO: Field<Ino> = Field::at(0);
const PARENT_GENERATION: Field<u32> = Field::at(8);

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

/// The value of a parent pointer.
pub fn parent_value(parent: Ino, generation: u32) -> [u8; PARENT_VALUE_LEN] {
    let mut value = [0; PARENT_VALUE_LEN];
    PARENT_INO.set(&mut value, parent);
    PARENT_GENERATION.set(&mut value, generation);
    value
}

/// Inode number and generation of the parent from the value of a parent pointer; 0 for what the
/// value is too short for.
pub fn parent_of(value: &[u8]) -> (Ino, u32) {
    (PARENT_INO.get(value), PARENT_GENERATION.get(value))
}

/// Hash by which leaf blocks sort attributes. A parent pointer has the name of a directory entry,
/// which hashes by the volume's rule; other names of attributes hash as they are.
pub fn hash(naming: Naming, flags: AttrFlags, name: &[u8], value: &[u8]) -> u32 {
    match PARENT_INO.try_get(value) {
        Some(parent) if flags.contains(AttrFlags::PARENT) => naming.parent_hash(name, parent),
        _ => name_hash(name),
    }
}
