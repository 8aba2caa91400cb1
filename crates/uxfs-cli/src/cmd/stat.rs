//! `uxfs stat`: shows the attributes of files.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value};
use uxfs::format::inode::{S_IFBLK, S_IFCHR, S_IFMT};

use crate::image::Images;
use crate::mode::{letters, type_words};
use crate::place::Inside;
use crate::session::{Result, Session};
use crate::tree::{self, Found};
use crate::{json, quote, time, users};

/// Show the attributes of files
///
/// Formats take the directives of stat(1): %a %A %b %B %C %d %f %F %g %G %h %i %m %n %N %o %r %R %s
/// %t %T %u %U %w %W %x %X %y %Y %z %Z, with flags and width.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs stat disk.img:/etc/passwd\n  \
    uxfs stat -c '%a %U %n' disk.img:/bin/*\n  \
    uxfs stat --json disk.img:/etc | jq .files[0].mtime_ns")]
pub(crate) struct Options {
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print this for each file, and a newline
    #[arg(short = 'c', long, value_name = "FORMAT", conflicts_with = "printf")]
    format: Option<String>,
    /// Print this for each file, with escapes such as \n
    #[arg(long, value_name = "FORMAT")]
    printf: Option<String>,
    /// Print one line per file
    #[arg(short, long, conflicts_with_all = ["format", "printf"])]
    terse: bool,
    /// Print a JSON document
    #[arg(long, conflicts_with_all = ["format", "printf", "terse"])]
    pub(crate) json: bool,
    /// The files
    #[arg(value_name = "IMAGE:/FILE", required = true)]
    files: Vec<OsString>,
}

const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o";

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let mut documents = Vec::new();
    for file in &options.files {
        let place = Inside::parse(file);
        let Some(found) = session.ok(tree::find(images, &place, false, options.dereference)) else {
            continue;
        };
        if options.json {
            let block = found.fs().geo.block_size;
            let mut map = Map::new();
            json::put_bytes(&mut map, "path", &tree::shown(&place));
            json::put_stat(&mut map, &found.stat, block);
            if tree::is_link(&found.stat) {
                json::put_bytes(&mut map, "target", &target(&found)?);
            }
            documents.push(Value::Object(map));
            continue;
        }
        let text = match (&options.format, &options.printf) {
            (Some(format), _) => [&render(format, &found)?[..], b"\n"].concat(),
            (_, Some(format)) => render(&unescape(format), &found)?,
            _ if options.terse => [&render(TERSE, &found)?[..], b"\n"].concat(),
            _ => usual(&found)?,
        };
        session.print(text)?;
    }
    if options.json {
        let mut map = Map::new();
        map.insert("files".into(), Value::Array(documents));
        session.print(json::document("stat", map))?;
    }
    Ok(())
}

fn usual(found: &Found) -> Result<Vec<u8>> {
    let device = matches!(found.stat.mode & S_IFMT, S_IFCHR | S_IFBLK);
    let links = if device { "%-5h Device type: %Hr,%Lr" } else { "%h" };
    let format = format!(
        "  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n\
         Device: %Hd,%Ld\tInode: %-10i  Links: {links}\n\
         Access: (%04a/%10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\n\
         Access: %x\nModify: %y\nChange: %z\n Birth: %w\n"
    );
    let name = tree::shown(&found.place);
    let mut text = [b"  File: ", &quote::message(&name)[..]].concat();
    if tree::is_link(&found.stat) {
        text.extend_from_slice(b" -> ");
        text.extend_from_slice(&quote::message(&target(found)?));
    }
    text.push(b'\n');
    text.extend_from_slice(&render(&format, found)?);
    Ok(text)
}

fn target(found: &Found) -> Result<Vec<u8>> {
    found.fs().readlink(found.stat.ino).map_err(|error| tree::at(&found.place, error))
}

/// A parsed format directive.
struct Directive<'a> {
    flags: &'a str,
    width: usize,
    precision: Option<usize>,
    letter: &'a str,
}

/// Parses the directive after a `%`. Returns it and the rest of the format.
fn directive(text: &str) -> Option<(Directive<'_>, &str)> {
    let split =
        |text: &str, set: &str| text.len() - text.trim_start_matches(|c| set.contains(c)).len();
    let (flags, rest) = text.split_at(split(text, "'-+ #0"));
    let (width, rest) = rest.split_at(split(rest, "0123456789"));
    let (precision, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let (digits, rest) = rest.split_at(split(rest, "0123456789"));
            (Some(digits.parse().unwrap_or(0)), rest)
        }
        None => (None, rest),
    };
    let mut letters = rest.char_indices();
    let (_, first) = letters.next()?;
    let two = matches!(first, 'H' | 'L') && rest[1..].starts_with(['d', 'r']);
    let end = if two { 2 } else { first.len_utf8() };
    let width = width.parse().unwrap_or(0);
    Some((Directive { flags, width, precision, letter: &rest[..end] }, &rest[end..]))
}

/// Larger widths are reduced to this one, to bound the output.
const WIDTH_MAX: usize = 4096;

fn render(format: &str, found: &Found) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let Some((directive, tail)) = directive(&rest[at + 1..]) else {
            out.push(b'%');
            rest = "";
            break;
        };
        rest = tail;
        let value = value(&directive, found)?;
        pad(&mut out, &value, &directive);
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn pad(out: &mut Vec<u8>, value: &[u8], directive: &Directive<'_>) {
    let width = directive.width.min(WIDTH_MAX);
    let missing = width.saturating_sub(quote::width(value));
    let left = directive.flags.contains('-');
    let numeric = !"nNFAUGmCwxyz".contains(directive.letter);
    let fill = if directive.flags.contains('0') && numeric && !left { b'0' } else { b' ' };
    if !left {
        out.resize(out.len() + missing, fill);
    }
    out.extend_from_slice(value);
    if left {
        out.resize(out.len() + missing, b' ');
    }
}

fn value(directive: &Directive<'_>, found: &Found) -> Result<Vec<u8>> {
    let stat = &found.stat;
    let block = u64::from(found.fs().geo.block_size);
    let name = || tree::shown(&found.place);
    let epoch = |time| {
        let digits = directive.precision.map_or(0, |digits| if digits == 0 { 9 } else { digits });
        time::seconds(time, digits)
    };
    let unknown = || "UNKNOWN".to_owned();
    let text = match directive.letter {
        "n" => return Ok(name()),
        "N" => {
            let quoted = |name: &[u8]| match quote::shell(name) {
                plain if plain == name => [b"'", name, b"'"].concat(),
                quoted => quoted,
            };
            let mut text = quoted(&name());
            if tree::is_link(stat) {
                text.extend_from_slice(b" -> ");
                text.extend_from_slice(&quoted(&target(found)?));
            }
            return Ok(text);
        }
        "a" if directive.flags.contains('#') => format!("0{:o}", stat.mode & 0o7777),
        "a" => format!("{:o}", stat.mode & 0o7777),
        "A" => letters(stat.mode),
        "b" => (stat.blocks * (block / 512)).to_string(),
        "B" => "512".into(),
        "C" => "?".into(),
        // An image has no device number.
        "d" | "D" | "Hd" | "Ld" => "0".into(),
        "f" => format!("{:x}", stat.mode),
        "F" => type_words(stat.mode, stat.size).into(),
        "g" => stat.gid.to_string(),
        "G" => users::group_name(stat.gid).map_or_else(unknown, Into::into),
        "h" => stat.nlink.to_string(),
        "i" => stat.ino.0.to_string(),
        "m" => format!("{}:/", found.place.image.display()),
        "o" => block.to_string(),
        "r" => device_number(stat.rdev).to_string(),
        "R" => format!("{:x}", device_number(stat.rdev)),
        "Hr" => stat.rdev.0.to_string(),
        "Lr" => stat.rdev.1.to_string(),
        "s" => stat.size.to_string(),
        "t" => format!("{:x}", stat.rdev.0),
        "T" => format!("{:x}", stat.rdev.1),
        "u" => stat.uid.to_string(),
        "U" => users::user_name(stat.uid).map_or_else(unknown, Into::into),
        "w" => time::full(stat.crtime),
        "W" => epoch(stat.crtime),
        "x" => time::full(stat.atime),
        "X" => epoch(stat.atime),
        "y" => time::full(stat.mtime),
        "Y" => epoch(stat.mtime),
        "z" => time::full(stat.ctime),
        "Z" => epoch(stat.ctime),
        "%" => "%".into(),
        _ => "?".into(),
    };
    Ok(text.into_bytes())
}

/// Replaces the backslash escapes of `--printf`.
fn unescape(format: &str) -> String {
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('0') => out.push('\0'),
            Some('a') => out.push('\x07'),
            Some('e') => out.push('\x1b'),
            Some(other) => out.push(other),
            None => out.push('\\'),
        }
    }
    out
}

/// Major and minor number in one, as Linux' stat(2) has them.
fn device_number((major, minor): (u32, u32)) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}
