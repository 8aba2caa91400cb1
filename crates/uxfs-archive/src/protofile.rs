//! Reads a protofile of `mkfs.xfs` as a [`Source`]: a text that describes a tree, with paths of the
//! host's files that hold the content.
//!
//! Invariants:
//! 1. The content comes from the regular file that a path leads to, through symbolic links as with
//!    any path that a user gives; it is opened when its entry is returned.
//! 2. A file has the extended attributes of the one that its content comes from, but not its ACLs: the
//!    protofile says who may read it, and has all other metadata. All times are the one that
//!    [`ProtoOptions`] give.
//! 3. An error names the protofile and the line.
//!
//! Used by the importers of trees.

mod parser;
#[cfg(test)]
mod tests;
mod words;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::path::Path;

use uxfs_host::{Stat, Type, os_str};

use crate::entry::{Entry, Kind, Meta, SparseMap, Time};
use crate::error::{ArchiveError, Warnings, show};
use crate::file_data::FileData;
use crate::host_xattrs::HostXattrs;
use crate::source::Source;
use crate::window::{self, WINDOW, Window, Windowed};

use parser::{Node, Parser, Spec};

/// How a protofile is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtoOptions {
    /// A slash in a name means a space. Without this a slash is an error.
    pub slashes_are_spaces: bool,
    /// Bytes of the unit `b` of sizes: a block of the volume.
    pub block_size: u32,
    /// Bytes of the unit `s` of sizes: a sector of the volume.
    pub sector_size: u32,
    /// All times of all files.
    pub now: Time,
}

impl ProtoOptions {
    /// Options with the present time given.
    pub fn at(now: Time) -> Self {
        Self { slashes_are_spaces: false, block_size: 4096, sector_size: 512, now }
    }
}

/// A protofile as a source.
pub struct ProtoSource {
    parser: Parser<BufReader<File>>,
    options: ProtoOptions,
    data: Option<FileData>,
    /// Path of the current entry.
    path: Vec<u8>,
    /// Bytes of data read.
    done: u64,
    host_xattrs: HostXattrs,
    window: Window,
    warnings: Warnings,
}

impl ProtoSource {
    /// Opens the protofile at `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(path: &Path, options: ProtoOptions) -> Result<Self, ArchiveError> {
        let name = path.display().to_string();
        let failed = |error| ArchiveError::io(format!("opening {name}"), error);
        let file = File::open(path).map_err(failed)?;
        let input = BufReader::with_capacity(WINDOW, file);
        Ok(Self {
            parser: Parser::new(input, name, options),
            options,
            data: None,
            path: Vec::new(),
            done: 0,
            host_xattrs: HostXattrs::default(),
            window: Window::default(),
            warnings: Warnings::default(),
        })
    }

    /// Reads all of the protofile, and looks for the files that it names, but at no content. So most
    /// mistakes are found before a volume is made.
    ///
    /// # Errors
    /// Those of [`Source::next`].
    pub fn check(mut self) -> Result<(), ArchiveError> {
        while let Some(node) = self.parser.next()? {
            if let Spec::File(from) = &node.spec {
                let found = std::fs::metadata(os_str(from));
                let found =
                    found.map_err(|error| self.failed(&node, "looking for", from, error))?;
                if !found.is_file() && !is_null(&Stat::of(&found)) {
                    return Err(self.not_regular(&node, from));
                }
            }
        }
        Ok(())
    }

    fn failed(
        &self,
        node: &Node,
        what: &str,
        from: &[u8],
        error: impl Into<io::Error>,
    ) -> ArchiveError {
        let (name, line) = (self.parser.name(), node.line);
        ArchiveError::io(format!("{name}, line {line}: {what} {}", show(from)), error.into())
    }

    fn not_regular(&self, node: &Node, from: &[u8]) -> ArchiveError {
        let from = show(from);
        self.parser
            .bad(node.line, format!("{from}, which is to give the content, is no regular file"))
    }

    fn entry(&mut self, node: Node) -> Result<Entry, ArchiveError> {
        self.path.clone_from(&node.path);
        let mut meta = Meta {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            mtime: self.options.now,
            ..Meta::default()
        };
        let kind = match &node.spec {
            Spec::File(from) => self.file(&node, from, &mut meta)?,
            Spec::Reserved(reserve) => {
                meta.reserve = *reserve;
                Kind::File { size: 0, map: SparseMap::default() }
            }
            Spec::Dir => Kind::Dir,
            Spec::Symlink(target) => Kind::Symlink { target: target.clone() },
            Spec::Char(major, minor) => Kind::Char { major: *major, minor: *minor },
            Spec::Block(major, minor) => Kind::Block { major: *major, minor: *minor },
            Spec::Fifo => Kind::Fifo,
        };
        Ok(Entry { path: node.path, kind, meta })
    }

    /// Opens the content of a file, and reads its attributes.
    fn file(&mut self, node: &Node, from: &[u8], meta: &mut Meta) -> Result<Kind, ArchiveError> {
        let file = open(Path::new(&os_str(from)))
            .map_err(|error| self.failed(node, "opening", from, error))?;
        let stat = file.metadata();
        let stat = Stat::of(
            &stat.map_err(|error| self.failed(node, "reading the metadata of", from, error))?,
        );
        if is_null(&stat) {
            return Ok(Kind::File { size: 0, map: SparseMap::default() });
        }
        if stat.kind != Type::File {
            return Err(self.not_regular(node, from));
        }
        let xattrs = self.host_xattrs.of_file(&file, &mut self.warnings);
        meta.xattrs = xattrs.map_err(|(what, errno)| self.failed(node, &what, from, errno))?;
        let all = meta.xattrs.len();
        meta.xattrs.retain(|(name, _)| !name.starts_with(ACL));
        if meta.xattrs.len() < all {
            let text =
                "ACLs of the files with the content are left out: the protofile has the modes";
            self.warnings.push_once(text.into());
        }
        let data = FileData::new(file, stat.size, stat.stored)
            .map_err(|error| self.failed(node, "looking for holes in", from, error))?;
        let map = data.map.clone();
        self.data = Some(data);
        Ok(Kind::File { size: stat.size, map })
    }
}

/// Prefix of the names of ACLs.
const ACL: &[u8] = b"system.posix_acl_";

/// The device `/dev/null`, whose content is that of an empty file: its numbers on Linux, and on macOS.
const NULL: (u32, u32) = if cfg!(target_os = "linux") { (1, 3) } else { (3, 2) };

fn is_null(stat: &Stat) -> bool {
    stat.kind == Type::Char && stat.rdev == NULL
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // NONBLOCK: a fifo without a writer must not hold up the import.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    options.read(true).open(path)
}

impl Windowed for ProtoSource {
    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some(data) = &mut self.data else { return Ok(0) };
        let before = data.shrunk;
        let result = data.read(buf);
        let path = &self.path;
        if data.shrunk && !before {
            self.warnings.push(format!(
                "{}: the content became shorter while it was read: zeros at its end",
                show(path)
            ));
        }
        let failed = |e| ArchiveError::io(format!("reading the content of {}", show(path)), e);
        let count = result.map_err(failed)?;
        self.done += count as u64;
        Ok(count)
    }
}

impl Source for ProtoSource {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.data = None;
        self.window.clear();
        let node = self.parser.next()?;
        node.map(|node| self.entry(node)).transpose()
    }

    window::data_methods!();

    fn many_files(&self) -> bool {
        true
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.parser.taken() + self.done, None)
    }

    fn warnings(&mut self) -> Vec<String> {
        let mut warnings = self.warnings.take();
        warnings.extend(self.parser.cut_short());
        warnings
    }
}
