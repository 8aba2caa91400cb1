//! Directories read entry by entry.

#![expect(non_camel_case_types, reason = "names of C")]

use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use uxfs::files::ReadDir;

use crate::error::{call, call_only};
use crate::pointer::{handle, path, put, wanted};
use crate::volume::uxfs_volume;

/// A directory that is being read.
pub struct uxfs_dir(Mutex<ReadDir>);

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uxfs_dirent {
    /// Inode number.
    pub ino: u64,
    /// Type bits, as in `st_mode`.
    pub r#type: u32,
    /// Bytes in the name.
    pub name_len: u32,
    /// The name, followed by a NUL.
    pub name: [u8; 256],
}

/// Opens a directory for reading. `*dir` is then a handle for `uxfs_close_dir`.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL; `dir` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_open_dir(
    volume: *const uxfs_volume,
    name: *const c_char,
    dir: *mut *mut uxfs_dir,
) -> i32 {
    call_only(|| {
        wanted(dir)?;
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let opened = Box::new(uxfs_dir(Mutex::new(volume.0.read_dir(name)?)));
        // SAFETY: by this function's contract.
        unsafe { put(dir, Box::into_raw(opened)) }
    })
}

/// The next entry, without `.` and `..`. Returns 1, or 0 at the end.
///
/// # Safety
/// `dir` is an open handle; `entry` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_read_dir(dir: *const uxfs_dir, entry: *mut uxfs_dirent) -> i32 {
    let found = call(|| {
        wanted(entry)?;
        // SAFETY: by this function's contract.
        let dir = unsafe { handle(dir) }?;
        let next = dir.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(found) = next.transpose()? else { return Ok(0) };
        let bytes = found.file_name().as_bytes();
        let mut name = [0; 256];
        // A name has at most 255 bytes.
        let len = bytes.len().min(255);
        name[..len].copy_from_slice(&bytes[..len]);
        let r#type = found.file_type()?.bits().into();
        // SAFETY: by this function's contract.
        unsafe {
            put(entry, uxfs_dirent { ino: found.ino(), r#type, name_len: len as u32, name })
        }?;
        Ok(1)
    });
    // An errno fits.
    found as i32
}

/// Closes a directory and frees its handle. A null pointer does nothing.
///
/// # Safety
/// `dir` is null or a handle of `uxfs_open_dir` that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_close_dir(dir: *mut uxfs_dir) {
    if !dir.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and the contract says that it is taken back once.
        let dir = unsafe { Box::from_raw(dir) };
        let _no_result = call(|| {
            drop(dir);
            Ok(0)
        });
    }
}
