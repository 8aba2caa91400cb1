//! Directory entries of all forms: layout parameters, addresses in the data space, file types, and
//! the rules for names.

use crate::inode;

/// Longest name in bytes.
pub const MAX_NAME: usize = 255;

/// Layout of entries in data blocks and short forms. Version 4 has a shorter block header and may
/// lack the file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(super) start: usize,
    pub(super) bestfree: usize,
    pub(super) type_len: usize,
}

impl Shape {
    /// Version 5.
    pub const V5: Self = Self { start: 64, bestfree: 48, type_len: 1 };

    /// Version 4, with file types or without.
    pub const fn v4(ftype: bool) -> Self {
        Self { start: 16, bestfree: 4, type_len: ftype as usize }
    }

    /// Do entries store the type of their file?
    pub const fn has_types(self) -> bool {
        self.type_len > 0
    }

    /// Byte offset of the first entry, ".", in a data block.
    pub const fn start(self) -> usize {
        self.start
    }

    /// Offset of ".." in the data space.
    pub const fn dotdot(self) -> usize {
        self.start + self.entry_len(1)
    }

    /// Offset of the first entry after ".." in the data space.
    pub const fn first(self) -> usize {
        self.dotdot() + self.entry_len(2)
    }

    /// Bytes that an entry with a name of `name` bytes takes in a data block: inode number, name
    /// with its length, type, own offset; padded to 8.
    pub const fn entry_len(self, name: usize) -> usize {
        (8 + 1 + name + self.type_len + 2 + 7) & !7
    }
}

/// Byte offset of the first entry in a data block.
pub const DATA_START: usize = Shape::V5.start();
/// Offset of "." in the data space.
pub const DOT: usize = DATA_START;
/// Offset of ".." in the data space.
pub const DOTDOT: usize = Shape::V5.dotdot();
/// Offset of the first entry after ".." in the data space.
pub const FIRST: usize = Shape::V5.first();

/// Bytes that an entry with a name of `name` bytes takes in a data block of version 5.
pub const fn entry_len(name: usize) -> usize {
    Shape::V5.entry_len(name)
}

/// The address of the byte at `offset` of the data space.
pub const fn address(offset: u64) -> u32 {
    // The data space ends at 32 GiB.
    (offset >> 3) as u32
}

/// The offset in the data space for an address.
pub const fn offset(address: u32) -> u64 {
    (address as u64) << 3
}

/// File type as a directory entry stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum FileType {
    /// The entry does not store the type.
    #[default]
    Unknown = 0,
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Fifo.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
    /// Whiteout of an overlay.
    Whiteout = 8,
}

impl FileType {
    /// Decodes the byte on disk; `None` if there is no such type.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Unknown,
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            8 => Self::Whiteout,
            _ => return None,
        })
    }

    /// The type of a file of mode `mode`.
    pub const fn from_mode(mode: u16) -> Self {
        match mode & inode::S_IFMT {
            inode::S_IFREG => Self::Regular,
            inode::S_IFDIR => Self::Directory,
            inode::S_IFCHR => Self::CharDevice,
            inode::S_IFBLK => Self::BlockDevice,
            inode::S_IFIFO => Self::Fifo,
            inode::S_IFSOCK => Self::Socket,
            inode::S_IFLNK => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// The reason why a name is invalid in a directory; `None` if it is valid.
pub fn name_problem(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        return Some("empty name");
    }
    if name.len() > MAX_NAME {
        return Some("name longer than 255 bytes");
    }
    name.iter().any(|&b| b == 0 || b == b'/').then_some("name with a NUL or a slash in it")
}

/// The reason why a stored entry's name or type is invalid.
pub(super) fn entry_problem(name: &[u8], ftype: u8) -> Option<String> {
    if FileType::from_raw(ftype).is_none() {
        return Some(format!("entry of type {ftype}"));
    }
    name_problem(name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_lengths_and_offsets() {
        assert_eq!((DOT, DOTDOT, FIRST), (64, 80, 96));
        assert_eq!([1, 4, 5, 12, 13, 255].map(entry_len), [16, 16, 24, 24, 32, 272]);
        let (typed, plain) = (Shape::v4(true), Shape::v4(false));
        assert_eq!((typed.start(), typed.dotdot(), typed.first()), (16, 32, 48));
        assert_eq!((plain.first(), plain.entry_len(5), typed.entry_len(5)), (48, 16, 24));
        assert_eq!(offset(address(0x1_2345_6780)), 0x1_2345_6780);
    }

    #[test]
    fn types() {
        for raw in 0..=8 {
            assert_eq!(FileType::from_raw(raw).unwrap() as u8, raw);
        }
        assert_eq!(FileType::from_raw(9), None);
        assert_eq!(FileType::from_mode(0o100_644), FileType::Regular);
        assert_eq!(FileType::from_mode(0o120_777), FileType::Symlink);
        assert!(name_problem(b"a/b").is_some() && name_problem(b"").is_some());
        assert!(name_problem(b"..a \xff").is_none());
    }
}
