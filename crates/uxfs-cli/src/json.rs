//! The documents of `--json`.
//!
//! A document is one line. It names its `schema` and `version`; within a version, keys are only
//! added. Numbers have no suffix; the key names the unit. Text that is not UTF-8 is escaped, and a
//! second key, such as `name_base64`, holds the exact bytes. Inode numbers are JSON numbers, although
//! they can exceed 2^53.

use serde_json::{Map, Value, json};
use uxfs::Stat;
use uxfs::format::timestamp::Timestamp;

use crate::mode;

/// Builds a document of this schema.
pub(crate) fn document(schema: &str, body: Map<String, Value>) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("schema".into(), json!(format!("uxfs.{schema}")));
    map.insert("version".into(), json!(1));
    map.extend(body);
    let mut text = Value::Object(map).to_string().into_bytes();
    text.push(b'\n');
    text
}

/// Adds bytes under a key as text, and also as base64 if they are not UTF-8.
pub(crate) fn put_bytes(map: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            map.insert(key.into(), json!(text));
        }
        Err(_) => {
            map.insert(key.into(), json!(bytes.escape_ascii().to_string()));
            map.insert(format!("{key}_base64"), json!(base64(bytes)));
        }
    }
}

/// Adds the attributes of a file.
pub(crate) fn put_stat(map: &mut Map<String, Value>, stat: &Stat, block_size: u32) {
    let kind = match mode::type_letter(stat.mode) {
        'f' => "file",
        'd' => "directory",
        'l' => "symlink",
        'c' => "character-device",
        'b' => "block-device",
        'p' => "fifo",
        's' => "socket",
        _ => "unknown",
    };
    map.insert("type".into(), json!(kind));
    map.insert("inode".into(), json!(stat.ino.0));
    map.insert("mode".into(), json!(format!("{:04o}", stat.mode & 0o7777)));
    map.insert("links".into(), json!(stat.nlink));
    map.insert("uid".into(), json!(stat.uid));
    map.insert("gid".into(), json!(stat.gid));
    map.insert("size_bytes".into(), json!(stat.size));
    map.insert("allocated_bytes".into(), json!(stat.blocks * u64::from(block_size)));
    if matches!(kind, "character-device" | "block-device") {
        map.insert("device_major".into(), json!(stat.rdev.0));
        map.insert("device_minor".into(), json!(stat.rdev.1));
    }
    for (key, time) in [
        ("atime_ns", stat.atime),
        ("mtime_ns", stat.mtime),
        ("ctime_ns", stat.ctime),
        ("crtime_ns", stat.crtime),
    ] {
        map.insert(key.into(), nanoseconds(time));
    }
    map.insert("generation".into(), json!(stat.generation));
    map.insert("project".into(), json!(stat.projid));
}

/// Nanoseconds since 1970. All times of XFS fit into 64 bits, with and without bigtime.
fn nanoseconds(time: Timestamp) -> Value {
    let total = i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    match (i64::try_from(total), u64::try_from(total)) {
        (Ok(signed), _) => json!(signed),
        (_, Ok(unsigned)) => json!(unsigned),
        _ => json!(total.to_string()),
    }
}

/// Encodes as base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            if place > group.len() {
                text.push('=');
            } else {
                text.push(char::from(LETTERS[(bits >> (18 - 6 * place) & 63) as usize]));
            }
        }
    }
    text
}

/// Decodes base64; `None` if the text is not valid.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_encodes_and_decodes() {
        for (raw, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\0", "/wA=")]
        {
            assert_eq!(base64(raw), text);
            assert_eq!(from_base64(text).as_deref(), Some(raw));
        }
        assert_eq!(from_base64("a*"), None);
    }
}
