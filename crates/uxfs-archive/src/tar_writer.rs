//! Writes a tree as a PAX tar.
//!
//! Values that fit into a ustar header are there. The rest is in PAX records that GNU tar,
//! libarchive and Python read: long or non-ASCII names, large sizes and ids, times with
//! nanoseconds, attributes (`SCHILY.xattr.*`), ACLs (`SCHILY.acl.*`, numeric), holes (GNU sparse
//! 1.0).
//!
//! Tar has no type for sockets. A socket is written as a named pipe with the record
//! `SCHILY.filetype=socket`, star's key for the true type. This crate's reader restores a socket;
//! other programs create a named pipe (GNU tar warns that it does not know the key).
//!
//! Invariants:
//! 1. An entry is written completely, or an error reports that the archive is unusable: the data
//!    that a header announces always follows it.
//! 2. The output depends only on the entries, not on the process id or the current time.
//!
//! Used by the exporters of trees.

use std::io::{self, Read, Write};

use crate::acl;
use crate::entry::{Entry, Kind, Meta, SparseMap, Time};
use crate::error::{ArchiveError, show};
use crate::header::{BLOCK_U64, Builder};
use crate::pax::{push_record, time_text, xattr_key};
use crate::sparse;

/// Bytes to read and write at a time.
const WINDOW: usize = 256 << 10;
/// The size of an archive is a multiple of this, by tradition of tapes.
const RECORD: u64 = 10240;

/// Writes a PAX tar to `W`, which should be unbuffered: headers and data are written in large
/// pieces.
pub struct TarWriter<W: Write> {
    out: W,
    /// Bytes not written yet.
    pending: Vec<u8>,
    written: u64,
    creation_times: bool,
}

/// An unfinished header with the PAX records that it needs.
struct Draft {
    header: Builder,
    pax: Vec<u8>,
}

impl<W: Write> TarWriter<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        let pending = Vec::with_capacity(2 * WINDOW);
        Self { out, pending, written: 0, creation_times: false }
    }

    /// Enables times of creation (`LIBARCHIVE.creationtime`). Off by default, because GNU tar
    /// warns about the key for every file.
    #[must_use]
    pub fn creation_times(mut self, on: bool) -> Self {
        self.creation_times = on;
        self
    }

    /// Writes one entry. For a file, `data` supplies the bytes of its segments in order, without
    /// the holes, as [`DataReader`](crate::DataReader) does; for other types `data` is not used.
    ///
    /// # Errors
    /// If the output cannot be written, if `data` fails or ends too early, or if the entry cannot
    /// be represented. The archive is unusable afterwards.
    pub fn entry(&mut self, entry: &Entry, data: &mut dyn Read) -> Result<(), ArchiveError> {
        check(entry)?;
        let Kind::File { size, map } = &entry.kind else {
            let mut draft = self.draft(entry, type_of(&entry.kind), &entry.path)?;
            draft.header.size(0);
            return self.put_headers(&entry.path, draft);
        };
        if map.is_whole(*size) {
            let mut draft = self.draft(entry, b'0', &entry.path)?;
            draft.size(*size);
            self.put_headers(&entry.path, draft)?;
            self.copy(&entry.path, data, *size)?;
            return self.pad(*size);
        }
        self.sparse_file(entry, *size, map, data)
    }

    /// Ends the archive, flushes the output and returns it.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> Result<W, ArchiveError> {
        let end = self.written + self.pending.len() as u64 + 2 * BLOCK_U64;
        let zeros = end.next_multiple_of(RECORD) - end + 2 * BLOCK_U64;
        self.put_zeros(zeros)?;
        self.write_pending()?;
        self.out.flush().map_err(writing)?;
        Ok(self.out)
    }

    fn draft(&self, entry: &Entry, flag: u8, name: &[u8]) -> Result<Draft, ArchiveError> {
        let mut draft = Draft { header: Builder::new(flag), pax: Vec::new() };
        draft.path(name, entry.kind == Kind::Dir, matches!(entry.kind, Kind::File { .. }), entry);
        draft.meta(&entry.meta, self.creation_times);
        match &entry.kind {
            Kind::Symlink { target } => draft.link(target),
            // Readers resolve the target like a name.
            Kind::Hardlink { target } => draft.link(target),
            Kind::Char { major, minor } | Kind::Block { major, minor } => {
                let (major_fits, minor_fits) = draft.header.device(*major, *minor);
                draft.number(b"SCHILY.devmajor", u64::from(*major), major_fits);
                draft.number(b"SCHILY.devminor", u64::from(*minor), minor_fits);
            }
            Kind::Socket => push_record(&mut draft.pax, b"SCHILY.filetype", b"socket"),
            Kind::File { .. } | Kind::Dir | Kind::Fifo => {}
        }
        Ok(draft)
    }

    fn sparse_file(
        &mut self,
        entry: &Entry,
        size: u64,
        map: &SparseMap,
        data: &mut dyn Read,
    ) -> Result<(), ArchiveError> {
        let wide = sparse::to_blocks(size, map);
        let blocks = sparse::map_blocks(size, &wide);
        let stored = blocks.len() as u64 + wide.iter().map(|(_, length)| length).sum::<u64>();
        // Readers without sparse support extract the file under this name.
        let (dir, base) = split(&entry.path);
        let name = [dir, b"GNUSparseFile.0/", base].concat();
        let mut draft = self.draft(entry, b'0', &name)?;
        push_record(&mut draft.pax, b"GNU.sparse.major", b"1");
        push_record(&mut draft.pax, b"GNU.sparse.minor", b"0");
        push_record(&mut draft.pax, b"GNU.sparse.name", &entry.path);
        push_record(&mut draft.pax, b"GNU.sparse.realsize", size.to_string().as_bytes());
        draft.size(stored);
        self.put_headers(&entry.path, draft)?;
        self.put(&blocks)?;
        let mut segments = map.segments().iter().peekable();
        for (start, length) in &wide {
            let mut at = *start;
            while let Some((offset, count)) = segments.next_if(|(o, _)| *o < start + length) {
                self.put_zeros(offset - at)?;
                self.copy(&entry.path, data, *count)?;
                at = offset + count;
            }
            self.put_zeros(start + length - at)?;
        }
        self.pad(stored)
    }

    /// Writes the header, preceded by a PAX header if one is needed.
    fn put_headers(&mut self, path: &[u8], draft: Draft) -> Result<(), ArchiveError> {
        if !draft.pax.is_empty() {
            let (dir, base) = split(path);
            let mut header = Builder::new(b'x');
            // Only readers without PAX support see this name, so it may be truncated.
            header.path(&[dir, b"PaxHeaders/", base].concat());
            header.mode(0o644);
            header.uid(0);
            header.gid(0);
            header.mtime(0);
            header.size(draft.pax.len() as u64);
            self.put(&header.finish())?;
            self.put(&draft.pax)?;
            self.pad(draft.pax.len() as u64)?;
        }
        self.put(&draft.header.finish())
    }

    fn copy(&mut self, path: &[u8], data: &mut dyn Read, size: u64) -> Result<(), ArchiveError> {
        let mut left = size;
        while left > 0 {
            if self.pending.len() >= WINDOW {
                self.write_pending()?;
            }
            let start = self.pending.len();
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(2 * WINDOW - start);
            self.pending.resize(start + room, 0);
            let result = data.read(&mut self.pending[start..]);
            self.pending.truncate(start + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => {
                    let what = format!("{left} of {size} bytes of its data are missing");
                    return Err(ArchiveError::refused(path, what));
                }
                Ok(count) => left -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(ArchiveError::io(format!("reading {}", show(path)), error));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WINDOW { self.write_pending() } else { Ok(()) }
    }

    fn put_zeros(&mut self, count: u64) -> Result<(), ArchiveError> {
        // At most a record or two blocks; never a hole.
        let count = usize::try_from(count).unwrap_or(0);
        self.pending.resize(self.pending.len() + count, 0);
        Ok(())
    }

    fn pad(&mut self, size: u64) -> Result<(), ArchiveError> {
        self.put_zeros(size.next_multiple_of(BLOCK_U64) - size)
    }

    fn write_pending(&mut self) -> Result<(), ArchiveError> {
        self.out.write_all(&self.pending).map_err(writing)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

fn writing(error: io::Error) -> ArchiveError {
    ArchiveError::io("writing the archive", error)
}

/// Refuses entries that tar cannot represent.
fn check(entry: &Entry) -> Result<(), ArchiveError> {
    let refused = |what| Err(ArchiveError::refused(&entry.path, what));
    match &entry.kind {
        Kind::Symlink { target } if target.is_empty() || target.contains(&0) => {
            refused("the link's target is empty or contains a NUL byte")
        }
        Kind::Hardlink { target } if target.is_empty() => refused("the link's target is empty"),
        kind if entry.path.is_empty() && *kind != Kind::Dir => {
            refused("the tree's root is not a directory")
        }
        _ if entry.path.contains(&0) => refused("the path contains a NUL byte"),
        _ => Ok(()),
    }
}

fn type_of(kind: &Kind) -> u8 {
    match kind {
        Kind::File { .. } => b'0',
        Kind::Hardlink { .. } => b'1',
        Kind::Symlink { .. } => b'2',
        Kind::Char { .. } => b'3',
        Kind::Block { .. } => b'4',
        Kind::Dir => b'5',
        Kind::Fifo | Kind::Socket => b'6',
    }
}

/// Splits a path into its directory with the slash, and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1))
}

impl Draft {
    fn path(&mut self, name: &[u8], is_dir: bool, is_file: bool, entry: &Entry) {
        let slashed;
        let name = match (is_dir, name.is_empty()) {
            (true, true) => b"./",
            (true, false) => {
                slashed = [name, b"/"].concat();
                &slashed[..]
            }
            _ => name,
        };
        let fits = self.header.path(name);
        // The name of a sparse file has its own key.
        let sparse = is_file && name != entry.path;
        if !sparse {
            self.text(b"path", name, fits);
        }
    }

    fn link(&mut self, target: &[u8]) {
        let fits = self.header.link(target);
        self.text(b"linkpath", target, fits);
    }

    /// Adds a text record. PAX text is UTF-8. Other text is read from the header; if it does not
    /// fit there, the record is marked as binary.
    fn text(&mut self, key: &[u8], text: &[u8], fits: bool) {
        if text.is_ascii() {
            if !fits {
                push_record(&mut self.pax, key, text);
            }
        } else if std::str::from_utf8(text).is_ok() {
            push_record(&mut self.pax, key, text);
        } else if !fits {
            push_record(&mut self.pax, b"hdrcharset", b"BINARY");
            push_record(&mut self.pax, key, text);
        }
    }

    fn number(&mut self, key: &[u8], value: u64, fits: bool) {
        if !fits {
            push_record(&mut self.pax, key, value.to_string().as_bytes());
        }
    }

    fn size(&mut self, size: u64) {
        let fits = self.header.size(size);
        self.number(b"size", size, fits);
    }

    fn time(&mut self, key: &[u8], time: Time) {
        push_record(&mut self.pax, key, time_text(time).as_bytes());
    }

    fn meta(&mut self, meta: &Meta, creation_times: bool) {
        self.header.mode(meta.mode);
        let (uid_fits, gid_fits) = (self.header.uid(meta.uid), self.header.gid(meta.gid));
        self.number(b"uid", u64::from(meta.uid), uid_fits);
        self.number(b"gid", u64::from(meta.gid), gid_fits);
        let (uname_fits, gname_fits) = self.header.names(&meta.uname, &meta.gname);
        self.text(b"uname", &meta.uname, uname_fits);
        self.text(b"gname", &meta.gname, gname_fits);
        if !self.header.mtime(meta.mtime.sec) || meta.mtime.nsec != 0 {
            self.time(b"mtime", meta.mtime);
        }
        let born = meta.crtime.filter(|_| creation_times);
        let times = [(&b"atime"[..], meta.atime), (b"ctime", meta.ctime)];
        for (key, time) in times.into_iter().chain([(&b"LIBARCHIVE.creationtime"[..], born)]) {
            if let Some(time) = time {
                self.time(key, time);
            }
        }
        for (name, value) in &meta.xattrs {
            let key: Option<&[u8]> = match name.as_slice() {
                acl::ACCESS => Some(b"SCHILY.acl.access"),
                acl::DEFAULT => Some(b"SCHILY.acl.default"),
                _ => None,
            };
            match key.and_then(|key| Some((key, acl::to_text(value)?))) {
                Some((key, text)) => push_record(&mut self.pax, key, text.as_bytes()),
                None => push_record(&mut self.pax, &xattr_key(name), value),
            }
        }
    }
}
