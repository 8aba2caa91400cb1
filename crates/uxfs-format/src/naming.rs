//! How a volume hashes and compares the names of its directories' entries.
//!
//! Names are kept as they were written. On a volume with case-insensitive names (`-n version=ci`,
//! the superblock's [`Version::BORG`]) the hash of a name is that of its lowered form, and two
//! names with the same lowered form are one name.
//!
//! 1. Lowering maps single bytes: `A` to `Z`, and of ISO 8859-1 `0xc0` to `0xde` but for the sign
//!    `×` (`0xd7`). It keeps the length of a name, and never makes two different valid UTF-8 names
//!    equal that differ in more than the case of ASCII letters: a lowered lead byte stands for a
//!    longer or an impossible sequence.
//! 2. A kernel's parent pointers hash by the same rule. They are found by the exact name.
//! 3. Names of attributes are not affected.
//!
//! [`Geometry::naming`](crate::Geometry) has the rule of a volume. Whatever hashes or compares a
//! name of a directory does it here.

use std::borrow::Cow;

use crate::features::Version;
use crate::hash::name_hash;
use crate::types::Ino;

/// How names of directory entries are hashed and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Naming {
    /// Byte by byte.
    #[default]
    Exact,
    /// Without case (ascii-ci).
    Lowered,
}

const fn lower(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 0x20,
        _ => byte,
    }
}

impl Naming {
    /// The rule of a volume with these features.
    pub fn of(version: Version) -> Self {
        if version.contains(Version::BORG) { Self::Lowered } else { Self::Exact }
    }

    /// Can two different strings of bytes be the same name?
    pub fn folds(self) -> bool {
        self == Self::Lowered
    }

    /// The form that all spellings of a name have in common.
    pub fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Lowered if name.iter().any(|byte| lower(*byte) != *byte) => {
                Cow::Owned(name.iter().map(|byte| lower(*byte)).collect())
            }
            _ => Cow::Borrowed(name),
        }
    }

    /// Are both the same name in a directory?
    pub fn same(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Exact => one == other,
            Self::Lowered => {
                one.len() == other.len()
                    && one.iter().zip(other).all(|(a, b)| lower(*a) == lower(*b))
            }
        }
    }

    /// Hash of a directory entry's name.
    pub fn hash(self, name: &[u8]) -> u32 {
        name_hash(&self.key(name))
    }

    /// Hash of a parent pointer: the name's, mixed with the parent's inode number.
    pub fn parent_hash(self, name: &[u8], parent: Ino) -> u32 {
        self.hash(name) ^ (parent.0 >> 32) as u32 ^ parent.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        for rule in [Naming::Exact, Naming::Lowered] {
            assert_eq!(rule.hash(b"."), 0x2e);
            assert_eq!(rule.hash(b".."), 0x172e);
            assert_eq!(rule.hash(b"few_number_10"), 0xb6d0_d249);
            assert_eq!(rule.parent_hash(b"f", Ino(128)), 0xe6);
            assert_eq!(rule.parent_hash(b"f_1", Ino(6_442_451_072)), 0x8019_af30);
        }
        assert_eq!(Naming::Lowered.hash(b"Few_Number_10"), 0xb6d0_d249);
        assert_ne!(Naming::Exact.hash(b"Few_Number_10"), 0xb6d0_d249);
    }

    #[test]
    fn every_byte_is_lowered_as_kernels_do_it() {
        for byte in 0..=u8::MAX {
            let wanted = match byte {
                0x41..=0x5a | 0xc0..=0xd6 | 0xd8..=0xde => byte + 32,
                _ => byte,
            };
            assert_eq!(*Naming::Lowered.key(&[byte]), [wanted], "{byte:#x}");
            assert_eq!(*Naming::Exact.key(&[byte]), [byte]);
            assert!(Naming::Lowered.same(&[byte], &[wanted]));
            assert_eq!(Naming::Exact.same(&[byte], &[wanted]), byte == wanted);
        }
        assert!(!Naming::Lowered.same(b"ab", b"abc") && !Naming::Lowered.same(b"[", b"{"));
    }

    #[test]
    fn names_in_utf8_are_the_same_only_by_ascii_case() {
        let letters = ['A', 'é', 'É', 'ã', 'Ж', 'ж', 'あ', '\u{3000}', '😀', 'ß', '×', '÷'];
        for a in letters {
            for b in letters {
                for c in letters {
                    let (one, other) = (format!("{a}{b}"), format!("{c}{b}"));
                    let same = Naming::Lowered.same(one.as_bytes(), other.as_bytes());
                    assert_eq!(same, a == c, "{one} {other}");
                }
            }
        }
    }
}
