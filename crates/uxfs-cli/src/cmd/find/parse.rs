//! The expression of `find`, from its words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use regex::bytes::{Regex, RegexBuilder};
use uxfs::format::timestamp::Timestamp;

use crate::image::Images;
use crate::mode::Change;
use crate::place::Place;
use crate::session::{Failure, Result};
use crate::{time, tree, users};

/// What to do with each file.
pub(super) enum Expression {
    /// All, up to the first that fails.
    And(Vec<Expression>),
    /// Any, up to the first that holds.
    Or(Vec<Expression>),
    /// The opposite.
    Not(Box<Expression>),
    /// A question.
    Test(Test),
    /// A deed.
    Action(Action),
}

/// Which numbers: `+n`, `-n`, `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// Greater, less, or equal.
    pub(super) order: std::cmp::Ordering,
    /// Than this.
    pub(super) number: u64,
}

/// Which time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Access.
    Access,
    /// Change of content.
    Modify,
    /// Change of the inode.
    Change,
}

/// How permissions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Perm {
    /// All and no others.
    Exactly,
    /// All of them.
    All,
    /// Any of them.
    Any,
}

/// A question about a file.
pub(super) enum Test {
    /// Its name, or its whole path, matches; the flag is for letters of either case.
    Name { pattern: Vec<u8>, path: bool, fold: bool },
    /// The target of the link matches.
    Target { pattern: Vec<u8>, fold: bool },
    /// It is of one of these types.
    Type(Vec<u8>),
    /// Its length in units of so many bytes, rounded up.
    Size(Range, u64),
    /// A file or directory without content.
    Empty,
    /// Its permissions; for files, and for directories, since symbolic modes tell them apart.
    Perm(Perm, u16, u16),
    /// Its owner.
    Uid(Range),
    /// Its group.
    Gid(Range),
    /// Its owner has no name here.
    NoUser,
    /// Its group has no name here.
    NoGroup,
    /// Number of its names.
    Links(Range),
    /// Its inode number.
    Inum(Range),
    /// Its age in units of so many seconds.
    Age(Which, Range, i64),
    /// This time of it is later.
    Newer(Which, Timestamp),
    /// Its whole path matches.
    Regex(Box<Regex>),
    /// Always, or never.
    Constant(bool),
}

/// A deed.
pub(super) enum Action {
    /// The path, and this byte.
    Print(u8),
    /// A line as `ls -dils`.
    Ls,
    /// By a format.
    Printf(Vec<u8>),
    /// Not into this directory.
    Prune,
    /// No further.
    Quit,
    /// Away with it.
    Delete,
    /// A command of the host, with the file's path for each `{}`.
    Exec(Vec<OsString>),
    /// The same for many files at once: the command of this number.
    ExecMany(usize),
    /// Into the document.
    Document,
}

/// What holds for the whole search.
pub(super) struct Settings {
    /// Directories after what is in them.
    pub(super) depth: bool,
    /// Test nothing above this depth.
    pub(super) mindepth: usize,
    /// Go no deeper.
    pub(super) maxdepth: usize,
    /// The image is written.
    pub(super) deletes: bool,
    /// Commands that take many files, without the `{}` at their end.
    pub(super) commands: Vec<Vec<OsString>>,
}

/// The outcome.
pub(super) struct Parsed {
    pub(super) expression: Expression,
    pub(super) settings: Settings,
}

struct Parser<'a> {
    words: std::iter::Peekable<std::slice::Iter<'a, OsString>>,
    images: &'a Images,
    settings: Settings,
    acts: bool,
    /// Open brackets.
    nested: usize,
}

/// Brackets and negations deeper than this are refused.
const NESTED_MAX: usize = 200;

/// Parses the words behind the starting points.
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
            // An image holds one file system, and nobody else's mounts.
            "-xdev" | "-mount" | "-noleaf" | "-ignore_readdir_race" => {}
            "-regextype" => {
                let text = self.text("-regextype")?;
                if !EXTENDED.contains(&text.as_str()) {
                    let what = format!("{text}: expressions are extended ones, as posix-extended");
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
            Failure::new(name, format!("'{text}' is not the name of a known one"))
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

    /// That time of the file that is named next, in an image or on the host.
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

    /// The words up to `;`, or up to `{} +`.
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
    /// This time of a file.
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

/// Names that find(1) has for extended regular expressions.
const EXTENDED: [&str; 4] = ["posix-extended", "egrep", "posix-egrep", "awk"];

/// Most memory of a regular expression: one that explodes is refused.
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
