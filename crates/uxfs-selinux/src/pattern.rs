//! The regular expression of a rule, and how a path is matched with it.
//!
//! 1. [`Pattern::prefix`] is what each matching path begins with, and `suffix` what it ends with, a
//!    newline after it aside. Both are taken from the parts of the expression that are plain bytes
//!    beyond doubt; where the expression can be read in two ways they are empty.
//! 2. A [`Shape::Regex`] also has the longest run of plain bytes between the two, which every match
//!    contains, and such runs for the alternatives of one group, one of which every match contains:
//!    most paths fail to match for want of them, and PCRE2 is not called.
//! 3. A [`Shape`] other than `Regex` decides for every path as PCRE2 does.

use memchr::memmem::Finder;
use pcre2::bytes::{Regex, RegexBuilder};

/// Calls of PCRE2's matching function for one path, a tenth of PCRE2's default. Rules of real
/// policies need some hundreds; the limit is reached in less than 0.1 s.
const MATCH_LIMIT: u32 = 1_000_000;

/// A regular expression with what is known about its matches.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// What every match begins with.
    pub(crate) prefix: Box<[u8]>,
    /// What every match ends with.
    suffix: Box<[u8]>,
    /// Is there no meta character? Such a pattern comes after all others.
    pub(crate) literal: bool,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// The prefix.
    Exact,
    /// `PREFIX(/.*)?`.
    Subtree,
    /// The prefix, at least `min` bytes, and the suffix. The bytes may include `/` if `deep`.
    Wild { deep: bool, min: usize },
    /// Anything else.
    Regex(Box<Other>),
}

/// An expression for PCRE2.
#[derive(Debug)]
struct Other {
    /// Bytes at the start of a path that are not matched with the expression.
    skip: usize,
    /// What every match contains behind the prefix.
    inside: Finder<'static>,
    /// Every match contains one of these behind the prefix, unless there are none.
    one_of: Box<[Finder<'static>]>,
    regex: Regex,
}

/// A part of a regular expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    /// A byte that stands for itself.
    Byte(u8),
    /// Anything else: the text, with its quantifier.
    Other(&'a [u8]),
}

impl Part<'_> {
    fn byte(&self) -> Option<u8> {
        match self {
            Part::Byte(byte) => Some(*byte),
            Part::Other(_) => None,
        }
    }
}

impl Pattern {
    /// Compiles the regular expression of a rule.
    ///
    /// # Errors
    /// PCRE2's description of what is wrong.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let literal = is_literal(bytes);
        let skip = first_name(bytes);
        let parts = parts(&bytes[skip..]);
        let parts = parts.as_deref();
        let plain = |part: &&Part<'_>| part.byte().is_some();
        let head = parts.map_or(0, |parts| parts.iter().take_while(plain).count());
        let tail = parts.map_or(0, |parts| parts[head..].iter().rev().take_while(plain).count());
        let mut prefix = bytes[..skip].to_vec();
        prefix.extend(parts.map_or(Vec::new(), |parts| text_of(&parts[..head])));
        let mut suffix = parts.map_or(Vec::new(), |parts| text_of(&parts[parts.len() - tail..]));
        let middle = parts.map(|parts| &parts[head..parts.len() - tail]);
        let wild = |deep, min| Some(Shape::Wild { deep, min });
        let shape = match middle {
            Some([]) => Some(Shape::Exact),
            Some([Part::Other(b"(/.*)?")]) if tail == 0 => Some(Shape::Subtree),
            Some([Part::Other(b".*")]) => wild(true, 0),
            Some([Part::Other(b".+")]) => wild(true, 1),
            Some([Part::Other(b"[^/]*")]) => wild(false, 0),
            Some([Part::Other(b"[^/]+")]) => wild(false, 1),
            _ => None,
        };
        let shape = match shape {
            Some(shape) => shape,
            None => {
                // A path that matches goes on with a slash after the first name.
                if skip > 0 && prefix.len() == skip {
                    prefix.push(b'/');
                }
                let limited = format!("(*LIMIT_MATCH={MATCH_LIMIT})^{}$", &text[skip..]);
                let regex = RegexBuilder::new().dotall(true).build(&limited);
                let regex = regex.map_err(|error| describe(&error, text))?;
                let middle = middle.unwrap_or_default();
                let inside = finder(&longest_run(middle));
                let one_of = one_of(middle).iter().map(|run| finder(run)).collect();
                Shape::Regex(Box::new(Other { skip, inside, one_of, regex }))
            }
        };
        if parts.is_none() {
            suffix.clear();
        }
        Ok(Self { prefix: prefix.into(), suffix: suffix.into(), literal, shape })
    }

    /// Does the path match?
    ///
    /// # Errors
    /// PCRE2's description, if a limit was reached.
    pub(crate) fn matches(&self, path: &[u8]) -> Result<bool, String> {
        let Some(rest) = path.strip_prefix(&*self.prefix) else { return Ok(false) };
        Ok(match &self.shape {
            Shape::Exact => is_end(rest),
            Shape::Subtree => is_end(rest) || rest[0] == b'/',
            Shape::Wild { deep, min } => {
                let fits = |rest: &[u8]| {
                    let middle = rest.strip_suffix(&*self.suffix);
                    middle.is_some_and(|middle| {
                        middle.len() >= *min && (*deep || !middle.contains(&b'/'))
                    })
                };
                fits(rest) || rest.strip_suffix(b"\n").is_some_and(fits)
            }
            Shape::Regex(other) => {
                (rest.ends_with(&self.suffix) || rest.ends_with(b"\n"))
                    && other.inside.find(rest).is_some()
                    && (other.one_of.is_empty()
                        || other.one_of.iter().any(|run| run.find(rest).is_some()))
                    && other
                        .regex
                        .is_match(&path[other.skip..])
                        .map_err(|error| error.to_string())?
            }
        })
    }

    /// Does every path match that begins with `dir`, which ends in a slash, and has a name after it?
    pub(crate) fn covers(&self, dir: &[u8]) -> bool {
        let below = |rest: &[u8]| match &self.shape {
            Shape::Subtree => rest.first() == Some(&b'/'),
            Shape::Wild { deep, min } => *deep && *min <= 1 && self.suffix.is_empty(),
            Shape::Exact | Shape::Regex(_) => false,
        };
        dir.strip_prefix(&*self.prefix).is_some_and(below)
    }

    /// The only path that matches, if there is just one, a newline after it aside.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        matches!(self.shape, Shape::Exact).then_some(&*self.prefix)
    }
}

/// Does `$` match before `rest`?
fn is_end(rest: &[u8]) -> bool {
    rest.is_empty() || rest == b"\n"
}

/// The meta characters that make a rule come before those without one.
fn is_meta(byte: u8) -> bool {
    b".^$?*+|[({".contains(&byte)
}

/// Is there no meta character, except behind a backslash?
fn is_literal(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'\\' {
            bytes.next();
        } else if is_meta(*byte) {
            return false;
        }
    }
    true
}

/// Length of the first name, with its slash, if it is plain and a second slash follows; else 0.
fn first_name(text: &[u8]) -> usize {
    if text.first() != Some(&b'/') {
        return 0;
    }
    let end = text.iter().skip(1).position(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let plain = |byte: &u8| !is_meta(*byte) && !b"\\)".contains(byte);
    if text[..end].iter().all(plain) { end } else { 0 }
}

fn finder(run: &[u8]) -> Finder<'static> {
    Finder::new(run).into_owned()
}

/// The bytes of these parts that stand for themselves.
fn text_of(parts: &[Part<'_>]) -> Vec<u8> {
    parts.iter().filter_map(Part::byte).collect()
}

/// The longest run of plain bytes.
fn longest_run(parts: &[Part<'_>]) -> Vec<u8> {
    let runs = parts.split(|part| part.byte().is_none());
    runs.max_by_key(|run| run.len()).map_or(Vec::new(), text_of)
}

/// Runs of plain bytes, one for each alternative of a group. Of several groups it is the one whose
/// shortest run is longest; empty if none has a run for each alternative.
fn one_of(parts: &[Part<'_>]) -> Vec<Vec<u8>> {
    let shortest = |runs: &Vec<Vec<u8>>| runs.iter().map(Vec::len).min().unwrap_or(0);
    let groups = parts.iter().filter_map(|part| match part {
        Part::Other(text) => alternatives(text),
        Part::Byte(_) => None,
    });
    let runs = groups.filter_map(|group| {
        let run = |text: &&[u8]| self::parts(text).map(|parts| longest_run(&parts));
        group.iter().map(run).collect::<Option<Vec<_>>>()
    });
    runs.max_by_key(shortest).filter(|runs| shortest(runs) > 0).unwrap_or_default()
}

/// The alternatives of a group without a quantifier.
fn alternatives(group: &[u8]) -> Option<Vec<&[u8]>> {
    let inner = group.strip_prefix(b"(")?.strip_suffix(b")")?;
    let (mut alternatives, mut start, mut at) = (Vec::new(), 0, 0);
    while at < inner.len() {
        match inner[at] {
            b'\\' => at += 2,
            b'[' => at = class_end(inner, at)?,
            b'(' => at = group_end(inner, at)?,
            b'|' => {
                alternatives.push(&inner[start..at]);
                (start, at) = (at + 1, at + 1);
            }
            _ => at += 1,
        }
    }
    alternatives.push(&inner[start..]);
    Some(alternatives)
}

/// Splits an expression into parts that match one after the other. `None` if it has alternatives, or
/// something that changes how the rest is read.
fn parts(text: &[u8]) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let start = at;
        let mut byte = None;
        match text[at] {
            b'\\' => {
                let escaped = *text.get(at + 1)?;
                if escaped.is_ascii_alphanumeric() {
                    return None;
                }
                byte = Some(escaped);
                at += 2;
            }
            b'[' => at = class_end(text, at)?,
            b'(' => at = group_end(text, at)?,
            b'|' | b')' | b'*' | b'+' | b'?' | b'{' => return None,
            b'.' | b'^' | b'$' => at += 1,
            plain => {
                byte = Some(plain);
                at += 1;
            }
        }
        let end = at;
        while let Some(quantifier) = text.get(at) {
            at = match quantifier {
                b'*' | b'+' | b'?' => at + 1,
                b'{' => at + text[at..].iter().position(|byte| *byte == b'}')? + 1,
                _ => break,
            };
        }
        parts.push(match byte {
            Some(byte) if at == end => Part::Byte(byte),
            _ => Part::Other(&text[start..at]),
        });
    }
    Some(parts)
}

/// The offset behind a character class that begins at `start`.
fn class_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    if text.get(at) == Some(&b'^') {
        at += 1;
    }
    // The first bracket stands for itself.
    if text.get(at) == Some(&b']') {
        at += 1;
    }
    loop {
        match text.get(at)? {
            b']' => return Some(at + 1),
            // An escape, which may change how the rest is read, or a named class.
            b'\\' if text.get(at + 1)?.is_ascii_alphanumeric() => return None,
            b'\\' => at += 2,
            b'[' if matches!(text.get(at + 1), Some(b':' | b'.' | b'=')) => {
                let mark = [text[at + 1], b']'];
                at += 2 + text[at + 2..].windows(2).position(|pair| pair == mark)? + 2;
            }
            _ => at += 1,
        }
    }
}

/// The offset behind a group that begins at `start`. A group with a question mark or an asterisk
/// after its parenthesis can change anything.
fn group_end(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0usize);
    loop {
        match text.get(at)? {
            b'(' if matches!(text.get(at + 1), Some(b'?' | b'*')) => return None,
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b'\\' if text.get(at + 1)?.is_ascii_alphanumeric() => return None,
            b'\\' => at += 1,
            b'[' => {
                at = class_end(text, at)?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// PCRE2's error, with the offset left out: it counts what was put before the expression.
fn describe(error: &pcre2::Error, text: &str) -> String {
    let words = error.to_string();
    let words = words.rsplit_once(": ").map_or(words.as_str(), |(_, words)| words);
    format!("'{text}' is not a regular expression: {words}")
}
