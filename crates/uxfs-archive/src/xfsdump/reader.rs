//! The headers of a dump, one after the other, and what follows them.
//!
//! 1. A header is returned only if its checksum is right, or if the dump has none.
//! 2. What follows a header is read by the caller, who knows what the header announces.
//!
//! Used by the source in the module above.

use std::fs;
use std::io;

use super::layout::{
    ATTR, Attr, DIRENT, Dirent, EXTENT, Extent, FILE, File, GLOBAL, Global, INOMAP_CHUNK, attr,
    content, extent, file, posix_acl,
};
use super::spool::Spool;
use crate::acl::{ACCESS, DEFAULT};
use crate::entry::Xattrs;
use crate::error::{ArchiveError, Warnings};
use crate::header::is_zero;
use crate::input::Input;
use crate::open::DUMP_MAGIC;

/// Bytes of the attributes of one file.
const ATTRS_MAX: usize = 16 << 20;
/// Bytes of an attribute: its header, a name of 255 bytes and a value of 64 KiB, padded.
const ATTR_MAX: u32 = 66 << 10;
/// Streams of a dump.
const STREAMS_MAX: u32 = 64;

/// Reads headers.
pub(super) struct Reader {
    input: Input,
    name: String,
    warnings: Warnings,
    /// The header of the media file.
    pub(super) header: Global,
    list: bool,
    /// Bits of the streams that ended.
    ended: u64,
    /// Nothing follows.
    over: bool,
}

impl Reader {
    /// Reads the first header.
    pub(super) fn start(
        input: Input,
        name: String,
        warnings: Warnings,
        list: bool,
    ) -> Result<Self, ArchiveError> {
        let mut reader =
            Self { input, name, warnings, header: Global::parse(&[]), list, ended: 0, over: false };
        let at = reader.offset();
        let bytes = reader.take(GLOBAL)?;
        reader.media_file(&bytes, at, true)?;
        Ok(reader)
    }

    pub(super) fn damaged(offset: u64, what: String) -> ArchiveError {
        ArchiveError::Damaged { entry: "a dump of xfsdump".into(), offset, what }
    }

    fn refused(&self, what: String) -> ArchiveError {
        ArchiveError::refused(self.name.as_bytes(), what)
    }

    pub(super) fn truncated(&self) -> ArchiveError {
        ArchiveError::Truncated { entry: "a dump of xfsdump".into(), offset: self.offset() }
    }

    pub(super) fn failed(&self, at: u64, error: io::Error) -> ArchiveError {
        ArchiveError::io(format!("reading data of {} at {at}", self.name), error)
    }

    pub(super) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Begins a media file with this header, and skips its map of inodes.
    fn media_file(&mut self, bytes: &[u8], at: u64, first: bool) -> Result<(), ArchiveError> {
        let damaged = |what: &str| Self::damaged(at, what.into());
        let header = Global::parse(bytes);
        if !matches!(header.version, 2 | 3) {
            let what =
                format!("format {} of xfsdump is not supported: only 2 and 3", header.version);
            return Err(Self::damaged(at, what));
        }
        if !Global::is_sound(bytes) {
            return Err(damaged("the checksum of the media file's header is wrong"));
        }
        if header.strategy != 1 {
            let what = "was written to a tape; restore it with xfsrestore, or copy its files by \
                        xfsdump to a file";
            return Err(self.refused(what.into()));
        }
        if header.streams == 0 || header.streams > STREAMS_MAX || header.stream >= header.streams {
            return Err(damaged("the numbers of the dump's streams are wrong"));
        }
        if first {
            self.check_first(&header)?;
        } else if header.session != self.header.session || header.version != self.header.version {
            return Err(damaged("this media file belongs to another dump"));
        }
        if header.kind != 0 {
            return Err(damaged("an inventory or index of a tape, not a tree"));
        }
        if header.has(content::INOMAP) {
            let map = header.inomap_chunks.checked_mul(INOMAP_CHUNK);
            self.skip(map.ok_or_else(|| damaged("the map of inodes has an impossible size"))?)?;
        }
        self.header = header;
        Ok(())
    }

    fn check_first(&self, header: &Global) -> Result<(), ArchiveError> {
        let Global { streams, stream, file, level, .. } = header;
        if *stream != 0 || *file != 0 {
            let what = format!(
                "begins with media file {file} of stream {stream} of {streams}, not with the first, \
                 which has the directories: put the parts of the dump together in their order, with cat"
            );
            return Err(self.refused(what));
        }
        if self.list {
            return Ok(());
        }
        if *level != 0 || header.has(content::INCREMENT) {
            let what = format!(
                "is an increment (level {level}): it has only what changed; dump with -l 0, or restore \
                 it with xfsrestore -r"
            );
            return Err(self.refused(what));
        }
        if header.has(content::RESUMED) {
            let what = "resumes a dump that was interrupted: it has only the rest; dump anew, or \
                        restore both with xfsrestore -r";
            return Err(self.refused(what.into()));
        }
        Ok(())
    }

    /// Does the dump leave out files whose names it has?
    pub(super) fn is_part(&self) -> bool {
        self.list || self.header.has(content::SUBTREE)
    }

    /// The bits of generations that names have.
    pub(super) fn generation_mask(&self) -> u32 {
        match (self.header.has(content::DIRENT_GEN), self.header.version) {
            (false, _) => 0,
            (true, 2) => 0xfff,
            (true, _) => u32::MAX,
        }
    }

    /// The next file header; `None` at the end of the dump.
    pub(super) fn next_header(&mut self) -> Result<Option<File>, ArchiveError> {
        while !self.over {
            let at = self.offset();
            let bytes = self.take(FILE)?;
            let header = File::parse(&bytes, at);
            let summed = header.flags & file::SUM != 0;
            if !summed && self.header.has(content::FILE_SUMS) || summed && !File::is_sound(&bytes) {
                return Err(Self::damaged(at, "the checksum of a file header is wrong".into()));
            }
            if header.flags & file::END_OF_FILE == 0 {
                if header.size > i64::MAX as u64 {
                    let what = format!("a file of an impossible size, {}", header.size);
                    return Err(Self::damaged(at, what));
                }
                return Ok(Some(header));
            }
            if header.flags & file::END_OF_STREAM != 0 {
                self.ended |= 1 << self.header.stream;
            }
            self.end_media_file()?;
        }
        Ok(None)
    }

    /// Goes on to the next media file, if there is one.
    fn end_media_file(&mut self) -> Result<(), ArchiveError> {
        let at = self.offset();
        let mut bytes = Vec::new();
        while bytes.len() < GLOBAL {
            let chunk = self.input.chunk(&mut self.warnings)?;
            let count = chunk.len().min(GLOBAL - bytes.len());
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&chunk[..count]);
            self.input.consume(count);
        }
        if bytes.starts_with(DUMP_MAGIC) {
            if bytes.len() < GLOBAL {
                return Err(self.truncated());
            }
            return self.media_file(&bytes, at, false);
        }
        let streams = self.header.streams;
        if let Some(missing) = (0..streams).find(|stream| self.ended & 1 << stream == 0)
            && !self.list
        {
            let what = format!(
                "the dump is in {streams} stream(s), and the end of stream {missing} is missing: put the \
                 parts of the dump together in their order, with cat"
            );
            return Err(self.refused(what));
        }
        self.over = true;
        let mut more = !is_zero(&bytes);
        loop {
            let chunk = self.input.chunk(&mut self.warnings)?;
            let count = chunk.len();
            more |= !is_zero(chunk);
            if count == 0 {
                break;
            }
            self.input.consume(count);
        }
        if more {
            self.warnings.push(format!("{}: data behind the end of the dump ignored", self.name));
        }
        Ok(())
    }

    /// Reads an extent header.
    pub(super) fn extent(&mut self) -> Result<Extent, ArchiveError> {
        let at = self.offset();
        let bytes = self.take(EXTENT)?;
        let extent = Extent::parse(&bytes);
        let summed = extent.flags & extent::SUM != 0;
        if !summed && self.header.has(content::EXTENT_SUMS) || summed && !Extent::is_sound(&bytes) {
            return Err(Self::damaged(at, "the checksum of an extent header is wrong".into()));
        }
        let end = extent.offset.checked_add(extent.len);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Self::damaged(at, "an extent beyond what a file can have".into()));
        }
        Ok(extent)
    }

    /// Reads the names of a directory to their end.
    pub(super) fn dirents(
        &mut self,
        mut add: impl FnMut(u64, u32, &[u8]) -> Result<(), String>,
    ) -> Result<(), ArchiveError> {
        let mask = self.generation_mask();
        loop {
            let at = self.offset();
            let damaged = |what: String| Self::damaged(at, what);
            let mut bytes = self.take(DIRENT)?;
            let entry = Dirent::parse(&bytes, self.header.version);
            let summed = self.header.has(content::DIRENT_SUMS);
            if summed && !Dirent::is_sound(&bytes, self.header.version) {
                return Err(damaged("the checksum of a name is wrong".into()));
            }
            let Some(rest) = entry.len.checked_sub(DIRENT).filter(|rest| *rest <= 256) else {
                return Err(damaged(format!("a name's record has {} bytes", entry.len)));
            };
            bytes.extend_from_slice(&self.take(rest)?);
            if entry.ino == 0 {
                return Ok(());
            }
            let name = &bytes[entry.name..];
            let end = name.iter().position(|byte| *byte == 0);
            let end = end.ok_or_else(|| damaged("a name without an end".into()))?;
            add(entry.ino, entry.generation & mask, &name[..end]).map_err(damaged)?;
        }
    }

    /// Reads the attributes of a file to their end.
    pub(super) fn attrs(&mut self) -> Result<Xattrs, ArchiveError> {
        let mut attrs = Xattrs::new();
        let mut total = 0;
        loop {
            let at = self.offset();
            let damaged = |what: &str| Self::damaged(at, what.into());
            let mut bytes = self.take(ATTR)?;
            let header = Attr::parse(&bytes);
            // Flag 4 marks sums of old versions of xfsdump, which are wrong.
            let (summed, old) = (header.flags & attr::SUM != 0, header.flags & 4 != 0);
            let wanted = self.header.has(content::ATTR_SUMS) && !old;
            if !summed && wanted || summed && !Attr::is_sound(&bytes) {
                return Err(damaged("the checksum of an attribute is wrong"));
            }
            let rest = header.len.checked_sub(ATTR as u32).filter(|_| header.len <= ATTR_MAX);
            let rest = rest.ok_or_else(|| damaged("an attribute of an impossible size"))?;
            bytes.extend_from_slice(&self.take(rest as usize)?);
            if header.flags & attr::END != 0 {
                return Ok(attrs);
            }
            total += bytes.len();
            if total > ATTRS_MAX {
                return Err(damaged("more than 16 MiB of attributes of one file"));
            }
            let (from, len) = (usize::from(header.value), header.value_len as usize);
            let name = bytes[ATTR..].split(|byte| *byte == 0).next().unwrap_or_default();
            let value = from.checked_add(len).and_then(|end| bytes.get(from..end));
            let Some(value) = value.filter(|_| from > ATTR + name.len() && !name.is_empty()) else {
                return Err(damaged("an attribute's name and value do not fit in it"));
            };
            let (name, value) = match (header.flags & attr::ROOT, header.flags & attr::SECURE, name)
            {
                (0, 0, _) => ([b"user.", name].concat(), value.to_vec()),
                (0, _, _) => ([b"security.", name].concat(), value.to_vec()),
                (_, _, b"SGI_ACL_FILE" | b"SGI_ACL_DEFAULT") => {
                    let own = if name.ends_with(b"FILE") { ACCESS } else { DEFAULT };
                    let acl = posix_acl(value);
                    (own.to_vec(), acl.ok_or_else(|| damaged("an ACL that is not well-formed"))?)
                }
                _ => ([b"trusted.", name].concat(), value.to_vec()),
            };
            attrs.push((name, value));
        }
    }

    /// Reads bytes into memory.
    pub(super) fn take(&mut self, count: usize) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            let chunk = self.input.chunk(&mut self.warnings)?;
            if chunk.is_empty() {
                return Err(self.truncated());
            }
            let step = chunk.len().min(count - filled);
            bytes[filled..filled + step].copy_from_slice(&chunk[..step]);
            self.input.consume(step);
            filled += step;
        }
        Ok(bytes)
    }

    pub(super) fn skip(&mut self, count: u64) -> Result<(), ArchiveError> {
        if count == 0 || self.input.skip(count, &mut self.warnings)? {
            return Ok(());
        }
        Err(self.truncated())
    }

    /// Copies bytes to the spool.
    pub(super) fn copy(&mut self, mut count: u64, spool: &mut Spool) -> Result<(), ArchiveError> {
        while count > 0 {
            let chunk = self.input.chunk(&mut self.warnings)?;
            if chunk.is_empty() {
                return Err(self.truncated());
            }
            let step = usize::try_from(count).unwrap_or(usize::MAX).min(chunk.len());
            let pushed = spool.push(&chunk[..step]);
            pushed.map_err(|error| ArchiveError::io("keeping a file of the dump", error))?;
            self.input.consume(step);
            count -= step as u64;
        }
        Ok(())
    }

    pub(super) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Where the next byte is in a plain file.
    pub(super) fn in_file(&self) -> Option<u64> {
        self.input.in_file(self.offset()).map(|(_, position)| position)
    }

    pub(super) fn file(&self) -> Option<&fs::File> {
        self.input.in_file(0).map(|(file, _)| file)
    }

    pub(super) fn progress(&self) -> (u64, Option<u64>) {
        self.input.progress()
    }

    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.input.set_limit(bytes);
    }

    pub(super) fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}
