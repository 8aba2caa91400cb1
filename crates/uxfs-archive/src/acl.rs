//! Converts POSIX ACLs between text, which tar archives store (`SCHILY.acl.access`), and Linux'
//! attribute values.
//!
//! Text: entries `tag:qualifier:perms[:id]`, separated by commas or newlines; `#` starts a
//! comment. Binary: `le32 version = 2`, then for each entry `le16 tag, le16 perm, le32 id`, in the
//! order owner, users, group, groups, mask, other; users and groups ascending by id.
//!
//! Invariants:
//! 1. A name is never guessed. The id of a named entry is the name itself if it is a number, the
//!    fourth field, or the id in this machine's `/etc/passwd` or `/etc/group`; otherwise the entry
//!    is an error. (Dropping an entry could give users rights that the entry denies.)
//! 2. Written text has numeric ids, and GNU tar, star and libarchive all read it the same way.

use std::fmt::Write;

/// Attribute that stores an access ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute that stores a directory's default ACL.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Length in bytes of an attribute value without entries.
pub(crate) const EMPTY_LEN: usize = 4;
/// Length in bytes of an attribute value with only the three mandatory entries.
pub(crate) const MINIMAL_LEN: usize = EMPTY_LEN + 3 * 8;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
/// Linux limits an attribute value to 64 KiB.
const ENTRIES_MAX: usize = ((64 << 10) - 4) / 8;
/// Most bytes of an entry's text; names of users have at most 256.
const ENTRY_TEXT_MAX: usize = 1024;

/// Converts an ACL's text to the attribute's value.
pub(crate) fn from_text(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut entries: Vec<(u16, u32, u16)> = Vec::new();
    for item in text.split(|byte| matches!(byte, b',' | b'\n')) {
        let item = item.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if !item.is_empty() {
            entries.push(entry_from_text(item)?);
        }
        if entries.len() > ENTRIES_MAX {
            return Err(format!("ACL with more than {ENTRIES_MAX} entries"));
        }
    }
    entries.sort_unstable();
    if let Some(twice) = entries.windows(2).find(|w| (w[0].0, w[0].1) == (w[1].0, w[1].1)) {
        return Err(format!("ACL with two entries of tag {:#x}, id {}", twice[0].0, twice[0].1));
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

fn entry_from_text(item: &[u8]) -> Result<(u16, u32, u16), String> {
    if item.len() > ENTRY_TEXT_MAX {
        return Err(format!("ACL entry of {} bytes", item.len()));
    }
    let bad = || format!("invalid ACL entry '{}'", item.escape_ascii());
    // Some writers mark each entry of a default ACL.
    let item = item.strip_prefix(b"default:").unwrap_or(item);
    let fields: Vec<&[u8]> = item.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).collect();
    let tag = *fields.first().ok_or_else(bad)?;
    // `mask:rwx` and `other:rwx` may omit the empty qualifier.
    let (qualifier, perms, id) = match (tag, fields.as_slice()) {
        (b"mask" | b"m" | b"other" | b"o", [_, perms]) => (&b""[..], *perms, None),
        (_, [_, qualifier, perms]) => (*qualifier, *perms, None),
        (_, [_, qualifier, perms, id]) => (*qualifier, *perms, Some(*id)),
        _ => return Err(bad()),
    };
    let perm = perms_from_text(perms).ok_or_else(bad)?;
    let named = !qualifier.is_empty();
    let tag = match tag {
        b"user" | b"u" => [USER_OBJ, USER][usize::from(named)],
        b"group" | b"g" => [GROUP_OBJ, GROUP][usize::from(named)],
        b"mask" | b"m" if !named => MASK,
        b"other" | b"o" if !named => OTHER,
        _ => return Err(bad()),
    };
    let id = match tag {
        USER => resolve(qualifier, id, "/etc/passwd")?,
        GROUP => resolve(qualifier, id, "/etc/group")?,
        _ => NO_ID,
    };
    Ok((tag, id, perm))
}

fn perms_from_text(perms: &[u8]) -> Option<u16> {
    let mut bits = 0;
    // getfacl's "effective rights" comment is removed already; blanks may remain.
    for byte in perms {
        bits |= match byte {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return None,
        };
    }
    Some(bits)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Resolves a user or group name to its id (invariant 1).
fn resolve(name: &[u8], id: Option<&[u8]>, table: &str) -> Result<u32, String> {
    if let Some(id) = id.and_then(number).or_else(|| number(name)) {
        return Ok(id);
    }
    let lines = std::fs::read(table).unwrap_or_default();
    lines
        .split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>())
        .find(|fields| fields.len() > 2 && fields[0] == name)
        .and_then(|fields| number(fields[2]))
        .ok_or_else(|| {
            format!(
                "the ACL names '{}', which {table} does not know; \
                 make the archive with tar --numeric-owner, or add the name",
                name.escape_ascii()
            )
        })
}

/// The permission bits `0o777` of a file with this access ACL; as in Linux, the mask supplies the
/// group bits. `None` if the value is not a complete ACL.
pub(crate) fn mode_bits(value: &[u8]) -> Option<u32> {
    let perm = |wanted: u16| {
        let mut entries = value.get(EMPTY_LEN..)?.chunks_exact(8);
        let entry = entries.find(|entry| u16::from_le_bytes([entry[0], entry[1]]) == wanted)?;
        Some(u32::from(u16::from_le_bytes([entry[2], entry[3]]) & 7))
    };
    let group = perm(MASK).or_else(|| perm(GROUP_OBJ))?;
    Some(perm(USER_OBJ)? << 6 | group << 3 | perm(OTHER)?)
}

/// Converts an attribute's value to text; `None` if it is not a well-formed ACL.
pub(crate) fn to_text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.is_empty() || entries.len() % 8 != 0 {
        return None;
    }
    let mut text = String::with_capacity(entries.len() * 3);
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let perm = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let name = match tag {
            USER_OBJ | USER => "user",
            GROUP_OBJ | GROUP => "group",
            MASK => "mask",
            OTHER => "other",
            _ => return None,
        };
        if perm > 7 {
            return None;
        }
        if !text.is_empty() {
            text.push(',');
        }
        let bit = |bit: u16, letter: char| if perm & bit == 0 { '-' } else { letter };
        let perms = [bit(4, 'r'), bit(2, 'w'), bit(1, 'x')];
        let perms = String::from_iter(perms);
        match tag {
            USER | GROUP => write!(text, "{name}:{id}:{perms}:{id}").ok()?,
            _ => write!(text, "{name}::{perms}").ok()?,
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let text = "user::rwx\nuser:1001:r-x\nuser:alien:rw-:70000 # note\n\
                    group::r--\ngroup:root:r--\nmask::rwx\nother::---\n";
        let value = from_text(text.as_bytes()).unwrap();
        assert_eq!(value.len(), 4 + 7 * 8);
        assert_eq!(
            to_text(&value).unwrap(),
            "user::rwx,user:1001:r-x:1001,user:70000:rw-:70000,group::r--,group:0:r--:0,\
             mask::rwx,other::---"
        );
        assert_eq!(mode_bits(&value), Some(0o770));
        assert_eq!(mode_bits(&value[..12]), None);
        assert_eq!(from_text(to_text(&value).unwrap().as_bytes()), Ok(value));
    }

    #[test]
    fn bad_text_is_refused() {
        for text in ["user", "user::rwz", "boss::rwx", "mask:x:rwx", "user::r,user::w"] {
            assert!(from_text(text.as_bytes()).is_err(), "{text}");
        }
        let unknown = from_text(b"user:no-such-user-here:rwx").unwrap_err();
        assert!(unknown.contains("--numeric-owner"), "{unknown}");
    }

    #[test]
    fn bad_values_have_no_text() {
        for value in [&b""[..], b"\x02\0\0\0", b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff"] {
            assert_eq!(to_text(value), None);
        }
    }
}
