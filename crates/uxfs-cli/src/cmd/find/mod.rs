//! `uxfs find`: walks trees and tests files as GNU `find` does.

mod actions;
mod exec;
mod parse;
mod predicates;
mod printf;

use std::ffi::{OsStr, OsString};

use clap::Args;
use serde_json::{Map, Value};
use uxfs::format::timestamp::Timestamp;
use uxfs_host::{OsStrExt, os_str};

use crate::image::Images;
use crate::json;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree::{self, Next, Visited, WalkOptions};
use parse::{Expression, Parsed};

/// Search for files in trees
///
/// Operators: ( ) ! -not -a -and -o -or. Tests: -name -iname -path -ipath -type -size -empty -perm
/// -user -group -uid -gid -nouser -nogroup -links -inum -mtime -atime -ctime -mmin -amin -cmin
/// -newer -anewer -cnewer -newerXY -lname -regex -iregex -true -false. Actions: -print -print0 -ls
/// -printf -exec -prune -quit -delete. Options: -mindepth -maxdepth -depth. All are as in find(1), with
/// two differences: -regex takes extended expressions, as with -regextype posix-extended; -exec starts a
/// program of this machine with IMAGE:/PATH for {}. The image is open for reading meanwhile, so a program
/// that changes it is refused: use -print0 and xargs -0 for such a program.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs find disk.img:/ -name '*.conf' -size +4k\n  \
    uxfs find disk.img:/usr -type f -perm -4000 -ls\n  \
    uxfs find disk.img:/ -printf '%y %m %U %G %s %T@ %n %l %P\\n'\n  \
    uxfs find disk.img:/etc -name '*.conf' -newermt 2026-01-01 -exec uxfs cat {} \\;\n  \
    uxfs find --json disk.img:/etc -newer disk.img:/etc/passwd\n  \
    uxfs find --json-lines disk.img:/ -type f | jq -r .path")]
pub(crate) struct Options {
    /// Follow symbolic links
    #[arg(short = 'L', overrides_with = "follow_named")]
    follow: bool,
    /// Never follow symbolic links
    #[arg(short = 'P', overrides_with_all = ["follow", "follow_named"])]
    no_follow: bool,
    /// Follow symbolic links that are starting points
    #[arg(short = 'H', overrides_with = "follow")]
    follow_named: bool,
    /// Print the files found as a JSON document, instead of -print
    #[arg(long)]
    json: bool,
    /// Print a JSON document for each file as it is found, on a line of its own
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
    /// Starting points, then the expression
    #[arg(
        value_name = "IMAGE[:/PATH]... EXPRESSION",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

impl Options {
    /// Are the files found printed as JSON?
    pub(crate) fn json(&self) -> bool {
        self.json || self.json_lines
    }
}

/// A search in progress.
struct Finder<'a> {
    session: &'a Session,
    expression: &'a Expression,
    now: Timestamp,
    depth_first: bool,
    mindepth: usize,
    maxdepth: usize,
    /// Commands of `-exec … +`, which take many files.
    commands: Vec<exec::Batch>,
    documents: Documents,
    quit: bool,
}

/// What becomes of the files found.
enum Documents {
    /// Actions print them.
    None,
    /// One document has them all in the end.
    One(Vec<Value>),
    /// Each is a document at once.
    Lines,
}

/// A file under test.
struct Candidate<'a> {
    visited: Visited<'a>,
    /// The starting point as given on the command line.
    start: &'a [u8],
    /// The starting point's path in the image.
    root: &'a [u8],
}

impl Candidate<'_> {
    /// The path relative to the starting point.
    fn below(&self) -> &[u8] {
        let rest = self.visited.path.get(self.start.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The path in the image.
    fn inside(&self) -> Vec<u8> {
        match self.below() {
            b"" => self.root.to_vec(),
            below => [self.root, b"/", below].concat(),
        }
    }

    fn name(&self) -> &[u8] {
        match crate::place::base(self.visited.path) {
            b"" => b"/",
            // The name of an image's root is "/".
            _ if self.visited.path.ends_with(b":/") => b"/",
            name => name,
        }
    }
}

/// Is this the first word of an expression, and not a starting point?
pub(crate) fn is_expression(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes.starts_with(b"-") && bytes.len() > 1 || bytes == b"(" || bytes == b"!"
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let split = options.words.iter().position(|word| is_expression(word));
    let split = split.unwrap_or(options.words.len());
    let (starts, words) = options.words.split_at(split);
    if starts.is_empty() {
        return Err(Failure::bare("missing starting point: name an image to search"));
    }
    let Parsed { expression, settings } = parse::parse(words, images, options.json())?;
    let mut finder = Finder {
        session,
        expression: &expression,
        now: uxfs::clock::Clock::Real.now(),
        depth_first: settings.depth,
        mindepth: settings.mindepth,
        maxdepth: settings.maxdepth,
        commands: settings.commands.iter().cloned().map(exec::Batch::new).collect(),
        documents: match (options.json, options.json_lines) {
            (true, _) => Documents::One(Vec::new()),
            (_, true) => Documents::Lines,
            _ => Documents::None,
        },
        quit: false,
    };
    for start in starts {
        session.ok(finder.search(
            images,
            &Inside::parse(start),
            (options.follow, options.follow_named, settings.deletes),
        ));
        if finder.quit || session.pipe_closed() {
            break;
        }
    }
    for command in &mut finder.commands {
        command.finish(session)?;
    }
    if let Documents::One(documents) = finder.documents {
        let mut map = Map::new();
        map.insert("files".into(), Value::Array(documents));
        session.print(json::document("find", map))?;
    }
    Ok(())
}

impl Finder<'_> {
    fn search(
        &mut self,
        images: &Images,
        place: &Inside,
        (follow, follow_named, write): (bool, bool, bool),
    ) -> Result<()> {
        // As in find(1), a dangling link is taken as itself.
        let found = match follow || follow_named {
            true => tree::find(images, place, write, true)
                .or_else(|_| tree::find(images, place, write, false)),
            false => tree::find(images, place, write, false),
        }?;
        // Paths begin with the starting point as given, without trailing slashes except for the root.
        let start = tree::shown(place);
        let walk_options = WalkOptions { both: self.depth_first, follow };
        let session = self.session;
        let mut on_error = |path: &[u8], error| {
            session.fail(Failure::volume(os_str(path), error));
        };
        let mut visit = |visited: Visited<'_>| self.visit((&start, &place.path), visited);
        let root = (start.clone(), found.stat.clone());
        tree::walk(found.fs(), root, walk_options, &mut visit, &mut on_error)
    }

    fn visit(&mut self, (start, root): (&[u8], &[u8]), visited: Visited<'_>) -> Result<Next> {
        let deeper = visited.depth < self.maxdepth;
        let go_on = if deeper { Next::Enter } else { Next::Skip };
        let is_dir = tree::is_dir(visited.stat);
        // With -depth, a directory that is entered is tested after its content.
        if self.depth_first && is_dir && !visited.leaving && deeper {
            return Ok(go_on);
        }
        if visited.depth < self.mindepth {
            return Ok(go_on);
        }
        let mut candidate = Candidate { visited, start, root };
        let mut pruned = false;
        let expression = self.expression;
        self.evaluate(expression, &mut candidate, &mut pruned)?;
        Ok(match (self.quit, pruned && !self.depth_first) {
            (true, _) => Next::Stop,
            (_, true) => Next::Skip,
            _ => go_on,
        })
    }

    fn evaluate(
        &mut self,
        expression: &Expression,
        candidate: &mut Candidate<'_>,
        pruned: &mut bool,
    ) -> Result<bool> {
        if self.quit {
            return Ok(false);
        }
        match expression {
            Expression::And(parts) => {
                for part in parts {
                    if !self.evaluate(part, candidate, pruned)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Or(parts) => {
                for part in parts {
                    if self.evaluate(part, candidate, pruned)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::Not(part) => Ok(!self.evaluate(part, candidate, pruned)?),
            Expression::Test(test) => predicates::holds(test, candidate, self.now),
            Expression::Action(action) => self.act(action, candidate, pruned),
        }
    }
}
