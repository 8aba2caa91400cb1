//! Expands patterns in paths inside images, which no shell can expand: `disk.img:/bin/*`.
//!
//! 1. The rules are a shell's. Each name of the path is matched separately, and results are sorted by
//!    bytes. A name with a leading dot matches only a pattern with a leading dot. `\` quotes a
//!    character. A pattern without a match stays unchanged.
//! 2. An argument that names an existing file is not a pattern.
//! 3. Expansion opens the images and closes them again before the command runs.

use std::ffi::{OsStr, OsString};

use uxfs::Fs;
use uxfs_host::{OsStrExt, OsStringExt};

use crate::cmd::find;
use crate::image::Images;
use crate::pattern;
use crate::place::{Inside, Place};
use crate::tree;

/// Commands whose arguments are expanded.
const COMMANDS: [&str; 23] = [
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
    "relabel",
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
    // find itself matches the patterns in its expression.
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

/// Index of the first word of find's expression, which follows the starting points.
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

/// The arguments that a pattern expands to; `None` if the argument is not a pattern.
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

/// The paths that a pattern matches. A directory that cannot be read has no matches.
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

/// The name without the backslashes that quote characters.
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
