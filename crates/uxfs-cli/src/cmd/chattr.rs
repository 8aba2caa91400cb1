//! `uxfs chattr`: changes flags and projects of files.

use std::ffi::OsString;

use clap::Args;
use uxfs::{Fs, Fsx, Stat, Xflags};
use uxfs_host::os_str;

use crate::flags;
use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, WalkOptions};

/// Change flags and project of files
///
/// MODE is +, - or = and letters: a (append only), A (no access times), d (no dump), i
/// (immutable), P (new files inherit the project), S (synchronous), x (direct access). -R: descend
/// into directories. -V: report each file. -f: do not report failures. -p PROJECT: set the project.
#[derive(Args)]
#[command(
    override_usage = "uxfs chattr [-RVf] [-p PROJECT] [MODE]... <IMAGE:/FILE>...",
    after_help = "Examples:\n  \
                  uxfs chattr +i disk.img:/etc/passwd\n  \
                  uxfs chattr -R -p 42 +P disk.img:/srv\n  \
                  uxfs chattr =Ad disk.img:/var/cache"
)]
pub(crate) struct Options {
    /// Options, modes and files
    #[arg(
        value_name = "WORD",
        required = true,
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<OsString>,
}

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    recursive: bool,
    verbose: bool,
    silent: bool,
    project: Option<u32>,
    on: Xflags,
    off: Xflags,
    exact: Option<Xflags>,
    files: Vec<OsString>,
}

impl Request {
    fn parse(words: &[OsString]) -> std::result::Result<Self, String> {
        let mut request = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            if !request.files.is_empty() {
                request.files.push(word.clone());
                continue;
            }
            match text.chars().next() {
                _ if text == "--" => break,
                Some('-') => request.options(&text[1..], &mut words)?,
                Some('+') => request.on |= letters(&text[1..])?,
                Some('=') => {
                    let flags = letters(&text[1..])?;
                    request.exact = Some(request.exact.unwrap_or_default() | flags);
                }
                _ => request.files.push(word.clone()),
            }
        }
        request.files.extend(words.cloned());
        if request.exact.is_some() && !(request.on | request.off).is_empty() {
            return Err("= is incompatible with - and +".into());
        }
        if request.on.intersects(request.off) {
            return Err("a flag cannot be both set and unset".into());
        }
        if request.files.is_empty() {
            return Err("missing file operand".into());
        }
        let changes = !(request.on | request.off).is_empty() || request.exact.is_some();
        if !changes && request.project.is_none() {
            return Err("must use -p, =, - or +".into());
        }
        Ok(request)
    }

    /// Parses a word that begins with a minus: options, or flags to remove.
    fn options<'a>(
        &mut self,
        word: &str,
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> std::result::Result<(), String> {
        for letter in word.chars() {
            match letter {
                'R' => self.recursive = true,
                'V' => self.verbose = true,
                'f' => self.silent = true,
                'p' => {
                    let number = words.next().map(|word| word.to_string_lossy());
                    let number = number.ok_or("-p needs a project number")?;
                    let bad = |_| format!("bad project: {number}");
                    self.project = Some(number.parse().map_err(bad)?);
                }
                other => self.off |= letters(&other.to_string())?,
            }
        }
        Ok(())
    }

    /// The new flags of a file that has the flags `old`.
    fn of(&self, old: Xflags) -> Xflags {
        match self.exact {
            Some(flags) => old.difference(flags::all()).union(flags),
            None => old.difference(self.off).union(self.on),
        }
    }
}

fn letters(text: &str) -> std::result::Result<Xflags, String> {
    let flag = |letter| {
        flags::by_letter(letter).ok_or_else(|| format!("XFS has no flag '{letter}': use aAdiPSx"))
    };
    text.chars().try_fold(Xflags::empty(), |all, letter| Ok(all | flag(letter)?))
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let request = Request::parse(&options.words).map_err(Failure::bare)?;
    for file in &request.files {
        let place = Inside::parse(file);
        let done = change(&request, session, images, &place);
        report(&request, session, done);
    }
    Ok(())
}

fn report(request: &Request, session: &Session, done: Result<()>) {
    match done {
        Err(_) if request.silent => session.set_code(1),
        done => drop(session.ok(done)),
    }
}

fn change(request: &Request, session: &Session, images: &Images, place: &Inside) -> Result<()> {
    let found = tree::find(images, place, true, false)?;
    let start = (tree::shown(place), found.stat.clone());
    let mut visit = |visited: tree::Visited<'_>| {
        if flags::are_accessible(visited.stat.mode) {
            report(request, session, one(request, session, visited.fs, visited.path, visited.stat));
        } else if visited.depth == 0 {
            let failure = Failure::at(visited.path, "only files and directories have flags");
            report(request, session, Err(failure));
        }
        Ok(if request.recursive { Next::Enter } else { Next::Skip })
    };
    let mut on_error = |path: &[u8], error| {
        report(request, session, Err(Failure::volume(os_str(path), error)));
    };
    tree::walk(found.fs(), start, WalkOptions::default(), &mut visit, &mut on_error)
}

fn one(request: &Request, session: &Session, fs: &Fs, path: &[u8], stat: &Stat) -> Result<()> {
    let failed = |error| Failure::volume(os_str(path), error);
    let old = fs.get_fsx(stat.ino).map_err(failed)?;
    let xflags = request.of(old.xflags);
    let new = Fsx { xflags, projid: request.project.unwrap_or(old.projid), ..old };
    fs.set_fsx(stat.ino, &new).map_err(failed)?;
    if request.verbose {
        let line = flags::line(fs.get_fsx(stat.ino).map_err(failed)?.xflags);
        session.print([b"Flags of ", path, b" set as ", line.as_bytes(), b"\n"].concat())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Request, String> {
        Request::parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_parse_as_in_chattr() {
        let got = parse("-RV +iA -d -p 7 a b -c").expect("good");
        assert!(got.recursive && got.verbose && !got.silent);
        assert_eq!((got.on, got.off), (Xflags::IMMUTABLE | Xflags::NOATIME, Xflags::NODUMP));
        assert_eq!((got.project, got.files.len()), (Some(7), 3));
        let got = parse("= -- -odd").expect("good");
        assert_eq!((got.exact, got.files), (Some(Xflags::empty()), vec!["-odd".into()]));
        for bad in ["+i", "a", "+c a", "=a +i a", "+i -i a", "-p a", "-p"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
