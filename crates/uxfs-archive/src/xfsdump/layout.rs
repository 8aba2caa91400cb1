//! The headers of xfsdump's stream, formats 2 and 3.
//!
//! All numbers are big-endian. A media file begins with a global header (4 KiB), in which lie the headers
//! of the drive (at 0x400), of the medium (0x800) and of the content (0xc00). Then follow, each announced
//! by a bit of the content header's attributes: the inode map (chunks of 16 KiB), the directories, and the
//! files. A file header (256 bytes) begins each of these:
//!
//! | what | file header's flags | then |
//! |---|---|---|
//! | directory | 0 | names (24 bytes or more, a multiple of 8), ended by one of inode 0 |
//! | regular file, or part of it | 0 | extents: a header of 32 bytes each, and the bytes of data; ended by type 0 |
//! | symbolic link | 0 | one extent of data: the target, padded with NULs |
//! | other file | 0 | nothing |
//! | attributes of the directory or file before it | 8 | attributes (16 bytes, name, value), ended by flag 2 |
//! | end of the media file | 1, and 4 if the stream ends too | nothing |
//!
//! Data is stored in multiples of 512 bytes; what lies beyond the file's size is padding. A file with much
//! data is stored in parts of 16 MiB, each with a file header.
//!
//! 1. The words of a header with a checksum add up to 0 modulo 2^32. The global header's words are as they
//!    are stored. Those of the others are as they were in the memory of the machine that made the dump:
//!    where two fields, or text, share a word, they have another order if this was little-endian.
//! 2. No function here fails on any bytes: a field that is not there reads as zeros.
//!
//! Used by the reader of dumps.

use crate::entry::{Fsx, Time};

/// Bytes of a global header.
pub(super) const GLOBAL: usize = 4096;
/// Bytes of a chunk of the inode map.
pub(super) const INOMAP_CHUNK: u64 = 16 << 10;
/// Bytes of a file header.
pub(super) const FILE: usize = 256;
/// Bytes of an extent header.
pub(super) const EXTENT: usize = 32;
/// Least bytes of a name.
pub(super) const DIRENT: usize = 24;
/// Bytes of an attribute's header.
pub(super) const ATTR: usize = 16;

fn bytes<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    header.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn be16(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(header, at))
}

fn be32(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(header, at))
}

fn be64(header: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(header, at))
}

/// How the fields of a word lie in it.
enum Word {
    Whole,
    /// Two fields of 16 bits.
    Halves,
    /// A field of 16 bits, and text.
    HalfText,
    Text,
}

/// Is the sum right for a dump of a machine of one byte order or the other (invariant 1)?
fn sums(header: &[u8], word: impl Fn(usize) -> Word) -> bool {
    let (mut big, mut little) = (0_u32, 0_u32);
    for at in (0..header.len()).step_by(4) {
        let whole = be32(header, at);
        let [a, b, c, d] = bytes(header, at);
        big = big.wrapping_add(whole);
        little = little.wrapping_add(match word(at) {
            Word::Whole => whole,
            Word::Halves => u32::from_le_bytes([b, a, d, c]),
            Word::HalfText => u32::from_le_bytes([b, a, c, d]),
            Word::Text => u32::from_le_bytes([a, b, c, d]),
        });
    }
    big == 0 || little == 0
}

/// What the content header announces.
pub(super) mod content {
    pub(crate) const SUBTREE: u32 = 1;
    pub(crate) const INCREMENT: u32 = 1 << 3;
    pub(crate) const RESUMED: u32 = 1 << 5;
    pub(crate) const INOMAP: u32 = 1 << 6;
    pub(crate) const FILE_SUMS: u32 = 1 << 8;
    pub(crate) const EXTENT_SUMS: u32 = 1 << 9;
    pub(crate) const DIRENT_SUMS: u32 = 1 << 10;
    pub(crate) const DIRENT_GEN: u32 = 1 << 11;
    pub(crate) const ATTR_SUMS: u32 = 1 << 13;
}

/// The header of a media file.
#[derive(Clone)]
pub(super) struct Global {
    pub(super) version: u32,
    pub(super) session: [u8; 16],
    /// Number of streams, and the number of this one.
    pub(super) streams: u32,
    pub(super) stream: u32,
    /// 1 for a file; others are tapes.
    pub(super) strategy: u32,
    /// Number of this media file in its stream.
    pub(super) file: u32,
    /// 0 for a tree.
    pub(super) kind: u32,
    /// Bits of [`content`].
    pub(super) has: u32,
    pub(super) level: u32,
    pub(super) root: u64,
    pub(super) inomap_chunks: u64,
}

impl Global {
    pub(super) fn is_sound(header: &[u8]) -> bool {
        sums(header, |_| Word::Whole)
    }

    pub(super) fn parse(header: &[u8]) -> Self {
        Self {
            version: be32(header, 0x8),
            session: bytes(header, 0x20),
            streams: be32(header, 0x400),
            stream: be32(header, 0x404),
            strategy: be32(header, 0x408),
            file: be32(header, 0xb38),
            kind: be32(header, 0xf40),
            has: be32(header, 0xf44),
            level: be32(header, 0xf48),
            root: be64(header, 0xf58),
            inomap_chunks: be64(header, 0xfb0),
        }
    }

    pub(super) fn has(&self, what: u32) -> bool {
        self.has & what != 0
    }
}

/// Flags of a file header.
pub(super) mod file {
    pub(crate) const END_OF_FILE: u32 = 1;
    pub(crate) const SUM: u32 = 2;
    pub(crate) const END_OF_STREAM: u32 = 4;
    pub(crate) const ATTRS: u32 = 8;
}

/// A file header.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// Offset in the dump.
    pub(super) at: u64,
    /// Bytes of the file's data, without holes, that earlier parts have.
    pub(super) offset: u64,
    pub(super) flags: u32,
    pub(super) ino: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) size: u64,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) generation: u32,
    pub(super) fsx: Fsx,
}

/// Flags of a file that a restore sets, of `FS_XFLAG_*`: those that describe the file's blocks or its
/// device are left out.
const XFLAGS: u32 = 0x7ef8 & !0x100;

impl File {
    pub(super) fn is_sound(header: &[u8]) -> bool {
        sums(header, |at| match at {
            104 => Word::Halves,
            108 | 124 => Word::HalfText,
            112 | 116 | 128.. => Word::Text,
            _ => Word::Whole,
        })
    }

    pub(super) fn parse(header: &[u8], at: u64) -> Self {
        let time = |at| Time {
            sec: i64::from(i32::from_be_bytes(bytes(header, at))),
            nsec: be32(header, at + 4).min(999_999_999),
        };
        let project = u32::from(be16(header, 108)) << 16 | u32::from(be16(header, 104));
        Self {
            at,
            offset: be64(header, 0),
            flags: be32(header, 8),
            ino: be64(header, 16),
            mode: be32(header, 24),
            uid: be32(header, 32),
            gid: be32(header, 36),
            rdev: be32(header, 40),
            size: be64(header, 48),
            atime: time(56),
            mtime: time(64),
            ctime: time(72),
            generation: be32(header, 100),
            fsx: Fsx { flags: be32(header, 88) & XFLAGS, extsize: be32(header, 92), project },
        }
    }

    /// Major and minor number: 14 and 18 bits.
    pub(super) fn device(&self) -> (u32, u32) {
        (self.rdev >> 18, self.rdev & 0x3_ffff)
    }
}

/// What follows an extent header.
pub(super) mod extent {
    pub(crate) const LAST: u32 = 0;
    pub(crate) const PADDING: u32 = 1;
    pub(crate) const DATA: u32 = 4;
    pub(crate) const HOLE: u32 = 8;
    pub(crate) const SUM: u32 = 1;
}

/// An extent header.
pub(super) struct Extent {
    pub(super) len: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) kind: u32,
    pub(super) flags: u32,
}

impl Extent {
    pub(super) fn is_sound(header: &[u8]) -> bool {
        sums(header, |_| Word::Whole)
    }

    pub(super) fn parse(header: &[u8]) -> Self {
        Self {
            len: be64(header, 0),
            offset: be64(header, 8),
            kind: be32(header, 16),
            flags: be32(header, 20),
        }
    }
}

/// The fixed part of a name. In format 2 a generation has 12 bits.
pub(super) struct Dirent {
    pub(super) ino: u64,
    pub(super) generation: u32,
    /// Bytes of the whole record.
    pub(super) len: usize,
    /// Where the name begins in the record.
    pub(super) name: usize,
}

impl Dirent {
    pub(super) fn is_sound(header: &[u8], version: u32) -> bool {
        sums(header, |at| match (version, at) {
            (2, 8) => Word::Halves,
            (2, 16 | 20) | (_, 20) => Word::Text,
            (3, 16) => Word::HalfText,
            _ => Word::Whole,
        })
    }

    pub(super) fn parse(header: &[u8], version: u32) -> Self {
        let ino = be64(header, 0);
        if version == 2 {
            let (generation, len) = (u32::from(be16(header, 8)), usize::from(be16(header, 10)));
            return Self { ino, generation, len, name: 16 };
        }
        let (generation, len) = (be32(header, 8), usize::from(be16(header, 16)));
        Self { ino, generation, len, name: 18 }
    }
}

/// Flags of an attribute.
pub(super) mod attr {
    pub(crate) const ROOT: u16 = 1;
    pub(crate) const END: u16 = 2;
    pub(crate) const SECURE: u16 = 8;
    pub(crate) const SUM: u16 = 0x10;
}

/// The header of an attribute.
pub(super) struct Attr {
    /// Bytes of the whole record.
    pub(super) len: u32,
    /// Where the value begins in the record.
    pub(super) value: u16,
    pub(super) flags: u16,
    pub(super) value_len: u32,
}

impl Attr {
    pub(super) fn is_sound(header: &[u8]) -> bool {
        sums(header, |at| if at == 4 { Word::Halves } else { Word::Whole })
    }

    pub(super) fn parse(header: &[u8]) -> Self {
        Self {
            len: be32(header, 0),
            value: be16(header, 4),
            flags: be16(header, 6),
            value_len: be32(header, 8),
        }
    }
}

/// A POSIX ACL as Linux' attribute value, of one as XFS stores it: a count, then tag, id and permissions
/// with padding, 12 bytes each. `None` if it is not well-formed.
pub(super) fn posix_acl(stored: &[u8]) -> Option<Vec<u8>> {
    let (count, entries) = stored.split_first_chunk::<4>()?;
    if entries.len() % 12 != 0 || entries.len() / 12 != u32::from_be_bytes(*count) as usize {
        return None;
    }
    let mut value = 2_u32.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(12) {
        let tag = u16::try_from(be32(entry, 0)).ok()?;
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&be16(entry, 8).to_le_bytes());
        value.extend_from_slice(&be32(entry, 4).to_le_bytes());
    }
    Some(value)
}
