//! The grammar of a protofile.
//!
//! 1. The first three words are ignored, but the second and the third have to be numbers: once they
//!    were a boot program and the numbers of blocks and inodes.
//! 2. A file is a mode, an owner, a group, and what its type needs. The first file is the root
//!    directory. In a directory, each file has a name before it, and the word `$` ends the directory.
//!    As in mkfs.xfs, the end of the file ends all directories; there is a warning then.
//! 3. As in mkfs.xfs, and in Linux, a directory in a set-group-ID directory is set-group-ID too.
//! 4. What the parser returns is a tree: directories come before their content, no name occurs twice
//!    in a directory, and every name can be stored.
//! 5. Memory is bounded by the names of the directories that are open.
//!
//! Used by the source.

use std::collections::HashSet;
use std::io::BufRead;

use crate::error::{ArchiveError, show};

use super::ProtoOptions;
use super::words::{NoWord, Word, Words};

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 255;
/// Maximum length of a path in bytes. A few bytes make a directory deeper, so the length of a protofile
/// bounds no path.
const PATH_MAX: usize = 64 << 10;
/// Maximum length of a symbolic link's target in bytes, as XFS has it.
const TARGET_MAX: usize = 1023;
/// The set-group-ID bit of a mode.
const SETGID: u32 = 0o2000;
/// Largest major number of Linux, and largest minor number that XFS stores.
const DEVICE_MAX: (u32, u32) = (0xfff, 0x3_ffff);

/// What a file is, with what its type needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spec {
    /// A regular file with the content of this file of the host.
    File(Vec<u8>),
    /// A regular file without content, for which this many bytes are set aside.
    Reserved(u64),
    Dir,
    Symlink(Vec<u8>),
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
}

/// A file of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Path in the tree; the root has the empty path.
    pub(super) path: Vec<u8>,
    pub(super) spec: Spec,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The line that the file begins in.
    pub(super) line: u64,
}

/// A directory that is not ended yet.
struct Open {
    /// The line that it begins in.
    line: u64,
    /// Length of its path.
    path_len: usize,
    /// Whether directories in it are set-group-ID, as it is itself.
    setgid: bool,
    names: HashSet<Vec<u8>>,
}

/// Parses a protofile.
pub(super) struct Parser<R> {
    words: Words<R>,
    /// The protofile's name, for messages.
    name: String,
    slashes_are_spaces: bool,
    /// Bytes of the units `b` and `s`.
    block_size: u64,
    sector_size: u64,
    /// Says what is missing at the end of the file, if anything is.
    cut_short: Option<String>,
    /// `None` before the root.
    open: Option<Vec<Open>>,
    /// Path of the innermost open directory, or of the current file.
    path: Vec<u8>,
}

impl<R: BufRead> Parser<R> {
    pub(super) fn new(input: R, name: String, options: ProtoOptions) -> Self {
        Self {
            words: Words::new(input),
            name,
            slashes_are_spaces: options.slashes_are_spaces,
            block_size: options.block_size.into(),
            sector_size: options.sector_size.into(),
            cut_short: None,
            open: None,
            path: Vec::new(),
        }
    }

    /// Takes the warning about an end of the file that ends directories too.
    pub(super) fn cut_short(&mut self) -> Option<String> {
        self.cut_short.take()
    }

    /// The protofile's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes read so far.
    pub(super) fn taken(&self) -> u64 {
        self.words.taken()
    }

    /// An error in a line.
    pub(super) fn bad(&self, line: u64, what: impl Into<String>) -> ArchiveError {
        ArchiveError::Manifest { name: self.name.clone(), line, what: what.into() }
    }

    fn next_word(&mut self) -> Result<Option<Word>, ArchiveError> {
        let word = self.words.next();
        word.map_err(|error| match error {
            NoWord::Io(error) => ArchiveError::io(format!("reading {}", self.name), error),
            NoWord::Bad(what) => self.bad(self.words.line(), what),
        })
    }

    /// The next word, which has to be there; `what` it is.
    fn word(&mut self, what: &str) -> Result<Word, ArchiveError> {
        let word = self.next_word()?;
        word.ok_or_else(|| {
            self.bad(self.words.line(), format!("the file ends where {what} is due"))
        })
    }

    /// A number, and its line: decimal, hexadecimal with `0x` before it, or octal with `0`.
    fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<(T, u64), ArchiveError> {
        let word = self.word(what)?;
        let value = integer(&word.text).and_then(|value| T::try_from(value).ok());
        let value = value.ok_or_else(|| {
            let text = show(&word.text);
            self.bad(word.line, format!("{text}, where {what} is due, is not a number that fits"))
        })?;
        Ok((value, word.line))
    }

    /// A size in bytes: a number, and a unit of mkfs.xfs if there is one.
    fn size(&mut self) -> Result<u64, ArchiveError> {
        let word = self.word("a size")?;
        let unit = |unit: u8| match unit.to_ascii_lowercase() {
            b'b' => Some(self.block_size),
            b's' => Some(self.sector_size),
            unit => {
                let at = b"kmgtpe".iter().position(|each| *each == unit)?;
                Some(1 << (10 * (at + 1)))
            }
        };
        let with_unit = || {
            let (last, digits) = word.text.split_last()?;
            integer(digits)?.checked_mul(unit(*last)?)
        };
        let size =
            integer(&word.text).or_else(with_unit).filter(|size| i64::try_from(*size).is_ok());
        size.ok_or_else(|| {
            let text = show(&word.text);
            let what = format!("{text} is not a size that a file can have, such as 65536 or 64k");
            self.bad(word.line, what)
        })
    }

    fn id(&mut self, what: &str) -> Result<u32, ArchiveError> {
        match self.number(what)? {
            // Linux' "no owner".
            (u32::MAX, line) => {
                Err(self
                    .bad(line, format!("{what} of 4294967295: Linux has them up to 4294967294")))
            }
            (id, _) => Ok(id),
        }
    }

    /// The next file; `None` behind the end of the root directory.
    pub(super) fn next(&mut self) -> Result<Option<Node>, ArchiveError> {
        loop {
            let Some(open) = &self.open else { return self.root().map(Some) };
            let Some(dir) = open.last() else { return Ok(None) };
            let (begun, path_len) = (dir.line, dir.path_len);
            self.path.truncate(path_len);
            let Some(word) = self.next_word()? else {
                let dir = if path_len == 0 { "the root".to_owned() } else { show(&self.path) };
                let (name, line) = (&self.name, self.words.line());
                self.cut_short = Some(format!(
                    "{name}, line {line}: the file ends in directory {dir}, which begins in line \
                     {begun}: taken for its end, '$' is missing"
                ));
                self.open = Some(Vec::new());
                return Ok(None);
            };
            if word.text != b"$" {
                return self.named(word, path_len).map(Some);
            }
            if let Some(open) = &mut self.open {
                open.pop();
            }
        }
    }

    /// The file that begins with this name.
    fn named(&mut self, word: Word, path_len: usize) -> Result<Node, ArchiveError> {
        let name = self.file_name(word.text).map_err(|what| self.bad(word.line, what))?;
        if path_len > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name);
        if self.path.len() > PATH_MAX {
            return Err(self.bad(word.line, "the path is longer than 64 KiB"));
        }
        let dir = self.open.as_mut().and_then(|open| open.last_mut());
        if !dir.is_none_or(|dir| dir.names.insert(name)) {
            let what = format!("{} is there already: a name occurs twice", show(&self.path));
            return Err(self.bad(word.line, what));
        }
        self.node(Some(word.line))
    }

    fn root(&mut self) -> Result<Node, ArchiveError> {
        self.word("the name of a boot program, which is ignored,")?;
        self.number::<u64>("the number of blocks, which is ignored,")?;
        self.number::<u64>("the number of inodes, which is ignored,")?;
        self.open = Some(Vec::new());
        let root = self.node(None)?;
        match root.spec {
            Spec::Dir => Ok(root),
            _ => Err(self.bad(root.line, "the first file, which is the root, is not a directory")),
        }
    }

    /// The name of a file, from its word.
    fn file_name(&self, mut name: Vec<u8>) -> Result<Vec<u8>, String> {
        if name.contains(&b'/') {
            if !self.slashes_are_spaces {
                return Err(format!(
                    "the name {} has a slash: with slashes_are_spaces=1 it means a space",
                    show(&name)
                ));
            }
            name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b' ');
        }
        match name.as_slice() {
            b"." | b".." => Err(format!("{} is no name for a file", show(&name))),
            long if long.len() > NAME_MAX => {
                Err(format!("a name of {} bytes: at most {NAME_MAX} are possible", long.len()))
            }
            _ => Ok(name),
        }
    }

    /// What follows a name, which is in `line`; the root has none. Opens a directory.
    fn node(&mut self, line: Option<u64>) -> Result<Node, ArchiveError> {
        let word = self.word("a mode")?;
        let line = line.unwrap_or(word.line);
        let (kind, mut mode) = mode(&word.text).map_err(|what| self.bad(word.line, what))?;
        let (uid, gid) = (self.id("an owner")?, self.id("a group")?);
        let spec = match kind {
            b'-' => Spec::File(self.word("the path of the content")?.text),
            b'r' => Spec::Reserved(self.size()?),
            b'd' => Spec::Dir,
            b'l' => {
                let target = self.word("the target of a symbolic link")?;
                if target.text.len() > TARGET_MAX {
                    let len = target.text.len();
                    let what =
                        format!("a target of {len} bytes: at most {TARGET_MAX} are possible");
                    return Err(self.bad(target.line, what));
                }
                Spec::Symlink(target.text)
            }
            b'p' => Spec::Fifo,
            kind => {
                let (major, _) = self.number("a major number")?;
                let (minor, line) = self.number("a minor number")?;
                let (last_major, last_minor) = DEVICE_MAX;
                if major > last_major || minor > last_minor {
                    let what = format!(
                        "device {major}, {minor}: the last possible is {last_major}, {last_minor}"
                    );
                    return Err(self.bad(line, what));
                }
                if kind == b'c' { Spec::Char(major, minor) } else { Spec::Block(major, minor) }
            }
        };
        if spec == Spec::Dir
            && let Some(open) = &mut self.open
        {
            if open.last().is_some_and(|dir| dir.setgid) {
                mode |= SETGID;
            }
            let (path_len, setgid) = (self.path.len(), mode & SETGID != 0);
            open.push(Open { line, path_len, setgid, names: HashSet::new() });
        }
        Ok(Node { path: self.path.clone(), spec, mode, uid, gid, line })
    }
}

/// A number as C's programs write it.
fn integer(text: &[u8]) -> Option<u64> {
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    };
    // `from_str_radix` accepts a sign, which has no meaning here.
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

/// The type and the permissions of a mode word, such as `du-755`.
fn mode(word: &[u8]) -> Result<(u8, u32), String> {
    let wrong =
        |why: &str| Err(format!("{} is not a mode such as d--755 or -ug755: {why}", show(word)));
    let [kind, setuid, setgid, digits @ ..] = word else {
        return wrong("it has to have six characters");
    };
    if digits.len() != 3 {
        return wrong("it has to have six characters");
    }
    if !b"-rdbcpl".contains(kind) {
        return wrong("the first character is one of -, r, d, b, c, p, l");
    }
    let mut mode = match setuid {
        b'u' => 0o4000,
        b'-' => 0,
        _ => return wrong("the second character is - or u"),
    };
    mode |= match setgid {
        b'g' => SETGID,
        b'-' => 0,
        _ => return wrong("the third character is - or g"),
    };
    for (digit, shift) in digits.iter().zip([6, 3, 0]) {
        match digit {
            b'0'..=b'7' => mode |= u32::from(digit - b'0') << shift,
            _ => return wrong("the last three characters are octal digits"),
        }
    }
    Ok((*kind, mode))
}
