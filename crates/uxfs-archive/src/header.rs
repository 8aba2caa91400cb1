//! Parses and builds tar headers, the 512-byte block at the start of every entry.
//!
//! Written by hand on purpose. The `tar` crate does not support PAX sparse files, hides the raw
//! offset of the data behind `io::Read`, and allocates several times per entry. The headers are
//! small and unchanged since 2001. This file implements V7, POSIX ustar, GNU (base-256 numbers, old
//! sparse maps) and star's prefix.
//!
//! Invariants:
//! 1. A `Header` exists only for a block with a correct checksum (as unsigned or, for old writers,
//!    signed bytes).
//! 2. Every number is range-checked; a number that does not fit is an error and is never truncated.
//!
//! Used by the tar reader, the sparse map reader and the tar writer.

/// Size of a tar block in bytes.
pub(crate) const BLOCK: usize = 512;
/// [`BLOCK`] for arithmetic on offsets.
pub(crate) const BLOCK_U64: u64 = 512;

/// One block.
pub(crate) type Block = [u8; BLOCK];

const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const UID: std::ops::Range<usize> = 108..116;
const GID: std::ops::Range<usize> = 116..124;
const SIZE: std::ops::Range<usize> = 124..136;
const MTIME: std::ops::Range<usize> = 136..148;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
const LINK: std::ops::Range<usize> = 157..257;
const MAGIC: std::ops::Range<usize> = 257..265;
const UNAME: std::ops::Range<usize> = 265..297;
const GNAME: std::ops::Range<usize> = 297..329;
const DEVMAJOR: std::ops::Range<usize> = 329..337;
const DEVMINOR: std::ops::Range<usize> = 337..345;
const PREFIX: std::ops::Range<usize> = 345..500;
const STAR_PREFIX: std::ops::Range<usize> = 345..476;
const STAR_MAGIC: std::ops::Range<usize> = 508..512;
/// Old GNU sparse format: four pairs, then the flag "more blocks follow", then the file's size.
const GNU_SPARSE: std::ops::Range<usize> = 386..482;
const GNU_EXTENDED: usize = 482;
const GNU_REALSIZE: std::ops::Range<usize> = 483..495;
/// A continuation block: 21 pairs, then the flag "more blocks follow".
const GNU_MORE: std::ops::Range<usize> = 0..504;
const GNU_MORE_EXTENDED: usize = 504;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    V7,
    Ustar,
    Gnu,
}

/// A block with a correct checksum.
pub(crate) struct Header {
    block: Block,
    format: Format,
}

/// Does a block's checksum field match its bytes?
pub(crate) fn checksum_ok(block: &Block) -> bool {
    let Ok(stored) = number(&block[CHECKSUM]) else { return false };
    let unsigned = checksum(block);
    if stored == i64::from(unsigned) {
        return true;
    }
    // With signed chars, each byte from 0x80 on counts 256 less.
    let high = |bytes: &[u8]| bytes.iter().filter(|byte| **byte >= 0x80).count();
    let high = high(&block[..CHECKSUM.start]) + high(&block[CHECKSUM.end..]);
    i64::try_from(high).is_ok_and(|high| stored == i64::from(unsigned) - 256 * high)
}

/// The sum of the block's bytes, with blanks in the checksum field.
fn checksum(block: &Block) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&block[..CHECKSUM.start]) + 8 * u32::from(b' ') + sum(&block[CHECKSUM.end..])
}

/// Is a block all zeros? Two such blocks end an archive.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

impl Header {
    /// Makes a header of a block; `None` if its checksum is wrong (invariant 1).
    pub(crate) fn parse(block: &Block) -> Option<Self> {
        if !checksum_ok(block) {
            return None;
        }
        let format = match &block[MAGIC] {
            b"ustar  \0" => Format::Gnu,
            magic if magic.starts_with(b"ustar") => Format::Ustar,
            _ => Format::V7,
        };
        Some(Self { block: *block, format })
    }

    /// Does it name its format? V7's has no magic.
    pub(crate) fn has_magic(&self) -> bool {
        self.format != Format::V7
    }

    /// The type byte: `0` file, `5` directory, `x` PAX header and so on.
    pub(crate) fn typeflag(&self) -> u8 {
        self.block[TYPE]
    }

    /// The path, including the prefix field.
    pub(crate) fn path(&self) -> Vec<u8> {
        let name = text(&self.block[NAME]);
        let prefix = match self.format {
            Format::Ustar if self.is_star() => text(&self.block[STAR_PREFIX]),
            Format::Ustar => text(&self.block[PREFIX]),
            _ => b"",
        };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    /// The target path of a link.
    pub(crate) fn link(&self) -> &[u8] {
        text(&self.block[LINK])
    }

    /// The owner's name; empty if there is none.
    pub(crate) fn uname(&self) -> &[u8] {
        if self.format == Format::V7 { b"" } else { text(&self.block[UNAME]) }
    }

    /// The group's name; empty if there is none.
    pub(crate) fn gname(&self) -> &[u8] {
        if self.format == Format::V7 { b"" } else { text(&self.block[GNAME]) }
    }

    /// Permission bits.
    pub(crate) fn mode(&self) -> Result<u32, String> {
        let mode = number(&self.block[MODE]).map_err(|what| format!("mode: {what}"))?;
        // Some writers include the file type; the type byte already holds it.
        u32::try_from(mode & 0o7777).map_err(|_| "mode out of range".into())
    }

    /// Bytes of data that follow the header.
    pub(crate) fn size(&self) -> Result<u64, String> {
        unsigned("size", &self.block[SIZE])
    }

    /// The owner's id.
    pub(crate) fn uid(&self) -> Result<u32, String> {
        id("uid", &self.block[UID])
    }

    /// The group's id.
    pub(crate) fn gid(&self) -> Result<u32, String> {
        id("gid", &self.block[GID])
    }

    /// The modification time in seconds since 1970.
    pub(crate) fn mtime(&self) -> Result<i64, String> {
        number(&self.block[MTIME]).map_err(|what| format!("mtime: {what}"))
    }

    /// Major and minor device number.
    pub(crate) fn device(&self) -> Result<(u32, u32), String> {
        if self.format == Format::V7 {
            return Ok((0, 0));
        }
        let number = |what: &str, range| {
            u32::try_from(unsigned(what, &self.block[range])?)
                .map_err(|_| format!("{what} out of range"))
        };
        Ok((number("device major", DEVMAJOR)?, number("device minor", DEVMINOR)?))
    }

    /// Old GNU sparse format: the file's size.
    pub(crate) fn sparse_realsize(&self) -> Result<u64, String> {
        unsigned("sparse size", &self.block[GNU_REALSIZE])
    }

    /// Is this one of star's headers, whose sparse maps lie elsewhere than GNU's?
    pub(crate) fn is_star(&self) -> bool {
        &self.block[STAR_MAGIC] == b"tar\0"
    }

    /// Old GNU sparse format: reads the header's segments; true if a continuation block follows.
    pub(crate) fn sparse_segments(&self, into: &mut Vec<(u64, u64)>) -> Result<bool, String> {
        pairs(&self.block[GNU_SPARSE], into)?;
        Ok(self.block[GNU_EXTENDED] != 0)
    }
}

/// Old GNU sparse format: reads a continuation block's segments; true if another one follows.
pub(crate) fn sparse_more(block: &Block, into: &mut Vec<(u64, u64)>) -> Result<bool, String> {
    pairs(&block[GNU_MORE], into)?;
    Ok(block[GNU_MORE_EXTENDED] != 0)
}

fn pairs(bytes: &[u8], into: &mut Vec<(u64, u64)>) -> Result<(), String> {
    for pair in bytes.chunks_exact(24) {
        // An unused slot is all NUL; the pair (size, 0) marks a hole at the end.
        if pair[0] == 0 {
            break;
        }
        into.push((unsigned("sparse", &pair[..12])?, unsigned("sparse", &pair[12..])?));
    }
    Ok(())
}

/// The bytes of a field up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses a number: octal digits ended by a blank or NUL, or base 256 if the first bit is set.
fn number(field: &[u8]) -> Result<i64, String> {
    let bad = |what: &str| format!("number '{}' {what}", field.escape_ascii());
    let first = *field.first().ok_or_else(|| bad("is empty"))?;
    if first & 0x80 != 0 {
        // Two's complement, big-endian; bit 7 of the first byte is the marker, bit 6 the sign.
        let negative = first & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        let head = if negative { first } else { first & 0x3f };
        value = (value << 8) | i128::from(head);
        for byte in &field[1..] {
            value = (value << 8) | i128::from(*byte);
        }
        return i64::try_from(value).map_err(|_| bad("does not fit in 64 bits"));
    }
    let digits = field.trim_ascii_start();
    let mut value: i64 = 0;
    for (index, byte) in digits.iter().enumerate() {
        match byte {
            // 12 octal digits have 36 bits, so this cannot overflow.
            b'0'..=b'7' => value = value * 8 + i64::from(byte - b'0'),
            b' ' | 0 => break,
            _ if index == 0 || !byte.is_ascii() || *byte > b' ' => {
                return Err(bad("is not octal"));
            }
            _ => break,
        }
    }
    Ok(value)
}

fn unsigned(what: &str, field: &[u8]) -> Result<u64, String> {
    let value = number(field).map_err(|text| format!("{what}: {text}"))?;
    u64::try_from(value).map_err(|_| format!("{what}: {value} is negative"))
}

fn id(what: &str, field: &[u8]) -> Result<u32, String> {
    let value = number(field).map_err(|text| format!("{what}: {text}"))?;
    // Old writers sign-extend the id of "nobody" (-2).
    let wrapped = if value < 0 { value.checked_add(1 << 32) } else { Some(value) };
    wrapped
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| format!("{what}: {value} does not fit in 32 bits"))
}

/// Builds a ustar header block.
pub(crate) struct Builder {
    block: Block,
}

impl Builder {
    /// A header with this type; all other fields are zero.
    pub(crate) fn new(typeflag: u8) -> Self {
        let mut block = [0; BLOCK];
        block[TYPE] = typeflag;
        block[MAGIC].copy_from_slice(b"ustar\x0000");
        Self { block }
    }

    /// Sets the path, split at a `/` if necessary. Returns false if it does not fit; the field then
    /// holds the end of the path, for readers without PAX support.
    pub(crate) fn path(&mut self, path: &[u8]) -> bool {
        if path.len() <= NAME.len() {
            return put_text(&mut self.block[NAME], path);
        }
        let fits = |at: &usize| {
            path[*at] == b'/' && *at > 0 && *at <= PREFIX.len() && path.len() - at - 1 <= NAME.len()
        };
        // Not at the last byte: a directory's trailing slash is part of its name.
        if let Some(at) = (0..path.len() - 1).rev().find(fits) {
            put_text(&mut self.block[PREFIX], &path[..at]);
            return put_text(&mut self.block[NAME], &path[at + 1..]);
        }
        put_text(&mut self.block[NAME], &path[path.len() - NAME.len()..]);
        false
    }

    /// Sets the link target; false if it does not fit.
    pub(crate) fn link(&mut self, target: &[u8]) -> bool {
        put_text(&mut self.block[LINK], target)
    }

    /// Sets the names of owner and group; false for a name that does not fit.
    pub(crate) fn names(&mut self, uname: &[u8], gname: &[u8]) -> (bool, bool) {
        // These two fields must end with a NUL.
        let put = |field: &mut [u8], text: &[u8]| {
            let last = field.len() - 1;
            put_text(&mut field[..last], text)
        };
        (put(&mut self.block[UNAME], uname), put(&mut self.block[GNAME], gname))
    }

    /// Sets the permission bits.
    pub(crate) fn mode(&mut self, mode: u32) {
        put_octal(&mut self.block[MODE], u64::from(mode & 0o7777));
    }

    /// Sets the owner's id; false if it does not fit.
    pub(crate) fn uid(&mut self, uid: u32) -> bool {
        put_octal(&mut self.block[UID], u64::from(uid))
    }

    /// Sets the group's id; false if it does not fit.
    pub(crate) fn gid(&mut self, gid: u32) -> bool {
        put_octal(&mut self.block[GID], u64::from(gid))
    }

    /// Sets the data's size; false if it does not fit.
    pub(crate) fn size(&mut self, size: u64) -> bool {
        put_octal(&mut self.block[SIZE], size)
    }

    /// Sets the modification time; false if it does not fit.
    pub(crate) fn mtime(&mut self, sec: i64) -> bool {
        match u64::try_from(sec) {
            Ok(sec) => put_octal(&mut self.block[MTIME], sec),
            Err(_) => {
                put_octal(&mut self.block[MTIME], 0);
                false
            }
        }
    }

    /// Sets the device numbers; false for a number that does not fit.
    pub(crate) fn device(&mut self, major: u32, minor: u32) -> (bool, bool) {
        (
            put_octal(&mut self.block[DEVMAJOR], u64::from(major)),
            put_octal(&mut self.block[DEVMINOR], u64::from(minor)),
        )
    }

    /// Returns the block with its checksum set.
    pub(crate) fn finish(mut self) -> Block {
        let sum = checksum(&self.block);
        put_octal(&mut self.block[CHECKSUM.start..CHECKSUM.end - 1], u64::from(sum));
        self.block[CHECKSUM.end - 1] = b' ';
        self.block
    }
}

fn put_text(field: &mut [u8], text: &[u8]) -> bool {
    let fits = text.len() <= field.len();
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
    fits
}

/// Writes zero-padded octal digits and a NUL. Writes zeros if the number does not fit.
fn put_octal(field: &mut [u8], value: u64) -> bool {
    let digits = field.len() - 1;
    let fits = digits >= 22 || value >> (3 * digits) == 0;
    let mut rest = if fits { value } else { 0 };
    for byte in field[..digits].iter_mut().rev() {
        *byte = b'0' + (rest & 7).to_le_bytes()[0];
        rest >>= 3;
    }
    field[digits] = 0;
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"   644 \0"), Ok(0o644));
        assert_eq!(number(b"77777777"), Ok(0o77777777));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(number(b"        "), Ok(0));
        assert!(number(b"0000849\0").is_err());
        assert!(number(b"-000001\0").is_err());
        assert_eq!(number(b"\x80\0\0\0\0\0\x01\0"), Ok(256));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Ok(-2));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), Ok(-1));
        assert!(number(b"\x80\0\0\xff\0\0\0\0\0\0\0\0").is_err());
        assert_eq!(id("uid", b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Ok(u32::MAX - 1));
        assert!(id("uid", b"\xff\xff\xff\x00\xff\xff\xff\xfe").is_err());
    }

    #[test]
    fn a_built_header_parses() {
        let mut builder = Builder::new(b'0');
        let long = [&[b'd'; 120][..], b"/", &[b'f'; 90]].concat();
        assert!(builder.path(&long));
        assert!(builder.uid(0o7777777));
        assert!(!builder.gid(0o10000000));
        assert!(builder.size(0o77777777777));
        assert!(!builder.mtime(-1));
        let header = Header::parse(&builder.finish()).unwrap();
        assert_eq!(header.path(), long);
        assert_eq!(header.uid(), Ok(0o7777777));
        assert_eq!(header.gid(), Ok(0));
        assert_eq!(header.size(), Ok(0o77777777777));
    }

    #[test]
    fn signed_checksums_pass_and_wrong_ones_do_not() {
        let mut builder = Builder::new(b'0');
        builder.path(b"\xc3\xa4");
        let mut block = builder.finish();
        let sum = checksum(&block) - 512;
        put_octal(&mut block[148..155], u64::from(sum));
        assert!(Header::parse(&block).is_some());
        block[0] ^= 1;
        assert!(Header::parse(&block).is_none());
        assert!(Header::parse(&[0; BLOCK]).is_none());
    }
}
