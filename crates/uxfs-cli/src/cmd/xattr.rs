//! `uxfs xattr`: shows and changes extended attributes, with the syntax and output of `getfattr` and
//! `setfattr`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use uxfs::XattrMode;
use uxfs::posix;
use uxfs_host::OsStrExt;

use crate::image::Images;
use crate::json;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Found};

/// Show, set and remove extended attributes
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs xattr list disk.img:/a\n  \
    uxfs xattr get -n user.note disk.img:/a\n  \
    uxfs xattr get -d disk.img:/a > dump\n  \
    uxfs xattr set -n user.note -v text disk.img:/a\n  \
    uxfs xattr remove -n user.note disk.img:/a")]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show attributes, as getfattr does
    Get(Get),
    /// Show the names of all attributes
    List(List),
    /// Set an attribute, as setfattr does
    Set(Set),
    /// Remove an attribute, as setfattr -x does
    Remove(Remove),
}

#[derive(Args)]
struct Common {
    /// Do not follow symbolic links
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs xattr get -n user.note disk.img:/a\n  \
    uxfs xattr get -d disk.img:/a > dump\n  \
    uxfs xattr get --only-values -n security.capability disk.img:/bin/ping | xxd")]
struct Get {
    /// Only this attribute
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Print values too, not only names
    #[arg(short, long)]
    dump: bool,
    /// Encoding of values: text, hex or base64; default: text if the value is text, else base64
    #[arg(short, long, value_name = "CODING", value_parser = ["text", "hex", "base64"])]
    encoding: Option<String>,
    /// Print only the raw value
    #[arg(long, requires = "name", conflicts_with = "json")]
    only_values: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs xattr list disk.img:/a\n  uxfs xattr list --json disk.img:/a"
)]
struct List {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs xattr set -n user.note -v text disk.img:/a\n  \
    uxfs xattr set -n user.raw -v 0x00ff disk.img:/a disk.img:/b")]
struct Set {
    /// The attribute
    #[arg(short, long, value_name = "NAME")]
    name: OsString,
    /// Its value: text, "quoted text", 0xHEX or 0sBASE64
    #[arg(short, long, value_name = "VALUE", default_value = "")]
    value: OsString,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs xattr remove -n user.note disk.img:/a")]
struct Remove {
    /// The attribute
    #[arg(short, long, value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    common: Common,
}

impl Options {
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Get(get) => get.json,
            Verb::List(list) => list.json,
            _ => false,
        }
    }
}

type Pairs = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let common = match &options.verb {
        Verb::Get(get) => &get.common,
        Verb::List(list) => &list.common,
        Verb::Set(set) => &set.common,
        Verb::Remove(remove) => &remove.common,
    };
    let write = matches!(options.verb, Verb::Set(_) | Verb::Remove(_));
    let mut documents = Vec::new();
    for file in &common.files {
        let place = Inside::parse(file);
        let done = tree::find(images, &place, write, !common.no_dereference)
            .and_then(|found| one(options, session, &found, &mut documents));
        session.ok(done);
    }
    if options.json() {
        let mut map = Map::new();
        map.insert("files".into(), Value::Array(documents));
        session.print(json::document("xattr", map))?;
    }
    Ok(())
}

fn one(
    options: &Options,
    session: &Session,
    found: &Found,
    documents: &mut Vec<Value>,
) -> Result<()> {
    let failed = |error| tree::at(&found.place, error);
    let (fs, ino) = (found.fs(), found.stat.ino);
    match &options.verb {
        Verb::Get(get) => {
            let name = get.name.as_ref().map(|name| name.as_bytes());
            let values = get.dump || get.json || name.is_some();
            let pairs = read(found, name, values).map_err(failed)?;
            if get.json {
                documents.push(document(found, &pairs));
                return Ok(());
            }
            if get.only_values {
                let value = pairs.into_iter().find_map(|(_, value)| value);
                return session.print(value.unwrap_or_default());
            }
            session.print(text(found, &pairs, get.encoding.as_deref()))
        }
        Verb::List(list) => {
            let pairs = read(found, None, false).map_err(failed)?;
            if list.json {
                documents.push(document(found, &pairs));
                return Ok(());
            }
            session.print(text(found, &pairs, None))
        }
        Verb::Set(set) => {
            let value = decode(set.value.as_bytes())
                .ok_or_else(|| Failure::new(&set.value, "bad input encoding"))?;
            let name = set.name.as_bytes();
            posix::set_xattr(fs, ino, name, &value, XattrMode::Any).map_err(failed)
        }
        Verb::Remove(remove) => fs.remove_xattr(ino, remove.name.as_bytes()).map_err(failed),
    }
}

fn read(found: &Found, name: Option<&[u8]>, values: bool) -> uxfs::Result<Pairs> {
    let (fs, ino) = (found.fs(), found.stat.ino);
    let mut names = match name {
        Some(name) => vec![name.to_vec()],
        None => fs.list_xattrs(ino)?,
    };
    names.sort_unstable();
    let value = |name: &[u8]| values.then(|| fs.get_xattr(ino, name)).transpose();
    names.into_iter().map(|name| Ok((name.clone(), value(&name)?))).collect()
}

/// The output of `getfattr`: the file, a line for each attribute, an empty line.
fn text(found: &Found, pairs: &Pairs, encoding: Option<&str>) -> Vec<u8> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut text = [b"# file: ", &tree::shown(&found.place)[..], b"\n"].concat();
    for (name, value) in pairs {
        text.extend_from_slice(name);
        if let Some(value) = value {
            text.push(b'=');
            text.extend_from_slice(&encode(value, encoding));
        }
        text.push(b'\n');
    }
    text.push(b'\n');
    text
}

fn document(found: &Found, pairs: &Pairs) -> Value {
    let mut map = Map::new();
    json::put_bytes(&mut map, "path", &tree::shown(&found.place));
    let attributes = pairs.iter().map(|(name, value)| {
        let mut map = Map::new();
        json::put_bytes(&mut map, "name", name);
        if let Some(value) = value {
            map.insert("size_bytes".into(), json!(value.len()));
            map.insert("value_base64".into(), json!(json::base64(value)));
        }
        Value::Object(map)
    });
    map.insert("attributes".into(), attributes.collect());
    Value::Object(map)
}

/// A value as `getfattr` shows it.
fn encode(value: &[u8], encoding: Option<&str>) -> Vec<u8> {
    let is_text = || {
        let text = value.strip_suffix(b"\0").unwrap_or(value);
        let odd = text.iter().filter(|b| !matches!(b, b' '..=b'~')).count();
        odd * 8 <= text.len()
    };
    let base64 = || format!("0s{}", json::base64(value)).into_bytes();
    match encoding {
        Some("hex") => {
            let digits = value.iter().flat_map(|b| format!("{b:02x}").into_bytes());
            b"0x".iter().copied().chain(digits).collect()
        }
        Some("base64") => base64(),
        None if !is_text() => base64(),
        _ => {
            let mut text = vec![b'"'];
            for byte in value {
                match byte {
                    b'"' | b'\\' => text.extend([b'\\', *byte]),
                    0 | b'\n' | b'\r' => text.extend(format!("\\{byte:03o}").into_bytes()),
                    _ => text.push(*byte),
                }
            }
            text.push(b'"');
            text
        }
    }
}

/// Decodes a value in `setfattr`'s syntax: `0x…`, `0s…`, raw text, or quoted text with escapes.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X")) {
        let digits: Vec<u32> =
            hex.iter().map(|b| char::from(*b).to_digit(16)).collect::<Option<_>>()?;
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        return digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect();
    }
    if let Some(coded) = text.strip_prefix(b"0s").or(text.strip_prefix(b"0S")) {
        return json::from_base64(std::str::from_utf8(coded).ok()?);
    }
    let quoted = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let Some(mut rest) = quoted else { return Some(text.to_vec()) };
    let mut value = Vec::new();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'\\' {
            value.push(*byte);
            continue;
        }
        let octal = rest.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
        if octal > 0 {
            let number = rest[..octal].iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
            value.push(u8::try_from(number).ok()?);
            rest = &rest[octal..];
        } else if let Some((escaped, tail)) = rest.split_first() {
            value.push(*escaped);
            rest = tail;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_values_decode_to_themselves() {
        for value in [&b"text"[..], b"a\"b\\c", b"\0\x01\xff", b"", "é".as_bytes(), b"two words"] {
            for encoding in [None, Some("text"), Some("hex"), Some("base64")] {
                let shown = encode(value, encoding);
                assert_eq!(decode(&shown).as_deref(), Some(value), "{}", shown.escape_ascii());
            }
        }
        assert_eq!(decode(b"plain"), Some(b"plain".to_vec()));
        assert_eq!(decode(b"0x4"), None);
    }
}
