//! Names: lookup, creation, rename.

use std::time::Duration;

use uxfs::format::Ino;
use uxfs::format::inode::Flags;
use uxfs::posix::Creator;
use uxfs::{Error, Fs};
use uxfs_transport::{Attr, Entry, Errno, Node};

use super::outcome::Result;
use crate::attr::{attr_of, ino_of};
use crate::settings::TTL;

pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    /// Type and permissions.
    pub(super) mode: u16,
    /// Major and minor number of a device node.
    pub(super) rdev: (u32, u32),
}

/// How long the kernel may use a name that it looked up, or that does not exist. Its cache knows
/// names by their bytes. Where they compare without case, a change under one spelling would leave
/// the others stale.
fn ttl(fs: &Fs) -> Duration {
    if fs.geo.naming.folds() { Duration::ZERO } else { TTL }
}

/// The reply that a name does not exist: number 0.
fn no_entry(fs: &Fs) -> Entry {
    Entry { node: Node(0), generation: 0, ttl: ttl(fs), attr: Attr::default() }
}

/// The reply with an entry.
pub(super) fn sent(fs: &Fs, attr: Attr, generation: u32) -> Entry {
    Entry { node: Node(attr.ino), generation: generation.into(), ttl: ttl(fs), attr }
}

/// The entry of an inode, which the kernel then holds.
pub(super) fn known(fs: &Fs, ino: Ino) -> uxfs::Result<Entry> {
    fs.hold(ino);
    match fs.stat(ino) {
        Ok(stat) => {
            let mut attr = attr_of(fs, &stat);
            if ino == fs.root() {
                attr.ino = Node::ROOT.0;
            }
            Ok(sent(fs, attr, stat.generation))
        }
        Err(error) => {
            fs.release(ino, 1)?;
            Err(error)
        }
    }
}

/// Is it an inode of the volume itself, which has no name?
fn is_internal(fs: &Fs, ino: Ino) -> bool {
    let sb = fs.superblock();
    let quotas = [sb.uquotino.get(), sb.gquotino.get(), sb.pquotino.get()].map(Ino);
    fs.geo.rt_inos.contains(&ino) || quotas.contains(&ino)
}

/// The inode of a name, or that there is none.
pub(super) fn lookup(fs: &Fs, parent: Node, name: &[u8]) -> uxfs::Result<Entry> {
    let dir = ino_of(fs, parent);
    let found = match name {
        // A file handle's inode, by its number alone. The kernel asks only for one that it does not
        // have, so one without a name is about to be forgotten.
        b"." if is_internal(fs, dir) => Err(Error::NotFound),
        b"." => match fs.stat(dir)?.nlink {
            0 => Err(Error::NotFound),
            _ => Ok(dir),
        },
        _ => fs.lookup(dir, name),
    };
    match found {
        Ok(ino) => known(fs, ino),
        Err(Error::NotFound) => Ok(no_entry(fs)),
        Err(error) => Err(error),
    }
}

/// Creates a file other than a symbolic link.
pub(super) fn create(
    fs: &Fs,
    creator: &Creator,
    parent: Node,
    new: &New<'_>,
) -> uxfs::Result<Entry> {
    let ino = creator.create(fs, ino_of(fs, parent), new.name, new.mode, new.rdev)?;
    known(fs, ino)
}

#[derive(Clone, Copy)]
pub(super) enum Move {
    Plain(uxfs::RenameFlags),
    /// A whiteout replaces the old name.
    Whiteout,
}

/// The kind of rename of `renameat2`'s flags.
pub(super) fn rename_flags(flags: u32) -> Result<Move> {
    const NOREPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    // The kernel has checked whether the new name exists, with both directories locked.
    const BOTH: u32 = NOREPLACE | WHITEOUT;
    match flags {
        0 => Ok(Move::Plain(uxfs::RenameFlags::Replace)),
        NOREPLACE => Ok(Move::Plain(uxfs::RenameFlags::NoReplace)),
        EXCHANGE => Ok(Move::Plain(uxfs::RenameFlags::Exchange)),
        WHITEOUT | BOTH => Ok(Move::Whiteout),
        _ => Err(Errno::INVAL),
    }
}

pub(super) fn rename(
    fs: &Fs,
    creator: &Creator,
    (from, name): (Node, &[u8]),
    (to, new_name): (Node, &[u8]),
    how: Move,
) -> uxfs::Result<()> {
    let (from, to) = (ino_of(fs, from), ino_of(fs, to));
    match how {
        Move::Plain(flags) => fs.rename(from, name, to, new_name, flags),
        Move::Whiteout => {
            fs.rename_whiteout((from, name), (to, new_name), (creator.uid, creator.gid))
        }
    }
    // POSIX allows both errors. XFS returns this one.
    .map_err(|error| if matches!(error, Error::NotEmpty) { Error::Exists } else { error })
}

/// Can a file be opened with these flags? The kernel has checked permissions.
pub(super) fn may_open(fs: &Fs, ino: Ino, flags: i32) -> uxfs::Result<()> {
    const O_ACCMODE: i32 = 0o3;
    const O_TRUNC: i32 = 0o1000;
    const O_APPEND: i32 = 0o2000;
    let writes = flags & O_ACCMODE != 0;
    if !writes && flags & O_TRUNC == 0 {
        return Ok(());
    }
    let file = fs.stat(ino)?.flags;
    let forbidden = file.contains(Flags::IMMUTABLE)
        || file.contains(Flags::APPEND) && (flags & O_APPEND == 0 || flags & O_TRUNC != 0);
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}
