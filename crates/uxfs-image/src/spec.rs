//! The description of a disk: a TOML file, read and checked for its form.
//!
//! 1. Unknown keys are refused with their line.
//! 2. Whether the values fit together is checked in [`plan`](crate::plan), before anything is written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;

use crate::error::ImageError;

/// A disk.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spec {
    /// The disk as a whole.
    #[serde(default)]
    pub disk: Disk,
    /// The partitions, in the order of their numbers.
    #[serde(default, rename = "partition")]
    pub partitions: Vec<Spanned<Partition>>,
}

/// The disk as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Disk {
    /// Size of the disk; as large as the partitions need if not given.
    pub size: Option<Bytes>,
    /// The disk's GUID.
    pub uuid: Option<String>,
    /// Any text: all UUIDs that are not given are derived from it.
    pub seed: Option<String>,
}

/// A partition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Partition {
    /// The type: a name as `esp` or `root-x86-64`, or a GUID.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name in the partition table; that of the type if not given.
    pub name: Option<String>,
    /// PARTUUID.
    pub uuid: Option<String>,
    /// First byte; behind the partition before if not given.
    pub start: Option<Bytes>,
    /// Length.
    pub size: Option<Size>,
    /// Attribute: mount read-only.
    pub read_only: Option<bool>,
    /// Attribute: do not mount automatically.
    #[serde(default)]
    pub no_auto: bool,
    /// Attribute: the file system grows to the partition when it is mounted.
    #[serde(default)]
    pub grow_fs: bool,
    /// Content: an XFS volume.
    pub xfs: Option<Xfs>,
    /// Content: a FAT volume.
    pub fat: Option<Fat>,
    /// Content: the hash tree of another partition.
    pub verity: Option<Verity>,
    /// Content: the bytes of a file.
    pub file: Option<PathBuf>,
}

/// An XFS volume and the tree that fills it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Xfs {
    /// A directory, a tar archive, or `oci:DIR[:TAG]`.
    pub source: Option<PathBuf>,
    /// Archives and directories applied as layers, the lowest first.
    pub layers: Option<Vec<PathBuf>>,
    /// A manifest in composefs' dump format; `source` is the directory of the payloads.
    pub manifest: Option<PathBuf>,
    /// Platform to take from an OCI image layout, `OS/ARCH[/VARIANT]`.
    pub platform: Option<String>,
    /// Label of the volume.
    pub label: Option<String>,
    /// UUID of the volume.
    pub uuid: Option<String>,
    /// Owner of all files, `UID` or `UID:GID`.
    pub owner: Option<String>,
    /// Maps of user IDs, `FROM:TO[:COUNT]`.
    #[serde(default)]
    pub map_uid: Vec<String>,
    /// Maps of group IDs.
    #[serde(default)]
    pub map_gid: Vec<String>,
    /// Options of mkfs.xfs, as `["-m rmapbt=1", "-i size=1024"]`.
    #[serde(default)]
    pub mkfs: Vec<String>,
    /// Where the rules for the files' SELinux labels come from; without it, files keep the labels of the source.
    pub file_contexts: Option<Contexts>,
}

/// A FAT volume and the files in it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fat {
    /// A directory whose content is copied.
    pub source: Option<PathBuf>,
    /// Files and directories to add: place in the volume, path on the host.
    #[serde(default)]
    pub files: BTreeMap<String, PathBuf>,
    /// Label of the volume.
    pub label: Option<String>,
    /// Bits of an entry in the allocation table, 16 or 32.
    pub bits: Option<u8>,
}

/// A dm-verity hash tree.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Verity {
    /// Name of the partition that is hashed.
    pub data: String,
    /// Salt in hexadecimal digits; empty for none.
    pub salt: Option<String>,
    /// UUID in the superblock of the hash tree.
    pub uuid: Option<String>,
}

/// A number of bytes: an integer, or text as `512M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// The length of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many bytes.
    Bytes(u64),
    /// As small as the content allows.
    Minimize,
    /// Everything that other partitions leave of the disk.
    Rest,
}

/// Where rules for SELinux labels come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contexts {
    /// The policy in the tree that fills the volume: `"auto"`.
    Auto,
    /// Files of rules; the rules of a later one have precedence.
    Files(Vec<PathBuf>),
}

struct ContextsVisitor;

impl<'de> Visitor<'de> for ContextsVisitor {
    type Value = Contexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", or a list of files such as [\"file_contexts\"]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Contexts, E> {
        match text {
            "auto" => Ok(Contexts::Auto),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Contexts, A::Error> {
        let mut files = Vec::new();
        while let Some(file) = list.next_element::<PathBuf>()? {
            files.push(file);
        }
        match &*files {
            [] => Err(de::Error::invalid_length(0, &self)),
            files if files.iter().any(|file| file.as_os_str() == "auto") => {
                Err(de::Error::custom("\"auto\" stands alone, not in a list of files"))
            }
            _ => Ok(Contexts::Files(files)),
        }
    }
}

impl<'de> Deserialize<'de> for Contexts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ContextsVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"512M\", or a number of bytes")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Size, E> {
        let bytes = u64::try_from(value);
        bytes.map(Size::Bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        match text {
            "minimize" => Ok(Size::Minimize),
            "rest" => Ok(Size::Rest),
            _ => parse_bytes(text)
                .map(Size::Bytes)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(SizeVisitor)? {
            Size::Bytes(bytes) => Ok(Self(bytes)),
            Size::Minimize | Size::Rest => Err(de::Error::custom(
                "only the size of a partition can be \"minimize\" or \"rest\"",
            )),
        }
    }
}

/// Parses a size with an optional suffix K, M, G or T (powers of 1024).
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Spec {
    /// Parses the text of a description.
    ///
    /// # Errors
    /// [`ImageError::Spec`] with the line.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ImageError::Spec { line: line_of(text, at), problem: error.message().to_owned() }
        })
    }
}

/// The number of the line that holds a byte of the text.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [("512M", 512 << 20), ("4GiB", 4 << 30), ("7", 7), ("1k", 1024)] {
            assert_eq!(parse_bytes(text), Some(bytes));
        }
        for text in ["", "M", "1X", "-1", "99999999999999999999", "99999999T", "1 M"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn wrong_forms_name_their_line() {
        for (text, line, said) in [
            ("[disk]\nsize = \"4G\"\nsise = 1", 3, "unknown field"),
            ("[[partition]]\ntype = \"esp\"\n[partition.fat]\nfrom = \"x\"", 4, "unknown field"),
            ("[[partition]]\nname = \"x\"", 1, "missing field `type`"),
            ("\n[disk]\nsize = -1", 3, "invalid value"),
            ("[disk]\nsize = \"rest\"", 2, "only the size of a partition"),
            ("[[partition]]\ntype='home'\nxfs.file-contexts = 'rules'", 3, "a list of files"),
            ("[[partition]]\ntype='home'\nxfs.file-contexts = []", 3, "a list of files"),
            ("[[partition]]\ntype='home'\nxfs.file-contexts = ['a', 'auto']", 3, "stands alone"),
            ("[disk\n", 1, ""),
        ] {
            let Err(ImageError::Spec { line: at, problem }) = Spec::parse(text) else {
                panic!("{text}: parses");
            };
            assert_eq!(at, line, "{text}: {problem}");
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
