//! The operations of the library, one after the other, through every form that directories,
//! attributes and forks have.

use uxfs::{BulkWriter, Content, Error, Fs, NewInode, RenameFlags, Result, SetAttr, XattrMode};
use uxfs_format::Ino;
use uxfs_format::inode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFSOCK};
use uxfs_format::timestamp::Timestamp;
use uxfs_oracle::Rng;

use super::space;
use crate::names;

/// Longest value of an attribute.
const VALUE_MAX: usize = 65536;

/// The expected content of a file at the end.
pub(super) struct Expected {
    pub(super) path: Vec<u8>,
    pub(super) content: Vec<u8>,
}

/// Carries out all operations on an empty volume.
pub(super) fn run(fs: &Fs, rng: &mut Rng) -> Result<Vec<Expected>> {
    let mut expected = files(fs, rng)?;
    directories(fs)?;
    attributes(fs, rng)?;
    kinds(fs)?;
    expected.extend(space::run(fs, rng)?);
    expected.push(renames(fs)?);
    removals(fs)?;
    Ok(expected)
}

/// Checks the content of the files.
pub(super) fn verify(fs: &Fs, expected: &[Expected], at: &str) {
    for file in expected {
        let ino = fs.resolve(&file.path, false).unwrap_or_else(|e| panic!("{at}: {e}"));
        let mut got = vec![0; file.content.len() + 1];
        let len = fs.read_at(ino, 0, &mut got).unwrap_or_else(|e| panic!("{at}: {e}"));
        let same = len == file.content.len() && got[..len] == file.content[..];
        assert!(same, "{at}: {} holds something else", file.path.escape_ascii());
    }
}

/// The expected content, written at the same offsets.
pub(super) struct Shadow<'a> {
    fs: &'a Fs,
    pub(super) ino: Ino,
    pub(super) content: Vec<u8>,
}

impl<'a> Shadow<'a> {
    pub(super) fn create(fs: &'a Fs, name: &[u8]) -> Result<Self> {
        let ino = fs.create(fs.root(), name, &NewInode::file(0o644))?;
        Ok(Self { fs, ino, content: Vec::new() })
    }

    pub(super) fn write(&mut self, at: usize, data: &[u8]) -> Result<()> {
        let end = at + data.len();
        self.content.resize(self.content.len().max(end), 0);
        self.content[at..end].copy_from_slice(data);
        self.fs.write_at(self.ino, at as u64, data)
    }

    pub(super) fn truncate(&mut self, size: usize) -> Result<()> {
        self.content.resize(size, 0);
        self.fs.truncate(self.ino, size as u64)
    }
}

/// Regular files: extents in the inode and in a tree, holes, truncated and extended files, one built whole.
fn files(fs: &Fs, rng: &mut Rng) -> Result<Vec<Expected>> {
    let block = fs.geo.block_size as usize;
    let mut small = Shadow::create(fs, b"small")?;
    small.write(0, b"some words")?;
    small.write(5, &rng.bytes(block + 77))?;
    // More extents than any inode can hold, half of the holes then filled.
    let mut many = Shadow::create(fs, b"many extents")?;
    let count = fs.geo.inode_size as usize / 16 + 20;
    for number in (0..count).rev() {
        let len = 1 + rng.index(block);
        many.write(number * 2 * block, &rng.bytes(len))?;
    }
    let mut cut = Shadow::create(fs, b"cut")?;
    for number in 0..count {
        cut.write(number * 2 * block + 3, &rng.bytes(9))?;
    }
    for number in 0..count / 4 {
        many.write((2 * number + 1) * block, &rng.bytes(block))?;
    }
    cut.truncate(5 * block + 100)?;
    cut.truncate(9 * block)?;
    let mut emptied = Shadow::create(fs, b"emptied")?;
    emptied.write(0, &rng.bytes(3 * block))?;
    emptied.truncate(0)?;
    let data = rng.bytes(block + 5);
    let segments = [(2 * block as u64, data.len() as u64)];
    let content = Content::Data { size: segments[0].0 + segments[0].1, segments: &segments };
    let xattrs = [(b"user.a".to_vec(), b"b".to_vec())];
    let new = NewInode { attr_bytes: 30, ..NewInode::file(0o600) };
    let writer = BulkWriter::start(fs, None)?;
    let mut left = &data[..];
    fs.build_with(fs.root(), b"built", &new, &xattrs, content, &mut |places| {
        for place in places {
            let len = place.len.min(left.len() as u64);
            writer.stream(place.device.unwrap(), len, |buf| {
                let (part, rest) = left.split_at(buf.len());
                buf.copy_from_slice(part);
                left = rest;
                Ok::<(), Error>(())
            })?;
        }
        Ok(())
    })?;
    fs.sync()?;
    writer.finish().unwrap_or_else(|e| panic!("writing what was built: {e}"));
    let built = [&vec![0; 2 * block][..], &data].concat();
    let shadow = |name: &[u8], content: Vec<u8>| Expected { path: name.to_vec(), content };
    Ok(vec![
        shadow(b"/small", small.content),
        shadow(b"/many extents", many.content),
        shadow(b"/cut", cut.content),
        shadow(b"/emptied", emptied.content),
        shadow(b"/built", built),
    ])
}

/// Numbers of entries for each directory form: short, block, leaf, node.
fn forms(fs: &Fs) -> [(&'static [u8], usize, usize); 4] {
    let dir_block = fs.geo.dir_block_size() as usize;
    [
        (b"short", 3, 4),
        (b"block", dir_block / 96, 40),
        // Two and a half blocks of entries, with hashes that one block holds.
        (b"leaf", (dir_block * 5 / 2 / 240).max(10), 220),
        (b"node", dir_block / 8 + 20, 12),
    ]
}

fn long_name(number: usize, len: usize) -> Vec<u8> {
    let mut name = format!("{number:x}-").into_bytes();
    name.resize(len.max(name.len()), b'n');
    name
}

/// Directories of every form; their entries are links to few files.
fn directories(fs: &Fs) -> Result<()> {
    let root = fs.root();
    for (form, count, len) in forms(fs) {
        let dir = fs.create(root, form, &NewInode::dir(0o755))?;
        let files = count.min(24);
        let mut inodes = Vec::new();
        for number in 0..count {
            let name = long_name(number, len);
            if number < files {
                inodes.push(fs.create(dir, &name, &NewInode::file(0o640))?);
            } else {
                fs.link(inodes[number % files], dir, &name)?;
            }
        }
        // Every third is removed, which leaves free space inside.
        for number in (0..count).step_by(3) {
            fs.unlink(dir, &long_name(number, len))?;
        }
        for number in (0..count / 4).step_by(3) {
            fs.create(dir, &long_name(number, len + 2), &NewInode::file(0o600))?;
        }
    }
    Ok(())
}

/// Attributes in the inode, in a leaf, in a tree, with values in blocks of their own; replaced and
/// removed ones; access lists.
fn attributes(fs: &Fs, rng: &mut Rng) -> Result<()> {
    let root = fs.root();
    let block = fs.geo.block_size as usize;
    let file = |name: &[u8]| fs.create(root, name, &NewInode::file(0o644));
    let any = XattrMode::Any;
    let short = file(b"attributes, short")?;
    fs.set_xattr(short, b"user.one", b"1", XattrMode::Create)?;
    fs.set_xattr(short, b"user.one", b"two", XattrMode::Replace)?;
    fs.set_xattr(short, b"system.posix_acl_access", &names::acl(rng, 2), any)?;
    let leaf = file(b"attributes, leaf")?;
    for number in 0..8 {
        fs.set_xattr(leaf, format!("user.{number}").as_bytes(), &rng.bytes(block / 12), any)?;
    }
    // One that kernels interpret.
    let ping = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    fs.set_xattr(leaf, b"security.capability", &ping, any)?;
    let node = file(b"attributes, node")?;
    let count = 130;
    for number in 0..count {
        let value = rng.bytes(block / 60);
        fs.set_xattr(node, format!("trusted.{number:040}").as_bytes(), &value, any)?;
    }
    for number in (0..count).step_by(3) {
        fs.remove_xattr(node, format!("trusted.{number:040}").as_bytes())?;
    }
    let remote = file(b"attributes, remote")?;
    for len in [block, block * 3 / 4 + 1, VALUE_MAX, 3 * block + 5] {
        let value = rng.bytes(len.min(VALUE_MAX));
        fs.set_xattr(remote, format!("user.of {len}").as_bytes(), &value, any)?;
    }
    fs.set_xattr(
        remote,
        format!("user.of {block}").as_bytes(),
        &rng.bytes((block + 1).min(VALUE_MAX)),
        any,
    )?;
    fs.remove_xattr(remote, format!("user.of {}", 3 * block + 5).as_bytes())?;
    let gone = file(b"attributes, gone")?;
    fs.set_xattr(gone, b"user.large", &rng.bytes(VALUE_MAX), any)?;
    fs.remove_xattr(gone, b"user.large")
}

/// Every kind of file, its mode, owner and times.
fn kinds(fs: &Fs) -> Result<()> {
    let root = fs.root();
    let dir = fs.create(root, b"kinds", &NewInode::dir(0o1777))?;
    for (name, kind, rdev) in [
        (&b"fifo"[..], S_IFIFO, (0, 0)),
        (b"socket", S_IFSOCK, (0, 0)),
        (b"char", S_IFCHR, (1, 3)),
        (b"block device", S_IFBLK, (259, 70_000)),
    ] {
        fs.create(dir, name, &NewInode { rdev, ..NewInode::new(kind | 0o600) })?;
    }
    for len in [1, 60, 300, 1000, 1023] {
        fs.symlink(dir, format!("link {len}").as_bytes(), &vec![b't'; len], &NewInode::new(0))?;
    }
    let owned = fs.create(dir, b"owned", &NewInode::file(0o7755))?;
    let moment = |sec: i64| Some(Timestamp { sec, nsec: 999_999_999 });
    let change = SetAttr {
        permissions: Some(0o4711),
        uid: Some(70_000),
        gid: Some(u32::MAX - 1),
        atime: moment(-5),
        mtime: moment(i64::from(i32::MAX)),
        crtime: moment(1),
        projid: Some(42),
        ..SetAttr::default()
    };
    fs.set_attr(owned, &change)
}

/// Renames: in a directory, to another, over another file, and an exchange.
fn renames(fs: &Fs) -> Result<Expected> {
    let root = fs.root();
    let (from, to) = (
        fs.create(root, b"from", &NewInode::dir(0o755))?,
        fs.create(root, b"to", &NewInode::dir(0o700))?,
    );
    let ino = fs.create(from, b"first", &NewInode::file(0o644))?;
    fs.write_at(ino, 0, b"moved")?;
    fs.rename(from, b"first", from, b"a name that is longer than it was", RenameFlags::NoReplace)?;
    fs.create(to, b"victim", &NewInode::file(0o644))?;
    let (old, replace) = (&b"a name that is longer than it was"[..], RenameFlags::Replace);
    fs.rename(from, old, to, b"victim", replace)?;
    for dir in [&b"left"[..], b"right", b"over"] {
        fs.create(from, dir, &NewInode::dir(0o755))?;
    }
    fs.create(fs.lookup(from, b"left")?, b"below", &NewInode::dir(0o755))?;
    fs.rename(from, b"left", to, b"right", RenameFlags::NoReplace)?;
    fs.rename(from, b"right", to, b"right", RenameFlags::Exchange)?;
    fs.rename(to, b"victim", from, b"over", RenameFlags::Exchange)?;
    // A directory over an empty one.
    fs.rename(to, b"victim", to, b"right", replace)?;
    fs.rename(from, b"over", to, b"at last", replace)?;
    Ok(Expected { path: b"/to/at last".to_vec(), content: b"moved".to_vec() })
}

/// A tree with large directories and files, created and removed.
fn removals(fs: &Fs) -> Result<()> {
    let root = fs.root();
    let block = fs.geo.block_size as usize;
    let dir = fs.create(root, b"gone", &NewInode::dir(0o755))?;
    let [.., (_, count, len), _] = forms(fs);
    for number in 0..count {
        let ino = fs.create(dir, &long_name(number, len), &NewInode::file(0o644))?;
        if number % 16 == 0 {
            fs.write_at(ino, (number * block) as u64, &vec![7; block / 2])?;
        }
    }
    for number in (1..count).step_by(2).chain((0..count).step_by(2)) {
        fs.unlink(dir, &long_name(number, len))?;
    }
    fs.rmdir(root, b"gone")
}
