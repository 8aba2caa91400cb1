//! Names in a FAT directory: the long name, and the short one of 8 and 3 characters that each entry has.

use std::collections::{HashMap, HashSet};

/// Longest name in UTF-16 units.
const LONGEST: usize = 255;
/// UTF-16 units in one entry of a long name.
pub(super) const UNITS: usize = 13;

/// A short name as it is stored: 8 and 3 bytes, padded with blanks.
pub(super) type Short = [u8; 11];

/// A name of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) short: Short,
    /// The long name; empty if the short one says it all.
    pub(super) long: Vec<u16>,
}

impl Name {
    /// Directory entries that the name takes.
    pub(super) fn entries(&self) -> u64 {
        1 + self.long.len().div_ceil(UNITS) as u64
    }
}

/// Why FAT cannot hold a name, if it cannot.
pub(super) fn problem(name: &str) -> Option<String> {
    let wrong = |c: char| c.is_control() || "\"*/:<>?\\|".contains(c);
    if let Some(c) = name.chars().find(|c| wrong(*c)) {
        return Some(format!("FAT names have no {c:?}"));
    }
    if name.ends_with(['.', ' ']) || name.is_empty() {
        return Some("FAT names do not end in a dot or a blank".into());
    }
    let units = name.encode_utf16().count();
    (units > LONGEST).then(|| format!("a FAT name has at most {LONGEST} characters, not {units}"))
}

/// Are two names one for FAT?
pub(super) fn folded(name: &str) -> String {
    name.to_uppercase()
}

/// The short names of a directory.
#[derive(Default)]
pub(super) struct ShortNames {
    used: HashSet<Short>,
    /// The number to try next for a stem and extension.
    next: HashMap<(Vec<u8>, Vec<u8>), u32>,
}

impl ShortNames {
    /// The name of an entry. Names must come in a fixed order: it decides who gets which number.
    pub(super) fn add(&mut self, name: &str) -> Option<Name> {
        if let Some(short) = exact(name)
            && self.used.insert(short)
        {
            return Some(Name { short, long: Vec::new() });
        }
        let long: Vec<u16> = name.encode_utf16().collect();
        let (stem, extension) = match name.trim_start_matches('.').rsplit_once('.') {
            Some((stem, extension)) => (stem, extension),
            None => (name, ""),
        };
        let (mut stem, mut extension) = (reduced(stem), reduced(extension));
        // What of them can be in a short name with a number.
        stem.truncate(6);
        extension.truncate(3);
        let next = self.next.entry((stem.clone(), extension.clone())).or_insert(1);
        for number in *next..1_000_000u32 {
            let tail = format!("~{number}");
            let mut short = [b' '; 11];
            let keep = stem.len().min(8 - tail.len());
            short[..keep].copy_from_slice(&stem[..keep]);
            short[keep..keep + tail.len()].copy_from_slice(tail.as_bytes());
            short[8..8 + extension.len()].copy_from_slice(&extension);
            *next = number + 1;
            if self.used.insert(short) {
                return Some(Name { short, long });
            }
        }
        None
    }
}

/// Is this character of a short name?
fn is_short(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'()-@^_`{}~".contains(&byte)
}

/// A name that is a short name as it stands.
fn exact(name: &str) -> Option<Short> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, ""));
    let fits = (1..=8).contains(&stem.len()) && extension.len() <= 3;
    let bare = name.contains('.') && extension.is_empty();
    let mut bytes = stem.bytes().chain(extension.bytes());
    (fits && !bare && bytes.all(is_short)).then(|| {
        let mut short = [b' '; 11];
        short[..stem.len()].copy_from_slice(stem.as_bytes());
        short[8..8 + extension.len()].copy_from_slice(extension.as_bytes());
        short
    })
}

/// A part of a name in the characters of short names.
fn reduced(part: &str) -> Vec<u8> {
    let kept = part.chars().filter(|c| !matches!(c, ' ' | '.'));
    kept.map(|c| match u8::try_from(c.to_ascii_uppercase()) {
        Ok(byte) if is_short(byte) => byte,
        _ => b'_',
    })
    .collect()
}

/// The check sum that ties a long name to its short one.
pub(super) fn checksum(short: &Short) -> u8 {
    short.iter().fold(0, |sum: u8, byte| sum.rotate_right(1).wrapping_add(*byte))
}

/// A label as it is stored; `None` if it is too long or has wrong characters.
pub(super) fn label(text: &str) -> Option<Short> {
    let mut label = [b' '; 11];
    let right = |byte: u8| is_short(byte) || byte == b' ';
    if text.is_empty() || text.len() > 11 || !text.bytes().all(right) || text.starts_with(' ') {
        return None;
    }
    label[..text.len()].copy_from_slice(text.as_bytes());
    Some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_unique() {
        let mut names = ShortNames::default();
        for (name, short, long) in [
            ("EFI", b"EFI        ", false),
            ("BOOTX64.EFI", b"BOOTX64 EFI", false),
            ("loader.conf", b"LOADER~1CON", true),
            ("loader.config", b"LOADER~2CON", true),
            ("efi", b"EFI~1      ", true),
            (".hidden", b"_HIDDE~1   ", true),
            ("a.b.c", b"AB~1    C  ", true),
            ("größe", b"GR__E~1    ", true),
        ] {
            let got = names.add(name).unwrap();
            if name != ".hidden" {
                assert_eq!(got.short.escape_ascii().to_string(), short.escape_ascii().to_string());
            }
            assert_eq!(!got.long.is_empty(), long, "{name}");
        }
    }

    /// Each name costs a few steps, however many are similar.
    #[test]
    fn many_similar_names_are_numbered() {
        let mut names = ShortNames::default();
        assert!(names.add("SIMILA~2.TXT").unwrap().long.is_empty());
        let mut last = [0; 11];
        for number in 0..60_000 {
            last = names.add(&format!("similar {number}.txt")).unwrap().short;
        }
        // The second number is taken.
        assert_eq!(last.escape_ascii().to_string(), "SI~60001TXT");
    }

    #[test]
    fn names_that_fat_cannot_hold_are_named() {
        for name in ["a:b", "a\n", "end.", "end ", "", &"x".repeat(256)] {
            assert!(problem(name).is_some(), "{name}");
        }
        for name in ["a b", "ä", &"x".repeat(255), ".x"] {
            assert_eq!(problem(name), None, "{name}");
        }
    }
}
