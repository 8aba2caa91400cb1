//! Reads a manifest in composefs' dump format as a [`Source`]. A manifest has one line for each
//! file with all its metadata. The data of a regular file is in the line or in a payload file below
//! a directory of the host.
//!
//! Fields, separated by single spaces: path, size, mode, number of links, owner, group, device,
//! time, payload, content, digest, then attributes as `name=value`. `-` is an absent field;
//! `\xHH`, `\\`, `\n`, `\r` and `\t` are bytes.
//!
//! Invariants:
//! 1. Payloads are opened relative to the directory's descriptor, component by component, without
//!    following symbolic links, so a manifest cannot read files outside the directory.
//! 2. Hard links come last in the stream, so a link may precede its target in the manifest.
//! 3. A line that is not well-formed is an error with the line's number. [`LINE_MAX`] and the paths
//!    of hard links bound the memory.
//! 4. A payload has the size in its line and, if the line has one, the fs-verity digest. Both are
//!    checked before the entry is returned. The number of links is ignored.
//!
//! Used by the importers of trees.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::beneath::Beneath;
use crate::entry::{Entry, Kind, Meta, PATH_MAX, SparseMap, Time, normal_path, normal_xattrs};
use crate::error::{ArchiveError, Warnings, show};
use crate::file_data::FileData;
use crate::source::Source;
use crate::verity;
use crate::window::{self, WINDOW, Window, Windowed};

/// Maximum length of a line in bytes.
const LINE_MAX: u64 = 16 << 20;
/// Maximum length of an attribute's name in bytes.
const XATTR_NAME_MAX: usize = 255;
/// Maximum length of an attribute's value in bytes.
const XATTR_MAX: usize = 64 << 10;
/// Number of fields before the attributes.
const FIELDS: usize = 11;

const S_IFMT: u32 = 0o170_000;

/// Data of the current file.
enum Data {
    None,
    /// Data in the line, and the number of bytes read so far.
    Inline(Vec<u8>, usize),
    File(FileData),
}

/// A manifest as a source.
pub struct DumpSource {
    input: BufReader<File>,
    name: String,
    base: PathBuf,
    payloads: Beneath,
    /// Size of the manifest in bytes, if it is a regular file.
    total: Option<u64>,
    taken: u64,
    line: u64,
    text: Vec<u8>,
    /// Hard links; reversed at the end of the manifest, to be popped in order (invariant 2).
    links: Vec<Entry>,
    ended: bool,
    data: Data,
    /// Path of the current entry.
    path: Vec<u8>,
    window: Window,
    warnings: Warnings,
}

impl DumpSource {
    /// Opens the manifest at `manifest` (`-` for standard input), with payloads below `base`.
    ///
    /// # Errors
    /// If the manifest or the directory cannot be opened.
    pub fn new(manifest: &Path, base: &Path) -> Result<Self, ArchiveError> {
        let name = manifest.display().to_string();
        let failed = |error| ArchiveError::io(format!("opening {name}"), error);
        let file = match manifest == Path::new("-") {
            true => crate::open::stdin()?,
            false => File::open(manifest).map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        let payloads = Beneath::new(base)
            .map_err(|error| ArchiveError::io(format!("opening {}", base.display()), error))?;
        Ok(Self {
            input: BufReader::with_capacity(WINDOW, file),
            base: base.to_path_buf(),
            payloads,
            total: meta.is_file().then_some(meta.len()),
            taken: 0,
            line: 0,
            text: Vec::new(),
            links: Vec::new(),
            ended: false,
            data: Data::None,
            path: Vec::new(),
            window: Window::default(),
            warnings: Warnings::default(),
            name,
        })
    }

    fn bad(&self, what: impl Into<String>) -> ArchiveError {
        ArchiveError::Manifest { name: self.name.clone(), line: self.line, what: what.into() }
    }

    /// Reads the next line into `text`; false at the end.
    fn next_line(&mut self) -> Result<bool, ArchiveError> {
        self.text.clear();
        self.line += 1;
        let count = (&mut self.input).take(LINE_MAX).read_until(b'\n', &mut self.text);
        let count = count.map_err(|e| ArchiveError::io(format!("reading {}", self.name), e))?;
        self.taken += count as u64;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        } else if count as u64 == LINE_MAX {
            return Err(self.bad(format!("longer than {LINE_MAX} bytes")));
        }
        Ok(count > 0)
    }

    fn parse(&mut self) -> Result<Entry, ArchiveError> {
        let text = std::mem::take(&mut self.text);
        let parsed = Line::parse(&text).map_err(|what| self.bad(what));
        self.text = text;
        let line = parsed?;
        self.path.clone_from(&line.path);
        let kind = self.kind(&line)?;
        if line.path.is_empty() && kind != Kind::Dir {
            return Err(self.bad("the root is not a directory"));
        }
        Ok(Entry { path: line.path, kind, meta: line.meta })
    }

    fn kind(&mut self, line: &Line) -> Result<Kind, ArchiveError> {
        let payload = line.payload.as_deref();
        if line.hard_link {
            let target = payload.ok_or_else(|| self.bad("a hard link without a target"))?;
            let target = absolute(target).map_err(|what| self.bad(format!("payload: {what}")))?;
            if target == line.path {
                return Err(self.bad("a hard link to itself"));
            }
            return Ok(Kind::Hardlink { target });
        }
        let (major, minor) = line.device;
        Ok(match line.mode & S_IFMT {
            0o100_000 => return self.file(line),
            0o040_000 => Kind::Dir,
            0o120_000 => match payload {
                Some(target) if !target.is_empty() && !target.contains(&0) => {
                    Kind::Symlink { target: target.to_vec() }
                }
                _ => return Err(self.bad("a symbolic link's target is empty or has a NUL")),
            },
            0o020_000 => Kind::Char { major, minor },
            0o060_000 => Kind::Block { major, minor },
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            _ => return Err(self.bad(format!("mode {:o} has no kind of file", line.mode))),
        })
    }

    fn file(&mut self, line: &Line) -> Result<Kind, ArchiveError> {
        let size = line.size;
        let differs = |found: u64, what: &str| {
            self.bad(format!("SIZE is {size}, but {what} has {found} bytes"))
        };
        let (data, map) = match (&line.payload, &line.content) {
            (Some(_), Some(_)) => {
                return Err(self.bad("a file with both payload and content"));
            }
            (None, Some(content)) if content.len() as u64 != size => {
                return Err(differs(content.len() as u64, "the content"));
            }
            (None, Some(content)) => (Data::Inline(content.clone(), 0), SparseMap::whole(size)),
            // The whole file is a hole.
            (None, None) => (Data::None, SparseMap::default()),
            (Some(payload), None) => {
                let (data, found) = self.open(payload)?;
                if found != size {
                    let name = format!("payload {}", show(payload));
                    return Err(differs(found, &name));
                }
                self.checkdigest(line, payload, &data.file)?;
                let map = data.map.clone();
                (Data::File(data), map)
            }
        };
        self.data = data;
        Ok(Kind::File { size, map })
    }

    fn checkdigest(&self, line: &Line, payload: &[u8], file: &File) -> Result<(), ArchiveError> {
        let Some(digest) = &line.digest else { return Ok(()) };
        let input = BufReader::with_capacity(WINDOW, file);
        match verity::is(digest, input, line.size) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(self.bad(format!("payload {} does not match its DIGEST", show(payload))))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(self.bad(error.to_string()))
            }
            Err(error) => {
                Err(ArchiveError::io(format!("reading payload {}", show(payload)), error))
            }
        }
    }

    /// Opens a payload (invariant 1); also returns its size.
    fn open(&self, payload: &[u8]) -> Result<(FileData, u64), ArchiveError> {
        let path = normal_path(payload).map_err(|what| self.bad(format!("payload: {what}")))?;
        let failed = |error: io::Error| {
            let what = format!(
                "{}, line {}: opening payload {} in {}",
                self.name,
                self.line,
                show(payload),
                self.base.display()
            );
            ArchiveError::io(what, error)
        };
        let (file, stat) = self.payloads.open(&path).map_err(failed)?;
        let data = FileData::new(file, stat.size, stat.stored).map_err(failed)?;
        Ok((data, stat.size))
    }
}

impl Windowed for DumpSource {
    fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        match &mut self.data {
            Data::None => Ok(0),
            Data::Inline(bytes, done) => {
                let count = (bytes.len() - *done).min(buf.len());
                buf[..count].copy_from_slice(&bytes[*done..*done + count]);
                *done += count;
                Ok(count)
            }
            Data::File(data) => {
                let before = data.shrunk;
                let result = data.read(buf);
                if data.shrunk && !before {
                    let path = show(&self.path);
                    self.warnings.push(format!(
                        "{path}: the payload became shorter while it was read: zeros at its end"
                    ));
                }
                let path = &self.path;
                result
                    .map_err(|e| ArchiveError::io(format!("reading payload of {}", show(path)), e))
            }
        }
    }
}

impl Source for DumpSource {
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.data = Data::None;
        self.window.clear();
        while !self.ended {
            if !self.next_line()? {
                self.ended = true;
                self.links.reverse();
                break;
            }
            let mut entry = self.parse()?;
            if matches!(entry.kind, Kind::Hardlink { .. }) {
                // Links are kept until the end, and their attributes are those of the file.
                entry.meta.xattrs = Vec::new();
                self.links.push(entry);
            } else {
                return Ok(Some(entry));
            }
        }
        Ok(self.links.pop())
    }

    window::data_methods!();

    fn many_files(&self) -> bool {
        true
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.taken, self.total)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }
}

/// A parsed line.
struct Line {
    path: Vec<u8>,
    size: u64,
    mode: u32,
    hard_link: bool,
    device: (u32, u32),
    payload: Option<Vec<u8>>,
    content: Option<Vec<u8>>,
    digest: Option<Vec<u8>>,
    meta: Meta,
}

impl Line {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let fields: Vec<&[u8]> = text.splitn(FIELDS + 1, |byte| *byte == b' ').collect();
        let [path, size, mode, _links, uid, gid, rdev, mtime, payload, content, digest, rest @ ..] =
            fields.as_slice()
        else {
            return Err(format!("{} fields instead of {FIELDS}", fields.len()));
        };
        let (hard_link, mode) = match mode.strip_prefix(b"@") {
            Some(mode) => (true, mode),
            None => (false, *mode),
        };
        let mode = std::str::from_utf8(mode).ok().and_then(|m| u32::from_str_radix(m, 8).ok());
        let mode = mode.filter(|m| *m <= S_IFMT | 0o7777).ok_or("MODE is not an octal mode")?;
        let path = absolute(&unescape(path)?).map_err(|what| format!("path: {what}"))?;
        let mut meta = Meta {
            mode: mode & 0o7777,
            uid: number("UID", uid)?,
            gid: number("GID", gid)?,
            mtime: time(mtime)?,
            ..Meta::default()
        };
        for field in rest.iter().flat_map(|rest| rest.split(|byte| *byte == b' ')) {
            meta.xattrs.push(xattr(field)?);
        }
        normal_xattrs(&mut meta.xattrs);
        let payload = optional(payload)?;
        if payload.as_ref().is_some_and(|payload| payload.len() > PATH_MAX) {
            return Err("PAYLOAD is longer than 4 MiB".into());
        }
        Ok(Self {
            path,
            size: number("SIZE", size)?,
            mode,
            hard_link,
            device: device(number("RDEV", rdev)?),
            payload,
            content: optional(content)?,
            digest: optional(digest)?,
            meta,
        })
    }
}

fn number<T: std::str::FromStr>(what: &str, field: &[u8]) -> Result<T, String> {
    // `parse` accepts a sign, which is not allowed here.
    let digits = field.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok());
    value.filter(|_| digits).ok_or_else(|| format!("{what} is not a number that fits"))
}

/// Parses a time: seconds, a dot, and nanoseconds as a separate number.
fn time(field: &[u8]) -> Result<Time, String> {
    let bad = || String::from("MTIME is not of the form SECONDS.NANOSECONDS");
    let text = std::str::from_utf8(field).map_err(|_| bad())?;
    let (sec, nsec) = text.split_once('.').unwrap_or((text, "0"));
    let nsec: u32 = number("MTIME", nsec.as_bytes()).map_err(|_| bad())?;
    if nsec >= 1_000_000_000 {
        return Err(bad());
    }
    Ok(Time { sec: sec.parse().map_err(|_| bad())?, nsec })
}

/// Major and minor number of a `dev_t` in the encoding of Linux' C libraries.
fn device(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    // Both values are masked to 32 bits.
    (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0))
}

/// Converts an absolute path to the form of [`Entry::path`].
fn absolute(path: &[u8]) -> Result<Vec<u8>, String> {
    let rest = path.strip_prefix(b"/").ok_or("not absolute")?;
    let normal = normal_path(rest)?;
    if normal != rest {
        return Err("an empty component, or '.'".into());
    }
    Ok(normal)
}

fn xattr(field: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let equals = field.iter().position(|byte| *byte == b'=');
    let equals = equals.ok_or("an attribute without '='")?;
    let (name, value) = (unescape(&field[..equals])?, unescape(&field[equals + 1..])?);
    if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
        return Err(format!("an attribute's name of {} bytes, or with a NUL", name.len()));
    }
    if value.len() > XATTR_MAX {
        let (name, len) = (name.escape_ascii(), value.len());
        return Err(format!("attribute {name} has {len} bytes, Linux allows {XATTR_MAX}"));
    }
    Ok((name, value))
}

/// Parses a field that may be absent.
fn optional(field: &[u8]) -> Result<Option<Vec<u8>>, String> {
    if field == b"-" { Ok(None) } else { unescape(field).map(Some) }
}

fn unescape(field: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (byte, len) = match tail {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'x', high, low, ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let (Some(high), Some(low)) = (digit(high), digit(low)) else {
                    return Err("an escape that is not \\xHH".into());
                };
                (u8::try_from(high << 4 | low).unwrap_or(0), 3)
            }
            _ => return Err("an unknown escape".into()),
        };
        out.push(byte);
        rest = &tail[len..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = Line::parse(
            br"/a\x20b 3 100644 1 7 8 0 -5.000000007 - a\\\n - user.a\x3db=c=\x00 security.x=",
        )
        .unwrap();
        assert_eq!(line.path, b"a b");
        assert_eq!((line.meta.mode, line.meta.uid, line.meta.gid), (0o644, 7, 8));
        assert_eq!(line.meta.mtime, Time { sec: -5, nsec: 7 });
        assert_eq!(line.content.as_deref(), Some(&b"a\\\n"[..]));
        assert_eq!(line.meta.xattrs[0], (b"security.x".to_vec(), Vec::new()));
        assert_eq!(line.meta.xattrs[1], (b"user.a=b".to_vec(), b"c=\0".to_vec()));
        let link = Line::parse(br"/l 0 @100644 2 0 0 0 0.0 /a\x20b - -").unwrap();
        assert!(link.hard_link);
        assert_eq!(device(107_690), (420, 170));
        assert_eq!(device(rdev(259, 70_000)), (259, 70_000));
    }

    fn rdev(major: u64, minor: u64) -> u64 {
        minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
    }

    #[test]
    fn bad_lines_are_refused() {
        for text in [
            "",
            "/a 0 100644 1 0 0 0 0.0 - -",
            "a 0 100644 1 0 0 0 0.0 - - -",
            "/a/../b 0 100644 1 0 0 0 0.0 - - -",
            "/a/./b 0 100644 1 0 0 0 0.0 - - -",
            "/a//b 0 100644 1 0 0 0 0.0 - - -",
            "/a/ 0 100644 1 0 0 0 0.0 - - -",
            r"/a\x00 0 100644 1 0 0 0 0.0 - - -",
            r"/a\q 0 100644 1 0 0 0 0.0 - - -",
            r"/a\x+1 0 100644 1 0 0 0 0.0 - - -",
            r"/a\x4 0 100644 1 0 0 0 0.0 - - -",
            "/a +1 100644 1 0 0 0 0.0 - - -",
            "/a 18446744073709551616 100644 1 0 0 0 0.0 - - -",
            "/a 0 1006449 1 0 0 0 0.0 - - -",
            "/a 0 7777777 1 0 0 0 0.0 - - -",
            "/a 0 100644 1 -1 0 0 0.0 - - -",
            "/a 0 100644 1 0 4294967296 0 0.0 - - -",
            "/a 0 100644 1 0 0 0 0.1000000000 - - -",
            "/a 0 100644 1 0 0 0 x - - -",
            "/a 0 100644 1 0 0 0 0.0 - - - ",
            "/a 0 100644 1 0 0 0 0.0 - - - user.x",
            "/a 0 100644 1 0 0 0 0.0 - - - =x",
        ] {
            assert!(Line::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
