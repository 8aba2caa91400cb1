//! Parses the expression of `find`.

use std::ffi::{OsStr, OsString};

use regex::bytes::{Regex, RegexBuilder};
use uxfs::format::timestamp::Timestamp;
use uxfs_host::OsStrExt;

use crate::image::Images;
use crate::mode::Change;
use crate::place::Place;
use crate::session::{Failure, Result};
use crate::{time, tree, users};

/// An expression, evaluated for each file.
pub(super) enum Expression {
    /// Evaluates parts up to the first that is false.
    And(Vec<Expression>),
    /// Evaluates parts up to the first that is true.
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
    Action(Action),
}

/// A numeric argument: `+n`, `-n`, `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The value must compare this way to `number`.
    pub(super) order: std::cmp::Ordering,
    pub(super) number: u64,
}

/// One of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Access,
    /// Last change of the content.
    Modify,
    /// Last change of the inode.
    Change,
}

/// How permissions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Perm {
    /// The permissions are equal.
    Exactly,
    /// All given permissions are set.
    All,
    /// At least one given permission is set.
    Any,
}

/// A test of a file.
pub(super) enum Test {
    /// The name, or the whole path, matches; `fold` ignores case.
    Name { pattern: Vec<u8>, path: bool, fold: bool },
    /// The file is a link and its target matches.
    Target { pattern: Vec<u8>, fold: bool },
    /// The file has one of these types.
    Type(Vec<u8>),
    /// The length, rounded up to units of this many bytes.
    Size(Range, u64),
    /// A file or directory without content.
    Empty,
    /// The permissions: first those for files, then those for directories, because a symbolic mode
    /// such as `X` yields different ones.
    Perm(Perm, u16, u16),
    /// The owner.
    Uid(Range),
    /// The group.
    Gid(Range),
    /// This machine has no name for the owner.
    NoUser,
    /// This machine has no name for the group.
    NoGroup,
    /// The number of hard links.
    Links(Range),
    /// The inode number.
    Inum(Range),
    /// The age in units of this many seconds.
    Age(Which, Range, i64),
    /// The file's time is later than this one.
    Newer(Which, Timestamp),
    /// The whole path matches.
    Regex(Box<Regex>),
    /// `-true` or `-false`.
    Constant(bool),
}

/// An action.
pub(super) enum Action {
    /// Prints the path and this byte.
    Print(u8),
    /// Prints a line as `ls -dils`.
    Ls,
    /// Prints by a format.
    Printf(Vec<u8>),
    /// Does not enter this directory.
    Prune,
    /// Ends the search.
    Quit,
    /// Removes the file.
    Delete,
    /// Runs a program of the host, with the file's path for each `{}`.
    Exec(Vec<OsString>),
    /// Runs a program for many files at once. The number is an index of [`Settings::commands`].
    ExecMany(usize),
    /// Adds the file to the JSON document.
    Document,
}

/// Options of the whole search.
pub(super) struct Settings {
    /// Test directories after their content.
    pub(super) depth: bool,
    /// Do not test files above this depth.
    pub(super) mindepth: usize,
    /// Do not descend below this depth.
    pub(super) maxdepth: usize,
    /// The search removes files, so the image is opened for writing.
    pub(super) deletes: bool,
    /// Commands of `-exec … +`, without the `{}` at their end.
    pub(super) commands: Vec<Vec<OsString>>,
}

/// The parsed expression and settings.
pub(super) struct Parsed {
    pub(super) expression: Expression,
    pub(super) settings: Settings,
}

struct Parser<'a> {
    words: std::iter::Peekable<std::slice::Iter<'a, OsString>>,
    images: &'a Images,
    settings: Settings,
    /// The expression has an action other than `-prune` and `-quit`, so `-print` is not implied.
    acts: bool,
    /// Current depth of brackets and negations.
    nested: usize,
}

/// Brackets and negations deeper than this are refused.
const NESTED_MAX: usize = 200;

/// Parses the words after the starting points.
pub(super) fn parse(words: &[OsString], images: &Images, document: bool) -> Result<Parsed> {
    let settings = Settings {
        depth: false,
        mindepth: 0,
        maxdepth: usize::MAX,
        deletes: false,
        commands: Vec::new(),
    };
    let words = words.iter().peekable();
    let mut parser = Parser { words, images, settings, acts: false, nested: 0 };
    let given = match parser.words.peek() {
        Some(_) => parser.or()?,
        None => Expression::Test(Test::Constant(true)),
    };
    if let Some(word) = parser.words.next() {
        return Err(Failure::new(word, "unexpected here"));
    }
    let default = match document {
        true => Some(Action::Document),
        false => (!parser.acts).then_some(Action::Print(b'\n')),
    };
    let expression = match default {
        Some(action) => Expression::And(vec![given, Expression::Action(action)]),
        None => given,
    };
    Ok(Parsed { expression, settings: parser.settings })
}

impl Parser<'_> {
    fn or(&mut self) -> Result<Expression> {
        let mut parts = vec![self.and()?];
        while self.take(&[b"-o", b"-or"]) {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Or(parts) })
    }

    fn and(&mut self) -> Result<Expression> {
        let mut parts = vec![self.not()?];
        loop {
            let named = self.take(&[b"-a", b"-and"]);
            let next = self.words.peek().map(|word| word.as_bytes());
            if !named && matches!(next, None | Some(b")" | b"-o" | b"-or")) {
                break;
            }
            parts.push(self.not()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::And(parts) })
    }

    fn not(&mut self) -> Result<Expression> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            return Err(Failure::bare("the expression is nested too deeply"));
        }
        let expression = if self.take(&[b"!", b"-not"]) {
            Expression::Not(Box::new(self.not()?))
        } else if self.take(&[b"("]) {
            let inner = self.or()?;
            if !self.take(&[b")"]) {
                return Err(Failure::bare("a ')' is missing"));
            }
            inner
        } else {
            self.primary()?
        };
        self.nested -= 1;
        Ok(expression)
    }

    fn take(&mut self, any: &[&[u8]]) -> bool {
        self.words.next_if(|word| any.contains(&word.as_bytes())).is_some()
    }

    fn primary(&mut self) -> Result<Expression> {
        let Some(word) = self.words.next() else {
            return Err(Failure::bare("the expression ends where a test was expected"));
        };
        let name = word.to_str().unwrap_or_default();
        if let Some(test) = self.test(name)? {
            return Ok(Expression::Test(test));
        }
        let action = match name {
            "-print" => Action::Print(b'\n'),
            "-print0" => Action::Print(0),
            "-ls" => Action::Ls,
            "-printf" => Action::Printf(self.value(name)?.as_bytes().to_vec()),
            "-prune" => return Ok(Expression::Action(Action::Prune)),
            "-quit" => Action::Quit,
            "-exec" => self.exec()?,
            "-delete" => {
                (self.settings.depth, self.settings.deletes) = (true, true);
                Action::Delete
            }
            _ => return self.setting(word),
        };
        self.acts |= !matches!(action, Action::Quit);
        Ok(Expression::Action(action))
    }

    fn setting(&mut self, word: &OsStr) -> Result<Expression> {
        match word.to_str().unwrap_or_default() {
            "-mindepth" => self.settings.mindepth = self.depth("-mindepth")?,
            "-maxdepth" => self.settings.maxdepth = self.depth("-maxdepth")?,
            "-depth" | "-d" => self.settings.depth = true,
            // No effect: an image holds a single file system, which no one else changes.
            "-xdev" | "-mount" | "-noleaf" | "-ignore_readdir_race" => {}
            "-regextype" => {
                let text = self.text("-regextype")?;
                if !EXTENDED.contains(&text.as_str()) {
                    let what = format!("{text}: not supported: use posix-extended");
                    return Err(Failure::new("-regextype", what));
                }
            }
            name @ ("-execdir" | "-okdir") => {
                return Err(Failure::new(
                    name,
                    "a program cannot start inside an image: use -exec",
                ));
            }
            "-ok" => return Err(Failure::new("-ok", "not supported: use -exec")),
            "-follow" => return Err(Failure::new("-follow", "not supported: use -L")),
            _ => return Err(Failure::new(word, "unknown predicate")),
        }
        Ok(Expression::Test(Test::Constant(true)))
    }

    fn value(&mut self, name: &str) -> Result<&OsStr> {
        match self.words.next() {
            Some(word) => Ok(word),
            None => Err(Failure::new(name, "missing argument")),
        }
    }

    fn text(&mut self, name: &str) -> Result<String> {
        let value = self.value(name)?;
        match value.to_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Failure::new(value, format!("not an argument for {name}"))),
        }
    }

    fn depth(&mut self, name: &str) -> Result<usize> {
        let text = self.text(name)?;
        text.parse().map_err(|_| Failure::new(name, format!("not a depth: {text}")))
    }

    fn range(&mut self, name: &str) -> Result<Range> {
        let text = self.text(name)?;
        range(&text).ok_or_else(|| Failure::new(name, format!("invalid argument: {text}")))
    }

    fn pattern(&mut self, name: &str) -> Result<Vec<u8>> {
        Ok(self.value(name)?.as_bytes().to_vec())
    }

    fn test(&mut self, name: &str) -> Result<Option<Test>> {
        let test = match name {
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" => {
                let path = !name.ends_with("-name") && name != "-iname";
                Test::Name { pattern: self.pattern(name)?, path, fold: name.starts_with("-i") }
            }
            "-lname" | "-ilname" => {
                Test::Target { pattern: self.pattern(name)?, fold: name.starts_with("-i") }
            }
            "-type" => self.types()?,
            "-size" => self.size()?,
            "-empty" => Test::Empty,
            "-perm" => self.perm()?,
            "-uid" => Test::Uid(self.range(name)?),
            "-gid" => Test::Gid(self.range(name)?),
            "-user" => Test::Uid(self.id(name, users::user)?),
            "-group" => Test::Gid(self.id(name, users::group)?),
            "-nouser" => Test::NoUser,
            "-nogroup" => Test::NoGroup,
            "-links" => Test::Links(self.range(name)?),
            "-inum" => Test::Inum(self.range(name)?),
            "-atime" => Test::Age(Which::Access, self.range(name)?, 86400),
            "-mtime" => Test::Age(Which::Modify, self.range(name)?, 86400),
            "-ctime" => Test::Age(Which::Change, self.range(name)?, 86400),
            "-amin" => Test::Age(Which::Access, self.range(name)?, 60),
            "-mmin" => Test::Age(Which::Modify, self.range(name)?, 60),
            "-cmin" => Test::Age(Which::Change, self.range(name)?, 60),
            "-anewer" => Test::Newer(Which::Access, self.time_of(name, Which::Modify)?),
            "-cnewer" => Test::Newer(Which::Change, self.time_of(name, Which::Modify)?),
            "-newer" => Test::Newer(Which::Modify, self.time_of(name, Which::Modify)?),
            "-regex" | "-iregex" => self.regex(name)?,
            "-true" => Test::Constant(true),
            "-false" => Test::Constant(false),
            _ => match name.strip_prefix("-newer").map(str::as_bytes) {
                Some([which, b't']) => {
                    let which = time_letter(*which).ok_or_else(|| unknown(name))?;
                    let text = self.text(name)?;
                    let wrong = || Failure::new(name, format!("invalid date: {text}"));
                    Test::Newer(which, time::parse(&text).ok_or_else(wrong)?)
                }
                Some([which, than]) => {
                    let letters = time_letter(*which).zip(time_letter(*than));
                    let (which, than) = letters.ok_or_else(|| unknown(name))?;
                    Test::Newer(which, self.time_of(name, than)?)
                }
                _ => return Ok(None),
            },
        };
        Ok(Some(test))
    }

    fn id(&mut self, name: &str, look_up: fn(&str) -> Option<u32>) -> Result<Range> {
        let text = self.text(name)?;
        let id = look_up(&text).ok_or_else(|| {
            Failure::new(name, format!("this machine has no user or group named '{text}'"))
        })?;
        Ok(Range { order: std::cmp::Ordering::Equal, number: id.into() })
    }

    fn types(&mut self) -> Result<Test> {
        let text = self.text("-type")?;
        let types: Vec<u8> =
            text.split(',').filter(|t| t.len() == 1).map(|t| t.as_bytes()[0]).collect();
        let known = types.iter().all(|letter| b"bcdpfls".contains(letter));
        match known && types.len() == text.split(',').count() {
            true => Ok(Test::Type(types)),
            false => Err(Failure::new("-type", format!("unknown argument: {text}"))),
        }
    }

    fn size(&mut self) -> Result<Test> {
        let text = self.text("-size")?;
        let wrong = || Failure::new("-size", format!("invalid argument: {text}"));
        let (digits, unit) = match text.chars().last().ok_or_else(wrong)? {
            'c' => (&text[..text.len() - 1], 1),
            'w' => (&text[..text.len() - 1], 2),
            'b' => (&text[..text.len() - 1], 512),
            'k' => (&text[..text.len() - 1], 1 << 10),
            'M' => (&text[..text.len() - 1], 1 << 20),
            'G' => (&text[..text.len() - 1], 1 << 30),
            _ => (&text[..], 512),
        };
        Ok(Test::Size(range(digits).ok_or_else(wrong)?, unit))
    }

    fn perm(&mut self) -> Result<Test> {
        let text = self.text("-perm")?;
        let (how, mode) = match text.split_at_checked(1) {
            Some(("-", rest)) => (Perm::All, rest),
            Some(("/", rest)) => (Perm::Any, rest),
            _ => (Perm::Exactly, &text[..]),
        };
        let change = Change::parse(mode)
            .ok_or_else(|| Failure::new("-perm", format!("invalid mode: {text}")))?;
        use uxfs::format::inode::{S_IFDIR, S_IFREG};
        Ok(Test::Perm(how, change.apply(S_IFREG, 0), change.apply(S_IFDIR, 0)))
    }

    /// Reads a file operand, in an image or on the host, and returns one of the file's times.
    fn time_of(&mut self, name: &str, which: Which) -> Result<Timestamp> {
        match Place::parse(self.value(name)?) {
            Place::Image(place) => {
                Ok(which.of(&tree::find(self.images, &place, false, true)?.stat))
            }
            Place::Host(path) => {
                let [read, changed, inode] = time::of_host_file(&path, true)
                    .map_err(|error| Failure::host(&path, &error))?;
                Ok(match which {
                    Which::Access => read,
                    Which::Modify => changed,
                    Which::Change => inode,
                })
            }
        }
    }

    fn regex(&mut self, name: &str) -> Result<Test> {
        let text = self.text(name)?;
        let built = RegexBuilder::new(&format!("^(?:{text})$"))
            .unicode(false)
            .dot_matches_new_line(true)
            .case_insensitive(name == "-iregex")
            .size_limit(REGEX_BYTES)
            .build();
        match built {
            Ok(regex) => Ok(Test::Regex(Box::new(regex))),
            Err(_) => Err(Failure::new(name, format!("invalid regular expression: {text}"))),
        }
    }

    /// Reads the words up to `;`, or up to `{} +`.
    fn exec(&mut self) -> Result<Action> {
        let mut words = Vec::new();
        loop {
            let word = self.value("-exec")?.to_owned();
            let many = word == "+" && words.last().is_some_and(|last| last == "{}");
            if many && words.len() > 1 {
                words.pop();
                self.settings.commands.push(words);
                return Ok(Action::ExecMany(self.settings.commands.len() - 1));
            }
            if word == ";" && !words.is_empty() {
                return Ok(Action::Exec(words));
            }
            if word == ";" || many {
                return Err(Failure::new("-exec", "missing argument"));
            }
            words.push(word);
        }
    }
}

impl Which {
    /// Selects this time of a file.
    pub(super) fn of(self, stat: &uxfs::Stat) -> Timestamp {
        match self {
            Self::Access => stat.atime,
            Self::Modify => stat.mtime,
            Self::Change => stat.ctime,
        }
    }
}

fn time_letter(letter: u8) -> Option<Which> {
    match letter {
        b'a' => Some(Which::Access),
        b'm' => Some(Which::Modify),
        b'c' => Some(Which::Change),
        _ => None,
    }
}

fn unknown(name: &str) -> Failure {
    Failure::new(name, "unknown predicate")
}

/// find(1)'s names for extended regular expressions.
const EXTENDED: [&str; 4] = ["posix-extended", "egrep", "posix-egrep", "awk"];

/// Limit on the memory of a compiled regular expression.
const REGEX_BYTES: usize = 8 << 20;

fn range(text: &str) -> Option<Range> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, digits) = match text.split_at_checked(1) {
        Some(("+", rest)) => (Greater, rest),
        Some(("-", rest)) => (Less, rest),
        _ => (Equal, text),
    };
    Some(Range { order, number: digits.parse().ok()? })
}
