//! Calls by path: names and attributes.

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uxfs::files::{FileTimes, Metadata, Permissions};
use uxfs::format::timestamp::Timestamp;
use uxfs::{Volume, XattrMode};

use crate::error::{Failure, call, call_only};
use crate::pointer::{bytes, fill, handle, path, put};
use crate::volume::uxfs_volume;

/// A moment: seconds since 1970, and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uxfs_time {
    /// Seconds since 1970, negative before.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// The attributes of a file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uxfs_stat_t {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Number of names.
    pub nlink: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major number of a device.
    pub rdev_major: u32,
    /// Minor number of a device.
    pub rdev_minor: u32,
    /// Bytes in a block.
    pub blksize: u32,
    /// Last access.
    pub atime: uxfs_time,
    /// Last change of content.
    pub mtime: uxfs_time,
    /// Last change of the inode.
    pub ctime: uxfs_time,
    /// Creation.
    pub btime: uxfs_time,
}

pub(crate) fn stat_of(meta: &Metadata) -> uxfs_stat_t {
    let stat = meta.stat();
    let time = |stamp: Timestamp| uxfs_time { sec: stamp.sec, nsec: stamp.nsec };
    uxfs_stat_t {
        ino: meta.ino(),
        size: meta.len(),
        blocks: meta.blocks(),
        nlink: meta.nlink(),
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev_major: meta.rdev().0,
        rdev_minor: meta.rdev().1,
        blksize: u32::try_from(meta.blksize()).unwrap_or(0),
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        btime: time(stat.crtime),
    }
}

/// Runs a call that concerns one path.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
unsafe fn on_path(
    volume: *const uxfs_volume,
    name: *const c_char,
    f: impl FnOnce(&Volume, &Path) -> Result<(), Failure>,
) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| unsafe { f(&handle(volume)?.0, path(name)?) })
}

/// Runs a call that concerns two paths.
///
/// # Safety
/// `volume` is an open handle; the others are strings that end in a NUL.
unsafe fn on_paths(
    volume: *const uxfs_volume,
    from: *const c_char,
    to: *const c_char,
    f: impl FnOnce(&Volume, &Path, &Path) -> Result<(), Failure>,
) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| unsafe { f(&handle(volume)?.0, path(from)?, path(to)?) })
}

/// The attributes of a file; a symbolic link is followed.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL; `stat` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_stat(
    volume: *const uxfs_volume,
    name: *const c_char,
    stat: *mut uxfs_stat_t,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let meta = volume.0.metadata(name)?;
        // SAFETY: by this function's contract.
        unsafe { put(stat, stat_of(&meta)) }
    })
}

/// The attributes of a file; a symbolic link is not followed.
///
/// # Safety
/// As `uxfs_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_lstat(
    volume: *const uxfs_volume,
    name: *const c_char,
    stat: *mut uxfs_stat_t,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let meta = volume.0.symlink_metadata(name)?;
        // SAFETY: by this function's contract.
        unsafe { put(stat, stat_of(&meta)) }
    })
}

/// Creates a directory; `mode` holds its permissions before the umask 022.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_mkdir(
    volume: *const uxfs_volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    // SAFETY: by this function's contract.
    unsafe {
        on_path(volume, name, |volume, name| {
            Ok(volume.create_dir_with_mode(name, (mode & 0o7777) as u16)?)
        })
    }
}

/// Removes a name of a file that is not a directory.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_unlink(volume: *const uxfs_volume, name: *const c_char) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_path(volume, name, |volume, name| Ok(volume.remove_file(name)?)) }
}

/// Removes an empty directory.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_rmdir(volume: *const uxfs_volume, name: *const c_char) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_path(volume, name, |volume, name| Ok(volume.remove_dir(name)?)) }
}

/// Removes a directory with everything in it.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_remove_tree(volume: *const uxfs_volume, name: *const c_char) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_path(volume, name, |volume, name| Ok(volume.remove_dir_all(name)?)) }
}

/// Creates a directory and those above it that do not exist.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_mkdirs(volume: *const uxfs_volume, name: *const c_char) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_path(volume, name, |volume, name| Ok(volume.create_dir_all(name)?)) }
}

/// Gives the file `from` the name `to`; an existing file is replaced.
///
/// # Safety
/// `volume` is an open handle; the others are strings that end in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_rename(
    volume: *const uxfs_volume,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_paths(volume, from, to, |volume, from, to| Ok(volume.rename(from, to)?)) }
}

/// Gives the file `from` one more name `to`.
///
/// # Safety
/// `volume` is an open handle; the others are strings that end in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_link(
    volume: *const uxfs_volume,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_paths(volume, from, to, |volume, from, to| Ok(volume.hard_link(from, to)?)) }
}

/// Creates a symbolic link at `to` that leads to `from`.
///
/// # Safety
/// `volume` is an open handle; the others are strings that end in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_symlink(
    volume: *const uxfs_volume,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { on_paths(volume, from, to, |volume, from, to| Ok(volume.symlink(from, to)?)) }
}

/// The target of a symbolic link, without a NUL. Returns its number of bytes; a buffer that is too
/// short is -ERANGE, and `len` 0 only asks for the number.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL; `buffer` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_readlink(
    volume: *const uxfs_volume,
    name: *const c_char,
    buffer: *mut u8,
    len: usize,
) -> i64 {
    call(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let target = volume.0.read_link(name)?;
        // SAFETY: by this function's contract.
        unsafe { fill(buffer, len, target.as_os_str().as_bytes()) }
    })
}

/// Changes the permissions of a file.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_chmod(
    volume: *const uxfs_volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    // SAFETY: by this function's contract.
    unsafe {
        on_path(volume, name, |volume, name| {
            Ok(volume.set_permissions(name, Permissions::from_mode(mode))?)
        })
    }
}

/// Changes owner and group of a file; `UINT32_MAX` keeps one. A symbolic link is followed.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_chown(
    volume: *const uxfs_volume,
    name: *const c_char,
    uid: u32,
    gid: u32,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let given = |id| (id != u32::MAX).then_some(id);
        Ok(volume.0.chown(name, given(uid), given(gid), true)?)
    })
}

/// Sets the times of access and modification. A symbolic link is followed.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_utimes(
    volume: *const uxfs_volume,
    name: *const c_char,
    atime: uxfs_time,
    mtime: uxfs_time,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let stamp = |time: uxfs_time| match time.nsec {
            0..1_000_000_000 => Ok(Timestamp { sec: time.sec, nsec: time.nsec }),
            _ => Err(Failure::new(22, "nanoseconds of a second or more")),
        };
        let times = FileTimes::stamps(Some(stamp(atime)?), Some(stamp(mtime)?));
        Ok(volume.0.set_times(name, times, true)?)
    })
}

/// The value of an extended attribute, whose name has its prefix (`user.color`). Returns its number of
/// bytes; a buffer that is too short is -ERANGE, and `len` 0 only asks for the number.
///
/// # Safety
/// `volume` is an open handle; `name` and `attribute` are strings that end in a NUL; `buffer` leads to
/// `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_getxattr(
    volume: *const uxfs_volume,
    name: *const c_char,
    attribute: *const c_char,
    buffer: *mut u8,
    len: usize,
) -> i64 {
    call(|| {
        // SAFETY: by this function's contract.
        let (volume, name, attribute) = unsafe { (handle(volume)?, path(name)?, path(attribute)?) };
        let value = volume.0.get_xattr(name, attribute.as_os_str().as_bytes(), true)?;
        // SAFETY: by this function's contract.
        unsafe { fill(buffer, len, &value) }
    })
}

/// Sets an extended attribute: creates or replaces it.
///
/// # Safety
/// `volume` is an open handle; `name` and `attribute` are strings that end in a NUL; `value` leads to
/// `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_setxattr(
    volume: *const uxfs_volume,
    name: *const c_char,
    attribute: *const c_char,
    value: *const u8,
    len: usize,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name, attribute) = unsafe { (handle(volume)?, path(name)?, path(attribute)?) };
        // SAFETY: by this function's contract.
        let value = unsafe { bytes(value, len) }?;
        let attribute = attribute.as_os_str().as_bytes();
        Ok(volume.0.set_xattr(name, attribute, value, XattrMode::Any, true)?)
    })
}

/// Removes an extended attribute.
///
/// # Safety
/// `volume` is an open handle; `name` and `attribute` are strings that end in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_removexattr(
    volume: *const uxfs_volume,
    name: *const c_char,
    attribute: *const c_char,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, name, attribute) = unsafe { (handle(volume)?, path(name)?, path(attribute)?) };
        Ok(volume.0.remove_xattr(name, attribute.as_os_str().as_bytes(), true)?)
    })
}

/// The names of all extended attributes, each followed by a NUL. Returns the number of bytes; a buffer
/// that is too short is -ERANGE, and `len` 0 only asks for the number.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL; `buffer` leads to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_listxattr(
    volume: *const uxfs_volume,
    name: *const c_char,
    buffer: *mut u8,
    len: usize,
) -> i64 {
    call(|| {
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let mut names = Vec::new();
        for name in volume.0.list_xattrs(name, true)? {
            names.extend_from_slice(&name);
            names.push(0);
        }
        // SAFETY: by this function's contract.
        unsafe { fill(buffer, len, &names) }
    })
}
