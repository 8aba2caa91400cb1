//! Reads and writes PAX extended headers: records `LENGTH KEY=VALUE\n`.
//!
//! Invariants:
//! 1. The headers of an entry have at most [`HEADER_MAX`] bytes, an attribute's value at most
//!    [`XATTR_MAX`]. Memory is allocated as bytes arrive, so it is bounded for any archive.
//! 2. Values are bytes: attribute values may contain newlines and NULs, names need not be UTF-8.
//! 3. An unknown key is skipped; the caller reports it.
//!
//! Used by the tar reader and the tar writer.

use crate::acl;
use crate::entry::{Meta, PATH_MAX, Time, Xattrs, normal_xattrs};
use crate::sparse::SEGMENTS_MAX;

/// Maximum size of one entry's PAX headers in bytes: about 4,000 attributes of the largest size.
pub(crate) const HEADER_MAX: u64 = 256 << 20;
/// Maximum size of a global PAX header in bytes.
pub(crate) const GLOBAL_MAX: u64 = 8 << 20;
/// Linux' maximum length of an attribute value in bytes.
pub(crate) const XATTR_MAX: usize = 64 << 10;
/// Linux' maximum length of an attribute name in bytes.
const XATTR_NAME_MAX: usize = 255;
/// Maximum number of attributes of one entry.
const XATTRS_MAX: usize = 100_000;
const NANOS: u32 = 1_000_000_000;

/// GNU's sparse keys; the set of keys determines the version.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SparseKeys {
    /// `GNU.sparse.major` and `.minor`.
    pub(crate) major: Option<u64>,
    /// See `major`.
    pub(crate) minor: Option<u64>,
    /// The file's size: `GNU.sparse.size`, `GNU.sparse.realsize`.
    pub(crate) realsize: Option<u64>,
    /// The map of versions 0.0 and 0.1. An odd number of values is an error.
    pub(crate) map: Vec<u64>,
    /// Version 0.x: a map is present, even if it is empty.
    pub(crate) mapped: bool,
}

/// Values for one entry from extended headers (PAX and GNU's long names).
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Extended {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) sparse_name: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) uname: Option<Vec<u8>>,
    pub(crate) gname: Option<Vec<u8>>,
    pub(crate) mtime: Option<Time>,
    pub(crate) atime: Option<Time>,
    pub(crate) ctime: Option<Time>,
    pub(crate) crtime: Option<Time>,
    pub(crate) device: (Option<u32>, Option<u32>),
    /// `SCHILY.filetype=socket`.
    pub(crate) socket: bool,
    pub(crate) sparse: SparseKeys,
    xattrs: Xattrs,
    acls: [Option<Vec<u8>>; 2],
    /// Was any extended header read since the last entry?
    pub(crate) any: bool,
    /// Total size of PAX headers in bytes.
    pub(crate) taken: u64,
}

/// Splits a PAX header into its records.
pub(crate) fn records(
    mut data: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    // Some writers include the padding of the last block in the size.
    while !data.is_empty() && !data.iter().all(|byte| *byte == 0) {
        let bad = || {
            let head = &data[..data.len().min(40)];
            format!("PAX record '{}' is malformed", head.escape_ascii())
        };
        let blank = data.iter().take(20).position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length = std::str::from_utf8(&data[..blank]).ok().and_then(|t| t.parse().ok());
        let length: usize = length.ok_or_else(bad)?;
        if length > data.len() || length < blank + 3 || data[length - 1] != b'\n' {
            return Err(bad());
        }
        let record = &data[blank + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        each(&record[..equals], &record[equals + 1..])?;
        data = &data[length..];
    }
    Ok(())
}

impl SparseKeys {
    /// Adds a number to the map.
    fn push(&mut self, number: u64) -> Result<(), String> {
        if self.map.len() >= 2 * SEGMENTS_MAX {
            return Err(format!("sparse map with more than {SEGMENTS_MAX} segments"));
        }
        self.map.push(number);
        Ok(())
    }
}

impl Extended {
    /// Applies one record. `Ok(false)` if the key is unknown.
    pub(crate) fn apply(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        if self.apply_common(key, value)? {
            return Ok(true);
        }
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            self.push_xattr(unquote_gnu(name), value.to_vec())?;
            return Ok(true);
        }
        if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            let decoded = unbase64(value).ok_or_else(|| bad_value(key, value))?;
            self.push_xattr(unquote_url(name), decoded)?;
            return Ok(true);
        }
        match key {
            b"path" => self.path = non_empty(key, value)?,
            b"linkpath" => self.link = non_empty(key, value)?,
            b"size" => self.size = parse_opt(key, value)?,
            b"SCHILY.devmajor" => self.device.0 = parse_opt(key, value)?,
            b"SCHILY.devminor" => self.device.1 = parse_opt(key, value)?,
            b"SCHILY.filetype" => self.socket = value == b"socket",
            b"SCHILY.acl.access" => self.acls[0] = Some(value.to_vec()),
            b"SCHILY.acl.default" => self.acls[1] = Some(value.to_vec()),
            // SELinux' label; in GNU tar the trailing NUL is part of the attribute.
            b"RHT.security.selinux" => {
                self.push_xattr(b"security.selinux".to_vec(), value.to_vec())?;
            }
            _ => return self.apply_sparse(key, value),
        }
        Ok(true)
    }

    /// Applies a key that a global header may set, too.
    pub(crate) fn apply_common(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        match key {
            b"uid" => self.uid = parse_opt(key, value)?,
            b"gid" => self.gid = parse_opt(key, value)?,
            b"uname" => self.uname = non_empty(key, value)?,
            b"gname" => self.gname = non_empty(key, value)?,
            b"mtime" => self.mtime = parse_time(key, value)?,
            b"atime" => self.atime = parse_time(key, value)?,
            b"ctime" => self.ctime = parse_time(key, value)?,
            b"LIBARCHIVE.creationtime" => self.crtime = parse_time(key, value)?,
            b"comment"
            | b"charset"
            | b"hdrcharset"
            | b"SCHILY.dev"
            | b"SCHILY.ino"
            | b"SCHILY.nlink"
            | b"LIBARCHIVE.symlinktype"
            | b"SCHILY.acl.type" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply_sparse(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        let sparse = &mut self.sparse;
        match key {
            b"GNU.sparse.major" => sparse.major = parse_opt(key, value)?,
            b"GNU.sparse.minor" => sparse.minor = parse_opt(key, value)?,
            b"GNU.sparse.name" => self.sparse_name = non_empty(key, value)?,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" | b"SCHILY.realsize" => {
                sparse.realsize = parse_opt(key, value)?;
            }
            // Redundant: the map's length determines it.
            b"GNU.sparse.numblocks" => sparse.mapped = true,
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                let is_offset = key.ends_with(b"offset");
                if is_offset != sparse.map.len().is_multiple_of(2) {
                    return Err("GNU.sparse.offset and .numbytes do not alternate".into());
                }
                sparse.mapped = true;
                sparse.push(parse(key, value)?)?;
            }
            b"GNU.sparse.map" => {
                sparse.mapped = true;
                sparse.map.clear();
                for number in value.split(|byte| *byte == b',').filter(|n| !n.is_empty()) {
                    sparse.push(parse(key, number)?)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn push_xattr(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<(), String> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
            return Err(format!(
                "extended attribute name of {} bytes is empty, longer than {XATTR_NAME_MAX}, or \
                 has a NUL",
                name.len()
            ));
        }
        if value.len() > XATTR_MAX {
            return Err(format!(
                "extended attribute {} has {} bytes, Linux allows {XATTR_MAX}",
                name.escape_ascii(),
                value.len()
            ));
        }
        if self.xattrs.len() >= XATTRS_MAX {
            return Err(format!("more than {XATTRS_MAX} extended attributes"));
        }
        self.xattrs.push((name, value));
        Ok(())
    }

    /// Moves the values of this header into an entry's metadata.
    pub(crate) fn finish_meta(&mut self, meta: &mut Meta) -> Result<(), String> {
        meta.uid = self.uid.unwrap_or(meta.uid);
        meta.gid = self.gid.unwrap_or(meta.gid);
        meta.mtime = self.mtime.unwrap_or(meta.mtime);
        meta.atime = self.atime.or(meta.atime);
        meta.ctime = self.ctime.or(meta.ctime);
        meta.crtime = self.crtime.or(meta.crtime);
        if let Some(name) = self.uname.take() {
            meta.uname = name;
        }
        if let Some(name) = self.gname.take() {
            meta.gname = name;
        }
        for (text, name) in
            std::mem::take(&mut self.acls).into_iter().zip([acl::ACCESS, acl::DEFAULT])
        {
            let Some(text) = text else { continue };
            let value = acl::from_text(&text)?;
            // libarchive's header holds the owning group's own bits, not the mask.
            if let Some(bits) = acl::mode_bits(&value).filter(|_| name == acl::ACCESS) {
                meta.mode = meta.mode & !0o777 | bits;
            }
            // An access ACL with only owner, group and others equals the mode, which is preserved
            // anyway. Linux does not store it then, but GNU tar writes it. If the attribute itself
            // is in the archive, it is exact.
            let least = if name == acl::ACCESS { acl::MINIMAL_LEN } else { acl::EMPTY_LEN };
            if value.len() > least && !self.xattrs.iter().any(|(known, _)| known == name) {
                self.push_xattr(name.to_vec(), value)?;
            }
        }
        meta.xattrs = std::mem::take(&mut self.xattrs);
        normal_xattrs(&mut meta.xattrs);
        Ok(())
    }
}

fn bad_value(key: &[u8], value: &[u8]) -> String {
    let value = &value[..value.len().min(40)];
    format!("PAX key {} has the invalid value '{}'", key.escape_ascii(), value.escape_ascii())
}

/// Parses a decimal number.
fn parse<T: std::str::FromStr>(key: &[u8], value: &[u8]) -> Result<T, String> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| bad_value(key, value))
}

/// Parses a decimal number; an empty value revokes an earlier one.
fn parse_opt<T: std::str::FromStr>(key: &[u8], value: &[u8]) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { parse(key, value).map(Some) }
}

fn non_empty(key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if value.len() > PATH_MAX {
        return Err(format!("PAX key {} has {} bytes", key.escape_ascii(), value.len()));
    }
    Ok(if value.is_empty() { None } else { Some(value.to_vec()) })
}

/// Parses seconds with a decimal fraction of any length; drops digits below a nanosecond.
fn parse_time(key: &[u8], value: &[u8]) -> Result<Option<Time>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let bad = || bad_value(key, value);
    let text = std::str::from_utf8(value).map_err(|_| bad())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let mut sec: i64 = match whole {
        "" | "-" => 0,
        _ => whole.parse().map_err(|_| bad())?,
    };
    let empty = matches!(whole, "" | "-") && fraction.is_empty();
    if empty || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let mut nsec = nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    if negative && nsec > 0 {
        sec = sec.checked_sub(1).ok_or_else(bad)?;
        nsec = NANOS - nsec;
    }
    Ok(Some(Time { sec, nsec }))
}

/// Formats a time for PAX.
pub(crate) fn time_text(time: Time) -> String {
    if time.nsec == 0 {
        return time.sec.to_string();
    }
    // -1 s + 0.25 s is written as -0.75.
    let (sign, sec, nsec) = if time.sec < 0 {
        ("-", (time.sec + 1).unsigned_abs(), NANOS.saturating_sub(time.nsec))
    } else {
        ("", time.sec.unsigned_abs(), time.nsec)
    };
    let text = format!("{sign}{sec}.{nsec:09}");
    text.trim_end_matches('0').to_string()
}

/// Appends a record.
pub(crate) fn push_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    // The length includes its own digits.
    while length != rest + length.ilog10() as usize + 1 {
        length = rest + length.ilog10() as usize + 1;
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The key of an attribute. `=` would end the key, so GNU tar quotes `=` and `%`.
pub(crate) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            byte => key.push(*byte),
        }
    }
    key
}

fn unquote_gnu(name: &[u8]) -> Vec<u8> {
    unquote(name, |hex| matches!(hex, b"25" | b"3D"))
}

fn unquote_url(name: &[u8]) -> Vec<u8> {
    unquote(name, |_| true)
}

fn unquote(name: &[u8], is_quote: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).filter(|hex| *first == b'%' && is_quote(hex));
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Decodes base 64, with or without padding.
fn unbase64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let mut out = Vec::with_capacity(end / 4 * 3 + 2);
    let mut bits: u32 = 0;
    let mut count = 0;
    for byte in &text[..end] {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(digit)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count).to_le_bytes()[0]);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Option<Time> {
        parse_time(b"mtime", text.as_bytes()).unwrap()
    }

    #[test]
    fn times_are_exact_on_both_sides_of_zero() {
        for (text, sec, nsec) in [
            ("1.5", 1, 500_000_000),
            ("-1.5", -2, 500_000_000),
            ("-0.25", -1, 750_000_000),
            ("-7", -7, 0),
            ("0.000000001", 0, 1),
            ("9223372036854775807.999999999", i64::MAX, 999_999_999),
        ] {
            assert_eq!(time(text), Some(Time { sec, nsec }), "{text}");
            assert_eq!(time_text(Time { sec, nsec }), text);
        }
        assert_eq!(time("2.1234567899"), Some(Time { sec: 2, nsec: 123_456_789 }));
        let least = Time { sec: i64::MIN, nsec: 5 };
        assert_eq!(time(&time_text(least)), Some(least));
        for text in ["x", "1.x", ".", "1.5.6", "1e5", "--1", "-"] {
            assert!(parse_time(b"mtime", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn record_lengths_include_their_own_digits() {
        for value in 0..200 {
            let value = vec![b'v'; value];
            let mut out = Vec::new();
            push_record(&mut out, b"key", &value);
            let mut seen = None;
            records(&out, |k, v| {
                seen = Some((k.to_vec(), v.to_vec()));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, Some((b"key".to_vec(), value)));
        }
    }

    #[test]
    fn malformed_records_are_errors() {
        for text in
            ["x", "5 a=b", "0 a=b\n", "99 a=b\n", "6 a=b\n\n", "6 abc\n", "3 \n", "-1 a=b\n"]
        {
            assert!(records(text.as_bytes(), |_, _| Ok(())).is_err(), "{text:?}");
        }
    }

    #[test]
    fn attribute_values_are_binary() {
        let mut extended = Extended::default();
        assert!(extended.apply(b"SCHILY.xattr.user.a%3Db%25", b"\0\n=").unwrap());
        assert!(extended.apply(b"LIBARCHIVE.xattr.user.%c3%a4", b"AAr/PQ==").unwrap());
        assert!(!extended.apply(b"ACME.thing", b"1").unwrap());
        assert!(extended.apply(b"LIBARCHIVE.xattr.user.b", b"!").is_err());
        assert!(extended.apply(b"SCHILY.xattr.user.c", &vec![0; XATTR_MAX + 1]).is_err());
        let mut meta = Meta::default();
        extended.finish_meta(&mut meta).unwrap();
        assert_eq!(meta.xattrs[0], (b"user.a=b%".to_vec(), b"\0\n=".to_vec()));
        assert_eq!(meta.xattrs[1], ("user.ä".as_bytes().to_vec(), b"\0\n\xff=".to_vec()));
        assert_eq!(xattr_key(b"user.a=b%"), b"SCHILY.xattr.user.a%3Db%25");
    }
}
