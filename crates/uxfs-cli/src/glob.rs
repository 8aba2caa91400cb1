//! Expands patterns in paths inside images, which no shell can expand: `disk.img:/bin/*`.
//!
//! 1. A pattern is expanded as by a shell: name by name, in byte order. A name that begins with a
//!    dot matches only a pattern that begins with one; `\` quotes the next character; a pattern
//!    without matches stays as it is.
//! 2. A path that names an existing file literally is no pattern.
//! 3. The images are read before the command opens them, and closed again.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use uxfs::Fs;

use crate::cmd::find;
use crate::image::Images;
use crate::pattern;
use crate::place::{Inside, Place};
use crate::tree;

/// Commands whose arguments are existing files.
const COMMANDS: [&str; 22] = [
    "cat",
    "chattr",
    "chmod",
    "chown",
    "cowextsize",
    "cp",
    "du",
    "extsize",
    "fallocate",
    "find",
    "ln",
    "ls",
    "lsattr",
    "mv",
    "readlink",
    "rm",
    "rmdir",
    "stat",
    "tee",
    "touch",
    "truncate",
    "xattr",
];

/// The arguments with every pattern expanded; `None` if there is none to expand.
pub(crate) fn expand(args: &[OsString], images: &Images) -> Option<Vec<OsString>> {
    let verb = args.get(1)?.to_str()?;
    if !COMMANDS.contains(&verb) || !args[2..].iter().any(|arg| may_be_pattern(arg)) {
        return None;
    }
    // After the starting points of find, patterns belong to find.
    let files = match verb {
        "find" => starting_points(args),
        _ => args.len(),
    };
    let mut expanded = args[..2].to_vec();
    for arg in &args[2..files] {
        match matches(arg, images) {
            Some(found) if !found.is_empty() => expanded.extend(found),
            _ => expanded.push(arg.clone()),
        }
    }
    expanded.extend_from_slice(&args[files..]);
    (expanded != args).then_some(expanded)
}

/// The index at which find's expression begins: after the first path, at the first word of an
/// expression.
fn starting_points(args: &[OsString]) -> usize {
    let path = |arg: &OsString| arg.as_bytes().windows(2).any(|pair| pair == b":/");
    let first = args.iter().position(path).unwrap_or(args.len());
    let words = args[first..].iter().position(|arg| find::is_expression(arg));
    words.map_or(args.len(), |at| first + at)
}

fn may_be_pattern(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    bytes.windows(2).any(|pair| pair == b":/") && has_meta(bytes)
}

fn has_meta(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The matches of a pattern as arguments; `None` if the argument is no pattern.
fn matches(arg: &OsStr, images: &Images) -> Option<Vec<OsString>> {
    if !may_be_pattern(arg) {
        return None;
    }
    let Place::Image(place) = Place::parse(arg) else { return None };
    let image = has_meta(&place.path).then(|| images.get(&place.image, false).ok())??;
    if image.fs.resolve(&place.path, false).is_ok() {
        return None;
    }
    let found = glob(&image.fs, &place.path);
    let argument = |path| Inside { image: place.image.clone(), path }.shown();
    Some(found.into_iter().map(argument).map(OsString::from_vec).collect())
}

/// The paths that a pattern matches. Unreadable directories match nothing.
fn glob(fs: &Fs, pattern: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    let directory = pattern.ends_with(b"/");
    let names: Vec<&[u8]> = pattern.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    for (at, name) in names.iter().enumerate() {
        let last = at + 1 == names.len() && !directory;
        let mut next = Vec::new();
        for base in &found {
            if !has_meta(name) {
                next.push([base, b"/".as_slice(), &literal(name)].concat());
                continue;
            }
            let Ok(mut entries) = names_in(fs, base) else { continue };
            entries.retain(|entry| {
                (names_dot(name) || !entry.starts_with(b"."))
                    && pattern::matches(name, entry, false)
            });
            entries.sort();
            next.extend(entries.iter().map(|entry| [base, b"/".as_slice(), entry].concat()));
        }
        next.retain(|path| match fs.resolve(path, !last).and_then(|ino| fs.stat(ino)) {
            Ok(stat) => last || tree::is_dir(&stat),
            Err(_) => false,
        });
        found = next;
    }
    if directory {
        found.iter_mut().for_each(|path| path.push(b'/'));
    }
    found
}

/// Does the pattern begin with a literal dot?
fn names_dot(pattern: &[u8]) -> bool {
    pattern.starts_with(b".") || pattern.starts_with(b"\\.")
}

fn names_in(fs: &Fs, dir: &[u8]) -> uxfs::Result<Vec<Vec<u8>>> {
    let path = if dir.is_empty() { b"/" } else { dir };
    let names = tree::entries(fs, fs.resolve(path, true)?)?;
    Ok(names.into_iter().map(|(name, _)| name).collect())
}

/// The name without quoting backslashes.
fn literal(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next()),
            _ => plain.push(*byte),
        }
    }
    plain
}
