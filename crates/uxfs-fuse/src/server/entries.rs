//! Names: lookup, creation, rename.

use fuser::{Errno, FileAttr, FileType, INodeNo, OpenFlags, RenameFlags};
use uxfs::format::Ino;
use uxfs::format::inode::Flags;
use uxfs::posix::Creator;
use uxfs::{Error, Fs};

use super::outcome::{Entry, Result};
use crate::attr::{attr_of, bare_attr, decode_rdev, ino_of};

pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    /// Type and permissions.
    pub(super) mode: u16,
    /// Device number, as FUSE encodes it.
    pub(super) rdev: u32,
}

/// The reply that a name does not exist.
pub(super) fn no_entry() -> FileAttr {
    bare_attr(Ino(0), FileType::RegularFile)
}

/// The entry of an inode, which the kernel then holds.
pub(super) fn known(fs: &Fs, ino: Ino) -> uxfs::Result<Entry> {
    fs.hold(ino);
    match fs.stat(ino) {
        Ok(stat) => {
            let mut attr = attr_of(fs, &stat);
            if ino == fs.root() {
                attr.ino = INodeNo::ROOT;
            }
            Ok((attr, stat.generation))
        }
        Err(error) => {
            fs.release(ino, 1)?;
            Err(error)
        }
    }
}

/// The inode of a name, if it exists.
pub(super) fn lookup(fs: &Fs, parent: INodeNo, name: &[u8]) -> uxfs::Result<Option<Entry>> {
    let dir = ino_of(fs, parent);
    let found = match name {
        // A file handle's inode, by its number alone.
        b"." => Ok(dir),
        _ => fs.lookup(dir, name),
    };
    match found {
        Ok(ino) => known(fs, ino).map(Some),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a file other than a symbolic link.
pub(super) fn create(
    fs: &Fs,
    creator: &Creator,
    parent: INodeNo,
    new: &New<'_>,
) -> uxfs::Result<Entry> {
    let rdev = decode_rdev(new.rdev);
    let ino = creator.create(fs, ino_of(fs, parent), new.name, new.mode, rdev)?;
    known(fs, ino)
}

#[derive(Clone, Copy)]
pub(super) enum Move {
    Plain(uxfs::RenameFlags),
    /// A whiteout replaces the old name.
    Whiteout,
}

/// The kind of rename of `renameat2`'s flags.
pub(super) fn rename_flags(flags: RenameFlags) -> Result<Move> {
    const NOREPLACE: RenameFlags = RenameFlags::RENAME_NOREPLACE;
    const WHITEOUT: RenameFlags = RenameFlags::RENAME_WHITEOUT;
    // The kernel has checked whether the new name exists, with both directories locked.
    let both = NOREPLACE | WHITEOUT;
    match flags {
        flags if flags.is_empty() => Ok(Move::Plain(uxfs::RenameFlags::Replace)),
        NOREPLACE => Ok(Move::Plain(uxfs::RenameFlags::NoReplace)),
        RenameFlags::RENAME_EXCHANGE => Ok(Move::Plain(uxfs::RenameFlags::Exchange)),
        flags if flags == WHITEOUT || flags == both => Ok(Move::Whiteout),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn rename(
    fs: &Fs,
    creator: &Creator,
    (from, name): (INodeNo, &[u8]),
    (to, new_name): (INodeNo, &[u8]),
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
pub(super) fn may_open(fs: &Fs, ino: Ino, flags: OpenFlags) -> uxfs::Result<()> {
    const O_ACCMODE: i32 = 0o3;
    const O_TRUNC: i32 = 0o1000;
    const O_APPEND: i32 = 0o2000;
    let writes = flags.0 & O_ACCMODE != 0;
    if !writes && flags.0 & O_TRUNC == 0 {
        return Ok(());
    }
    let file = fs.stat(ino)?.flags;
    let forbidden = file.contains(Flags::IMMUTABLE)
        || file.contains(Flags::APPEND) && (flags.0 & O_APPEND == 0 || flags.0 & O_TRUNC != 0);
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}
