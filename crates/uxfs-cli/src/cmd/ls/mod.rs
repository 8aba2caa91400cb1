//! `uxfs ls`: lists directories and files as GNU `ls` does.

mod color;
mod long;
mod show;

use std::cmp::Ordering;
use std::ffi::OsString;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use uxfs::Stat;
use uxfs::format::timestamp::Timestamp;
use uxfs_host::{OsStrExt, os_str};

use crate::image::Images;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::time::Style;
use crate::tree::{self, Found};
use crate::{json, number, pattern};

/// List directories and files
///
/// Names are sorted by their bytes. On a terminal, ls prints them in columns and quotes them where a
/// shell would need it; in a pipe, it prints one raw name per line.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs ls disk.img\n  \
    uxfs ls -la --time-style=long-iso disk.img:/etc\n  \
    uxfs ls -R --json disk.img:/ | jq -r '.directories[].entries[].name'\n  \
    uxfs ls -R --json-lines disk.img:/ | jq -r '.entries[].name'\n\n\
    Exit status: 1 for minor problems, 2 if an operand cannot be listed.")]
pub(crate) struct Options {
    #[command(flatten)]
    _log: crate::cli::LongOptions,
    /// Print permissions, owner, size and time
    #[arg(short = 'l', long = "long")]
    long: bool,
    /// Include names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Include names that begin with a dot, except . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// Omit names that end in ~
    #[arg(short = 'B', long)]
    ignore_backups: bool,
    /// Omit names that match this shell pattern, unless they are operands
    #[arg(short = 'I', long, value_name = "PATTERN")]
    ignore: Vec<OsString>,
    /// List directories themselves, not their content
    #[arg(short, long)]
    directory: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print inode numbers
    #[arg(short, long)]
    inode: bool,
    /// Print one name per line
    #[arg(short = '1', id = "one")]
    one: bool,
    /// Print columns, sorted downwards
    #[arg(short = 'C', id = "columns", overrides_with_all = ["across", "one", "commas"])]
    columns: bool,
    /// Print columns, sorted across
    #[arg(short = 'x', id = "across", overrides_with_all = ["columns", "one", "commas"])]
    across: bool,
    /// Print names separated by commas
    #[arg(short = 'm', id = "commas", overrides_with_all = ["columns", "one", "across"])]
    commas: bool,
    /// Print sizes such as 1.5K
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print owner and group as numbers; implies -l
    #[arg(short, long)]
    numeric_uid_gid: bool,
    /// Print no owner; implies -l
    #[arg(short = 'g', id = "no-owner")]
    no_owner: bool,
    /// Print no group; implies -l
    #[arg(short = 'o', id = "no-group-long")]
    no_group_long: bool,
    /// Print no group in long lists
    #[arg(short = 'G', long)]
    no_group: bool,
    /// Print the space used, in units of 1024 bytes
    #[arg(short, long)]
    size: bool,
    /// Sort by time, newest first
    #[arg(short = 't', id = "by-time")]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', id = "by-size")]
    by_size: bool,
    /// Sort by extension
    #[arg(short = 'X', id = "by-extension")]
    by_extension: bool,
    /// Do not sort: keep the directory's order
    #[arg(short = 'U', id = "unsorted")]
    unsorted: bool,
    /// Do not sort, and include all names; same as -a -U
    #[arg(short = 'f', id = "raw")]
    raw: bool,
    /// Sort by WORD: name, none (-U), size (-S), time (-t), extension (-X)
    #[arg(long, value_name = "WORD")]
    sort: Option<Key>,
    /// Show and sort by WORD: atime (-u), ctime (-c), mtime
    #[arg(long, value_name = "WORD")]
    time: Option<Stamp>,
    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,
    /// List directories before files
    #[arg(long)]
    group_directories_first: bool,
    /// Show and sort by the time of last access
    #[arg(short = 'u', id = "use-atime")]
    use_atime: bool,
    /// Show and sort by the time of the inode's last change
    #[arg(short = 'c', id = "use-ctime")]
    use_ctime: bool,
    /// Mark directories with /, links with @, programs with *, fifos with |, sockets with =
    #[arg(short = 'F', long)]
    classify: bool,
    /// Mark directories with /
    #[arg(short = 'p', id = "slash")]
    slash: bool,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print raw names, also on a terminal
    #[arg(short = 'N', long)]
    literal: bool,
    /// Print names in double quotes, with unprintable characters escaped
    #[arg(short = 'Q', long, overrides_with = "literal")]
    quote_name: bool,
    /// Width of a line; 0 for no limit
    #[arg(short = 'w', long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// Format of times: full-iso, long-iso, iso, locale or +FORMAT
    #[arg(long, value_name = "STYLE")]
    time_style: Option<String>,
    /// Same as -l --time-style=full-iso
    #[arg(long)]
    full_time: bool,
    /// Colour names: always, never, or auto (on a terminal, unless NO_COLOR is set)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always")]
    color: When,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
    /// Print a JSON document for each directory, on a line of its own
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
    /// Directories and files to list
    #[arg(value_name = "IMAGE[:/PATH]", required = true)]
    files: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Always,
    Auto,
    Never,
}

/// Sort key of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Key {
    Name,
    None,
    Size,
    Time,
    Extension,
}

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stamp {
    #[value(alias = "access", alias = "use")]
    Atime,
    #[value(alias = "status")]
    Ctime,
    #[value(alias = "modification")]
    Mtime,
}

/// A file in a listing.
struct Item {
    /// The name shown in the listing.
    name: Vec<u8>,
    /// The file.
    found: Found,
    /// For a symbolic link: its target, and the attributes of the file it leads to, if that exists.
    target: Option<(Vec<u8>, Option<Stat>)>,
}

/// A listing in progress.
struct Lister<'a> {
    options: &'a Options,
    session: &'a Session,
    style: Style,
    now: Timestamp,
    colors: Option<color::Colors>,
    directories: Vec<Value>,
    /// A group of files has been printed, so the next one needs an empty line before it.
    begun: bool,
}

impl Options {
    /// Are the entries printed as JSON?
    pub(crate) fn json(&self) -> bool {
        self.json || self.json_lines
    }

    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.no_owner || self.no_group_long || self.full_time
    }

    fn stamp(&self) -> Stamp {
        match self.time {
            Some(stamp) => stamp,
            None if self.use_ctime => Stamp::Ctime,
            None if self.use_atime => Stamp::Atime,
            None => Stamp::Mtime,
        }
    }

    fn time(&self, stat: &Stat) -> Timestamp {
        match self.stamp() {
            Stamp::Atime => stat.atime,
            Stamp::Ctime => stat.ctime,
            Stamp::Mtime => stat.mtime,
        }
    }

    fn key(&self) -> Key {
        match self.sort {
            Some(key) => key,
            None if self.unsorted || self.raw => Key::None,
            None if self.by_size => Key::Size,
            None if self.by_time => Key::Time,
            None if self.by_extension => Key::Extension,
            None if !self.is_long() && self.stamp() != Stamp::Mtime => Key::Time,
            None => Key::Name,
        }
    }

    fn compare(&self, a: &Item, b: &Item) -> Ordering {
        let (one, other) = (&a.found.stat, &b.found.stat);
        let order = match self.key() {
            Key::Size => other.size.cmp(&one.size),
            Key::Time => self.time(other).cmp(&self.time(one)),
            Key::Extension => extension(&a.name).cmp(extension(&b.name)),
            Key::Name | Key::None => Ordering::Equal,
        };
        let order = order.then_with(|| a.name.cmp(&b.name));
        if self.reverse { order.reverse() } else { order }
    }

    fn sort(&self, items: &mut [Item]) {
        if self.key() != Key::None {
            items.sort_by(|a, b| self.compare(a, b));
        }
        if self.group_directories_first {
            items.sort_by_key(|item| !item.found.is_dir());
        }
    }

    fn hides(&self, name: &[u8]) -> bool {
        let shows_dots = self.all || self.raw || self.almost_all;
        let ignored = |pattern: &OsString| {
            // As in a shell, a wildcard does not match a leading dot.
            let dots = pattern.as_bytes().starts_with(b".") || !name.starts_with(b".");
            dots && pattern::matches(pattern.as_bytes(), name, false)
        };
        name.starts_with(b".") && !shows_dots
            || self.ignore_backups && name.ends_with(b"~")
            || self.ignore.iter().any(ignored)
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let named = options.time_style.clone().or_else(|| std::env::var("TIME_STYLE").ok());
    let style = match named.filter(|_| !options.full_time) {
        Some(text) => Style::parse(&text).map_err(Failure::bare)?,
        None if options.full_time => Style::FullIso,
        None => Style::Locale,
    };
    let mut lister = Lister {
        options,
        session,
        style,
        now: uxfs::clock::Clock::Real.now(),
        colors: color::Colors::wanted(options.color, session.terminal),
        directories: Vec::new(),
        begun: false,
    };
    lister.operands(images)?;
    if options.json {
        let mut map = Map::new();
        map.insert("directories".into(), Value::Array(std::mem::take(&mut lister.directories)));
        session.print(json::document("ls", map))?;
    }
    Ok(())
}

impl Lister<'_> {
    fn operands(&mut self, images: &Images) -> Result<()> {
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        // Follow a link that is an operand, unless the options show the link's own attributes.
        let own = self.options.directory || self.options.is_long() || self.options.classify;
        for file in &self.options.files {
            let place = Inside::parse(file);
            let found = tree::find(images, &place, false, self.options.dereference || !own);
            let found = match found {
                // Only links to directories are followed when they are named.
                Ok(found) if found.is_dir() || self.options.dereference || own => Ok(found),
                _ => tree::find(images, &place, false, false),
            };
            match found {
                Ok(found) => {
                    let into = found.is_dir() && !self.options.directory;
                    let name = match file.as_bytes() {
                        bytes if bytes.ends_with(b"/") => bytes.to_vec(),
                        _ => tree::shown(&place),
                    };
                    let item = self.item(name, found);
                    if into { dirs.push(item) } else { files.push(item) }
                }
                Err(failure) => self.session.fail_with(2, failure),
            }
        }
        self.options.sort(&mut files);
        self.options.sort(&mut dirs);
        let many = dirs.len() + files.len() > 1 || self.options.files.len() > 1;
        if !files.is_empty() {
            self.group(None, &files, None)?;
        }
        for dir in dirs {
            self.directory(&dir.found, &dir.name, many || self.options.recursive)?;
            if self.session.pipe_closed() {
                break;
            }
        }
        Ok(())
    }

    fn item(&self, name: Vec<u8>, found: Found) -> Item {
        let wanted = self.options.is_long() || self.colors.is_some() || self.options.json();
        let target = (wanted && tree::is_link(&found.stat)).then(|| {
            let fs = found.fs();
            let target = fs.readlink(found.stat.ino).unwrap_or_default();
            let end = fs.resolve(&found.place.path, true).and_then(|ino| fs.stat(ino));
            (target, end.ok())
        });
        Item { name, found, target }
    }

    /// Lists a directory and, with `-R`, the directories below it.
    fn directory(&mut self, dir: &Found, shown: &[u8], headed: bool) -> Result<()> {
        let mut open = vec![(dir.clone(), shown.to_vec(), 0usize)];
        let mut above: Vec<uxfs::format::Ino> = Vec::new();
        while let Some((dir, shown, depth)) = open.pop() {
            above.truncate(depth);
            if above.contains(&dir.stat.ino) {
                let what = "not listing a directory that is listed already";
                self.session.fail_with(2, Failure::at(&shown, what));
                continue;
            }
            above.push(dir.stat.ino);
            let Some(items) = self.content(&dir, &shown) else { continue };
            let header = headed.then_some(shown.as_slice());
            self.group(Some(&dir), &items, header)?;
            if !self.options.recursive || self.session.pipe_closed() {
                continue;
            }
            for item in items.iter().rev() {
                if item.found.is_dir() && !matches!(item.name.as_slice(), b"." | b"..") {
                    let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
                    let path = [&shown, slash, &item.name].concat();
                    open.push((item.found.clone(), path, depth + 1));
                }
            }
        }
        Ok(())
    }

    fn content(&self, dir: &Found, shown: &[u8]) -> Option<Vec<Item>> {
        let fs = dir.fs();
        let mut names = Vec::new();
        let listed = fs.read_dir(dir.stat.ino, 0, &mut |entry| {
            let dots = self.options.all || self.options.raw;
            if !(entry.is_dot() && !dots || self.options.hides(entry.name)) {
                names.push((entry.name.to_vec(), entry.ino));
            }
            std::ops::ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            self.session.fail_with(2, Failure::volume(os_str(shown), error));
            return None;
        }
        let mut items = Vec::with_capacity(names.len());
        for (name, ino) in names {
            let place = dir.place.join(&name);
            let stat = match self.options.dereference {
                true => fs.resolve(&place.path, true).or(Ok(ino)).and_then(|ino| fs.stat(ino)),
                false => fs.stat(ino),
            };
            match stat {
                Ok(stat) => {
                    let found = Found { image: std::rc::Rc::clone(&dir.image), place, stat };
                    items.push(self.item(name, found));
                }
                Err(error) => self.session.fail_with(1, tree::at(&place, error)),
            }
        }
        self.options.sort(&mut items);
        Some(items)
    }

    /// Prints one group of files: the content of a directory, or the files among the operands.
    fn group(&mut self, dir: Option<&Found>, items: &[Item], header: Option<&[u8]>) -> Result<()> {
        if self.options.json {
            self.directories.push(Value::Object(document(dir, items)));
            return Ok(());
        }
        if self.options.json_lines {
            return self.session.print(json::document("directory", document(dir, items)));
        }
        let mut out = Vec::new();
        if std::mem::replace(&mut self.begun, true) {
            out.push(b'\n');
        }
        if let Some(header) = header {
            out.extend_from_slice(&self.plain(header));
            out.extend_from_slice(b":\n");
        }
        if dir.is_some() && (self.options.is_long() || self.options.size) {
            let blocks: u64 = items.iter().map(|item| taken(&item.found)).sum();
            out.extend_from_slice(format!("total {}\n", self.space(blocks)).as_bytes());
        }
        match self.options.is_long() {
            true => self.long(items, &mut out),
            false => self.short(items, &mut out),
        }
        self.session.print(out)
    }

    /// Are names quoted where a shell would need it?
    fn quotes(&self) -> bool {
        self.session.terminal && !self.options.literal && !self.options.quote_name
    }

    /// The name without colour, quoted on a terminal.
    fn plain(&self, name: &[u8]) -> Vec<u8> {
        if self.options.quote_name {
            return crate::quote::c_string(name);
        }
        match self.quotes() {
            // With -F, quote a name with '@' to distinguish it from the mark of a link.
            true if self.options.classify && name.contains(&b'@') => {
                match crate::quote::shell(name) {
                    plain if plain == name => [b"'", name, b"'"].concat(),
                    quoted => quoted,
                }
            }
            true => crate::quote::shell(name),
            false if self.session.terminal => crate::quote::masked(name),
            false => name.to_vec(),
        }
    }

    /// Space in units of 1024 bytes, or human-readable.
    fn space(&self, bytes: u64) -> String {
        match self.options.human_readable {
            true => number::human(bytes),
            false => bytes.div_ceil(1024).to_string(),
        }
    }
}

/// The name's part from its last dot; empty without a dot.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|b| *b == b'.').map_or(&[], |at| &name[at..])
}

/// Bytes allocated to a file.
fn taken(found: &Found) -> u64 {
    found.stat.blocks << found.fs().geo.block_log
}

fn document(dir: Option<&Found>, items: &[Item]) -> Map<String, Value> {
    let mut map = Map::new();
    if let Some(dir) = dir {
        json::put_bytes(&mut map, "path", &tree::shown(&dir.place));
    }
    let entries = items.iter().map(|item| {
        let mut map = Map::new();
        json::put_bytes(&mut map, "name", &item.name);
        json::put_stat(&mut map, &item.found.stat, item.found.fs().geo.block_size);
        if let Some((target, _)) = &item.target {
            json::put_bytes(&mut map, "target", target);
        }
        Value::Object(map)
    });
    map.insert("entries".into(), entries.collect());
    map
}
