//! Sizes in `mkfs.xfs`' notation: decimal, hexadecimal (`0x`) or octal (`0`), with a suffix.

use crate::error::{MkfsError, usage};

/// A size. Its unit may be blocks or sectors, which are known only after all options are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// File system blocks (suffix `b`).
    Blocks(u64),
    /// Sectors (suffix `s`).
    Sectors(u64),
}

impl Size {
    /// Parses a number with an optional suffix of `s b k m g t p e`.
    ///
    /// # Errors
    /// If the text is not such a number, or the size does not fit 64 bits.
    pub fn parse(text: &str) -> Result<Self, MkfsError> {
        let wrong =
            || MkfsError::Usage(format!("{text:?} is not a number with an optional suffix"));
        let (digits, suffix) = match text.char_indices().next_back() {
            // `b` and `e` are digits of a hexadecimal number.
            Some((at, c)) if !is_number(text) => (&text[..at], Some(c.to_ascii_lowercase())),
            _ => (text, None),
        };
        let number = parse_integer(digits).ok_or_else(wrong)?;
        let shifted = |shift: u32| {
            let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
            Ok(Self::Bytes(bytes))
        };
        match suffix {
            None => Ok(Self::Bytes(number)),
            Some('b') => Ok(Self::Blocks(number)),
            Some('s') => Ok(Self::Sectors(number)),
            Some('k') => shifted(10),
            Some('m') => shifted(20),
            Some('g') => shifted(30),
            Some('t') => shifted(40),
            Some('p') => shifted(50),
            Some('e') => shifted(60),
            Some(_) => Err(wrong()),
        }
    }

    /// Converts to bytes, with these block and sector sizes.
    ///
    /// # Errors
    /// If the result does not fit 64 bits.
    pub fn bytes(self, block_size: u32, sector_size: u32) -> Result<u64, MkfsError> {
        let product = match self {
            Self::Bytes(n) => Some(n),
            Self::Blocks(n) => n.checked_mul(block_size.into()),
            Self::Sectors(n) => n.checked_mul(sector_size.into()),
        };
        match product {
            Some(bytes) if bytes <= i64::MAX as u64 => Ok(bytes),
            _ => usage(format!("size {self} is too large")),
        }
    }
}

impl core::fmt::Display for Size {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bytes(n) => write!(f, "{n}"),
            Self::Blocks(n) => write!(f, "{n}b"),
            Self::Sectors(n) => write!(f, "{n}s"),
        }
    }
}

fn is_number(text: &str) -> bool {
    parse_integer(text).is_some()
}

/// Parses an integer: hexadecimal with `0x`, octal with a leading `0`, otherwise decimal.
pub(crate) fn parse_integer(text: &str) -> Option<u64> {
    let (digits, radix) = if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        (hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_and_suffixes_are_parsed() {
        let ok = |t: &str| Size::parse(t).unwrap();
        assert_eq!(ok("4096"), Size::Bytes(4096));
        assert_eq!(ok("0x1000"), Size::Bytes(4096));
        assert_eq!(ok("010000"), Size::Bytes(4096));
        assert_eq!(ok("4k"), Size::Bytes(4096));
        assert_eq!(ok("4K"), Size::Bytes(4096));
        assert_eq!(ok("3b"), Size::Blocks(3));
        assert_eq!(ok("0x3b"), Size::Bytes(0x3b));
        assert_eq!(ok("7s"), Size::Sectors(7));
        assert_eq!(ok("2t"), Size::Bytes(2 << 40));
        assert_eq!(ok("1e"), Size::Bytes(1 << 60));
        for bad in ["", "k", "4kb", "-1", "+4", "4q", "16e", "08", "4 k", "0x", "4é"] {
            assert!(Size::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn units_are_resolved_late() {
        assert_eq!(Size::Blocks(3).bytes(1024, 512).unwrap(), 3072);
        assert_eq!(Size::Sectors(3).bytes(1024, 4096).unwrap(), 12288);
        assert!(Size::Blocks(u64::MAX).bytes(1024, 512).is_err());
    }
}
