//! A delta in a fork's file: 64 bytes, and then the delta's object.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | magic number `uxfsfram` |
//! | 8 | number of the frame |
//! | 16 | where it begins |
//! | 24 | length of the object |
//! | 32 | SHA-256 of the bytes above |

use uxfs_delta::Hash;

const MAGIC: [u8; 8] = *b"uxfsfram";
pub(crate) const FRAME_LEN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) at: u64,
    pub(crate) object_len: u64,
}

impl Frame {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.number, self.at, self.object_len] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&Hash::of(&bytes).0);
        bytes
    }

    /// The frame that begins at `at`, if one does.
    pub(crate) fn parse(bytes: &[u8; FRAME_LEN], at: u64) -> Option<Self> {
        let number = |from: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(number)
        };
        let frame = Self { number: number(8), at: number(16), object_len: number(24) };
        (frame.at == at && frame.to_bytes() == bytes).then_some(frame)
    }

    /// Where its object begins.
    pub(crate) fn object_at(&self) -> u64 {
        self.at + FRAME_LEN as u64
    }

    /// Where it ends, if that is a place in a file.
    pub(crate) fn end(&self) -> Option<u64> {
        self.object_at().checked_add(self.object_len).filter(|end| i64::try_from(*end).is_ok())
    }

    /// Do the bytes contain the beginning of a frame, at a multiple of nothing in particular?
    pub(crate) fn find(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
        bytes.windows(MAGIC.len()).enumerate().filter(|(_, w)| *w == MAGIC).map(|(at, _)| at)
    }
}
