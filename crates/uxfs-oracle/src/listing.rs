//! A tree as canonical text, one line per entry, and the comparison of two trees.
//!
//! 1. Entries are sorted by the bytes of their paths, which begin with `/`; the root is `/`.
//! 2. `Display` and `FromStr` lose nothing.
//! 3. Names and values may hold any bytes; lines are printable ASCII.
//!
//! Made by [`crate::lister`], or by a test from what the code under test reads.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use twox_hash::XxHash64;

use crate::escape::{escape, unescape};

bitflags::bitflags! {
    /// The properties that a comparison looks at. The kind of an entry always counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Fields: u32 {
        /// The permission bits, with set-uid, set-gid and sticky.
        const MODE = 1;
        /// User and group.
        const OWNER = 1 << 1;
        /// Size in bytes, of all but directories.
        const SIZE = 1 << 2;
        /// Number of links, of all but directories.
        const NLINK = 1 << 3;
        /// Size and number of links of directories, which depend on the file system.
        const DIRS = 1 << 4;
        /// Time of modification.
        const MTIME = 1 << 5;
        /// Time of access.
        const ATIME = 1 << 6;
        /// Time of change.
        const CTIME = 1 << 7;
        /// Time of birth.
        const BTIME = 1 << 8;
        /// A device's number.
        const RDEV = 1 << 9;
        /// A symbolic link's target.
        const TARGET = 1 << 10;
        /// The check sum of a file's content.
        const CONTENT = 1 << 11;
        /// Where a file has data, and where holes.
        const HOLES = 1 << 12;
        /// Extended attributes with their values, POSIX ACLs among them.
        const XATTRS = 1 << 13;
        /// Which names are the same inode.
        const LINK = 1 << 14;
        /// The inode's number.
        const INO = 1 << 15;
        /// Blocks allocated.
        const BLOCKS = 1 << 16;
        /// The volume's free and used space.
        const SPACE = 1 << 17;
        /// What a copy of a tree keeps, whatever the two file systems are.
        const TREE = Self::MODE.bits() | Self::OWNER.bits() | Self::SIZE.bits()
            | Self::NLINK.bits() | Self::MTIME.bits() | Self::RDEV.bits() | Self::TARGET.bits()
            | Self::CONTENT.bits() | Self::XATTRS.bits() | Self::LINK.bits();
        /// Fields that are equal for two readers of one image.
        const ALL = (1 << 18) - 1;
    }
}

/// What an entry is. The letters are those of `find -type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file: `f`.
    File,
    /// A directory: `d`.
    Dir,
    /// A symbolic link: `l`.
    Symlink,
    /// A character device: `c`.
    Char,
    /// A block device: `b`.
    Block,
    /// A fifo: `p`.
    Fifo,
    /// A socket: `s`.
    Socket,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::File, "f"),
    (Kind::Dir, "d"),
    (Kind::Symlink, "l"),
    (Kind::Char, "c"),
    (Kind::Block, "b"),
    (Kind::Fifo, "p"),
    (Kind::Socket, "s"),
];

/// Seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanos: u32,
}

/// An extended attribute's value: itself when short, else length and check sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// At most [`Value::SHORT`] bytes.
    Bytes(Vec<u8>),
    /// Length in bytes and XXH64.
    Digest(usize, u64),
}

impl Value {
    /// The longest value that is listed itself, in bytes.
    pub const SHORT: usize = 256;

    /// The value that consists of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.len() <= Self::SHORT {
            Self::Bytes(bytes.to_vec())
        } else {
            Self::Digest(bytes.len(), checksum(bytes))
        }
    }
}

/// XXH64 with seed 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(bytes);
    hasher.finish()
}

/// The check sum of a file's content: XXH64 of every block of [`ContentSum::BLOCK`] bytes that is
/// not all zeros, behind its offset. So holes need not be read, and a hole and zeros are the same.
#[derive(Default)]
pub struct ContentSum(XxHash64);

impl ContentSum {
    /// Bytes in a block.
    pub const BLOCK: usize = 4096;

    /// Adds the bytes at `offset`, a multiple of [`ContentSum::BLOCK`], as is their number except
    /// at the end of the file. Offsets have to ascend.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        for block in bytes.chunks(Self::BLOCK) {
            if block.iter().any(|&byte| byte != 0) {
                self.0.write(&at.to_le_bytes());
                self.0.write(block);
            }
            at += block.len() as u64;
        }
    }

    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }

    /// The sum of a whole file that consists of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::default();
        sum.add(0, bytes);
        sum.finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From the root, with a leading `/`.
    pub path: Vec<u8>,
    pub kind: Kind,
    /// The low 12 bits of the mode.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    pub ino: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Time of modification.
    pub mtime: Time,
    /// Time of access.
    pub atime: Time,
    /// Time of change.
    pub ctime: Time,
    /// Time of birth.
    pub btime: Time,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// A symbolic link's target.
    pub target: Option<Vec<u8>>,
    /// A regular file's [`ContentSum`].
    pub content: Option<u64>,
    /// Where a regular file has data: offset and length in bytes, ascending, not touching.
    pub data: Vec<(u64, u64)>,
    /// The first path in the listing that is the same inode, when that is another one.
    pub link: Option<Vec<u8>>,
    /// Extended attributes by full name (`user.x`, `system.posix_acl_access`).
    pub xattrs: BTreeMap<Vec<u8>, Value>,
}

/// What `statfs` says of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in a block.
    pub block: u64,
    pub blocks: u64,
    /// Blocks free.
    pub free: u64,
    /// Inodes in all, by the volume's own reckoning.
    pub inodes: u64,
    pub inodes_free: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The volume's space; none where the tree is not one volume.
    pub space: Option<Space>,
    /// Sorted by path.
    pub entries: Vec<Entry>,
}

impl Listing {
    /// The entry at `path` (`/a/b`).
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_slice().cmp(path));
        at.ok().map(|at| &self.entries[at])
    }

    /// Sorts the entries, and gives every [`Entry::link`] from the inode numbers: for a listing
    /// put together by a test.
    pub fn finish(&mut self) {
        self.entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for entry in self.entries.iter_mut().filter(|e| e.kind != Kind::Dir && e.nlink > 1) {
            match first.get(&entry.ino) {
                Some(path) => entry.link = Some(path.clone()),
                None => drop(first.insert(entry.ino, entry.path.clone())),
            }
        }
    }

    /// How `other` differs from this in `fields`, a line a difference; empty if it does not.
    #[must_use]
    pub fn differences(&self, other: &Self, fields: Fields) -> Vec<String> {
        let mut out = Vec::new();
        if fields.contains(Fields::SPACE) && self.space != other.space {
            out.push(format!("space: {:?} / {:?}", self.space, other.space));
        }
        let (mut left, mut right) =
            (self.entries.iter().peekable(), other.entries.iter().peekable());
        loop {
            match (left.peek(), right.peek()) {
                (None, None) => return out,
                (Some(a), Some(b)) if a.path == b.path => {
                    let (a, b) = (a.words(fields), b.words(fields));
                    if a != b {
                        out.push(difference(&a, &b));
                    }
                    left.next();
                    right.next();
                }
                (Some(a), b) if b.is_none_or(|b| a.path < b.path) => {
                    out.push(format!("{}: only in the first", escape(&a.path)));
                    left.next();
                }
                (_, Some(b)) => {
                    out.push(format!("{}: only in the second", escape(&b.path)));
                    right.next();
                }
                (Some(_), None) => left.next().map_or((), drop),
            }
        }
    }

    /// Passes if `other` agrees in `fields`.
    ///
    /// # Panics
    /// If it does not, with the first differences.
    pub fn assert_same(&self, other: &Self, fields: Fields) {
        let all = self.differences(other, fields);
        let shown = all.iter().take(20).map(|line| format!("    {line}\n")).collect::<String>();
        assert!(all.is_empty(), "the listings differ in {} places:\n{shown}", all.len());
    }
}

/// The words in which two entries of the same path differ.
fn difference(a: &[String], b: &[String]) -> String {
    let only = |these: &[String], those: &[String]| -> String {
        let words: Vec<_> = these.iter().filter(|w| !those.contains(w)).cloned().collect();
        words.join(" ")
    };
    format!("{}: {} / {}", a[0], only(a, b), only(b, a))
}

impl Entry {
    /// The words of this entry's line that `fields` asks for, path first.
    fn words(&self, fields: Fields) -> Vec<String> {
        let dir = self.kind == Kind::Dir;
        let letter = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("?", |(_, l)| l);
        let mut out = vec![escape(&self.path), format!("type={letter}")];
        let mut put = |field: Fields, word: String| {
            if fields.intersects(field) {
                out.push(word);
            }
        };
        put(Fields::MODE, format!("mode={:04o}", self.mode));
        put(Fields::OWNER, format!("uid={}", self.uid));
        put(Fields::OWNER, format!("gid={}", self.gid));
        put(if dir { Fields::DIRS } else { Fields::NLINK }, format!("nlink={}", self.nlink));
        put(if dir { Fields::DIRS } else { Fields::SIZE }, format!("size={}", self.size));
        put(Fields::INO, format!("ino={}", self.ino));
        put(Fields::BLOCKS, format!("blocks={}", self.blocks));
        put(Fields::MTIME, format!("mtime={}", self.mtime));
        put(Fields::ATIME, format!("atime={}", self.atime));
        put(Fields::CTIME, format!("ctime={}", self.ctime));
        put(Fields::BTIME, format!("btime={}", self.btime));
        if let Some((major, minor)) = self.rdev {
            put(Fields::RDEV, format!("rdev={major}:{minor}"));
        }
        if let Some(target) = &self.target {
            put(Fields::TARGET, format!("target={}", escape(target)));
        }
        if let Some(content) = self.content {
            put(Fields::CONTENT, format!("content={content:016x}"));
        }
        if !self.data.is_empty() {
            let ranges: Vec<_> = self.data.iter().map(|(o, l)| format!("{o}+{l}")).collect();
            put(Fields::HOLES, format!("data={}", ranges.join(",")));
        }
        if let Some(link) = &self.link {
            put(Fields::LINK, format!("link={}", escape(link)));
        }
        for (name, value) in &self.xattrs {
            put(Fields::XATTRS, format!("xattr:{}={value}", escape(name)));
        }
        out
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanos)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", escape(bytes)),
            Self::Digest(len, sum) => write!(f, "={len}:{sum:016x}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(Fields::ALL).join(" "))
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = &self.space {
            let Space { block, blocks, free, inodes, inodes_free } = s;
            writeln!(f, "space {block} {blocks} {free} {inodes} {inodes_free}")?;
        }
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl FromStr for Listing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut listing = Self::default();
        for line in text.lines() {
            match line.strip_prefix("space ") {
                Some(numbers) => listing.space = Some(parse_space(numbers)?),
                None => listing.entries.push(line.parse()?),
            }
        }
        Ok(listing)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split(' ');
        let path = unescape(words.next().unwrap_or_default())?;
        let mut entry = Self::new(path, Kind::File);
        for word in words {
            let (name, value) = word.split_once('=').ok_or(format!("bad word '{word}'"))?;
            entry.set(name, value).map_err(|e| format!("{e} in '{line}'"))?;
        }
        Ok(entry)
    }
}

impl Entry {
    /// An entry with all else 0 and empty.
    #[must_use]
    pub fn new(path: Vec<u8>, kind: Kind) -> Self {
        let zero = Time::default();
        Self {
            path,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            size: 0,
            ino: 0,
            blocks: 0,
            mtime: zero,
            atime: zero,
            ctime: zero,
            btime: zero,
            rdev: None,
            target: None,
            content: None,
            data: Vec::new(),
            link: None,
            xattrs: BTreeMap::new(),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "type" => {
                let kind = KINDS.iter().find(|(_, letter)| *letter == value);
                self.kind = kind.ok_or(format!("unknown type '{value}'"))?.0;
            }
            "mode" => self.mode = u32::from_str_radix(value, 8).map_err(|e| e.to_string())?,
            "uid" => self.uid = number(value)?,
            "gid" => self.gid = number(value)?,
            "nlink" => self.nlink = number(value)?,
            "size" => self.size = number(value)?,
            "ino" => self.ino = number(value)?,
            "blocks" => self.blocks = number(value)?,
            "mtime" => self.mtime = parse_time(value)?,
            "atime" => self.atime = parse_time(value)?,
            "ctime" => self.ctime = parse_time(value)?,
            "btime" => self.btime = parse_time(value)?,
            "rdev" => self.rdev = Some(pair(value, ':')?),
            "target" => self.target = Some(unescape(value)?),
            "content" => self.content = Some(parse_sum(value)?),
            "data" => {
                self.data = value.split(',').map(|r| pair(r, '+')).collect::<Result<_, _>>()?;
            }
            "link" => self.link = Some(unescape(value)?),
            _ => {
                let name = name.strip_prefix("xattr:").ok_or(format!("unknown '{name}'"))?;
                self.xattrs.insert(unescape(name)?, parse_value(value)?);
            }
        }
        Ok(())
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("bad number '{word}'"))
}

fn pair<T: FromStr>(word: &str, between: char) -> Result<(T, T), String> {
    let (a, b) = word.split_once(between).ok_or(format!("bad pair '{word}'"))?;
    Ok((number(a)?, number(b)?))
}

fn parse_sum(word: &str) -> Result<u64, String> {
    u64::from_str_radix(word, 16).map_err(|_| format!("bad check sum '{word}'"))
}

fn parse_time(word: &str) -> Result<Time, String> {
    let (seconds, nanos) = word.split_once('.').ok_or(format!("bad time '{word}'"))?;
    Ok(Time { seconds: number(seconds)?, nanos: number(nanos)? })
}

fn parse_value(word: &str) -> Result<Value, String> {
    let Some(digest) = word.strip_prefix('=') else { return Ok(Value::Bytes(unescape(word)?)) };
    let (len, sum) = digest.split_once(':').ok_or(format!("bad digest '{word}'"))?;
    Ok(Value::Digest(number(len)?, parse_sum(sum)?))
}

fn parse_space(words: &str) -> Result<Space, String> {
    let numbers: Vec<u64> = words.split(' ').map(number).collect::<Result<_, _>>()?;
    match numbers[..] {
        [block, blocks, free, inodes, inodes_free] => {
            Ok(Space { block, blocks, free, inodes, inodes_free })
        }
        _ => Err(format!("bad space '{words}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Listing {
        let mut file = Entry::new(b"/a b\xff=\\".to_vec(), Kind::File);
        file.mode = 0o4755;
        file.size = 10;
        file.nlink = 2;
        file.ino = 7;
        file.mtime = Time { seconds: -5, nanos: 1 };
        file.content = Some(ContentSum::of(b"x"));
        file.data = vec![(0, 3), (8, 2)];
        file.xattrs.insert(b"user.=".to_vec(), Value::of(b""));
        file.xattrs.insert(b"user.x y".to_vec(), Value::of(b"=\n"));
        file.xattrs.insert(b"user.z".to_vec(), Value::of(&[1; 257]));
        let mut again = file.clone();
        again.path = b"/b".to_vec();
        let mut node = Entry::new(b"/dev".to_vec(), Kind::Char);
        node.rdev = Some((8, 3));
        let mut link = Entry::new(b"/l".to_vec(), Kind::Symlink);
        link.target = Some(b"to there".to_vec());
        let root = Entry::new(b"/".to_vec(), Kind::Dir);
        let space = Space { block: 4096, blocks: 9, free: 8, inodes: 7, inodes_free: 6 };
        let mut listing =
            Listing { space: Some(space), entries: vec![link, again, node, root, file] };
        listing.finish();
        listing
    }

    #[test]
    fn a_listing_round_trips_through_text() {
        let listing = sample();
        assert_eq!(listing.to_string().parse::<Listing>().unwrap(), listing);
        assert_eq!(listing.get(b"/b").unwrap().link.as_deref(), Some(&b"/a b\xff=\\"[..]));
        assert!(listing.to_string().bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)));
    }

    #[test]
    fn differences_name_the_entry_and_the_words() {
        let one = sample();
        let mut two = sample();
        assert!(one.differences(&two, Fields::ALL).is_empty());
        two.entries[3].rdev = Some((8, 4));
        two.entries.remove(4);
        assert_eq!(
            one.differences(&two, Fields::TREE),
            ["/dev: rdev=8:3 / rdev=8:4", "/l: only in the first"]
        );
        assert_eq!(two.differences(&one, Fields::SIZE), ["/l: only in the second"]);
        two.entries[1].size = 11;
        assert_eq!(one.differences(&two, Fields::SIZE).len(), 2);
    }

    #[test]
    fn a_content_sum_ignores_holes_only() {
        let mut file = vec![0; 3 * ContentSum::BLOCK + 5];
        assert_eq!(ContentSum::of(&file), ContentSum::default().finish());
        file[ContentSum::BLOCK] = 1;
        let mut sum = ContentSum::default();
        sum.add(4096, &file[4096..8192]);
        assert_eq!(sum.finish(), ContentSum::of(&file));
        file[0] = 1;
        assert_ne!(sum.finish(), ContentSum::of(&file));
    }

    #[test]
    fn the_check_sum_is_xxh64() {
        assert_eq!(checksum(b""), 0xef46_db37_51d8_e999);
        assert_eq!(checksum(b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
