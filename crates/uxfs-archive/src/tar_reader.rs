//! Reads a tar archive as a [`Source`].
//!
//! An entry consists of extended headers (PAX `x`, GNU `L` and `K`) in any order, its header, and
//! its data padded to a block. Two zero blocks end the archive.
//!
//! Invariants:
//! 1. Between entries, `input` is at a header. Within an entry, `data_left` bytes of data and then
//!    `tail` bytes of padding remain.
//! 2. Every iteration of every loop consumes at least one block, so no archive makes the reader
//!    hang.
//! 3. Skipped content is reported as a warning; invalid content is an error.
//! 4. A compressed stream is read to its end, so that its checksum is verified.
//! 5. At most [`HEADERS_MAX`] headers precede an entry.
//! 6. The back half begins at a block that looks like a header, which may be data of a file. It counts only
//!    if the front half ends there, between two entries, with no values from global headers: what follows
//!    is then read as one reader would read it.
//!
//! Used by [`open`](crate::open).

use std::fs::File;

use crate::entry::{Entry, Fsx, Kind, Meta, PATH_MAX, SparseMap, Time, normal_path};
use crate::error::{ArchiveError, Warnings, show};
use crate::header::{BLOCK, BLOCK_U64, Block, Header, checksum_ok, is_zero};
use crate::input::Input;
use crate::pax::{Extended, GLOBAL_MAX, HEADER_MAX, records};
use crate::source::Source;
use crate::sparse;

/// Bytes of an extended header to allocate at a time.
const BODY_STEP: usize = 1 << 20;

/// Maximum length of a GNU long name in bytes.
const LONG_NAME_MAX: u64 = PATH_MAX as u64;

/// Blocks to search for a header behind the middle.
const SEARCH_MAX: usize = 8 << 10;

/// Maximum number of headers before an entry's own; real archives have three or four.
const HEADERS_MAX: u32 = 64;

/// A problem with a header, before its location is known.
enum Fault {
    Archive(ArchiveError),
    Text(String),
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

/// A tar archive as a source.
pub(crate) struct TarSource {
    input: Input,
    name: String,
    warnings: Warnings,
    /// Values from global headers.
    global: Extended,
    /// Path of the current entry, for messages.
    current: Vec<u8>,
    /// Archive offset of the current file's data.
    data_at: Option<u64>,
    data_left: u64,
    /// Bytes between the data and the next header.
    tail: u64,
    ended: bool,
    /// Offset at which the back half begins, until this half is there.
    back: Option<u64>,
    met_back: bool,
}

impl TarSource {
    /// Checks the first block and makes the source.
    pub(crate) fn start(
        mut input: Input,
        name: String,
        mut warnings: Warnings,
    ) -> Result<Box<dyn Source>, ArchiveError> {
        let what = match input.peek_block(&mut warnings)? {
            None if input.chunk(&mut warnings)?.is_empty() => Some("is empty"),
            None => Some("is shorter than one tar block"),
            Some(block) if is_zero(&block) || checksum_ok(&block) => None,
            Some(_) => Some("is not a tar archive: it does not begin with a tar header"),
        };
        if let Some(what) = what {
            return Err(ArchiveError::NotTar { name, what: what.into() });
        }
        Ok(Box::new(Self::new(input, name, warnings)))
    }

    fn new(input: Input, name: String, warnings: Warnings) -> Self {
        Self {
            input,
            name,
            warnings,
            global: Extended::default(),
            current: Vec::new(),
            data_at: None,
            data_left: 0,
            tail: 0,
            ended: false,
            back: None,
            met_back: false,
        }
    }

    /// The first block behind the middle that looks like a header.
    fn header_behind_middle(&self, least: u64) -> Option<Input> {
        let Input::File(input) = &self.input else { return None };
        let mut input = Input::File(input.behind_middle(least)?);
        let mut warnings = Warnings::default();
        for _ in 0..SEARCH_MAX {
            let block = input.peek_block(&mut warnings).ok()??;
            if Header::parse(&block).is_some_and(|header| header.has_magic()) {
                return Some(input);
            }
            input.consume(BLOCK);
        }
        None
    }

    /// Is this the offset where the back half begins, and may it?
    fn meets_back(&mut self, offset: u64) -> bool {
        let Some(back) = self.back.filter(|back| *back <= offset) else { return false };
        self.back = None;
        self.met_back = back == offset && self.global == Extended::default();
        self.met_back
    }

    fn truncated(&self) -> ArchiveError {
        let entry = if self.current.is_empty() { self.name.clone() } else { show(&self.current) };
        ArchiveError::Truncated { entry, offset: self.input.offset() }
    }

    fn skip(&mut self, count: u64) -> Result<(), ArchiveError> {
        if count == 0 || self.input.skip(count, &mut self.warnings)? {
            return Ok(());
        }
        Err(self.truncated())
    }

    /// Reads a block; its absence is a truncation.
    fn block(&mut self) -> Result<Block, ArchiveError> {
        let mut block = [0; BLOCK];
        if self.input.block(&mut block, &mut self.warnings)? < BLOCK {
            return Err(self.truncated());
        }
        Ok(block)
    }

    /// Reads the next header; `None` at the archive's end.
    fn header(&mut self, extended: &Extended) -> Result<Option<Header>, Fault> {
        let at = self.input.offset();
        let mut block = [0; BLOCK];
        let count = self.input.block(&mut block, &mut self.warnings)?;
        if count < BLOCK && (count > 0 || extended.any) {
            return Err(self.truncated().into());
        }
        if count == 0 {
            self.warnings.push(format!(
                "{}: no end marker at byte {at}: the archive may be cut short",
                self.name
            ));
            return Ok(None);
        }
        if let Some(header) = Header::parse(&block) {
            return Ok(Some(header));
        }
        if !is_zero(&block) {
            return Err(String::from("this is not a tar header: its checksum is wrong").into());
        }
        if extended.any {
            return Err(String::from("the archive ends behind an extended header").into());
        }
        let count = self.input.block(&mut block, &mut self.warnings)?;
        let mut garbage = !is_zero(&block[..count]);
        if count < BLOCK || garbage {
            self.warnings.push(format!("{}: a lone zero block at byte {at}", self.name));
        }
        garbage |= self.rest_has_data()?;
        if garbage {
            self.warnings.push(format!("{}: data behind the end marker ignored", self.name));
        }
        Ok(None)
    }

    /// Does anything except zeros follow? A stream is read to its end (invariant 4). A file may be
    /// a disk, so only the start of the rest is read.
    fn rest_has_data(&mut self) -> Result<bool, ArchiveError> {
        let in_file = self.input.in_file(0).is_some();
        loop {
            let chunk = self.input.chunk(&mut self.warnings)?;
            let (count, data) = (chunk.len(), !is_zero(chunk));
            self.input.consume(count);
            if count == 0 || (in_file && data) {
                return Ok(data);
            }
            if data {
                while self.input.skip(u64::MAX, &mut self.warnings)? {}
                return Ok(true);
            }
            if in_file {
                return Ok(false);
            }
        }
    }

    /// Reads an extended header's data into memory.
    fn body(&mut self, what: &str, size: u64, max: u64) -> Result<Vec<u8>, Fault> {
        let bound = usize::try_from(size).ok().filter(|_| size <= max);
        let Some(length) = bound else {
            return Err(format!("{what} of {size} bytes; at most {max} are accepted").into());
        };
        let mut data = Vec::new();
        let mut filled = 0;
        while filled < length {
            // Allocate as the data arrives, because the header's size may be wrong.
            data.resize((filled + BODY_STEP).min(length), 0);
            match self.input.read(&mut data[filled..], &mut self.warnings)? {
                0 => return Err(self.truncated().into()),
                count => filled += count,
            }
        }
        self.skip(padding(size))?;
        Ok(data)
    }

    fn long_name(&mut self, size: u64) -> Result<Option<Vec<u8>>, Fault> {
        let mut name = self.body("GNU long name", size, LONG_NAME_MAX)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(Some(name))
    }

    fn pax(&mut self, size: u64, extended: &mut Extended) -> Result<(), Fault> {
        let data = self.body("PAX header", size, HEADER_MAX - extended.taken)?;
        extended.taken += size;
        let warnings = &mut self.warnings;
        records(&data, |key, value| {
            if !extended.apply(key, value)? {
                let key = key[..key.len().min(100)].escape_ascii();
                warnings.push_once(format!("unknown PAX key {key}: ignored"));
            }
            Ok(())
        })?;
        Ok(())
    }

    fn pax_global(&mut self, size: u64) -> Result<(), Fault> {
        let data = self.body("global PAX header", size, GLOBAL_MAX)?;
        let (warnings, global) = (&mut self.warnings, &mut self.global);
        records(&data, |key, value| {
            if !global.apply_common(key, value)? {
                let key = key[..key.len().min(100)].escape_ascii();
                warnings.push_once(format!("PAX key {key} in a global header: ignored"));
            }
            Ok(())
        })?;
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, Fault> {
        let mut extended = Extended::default();
        for _ in 0..HEADERS_MAX {
            let Some(header) = self.header(&extended)? else {
                self.ended = true;
                return Ok(None);
            };
            let what = match header.typeflag() {
                b'x' | b'X' => {
                    self.pax(header.size()?, &mut extended)?;
                    extended.any = true;
                    continue;
                }
                b'g' => {
                    self.pax_global(header.size()?)?;
                    continue;
                }
                b'L' => {
                    extended.path = self.long_name(header.size()?)?;
                    extended.any = true;
                    continue;
                }
                b'K' => {
                    extended.link = self.long_name(header.size()?)?;
                    extended.any = true;
                    continue;
                }
                b'V' => "volume label",
                b'M' => "continuation of a file from another volume",
                b'N' => "list of long names in an old GNU format",
                b'A' => "Solaris ACL",
                _ => return self.entry(&header, extended).map(Some),
            };
            self.warnings.push(format!("{} is a {what}: skipped", show(&header.path())));
            let size = extended.size.map_or_else(|| header.size(), Ok)?;
            self.skip(size)?;
            self.skip(padding(size))?;
            extended = Extended::default();
        }
        Err(format!("more than {HEADERS_MAX} extended headers and no entry").into())
    }

    fn entry(&mut self, header: &Header, mut extended: Extended) -> Result<Entry, Fault> {
        let long = extended.sparse_name.take().or(extended.path.take());
        let raw = long.unwrap_or_else(|| header.path());
        self.current.clear();
        self.current.extend_from_slice(&raw);
        let path = normal_path(&raw).map_err(|what| ArchiveError::refused(&raw, what))?;
        let mut meta = Meta {
            mode: header.mode()?,
            uid: extended.uid.or(self.global.uid).map_or_else(|| header.uid(), Ok)?,
            gid: extended.gid.or(self.global.gid).map_or_else(|| header.gid(), Ok)?,
            mtime: match extended.mtime.or(self.global.mtime) {
                Some(time) => time,
                None => Time { sec: header.mtime()?, nsec: 0 },
            },
            atime: self.global.atime,
            ctime: self.global.ctime,
            crtime: self.global.crtime,
            xattrs: Vec::new(),
            uname: self.global.uname.as_deref().unwrap_or(header.uname()).to_vec(),
            gname: self.global.gname.as_deref().unwrap_or(header.gname()).to_vec(),
            reserve: 0,
            fsx: Fsx::default(),
        };
        extended.finish_meta(&mut meta)?;
        let kind = self.kind(header, &mut extended, raw.ends_with(b"/"))?;
        if path.is_empty() && kind != Kind::Dir {
            return Err(ArchiveError::refused(&raw, "the tree's root is not a directory").into());
        }
        Ok(Entry { path, kind, meta })
    }

    fn kind(
        &mut self,
        header: &Header,
        extended: &mut Extended,
        slash: bool,
    ) -> Result<Kind, Fault> {
        let device = |extended: &Extended| {
            let (major, minor) = header.device()?;
            Ok::<_, String>((
                extended.device.0.unwrap_or(major),
                extended.device.1.unwrap_or(minor),
            ))
        };
        let link = |extended: &mut Extended| {
            let target = extended.link.take().unwrap_or_else(|| header.link().to_vec());
            if target.is_empty() || target.contains(&0) {
                return Err(String::from("the link's target is empty or contains a NUL byte"));
            }
            Ok(target)
        };
        Ok(match header.typeflag() {
            b'1' => {
                let target = link(extended)?;
                self.skip_stray_data(header, extended)?;
                let normal = normal_path(&target).map_err(|what| format!("link target: {what}"))?;
                Kind::Hardlink { target: normal }
            }
            b'2' => Kind::Symlink { target: link(extended)? },
            b'3' => {
                let (major, minor) = device(extended)?;
                Kind::Char { major, minor }
            }
            b'4' => {
                let (major, minor) = device(extended)?;
                Kind::Block { major, minor }
            }
            b'5' => Kind::Dir,
            b'6' if extended.socket => Kind::Socket,
            b'6' => Kind::Fifo,
            b'D' => {
                self.warnings
                    .push_once("lists of names in GNU incremental archives: skipped".into());
                self.tail = stored_size(header, extended)?;
                self.tail += padding(self.tail);
                Kind::Dir
            }
            // Before ustar, a directory was a file whose name ends in a slash.
            0 | b'0' if slash => {
                self.skip_stray_data(header, extended)?;
                Kind::Dir
            }
            flag => {
                if !matches!(flag, 0 | b'0' | b'7' | b'S') {
                    let flag = [flag];
                    let flag = flag.escape_ascii();
                    self.warnings.push_once(format!("unknown type '{flag}': read as a file"));
                }
                self.file_kind(header, extended)?
            }
        })
    }

    fn file_kind(&mut self, header: &Header, extended: &Extended) -> Result<Kind, Fault> {
        let mut stored = stored_size(header, extended)?;
        let keys = &extended.sparse;
        let (size, map) = if header.typeflag() == b'S' {
            if header.is_star() {
                return Err(
                    String::from("star's sparse format is not supported: pack it as PAX").into()
                );
            }
            sparse::old_gnu(header, || self.block().map_err(Fault::from))?
        } else if keys.major == Some(1) && keys.minor.unwrap_or(0) == 0 {
            sparse::from_blocks(keys, || {
                // The map precedes the data and is counted in its size.
                let short = || String::from("the sparse map is longer than the data");
                stored = stored.checked_sub(BLOCK_U64).ok_or_else(short)?;
                self.block().map_err(Fault::from)
            })?
        } else if keys.mapped {
            sparse::from_keys(keys)?
        } else if let Some(version) = keys.major.filter(|version| *version > 1) {
            return Err(format!("GNU sparse format {version} is not supported").into());
        } else {
            (stored, SparseMap::whole(stored))
        };
        let data = map.data_len();
        let Some(surplus) = stored.checked_sub(data) else {
            let text = format!("sparse map of {data} bytes of data, but {stored} are stored");
            return Err(text.into());
        };
        self.data_at = Some(self.input.offset());
        self.data_left = data;
        self.tail = surplus + padding(stored);
        Ok(Kind::File { size, map })
    }

    /// Skips the data of an entry whose type has none. Most writers give hard links the file's size
    /// but no data; a few write the data. Directories in V7 archives may have either, too. The next
    /// block shows which.
    fn skip_stray_data(&mut self, header: &Header, extended: &Extended) -> Result<(), Fault> {
        let size = stored_size(header, extended)?;
        if size == 0 {
            return Ok(());
        }
        let next = self.input.peek_block(&mut self.warnings)?;
        if !next.is_some_and(|block| is_zero(&block) || checksum_ok(&block)) {
            self.tail = size + padding(size);
        }
        Ok(())
    }
}

/// Bytes of data in the archive; limited so that sums of sizes cannot overflow.
fn stored_size(header: &Header, extended: &Extended) -> Result<u64, String> {
    let size = extended.size.map_or_else(|| header.size(), Ok)?;
    if size > i64::MAX.unsigned_abs() - BLOCK_U64 {
        return Err(format!("size {size} is beyond what a file can have"));
    }
    Ok(size)
}

/// Bytes from the end of the data to the next block.
fn padding(size: u64) -> u64 {
    (BLOCK_U64 - size % BLOCK_U64) % BLOCK_U64
}

impl Source for TarSource {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        let left = std::mem::take(&mut self.data_left) + std::mem::take(&mut self.tail);
        self.data_at = None;
        self.skip(left)?;
        let at = self.input.offset();
        if self.meets_back(at) {
            return Ok(None);
        }
        self.next_entry().map_err(|fault| {
            self.ended = true;
            match fault {
                Fault::Archive(error) => error,
                Fault::Text(what) => {
                    let entry = match self.current.as_slice() {
                        b"" => "at the beginning".into(),
                        path => format!("at or behind {}", show(path)),
                    };
                    ArchiveError::Damaged { entry, offset: at, what }
                }
            }
        })
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let want = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(buf.len());
        if want == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buf[..want], &mut self.warnings)?;
        if count == 0 {
            return Err(self.truncated());
        }
        self.data_left -= count as u64;
        Ok(count)
    }

    fn chunk(&mut self) -> Result<&[u8], ArchiveError> {
        if self.data_left == 0 {
            return Ok(&[]);
        }
        if self.input.chunk(&mut self.warnings)?.is_empty() {
            return Err(self.truncated());
        }
        let chunk = self.input.chunk(&mut self.warnings)?;
        let count = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(chunk.len());
        Ok(&chunk[..count])
    }

    fn consume(&mut self, count: usize) {
        let count = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(count);
        self.input.consume(count);
        self.data_left -= count as u64;
    }

    fn data_position(&self) -> Option<u64> {
        self.input.in_file(self.data_at?).map(|(_, position)| position)
    }

    fn file(&self) -> Option<&File> {
        self.input.in_file(0).map(|(file, _)| file)
    }

    fn back_half(&mut self, least: u64) -> Option<Box<dyn Source>> {
        let input = self.header_behind_middle(least)?;
        self.back = Some(input.offset());
        Some(Box::new(Self::new(input, self.name.clone(), Warnings::default())))
    }

    fn met_back_half(&mut self) -> bool {
        std::mem::take(&mut self.met_back)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }

    fn set_limit(&mut self, bytes: u64) {
        self.input.set_limit(bytes);
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}
