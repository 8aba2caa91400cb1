//! Reads a dump of xfsdump as a [`Source`]: all directories, then the files in the dump's order.
//!
//! [`layout`] describes the format. A file's holes and attributes are known behind its data. So the headers
//! of a file are read to their end before its entry is made: a dump in a plain file is read in place; of
//! another, the data of one file waits in a [`Spool`].
//!
//! Invariants:
//! 1. Memory: the names ([`names`]), the extents of one file (at most 1 Mi), its attributes (at most 16 MiB),
//!    and the spool's. Counts in headers are never believed: what they count is read first.
//! 2. Each step consumes a header at least, so a dump makes the reader end.
//! 3. Checksums are verified wherever the dump says that it has them.
//! 4. A dump is whole if every stream of it has ended. Media files of one session may follow each other.
//! 5. A file whose name is not in a directory, and a name whose file is not there (removed or made anew
//!    during the dump), is left out with a warning.
//! 6. An increment, and what a resumed dump adds, is refused, unless the source is only to be listed.
//!
//! Used by [`open`](crate::open).

mod layout;
mod names;
mod reader;
mod spool;

use std::ops::Range;

use uxfs_host::FileExt;

use crate::entry::{Entry, Kind, Meta, SparseMap, Xattrs, normal_xattrs};
use crate::error::{ArchiveError, Warnings, show};
use crate::input::Input;
use crate::source::Source;
use crate::sparse::SEGMENTS_MAX;
use crate::window::{self, Window, Windowed};

use layout::{Extent, File, extent, file};
use names::Names;
use reader::Reader;
use spool::Spool;

/// Bytes of a symbolic link's target.
const TARGET_MAX: u64 = 64 << 10;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// A file whose headers were read.
struct Gathered {
    header: File,
    segments: Vec<(u64, u64)>,
    target: Vec<u8>,
    xattrs: Xattrs,
}

/// A dump as a source.
pub(crate) struct XfsDump {
    reader: Reader,
    names: Names,
    /// The header after those that were used.
    pending: Option<File>,
    dirs_done: bool,
    ended: bool,
    /// Other names of the current file, and its first.
    links: Range<usize>,
    first: Vec<u8>,
    first_meta: Meta,
    /// Where the current file's data lies, in the input or in the spool, and how far it was read.
    pieces: Vec<(u64, u64)>,
    piece: usize,
    within: u64,
    /// From which name on files are missing.
    missing: usize,
    spool: Spool,
    window: Window,
}

impl XfsDump {
    /// Reads the headers and the directories. `list` accepts increments.
    pub(crate) fn start(
        input: Input,
        name: String,
        warnings: Warnings,
        list: bool,
    ) -> Result<Box<dyn Source>, ArchiveError> {
        let reader = Reader::start(input, name, warnings, list)?;
        let names = Names::new(reader.header.root);
        let mut dump = Self {
            reader,
            names,
            pending: None,
            dirs_done: false,
            ended: false,
            links: 0..0,
            first: Vec::new(),
            first_meta: Meta::default(),
            pieces: Vec::new(),
            piece: 0,
            within: 0,
            missing: 0,
            spool: Spool::default(),
            window: Window::default(),
        };
        dump.read_dirs()?;
        Ok(Box::new(dump))
    }

    /// Reads the directories into memory, up to the first file.
    fn read_dirs(&mut self) -> Result<(), ArchiveError> {
        let at = self.reader.offset();
        while let Some(header) = self.reader.next_header()? {
            if header.mode & S_IFMT != S_IFDIR {
                self.pending = Some(header);
                break;
            }
            let damaged = |what| Reader::damaged(header.at, what);
            if header.flags & file::ATTRS == 0 {
                let generation = header.generation & self.reader.generation_mask();
                self.names.add_dir(File { generation, ..header }).map_err(damaged)?;
                let (reader, names) = (&mut self.reader, &mut self.names);
                reader.dirents(|ino, generation, name| names.add(ino, generation, name))?;
            } else {
                let xattrs = self.reader.attrs()?;
                if !self.names.set_xattrs(header.ino, xattrs) {
                    return Err(damaged("attributes of another directory".into()));
                }
            }
        }
        self.names.seal().map_err(|what| Reader::damaged(at, what))
    }

    fn next_dir(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let at = self.reader.offset();
        loop {
            match self.names.next_dir().map_err(|what| Reader::damaged(at, what))? {
                None => return Ok(None),
                Some(Ok((path, header, xattrs))) => {
                    return Ok(Some(Entry { path, kind: Kind::Dir, meta: meta(&header, xattrs) }));
                }
                Some(Err(ino)) => self.reader.warn(format!(
                    "directory {ino} has no name in the dump: it is left out with what is in it"
                )),
            }
        }
    }

    /// Reads the headers of the next file, its parts and its attributes.
    fn gather(&mut self) -> Result<Option<Gathered>, ArchiveError> {
        let mut header = match self.pending.take() {
            Some(header) => header,
            None => match self.reader.next_header()? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        // Each media file may have the directories again.
        while header.mode & S_IFMT == S_IFDIR {
            if header.flags & file::ATTRS == 0 {
                self.reader.dirents(|_, _, _| Ok(()))?;
            } else {
                self.reader.attrs()?;
            }
            let Some(next) = self.reader.next_header()? else { return Ok(None) };
            header = next;
        }
        if header.flags & file::ATTRS != 0 || header.offset != 0 {
            let what = format!("inode {}: the beginning of its file is missing", header.ino);
            return Err(Reader::damaged(header.at, what));
        }
        let mut file =
            Gathered { header, segments: Vec::new(), target: Vec::new(), xattrs: Vec::new() };
        self.pieces.clear();
        self.spool.clear();
        (self.piece, self.within) = (0, 0);
        self.window.clear();
        self.content(&mut file)?;
        while let Some(next) = self.reader.next_header()? {
            let more = next.flags & file::ATTRS != 0 || next.offset > 0;
            if next.ino != header.ino || !more {
                self.pending = Some(next);
                break;
            }
            if next.flags & file::ATTRS != 0 {
                file.xattrs = self.reader.attrs()?;
            } else {
                self.content(&mut file)?;
            }
        }
        Ok(Some(file))
    }

    /// Reads what follows a file header that is not one of attributes.
    fn content(&mut self, gathered: &mut Gathered) -> Result<(), ArchiveError> {
        match gathered.header.mode & S_IFMT {
            S_IFREG => {
                while self.extent(gathered)? {}
                Ok(())
            }
            S_IFLNK => {
                let at = self.reader.offset();
                let Extent { len, kind, .. } = self.reader.extent()?;
                if kind != extent::DATA || len > TARGET_MAX {
                    return Err(Reader::damaged(at, "this is no symbolic link's target".into()));
                }
                gathered.target = self.reader.take(len as usize)?;
                let end = gathered.target.iter().position(|byte| *byte == 0);
                gathered.target.truncate(end.unwrap_or(gathered.target.len()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads an extent; false for the last.
    fn extent(&mut self, gathered: &mut Gathered) -> Result<bool, ArchiveError> {
        let at = self.reader.offset();
        let Extent { len, offset, kind, .. } = self.reader.extent()?;
        match kind {
            extent::LAST => Ok(false),
            extent::HOLE => Ok(true),
            extent::PADDING => self.reader.skip(len).map(|()| true),
            extent::DATA => {
                // The end of the last block is no part of the file.
                let used = len.min(gathered.header.size.saturating_sub(offset));
                if used > 0 {
                    if gathered.segments.len() >= SEGMENTS_MAX {
                        let what = format!("a file of more than {SEGMENTS_MAX} extents");
                        return Err(Reader::damaged(at, what));
                    }
                    let from = match self.reader.in_file() {
                        Some(position) => {
                            self.reader.skip(used)?;
                            position
                        }
                        None => {
                            let from = self.spool.len();
                            self.reader.copy(used, &mut self.spool)?;
                            from
                        }
                    };
                    gathered.segments.push((offset, used));
                    match self.pieces.last_mut() {
                        Some((start, length)) if *start + *length == from => *length += used,
                        _ => self.pieces.push((from, used)),
                    }
                }
                self.reader.skip(len - used).map(|()| true)
            }
            _ => Err(Reader::damaged(at, format!("an extent of unknown type {kind}"))),
        }
    }

    /// The next file by its first name; `None` at the end.
    fn next_file(&mut self) -> Result<Option<Entry>, ArchiveError> {
        loop {
            let Some(gathered) = self.gather()? else { return Ok(None) };
            let Gathered { header, segments, target, xattrs } = gathered;
            let damaged = |what| Reader::damaged(header.at, what);
            let generation = header.generation & self.reader.generation_mask();
            self.links = self.names.find(header.ino, generation);
            let Some((path, _)) = self.next_name(header.at)? else {
                self.reader.warn(format!(
                    "the file of inode {} has no name in the dump: it is left out",
                    header.ino
                ));
                continue;
            };
            let kind = match header.mode & S_IFMT {
                S_IFREG => {
                    let map = SparseMap::from_segments(header.size, segments).map_err(damaged)?;
                    Kind::File { size: header.size, map }
                }
                S_IFLNK if target.is_empty() => {
                    return Err(damaged("a symbolic link without a target".into()));
                }
                S_IFLNK => Kind::Symlink { target },
                0o020_000 => device(&header, true),
                0o060_000 => device(&header, false),
                0o010_000 => Kind::Fifo,
                0o140_000 => Kind::Socket,
                _ => return Err(damaged(format!("a file of unknown type {:o}", header.mode))),
            };
            let entry = Entry { path, kind, meta: meta(&header, xattrs) };
            if !self.links.is_empty() {
                self.first.clone_from(&entry.path);
                self.first_meta.clone_from(&entry.meta);
            }
            return Ok(Some(entry));
        }
    }

    /// The next of the current file's names that has a place.
    fn next_name(&mut self, at: u64) -> Result<Option<(Vec<u8>, usize)>, ArchiveError> {
        for name in self.links.by_ref() {
            if !self.names.mark(name) {
                return Err(Reader::damaged(at, "this file is in the dump twice".into()));
            }
            let path = self.names.path(name);
            if let Some(path) = path.map_err(|what| Reader::damaged(at, what))? {
                return Ok(Some((path, name)));
            }
        }
        Ok(None)
    }

    /// Warns of names whose files did not come.
    fn warn_of_missing(&mut self) -> Result<(), ArchiveError> {
        if self.reader.is_part() {
            return Ok(());
        }
        let at = self.reader.offset();
        while let Some(name) = self.names.unused(self.missing) {
            self.missing = name + 1;
            let path = self.names.path(name).map_err(|what| Reader::damaged(at, what))?;
            if let Some(path) = path {
                let path = show(&path);
                self.reader.warn(format!("{path}: its file is not in the dump: left out"));
            }
        }
        Ok(())
    }
}

fn meta(header: &File, mut xattrs: Xattrs) -> Meta {
    normal_xattrs(&mut xattrs);
    Meta {
        mode: header.mode & 0o7777,
        uid: header.uid,
        gid: header.gid,
        mtime: header.mtime,
        atime: Some(header.atime),
        ctime: Some(header.ctime),
        xattrs,
        fsx: header.fsx,
        ..Meta::default()
    }
}

fn device(header: &File, character: bool) -> Kind {
    let (major, minor) = header.device();
    match character {
        true => Kind::Char { major, minor },
        false => Kind::Block { major, minor },
    }
}

impl Windowed for XfsDump {
    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some((start, len)) = self.pieces.get(self.piece).copied() else { return Ok(0) };
        let (at, left) = (start + self.within, len - self.within);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..want];
        let count = match self.reader.file() {
            Some(file) => file.read_at(buf, at),
            None => self.spool.read_at(buf, at),
        };
        let count = count.map_err(|error| self.reader.failed(at, error))?;
        if count == 0 && want > 0 {
            return Err(self.reader.truncated());
        }
        self.within += count as u64;
        if self.within == len {
            self.piece += 1;
            self.within = 0;
        }
        Ok(count)
    }
}

impl Source for XfsDump {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        if !self.dirs_done {
            if let Some(entry) = self.next_dir()? {
                return Ok(Some(entry));
            }
            self.dirs_done = true;
        }
        self.pieces.clear();
        self.window.clear();
        let at = self.reader.offset();
        if let Some((path, _)) = self.next_name(at)? {
            let kind = Kind::Hardlink { target: self.first.clone() };
            return Ok(Some(Entry { path, kind, meta: self.first_meta.clone() }));
        }
        let entry = self.next_file()?;
        if entry.is_none() {
            self.ended = true;
            self.warn_of_missing()?;
        }
        Ok(entry)
    }

    window::data_methods!();

    fn data_position(&self) -> Option<u64> {
        match (self.reader.file(), self.pieces.as_slice()) {
            (Some(_), [(start, _)]) => Some(*start),
            _ => None,
        }
    }

    fn file(&self) -> Option<&std::fs::File> {
        self.reader.file()
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.reader.progress()
    }

    fn set_limit(&mut self, bytes: u64) {
        self.reader.set_limit(bytes);
    }

    fn warnings(&mut self) -> Vec<String> {
        self.reader.warnings()
    }
}
