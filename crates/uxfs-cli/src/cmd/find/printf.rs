//! `find -printf`: a format with `%` directives and backslash escapes.

use uxfs::format::timestamp::Timestamp;

use super::Candidate;
use super::predicates::target;
use crate::mode::{letters, type_letter};
use crate::session::Result;
use crate::{quote, time, tree, users};

/// Digits of a fraction of a second in find's output.
const DIGITS: usize = 10;
const WIDTH_MAX: usize = 4096;

/// Formats the text for a file.
pub(super) fn render(format: &[u8], candidate: &Candidate<'_>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'\\' => {
                let Some(after) = escape(rest, &mut out) else { return Ok(out) };
                rest = after;
            }
            b'%' => rest = directive(rest, candidate, &mut out)?,
            _ => out.push(*byte),
        }
    }
    Ok(out)
}

/// Appends the byte of an escape; `None` for `\c`, which ends the output.
fn escape<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let octal = rest.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    if octal > 0 {
        let value = rest[..octal].iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
        out.push((value & 0xff) as u8);
        return Some(&rest[octal..]);
    }
    let Some((letter, tail)) = rest.split_first() else {
        out.push(b'\\');
        return Some(rest);
    };
    match letter {
        b'a' => out.push(0x07),
        b'b' => out.push(0x08),
        b'c' => return None,
        b'f' => out.push(0x0c),
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'v' => out.push(0x0b),
        b'\\' => out.push(b'\\'),
        other => out.extend_from_slice(&[b'\\', *other]),
    }
    Some(tail)
}

/// Appends the value of the directive at the start of `rest`, which begins after the `%`.
fn directive<'a>(rest: &'a [u8], candidate: &Candidate<'_>, out: &mut Vec<u8>) -> Result<&'a [u8]> {
    let end = rest.iter().position(|b| !b"-+ #0123456789.".contains(b));
    let Some(end) = end else {
        out.push(b'%');
        out.extend_from_slice(rest);
        return Ok(&[]);
    };
    let flags = &rest[..end];
    let (letter, mut tail) = (rest[end], &rest[end + 1..]);
    let mut sub = None;
    if matches!(letter, b'A' | b'C' | b'T' | b'B')
        && let Some((which, after)) = tail.split_first()
    {
        (sub, tail) = (Some(*which), after);
    }
    match value(letter, sub, candidate)? {
        Some((value, numeric)) => pad(flags, &value, numeric, out),
        None => out.extend([b'%', letter]),
    }
    Ok(tail)
}

fn pad(flags: &[u8], value: &[u8], numeric: bool, out: &mut Vec<u8>) {
    let (left, zero) = (flags.contains(&b'-'), flags.first() == Some(&b'0'));
    let text: String = flags.iter().map(|b| char::from(*b)).collect();
    let text = text.trim_start_matches(['-', '+', ' ', '#']);
    let (width, precision) = text.split_once('.').unwrap_or((text, ""));
    let width = width.parse().unwrap_or(0).min(WIDTH_MAX);
    let value = match precision.parse::<usize>() {
        Ok(most) if !numeric => &value[..value.len().min(most)],
        _ => value,
    };
    let missing = width.saturating_sub(quote::width(value));
    if !left {
        let fill = if zero && numeric { b'0' } else { b' ' };
        out.resize(out.len() + missing, fill);
    }
    out.extend_from_slice(value);
    if left {
        out.resize(out.len() + missing, b' ');
    }
}

/// The value of a directive, and whether it is a number.
fn value(
    letter: u8,
    sub: Option<u8>,
    candidate: &Candidate<'_>,
) -> Result<Option<(Vec<u8>, bool)>> {
    let stat = candidate.visited.stat;
    let path = candidate.visited.path;
    let bytes = stat.blocks << candidate.visited.fs.geo.block_log;
    let number = |n: u64| Ok(Some((n.to_string().into_bytes(), true)));
    let text = |text: Vec<u8>| Ok(Some((text, false)));
    match letter {
        b'%' => text(b"%".to_vec()),
        b'p' => text(path.to_vec()),
        b'P' => text(candidate.below().to_vec()),
        b'f' => text(candidate.name().to_vec()),
        b'h' => text(directory(path)),
        b'H' => text(candidate.start.to_vec()),
        b'd' => number(candidate.visited.depth as u64),
        b'l' => text(target(candidate)?),
        b'y' => text(type_letter(stat.mode).to_string().into_bytes()),
        b'Y' => text(end_type(candidate).to_string().into_bytes()),
        b'm' => Ok(Some((format!("{:o}", stat.mode & 0o7777).into_bytes(), true))),
        b'M' => text(letters(stat.mode).into_bytes()),
        b'u' => text(
            users::user_name(stat.uid)
                .map_or_else(|| stat.uid.to_string(), Into::into)
                .into_bytes(),
        ),
        b'g' => text(
            users::group_name(stat.gid)
                .map_or_else(|| stat.gid.to_string(), Into::into)
                .into_bytes(),
        ),
        b'U' => number(stat.uid.into()),
        b'G' => number(stat.gid.into()),
        b's' => number(stat.size),
        b'b' => number(bytes / 512),
        b'k' => number(bytes.div_ceil(1024)),
        b'S' => text(sparseness(bytes, stat.size).into_bytes()),
        b'n' => number(stat.nlink.into()),
        b'i' => number(stat.ino.0),
        // An image has no device number.
        b'D' => number(0),
        b'F' => text(b"xfs".to_vec()),
        b'a' => text(ctime(stat.atime).into_bytes()),
        b'c' => text(ctime(stat.ctime).into_bytes()),
        b't' => text(ctime(stat.mtime).into_bytes()),
        b'A' => text(timed(stat.atime, sub).into_bytes()),
        b'B' => text(timed(stat.crtime, sub).into_bytes()),
        b'C' => text(timed(stat.ctime, sub).into_bytes()),
        b'T' => text(timed(stat.mtime, sub).into_bytes()),
        _ => Ok(None),
    }
}

/// The path without its last name; `.` if it has no slash.
fn directory(path: &[u8]) -> Vec<u8> {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => path[..at].to_vec(),
        None => b".".to_vec(),
    }
}

/// The type of the file that a link leads to; `N` if the link dangles.
fn end_type(candidate: &Candidate<'_>) -> char {
    let visited = &candidate.visited;
    if !tree::is_link(visited.stat) {
        return type_letter(visited.stat.mode);
    }
    match visited.fs.resolve(&candidate.inside(), true).and_then(|ino| visited.fs.stat(ino)) {
        Ok(stat) => type_letter(stat.mode),
        Err(uxfs::Error::Loop) => 'L',
        Err(uxfs::Error::NotFound | uxfs::Error::NotDir) => 'N',
        Err(_) => '?',
    }
}

/// The allocated bytes divided by the size.
fn sparseness(bytes: u64, size: u64) -> String {
    if size == 0 {
        return if bytes == 0 { "1".into() } else { "inf".into() };
    }
    format!("{}", bytes as f64 / size as f64)
}

/// The time in ctime(3)'s format, with the fraction of a second.
fn ctime(at: Timestamp) -> String {
    let format = format!("%a %b %e %H:%M:%S.{:09}0 %Y", at.nsec);
    time::format(at, &format)
}

/// The time in the format of the letter after `%A`, `%B`, `%C` or `%T`.
fn timed(at: Timestamp, sub: Option<u8>) -> String {
    let fraction = format!("{:09}0", at.nsec);
    let format = match sub {
        Some(b'@') => return time::seconds(at, DIGITS),
        Some(b'+') => format!("%Y-%m-%d+%H:%M:%S.{fraction}"),
        Some(b'S') => format!("%S.{fraction}"),
        Some(b'T' | b'X') => format!("%H:%M:%S.{fraction}"),
        Some(b'r') => format!("%I:%M:%S.{fraction} %p"),
        Some(b'c') => "%a %b %e %H:%M:%S %Y".into(),
        Some(b'D' | b'x') => "%m/%d/%y".into(),
        Some(b'h') => "%b".into(),
        Some(letter) if b"HIklMpsZaAbBdFjmUwWyYR".contains(&letter) => {
            format!("%{}", char::from(letter))
        }
        Some(other) => return char::from(other).to_string(),
        None => return String::new(),
    };
    time::format(at, &format)
}
