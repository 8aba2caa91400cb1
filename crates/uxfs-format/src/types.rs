//! XFS' kinds of number, each with a type of its own.
//!
//! Confusing a file system block with an AG block, or a sparse block number with a linear one, is
//! the classic XFS bug. Separate types turn this confusion into a compile error. Conversions need
//! the geometry and are methods of [`crate::geometry::Geometry`].

use crate::bytes::Number;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            /// All bits set: XFS' "none" for this kind of number.
            pub const NULL: Self = Self(<$int>::MAX);

            /// Is this the "none" value?
            pub const fn is_null(self) -> bool {
                self.0 == <$int>::MAX
            }
        }

        impl Number for $name {
            const LEN: usize = <$int>::LEN;

            #[inline]
            fn read(b: &[u8], at: usize) -> Option<Self> {
                <$int>::read(b, at).map(Self)
            }

            #[inline]
            fn write(self, b: &mut [u8], at: usize) {
                self.0.write(b, at);
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                if self.is_null() {
                    write!(f, concat!(stringify!($name), "(null)"))
                } else {
                    write!(f, concat!(stringify!($name), "({})"), self.0)
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                if self.is_null() { f.write_str("null") } else { core::fmt::Display::fmt(&self.0, f) }
            }
        }
    };
}

number!(
    /// Allocation group number (`xfs_agnumber_t`).
    AgNo(u32)
);
number!(
    /// Block number inside an allocation group (`xfs_agblock_t`).
    AgBlock(u32)
);
number!(
    /// Inode number inside an allocation group (`xfs_agino_t`).
    AgIno(u32)
);
number!(
    /// Inode number of the whole file system (`xfs_ino_t`).
    Ino(u64)
);
number!(
    /// File system block: `agno << agblklog | agbno` (`xfs_fsblock_t`). Not linear.
    FsBlock(u64)
);
number!(
    /// Offset in a file's fork, in file system blocks (`xfs_fileoff_t`).
    FileBlock(u64)
);
number!(
    /// Address on the device in basic blocks of 512 bytes (`xfs_daddr_t`). Linear.
    Daddr(u64)
);
number!(
    /// Log sequence number: `cycle << 32 | basic block in the log` (`xfs_lsn_t`).
    Lsn(u64)
);

/// Bytes in a basic block, XFS' unit for [`Daddr`] and for the log.
pub const BASIC_BLOCK: usize = 512;

impl Daddr {
    /// Offset on the device in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 << 9
    }
}

impl Lsn {
    /// The LSN of a basic block of the log in a cycle.
    pub const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// The cycle number.
    pub const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its block, in basic blocks from the log's start.
    pub const fn block(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}

impl FileBlock {
    /// This offset plus `blocks`.
    pub const fn plus(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }
}

impl FsBlock {
    /// This block plus `blocks`; the result must lie in the same allocation group.
    pub const fn plus(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }
}

impl AgBlock {
    /// This block plus `blocks`.
    pub const fn plus(self, blocks: u32) -> Self {
        Self(self.0 + blocks)
    }
}

/// A 128-bit UUID in its on-disk byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl core::fmt::Display for Uuid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl core::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl core::str::FromStr for Uuid {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a UUID is 32 hexadecimal digits in groups of 8-4-4-4-12";
        let groups: Vec<&str> = text.split('-').collect();
        if groups.iter().map(|g| g.len()).ne([8, 4, 4, 4, 12]) {
            return Err(WRONG);
        }
        let digits = groups.concat();
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(WRONG);
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_text_round_trip() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert!("01234567-89ab-cdef-0123-456789abcde".parse::<Uuid>().is_err());
        assert!("0123456789abcdef0123456789abcdef".parse::<Uuid>().is_err());
    }

    #[test]
    fn nulls_print_as_null() {
        assert_eq!(AgBlock::NULL.to_string(), "null");
        assert_eq!(format!("{:?}", Ino(7)), "Ino(7)");
    }
}
