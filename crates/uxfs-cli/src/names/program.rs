//! What the programs of xfsprogs have in common here: their command lines and how they end.
//!
//! 1. A command line is taken apart as getopt(3) does, or as a shell's `getopts` where the program of
//!    xfsprogs is a script: it ends the options at the first operand.
//! 2. An option that xfsprogs knows and uxfs does not carry out is refused by its name. It is never
//!    ignored, unless ignoring it cannot be seen.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use uxfs_host::{OsStrExt, OsStringExt};

use crate::session::{Failure, Session};

/// The release of xfsprogs that the programs follow.
const RELEASE: &str = "7.2.0";

/// A program of xfsprogs.
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its option letters, with a colon behind each that takes a value.
    pub(crate) letters: &'static str,
    /// Options with long names and the letters that they have here.
    pub(crate) long: &'static [(&'static str, char)],
    /// Do options end at the first operand?
    pub(crate) script: bool,
    /// What follows the name in its usage.
    pub(crate) usage: &'static str,
    /// Exit code of a wrong command line.
    pub(crate) usage_code: u8,
    /// Carries out a command line.
    pub(crate) run: fn(&Line, &Session) -> Result<(), Stop>,
}

/// Why a program does not end with success.
pub(crate) enum Stop {
    /// The command line is wrong; says how.
    Usage(String),
    /// It failed, with this exit code.
    Failed(u8, Failure),
    /// The command `uxfs` carries out the rest, with these arguments.
    Uxfs(Vec<OsString>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(1, failure)
    }
}

/// A refusal of something that xfsprogs does and uxfs does not. `instead` says what does it.
pub(crate) fn refused(what: &str, instead: &str) -> Stop {
    Failure::bare(format!("{what}: uxfs does not do this: {instead}")).into()
}

/// How a program ended.
pub(crate) enum Ended {
    /// With this exit code.
    With(u8),
    /// It leaves the rest to the command `uxfs`, with these arguments.
    Uxfs(Vec<OsString>),
}

/// An option of a command line, with its value if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) letter: char,
    pub(crate) value: OsString,
}

/// A command line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The options in their order.
    pub(crate) options: Vec<Given>,
    /// What is not an option.
    pub(crate) operands: Vec<OsString>,
    /// Was the program called by the name of a link, in the place of the machine's own?
    pub(crate) by_link: bool,
}

impl Line {
    /// Is the option given?
    pub(crate) fn has(&self, letter: char) -> bool {
        self.options.iter().any(|given| given.letter == letter)
    }

    /// The last value of an option.
    pub(crate) fn value(&self, letter: char) -> Option<&OsStr> {
        let last = self.options.iter().rev().find(|given| given.letter == letter);
        last.map(|given| given.value.as_os_str())
    }

    /// The one operand: `what`.
    pub(crate) fn operand(&self, what: &str) -> Result<&Path, Stop> {
        match self.operands.as_slice() {
            [path] => Ok(Path::new(path)),
            [] => Err(Stop::Usage(format!("no {what} given"))),
            [_, more, ..] => Err(Stop::Usage(format!("extra argument {}", more.display()))),
        }
    }

    /// Takes the arguments after a program's name apart.
    ///
    /// # Errors
    /// What getopt(3) prints about an unknown option or a missing value.
    fn parse(program: &Program, args: &[OsString]) -> Result<Self, String> {
        let mut line = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let bytes = arg.as_bytes();
            if let Some((_, letter)) = program.long.iter().find(|(name, _)| arg == name) {
                line.options.push(Given { letter: *letter, value: OsString::new() });
                continue;
            }
            match bytes {
                b"--" => line.operands.extend(rest.by_ref().cloned()),
                [b'-', cluster @ ..] if !cluster.is_empty() => {
                    line.cluster(program.letters, cluster, &mut rest)?;
                }
                _ => {
                    line.operands.push(arg.clone());
                    if program.script {
                        line.operands.extend(rest.by_ref().cloned());
                    }
                }
            }
        }
        Ok(line)
    }

    /// The letters behind one hyphen. The last may take the rest of the word, or the next word.
    fn cluster<'a>(
        &mut self,
        letters: &str,
        cluster: &[u8],
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        for (index, byte) in cluster.iter().enumerate() {
            let letter = char::from(*byte);
            let at = letters.find(letter).filter(|_| letter != ':' && byte.is_ascii());
            let Some(at) = at else {
                return Err(format!("invalid option -- '{}'", letter.escape_default()));
            };
            if letters.as_bytes().get(at + 1) != Some(&b':') {
                self.options.push(Given { letter, value: OsString::new() });
                continue;
            }
            let value = match &cluster[index + 1..] {
                [] => rest.next().cloned(),
                value => Some(OsString::from_vec(value.to_vec())),
            };
            let missing = || format!("option requires an argument -- '{letter}'");
            self.options.push(Given { letter, value: value.ok_or_else(missing)? });
            return Ok(());
        }
        Ok(())
    }
}

impl Program {
    /// Runs the program with the arguments after its name, which is that of a link if `by_link` is set.
    pub(crate) fn call(&self, args: &[OsString], by_link: bool) -> Ended {
        let session = Session::of_program(self.name);
        let line = Line::parse(self, args).map(|line| Line { by_link, ..line });
        let line = line.map_err(Stop::Usage);
        let stop = match line {
            Ok(line) if line.has('V') => self.version(&session),
            Ok(line) => (self.run)(&line, &session),
            Err(stop) => Err(stop),
        };
        match stop {
            Ok(()) => {}
            Err(Stop::Usage(why)) => {
                session.say(format!("{}: {why}", self.name).as_bytes());
                session.say(format!("Usage: {} {}", self.name, self.usage).as_bytes());
                session.set_code(self.usage_code);
            }
            Err(Stop::Failed(code, failure)) => session.fail_with(code, failure),
            Err(Stop::Uxfs(args)) => return Ended::Uxfs(args),
        }
        Ended::With(session.end())
    }

    /// Prints the version. Programs look for `NAME version NUMBER` to tell which options they can
    /// give, so the number is that of the xfsprogs whose options this program takes; people see in the
    /// brackets what they run.
    fn version(&self, session: &Session) -> Result<(), Stop> {
        let own = env!("CARGO_PKG_VERSION");
        Ok(session.print(format!("{} version {RELEASE} (uxfs {own})\n", self.name))?)
    }
}

/// The path as an argument that is not taken for an option.
pub(crate) fn as_operand(path: &Path) -> OsString {
    match path.as_os_str().as_bytes() {
        [b'-', ..] => PathBuf::from(".").join(path).into_os_string(),
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(script: bool, words: &[&str]) -> Result<Line, String> {
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        let program = Program {
            name: "it",
            letters: "nD:L:V",
            long: &[("--much", 'M')],
            script,
            usage: "",
            usage_code: 1,
            run: |_, _| Ok(()),
        };
        Line::parse(&program, &args)
    }

    fn shown(line: &Line) -> (String, Vec<&str>) {
        let options = line.options.iter();
        let options =
            options.map(|given| format!("{}{} ", given.letter, given.value.display())).collect();
        (options, line.operands.iter().filter_map(|word| word.to_str()).collect())
    }

    #[test]
    fn options_are_parsed_as_by_getopt() {
        for (words, options, operands) in [
            (&["-n", "-D", "7", "x"][..], "n D7 ", &["x"][..]),
            (&["-nD7", "x"], "n D7 ", &["x"]),
            (&["-nD", "7", "x"], "n D7 ", &["x"]),
            (&["-D-n", "x"], "D-n ", &["x"]),
            (&["-D", "-n"], "D-n ", &[]),
            (&["x", "-n", "y"], "n ", &["x", "y"]),
            (&["-n", "--", "-D", "7"], "n ", &["-D", "7"]),
            (&["-", "-n"], "n ", &["-"]),
            (&["-L", "--", "x"], "L-- ", &["x"]),
            (&["-L", "", "x"], "L ", &["x"]),
            (&["--much", "-n", "x"], "M n ", &["x"]),
            (&["-L", "--much", "x"], "L--much ", &["x"]),
        ] {
            let line = parse(false, words).unwrap();
            assert_eq!(shown(&line), (options.to_owned(), operands.to_vec()), "{words:?}");
        }
    }

    #[test]
    fn options_of_a_script_end_at_the_first_operand() {
        let line = parse(true, &["-n", "x", "-D", "7"]).unwrap();
        assert_eq!(shown(&line), ("n ".to_owned(), vec!["x", "-D", "7"]));
    }

    #[test]
    fn wrong_options_are_named() {
        for (words, why) in [
            (&["-x"][..], "invalid option -- 'x'"),
            (&["-nx"], "invalid option -- 'x'"),
            (&["--help"], "invalid option -- '-'"),
            (&["-:"], "invalid option -- ':'"),
            (&["-\u{e9}"], "invalid option -- '\\u{c3}'"),
            (&["-nD"], "option requires an argument -- 'D'"),
        ] {
            assert_eq!(parse(false, words).unwrap_err(), why, "{words:?}");
        }
    }
}
