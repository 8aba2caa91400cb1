//! What the programs of the comparison have in common: the walk of a volume through a library, and an
//! edit script carried out by one.
//!
//! 1. `PROGRAM list IMAGE` prints the [`Listing`] of what the library reads. What it cannot read is a line
//!    on standard error, and stays out of the listing, or without content.
//! 2. `PROGRAM edit IMAGE SCRIPT` carries out a script ([`Step`]), each step whether or not the one before
//!    was refused, and prints how many were.
//! 3. `PROGRAM check IMAGE`, where the library checks volumes, prints its findings.
//! 4. A panic of a library counts as its error.
//!
//! Only what all of them show is in a listing: names, types, sizes, contents, link targets.

use std::any::Any;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use uxfs_oracle::{ContentSum, Entry, Kind, Listing, Time};

/// Why something was not done, in the words of the library.
pub type Why = String;

/// An entry of a directory.
pub struct Item<N> {
    pub name: Vec<u8>,
    /// What the entry is; `None`: a device, a FIFO or a socket.
    pub kind: Option<Kind>,
    pub node: N,
}

/// A library that reads volumes.
pub trait Reader {
    /// What names a file to the library.
    type Node;
    fn root(&mut self) -> Result<Self::Node, Why>;
    /// Without `.` and `..`.
    fn list(&mut self, dir: &Self::Node) -> Result<Vec<Item<Self::Node>>, Why>;
    /// Reads a regular file, in pieces of a multiple of [`ContentSum::BLOCK`] bytes but for the last. Returns
    /// its size.
    fn read(&mut self, file: &Self::Node, sum: &mut ContentSum) -> Result<u64, Why>;
    fn target(&mut self, link: &Self::Node) -> Result<Vec<u8>, Why>;
}

/// A library that changes volumes. Paths are absolute.
pub trait Editor: Sized {
    fn mkdir(&mut self, path: &[u8]) -> Result<(), Why>;
    fn put(&mut self, path: &[u8], content: &[u8]) -> Result<(), Why>;
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), Why>;
    fn remove(&mut self, path: &[u8]) -> Result<(), Why>;
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Why>;
    fn finish(self) -> Result<(), Why>;
}

/// A line of a script: the words are separated by tabs.
pub enum Step<'a> {
    /// `mkdir PATH`
    Mkdir(&'a [u8]),
    /// `put FILE-OF-THE-HOST PATH`
    Put(&'a [u8], &'a [u8]),
    /// `symlink TARGET PATH`
    Symlink(&'a [u8], &'a [u8]),
    /// `rm PATH`
    Remove(&'a [u8]),
    /// `mv FROM TO`
    Rename(&'a [u8], &'a [u8]),
}

/// The steps of a script.
///
/// # Panics
/// At a line that is none.
pub fn steps(script: &[u8]) -> Vec<Step<'_>> {
    let lines = script.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let step = |line| {
        let words: Vec<&[u8]> = <[u8]>::split(line, |byte| *byte == b'\t').collect();
        match words[..] {
            [b"mkdir", path] => Step::Mkdir(path),
            [b"put", host, path] => Step::Put(host, path),
            [b"symlink", target, path] => Step::Symlink(target, path),
            [b"rm", path] => Step::Remove(path),
            [b"mv", from, to] => Step::Rename(from, to),
            _ => panic!("no step: {}", String::from_utf8_lossy(line)),
        }
    };
    lines.map(step).collect()
}

/// Parent directory and name of a path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (if slash == 0 { b"/" } else { &path[..slash] }, &path[slash + 1..])
}

/// The path of `name` in `dir`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir == b"/" { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// A file of the host, named by bytes.
pub fn host(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// An entry of a listing, of which only these fields are compared.
pub fn entry(path: Vec<u8>, kind: Kind, size: u64) -> Entry {
    Entry {
        path,
        kind,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        size,
        ino: 0,
        blocks: 0,
        mtime: Time::default(),
        atime: Time::default(),
        ctime: Time::default(),
        btime: Time::default(),
        rdev: None,
        target: None,
        content: None,
        data: Vec::new(),
        link: None,
        xattrs: Default::default(),
    }
}

/// The words of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_default())
}

/// Calls the library.
fn call<T>(what: impl FnOnce() -> Result<T, Why>) -> Result<T, Why> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| Err(words(&*panic)))
}

/// A line of an error.
fn line(path: &[u8], why: &str) {
    eprintln!("{}: {}", path.escape_ascii(), why.replace('\n', " "));
}

/// The tree as the library reads it.
fn walk<R: Reader>(reader: &mut R) -> Result<Listing, Why> {
    let root = call(|| reader.root())?;
    let mut listing = Listing::default();
    listing.entries.push(entry(b"/".to_vec(), Kind::Dir, 0));
    let mut dirs = vec![(b"/".to_vec(), root)];
    while let Some((dir, node)) = dirs.pop() {
        let items = match call(|| reader.list(&node)) {
            Ok(items) => items,
            Err(why) => {
                line(&dir, &why);
                continue;
            }
        };
        for item in items {
            let path = join(&dir, &item.name);
            let Some(kind) = item.kind else { continue };
            let mut found = entry(path.clone(), kind, 0);
            match kind {
                Kind::File => {
                    let mut sum = ContentSum::default();
                    match call(|| reader.read(&item.node, &mut sum)) {
                        Ok(size) => (found.size, found.content) = (size, Some(sum.finish())),
                        Err(why) => line(&path, &why),
                    }
                }
                Kind::Symlink => match call(|| reader.target(&item.node)) {
                    Ok(target) => found.target = Some(target),
                    Err(why) => line(&path, &why),
                },
                _ => dirs.push((path, item.node)),
            }
            listing.entries.push(found);
        }
    }
    listing.entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

/// Carries out a script. Returns the number of steps that were refused, and the first reason.
fn carry_out<E: Editor>(mut editor: E, script: &[u8]) -> Result<(usize, Option<Why>), Why> {
    let (mut refused, mut first) = (0, None);
    for step in steps(script) {
        let (path, done) = match step {
            Step::Mkdir(path) => (path, call(|| editor.mkdir(path))),
            Step::Put(from, path) => {
                let content = fs::read(host(from)).map_err(|e| e.to_string())?;
                (path, call(|| editor.put(path, &content)))
            }
            Step::Symlink(target, path) => (path, call(|| editor.symlink(path, target))),
            Step::Remove(path) => (path, call(|| editor.remove(path))),
            Step::Rename(from, to) => (from, call(|| editor.rename(from, to))),
        };
        if let Err(why) = done {
            refused += 1;
            first.get_or_insert_with(|| format!("{}: {why}", path.escape_ascii()));
        }
    }
    call(|| editor.finish())?;
    Ok((refused, first))
}

/// The arguments: a command, an image, and perhaps a script.
pub struct Args {
    pub command: String,
    pub image: String,
    script: Option<String>,
}

impl Args {
    /// Those of the process.
    pub fn get() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        Some(Self { command: words.next()?, image: words.next()?, script: words.next() })
    }
}

/// Ends a program with its result.
pub fn exit(result: Result<(), Why>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Prints a listing.
pub fn print(listing: &Listing) -> Result<(), Why> {
    io::stdout().lock().write_all(listing.to_string().as_bytes()).map_err(|e| e.to_string())
}

/// The command `list`.
pub fn list<R: Reader>(open: impl FnOnce() -> Result<R, Why>) -> Result<(), Why> {
    print(&walk(&mut call(open)?)?)
}

/// The command `edit`.
pub fn edit<E: Editor>(args: &Args, open: impl FnOnce() -> Result<E, Why>) -> Result<(), Why> {
    let script = args.script.as_ref().ok_or("no script")?;
    let script = fs::read(script).map_err(|e| e.to_string())?;
    let all = steps(&script).len();
    let (refused, first) = carry_out(call(open)?, &script)?;
    println!("{refused} of {all} refused");
    first.map_or(Ok(()), Err)
}

/// The command `check`: prints findings.
pub fn check(found: impl FnOnce() -> Result<Vec<String>, Why>) -> Result<(), Why> {
    let found = call(found)?;
    found.iter().for_each(|line| println!("{}", line.replace('\n', " ")));
    if found.is_empty() { Ok(()) } else { Err(format!("{} findings", found.len())) }
}

/// Anything that can be shown as an error.
pub fn why(error: impl std::fmt::Display) -> Why {
    error.to_string()
}
