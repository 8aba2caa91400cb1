//! Open files.

#![expect(non_camel_case_types, reason = "names of C")]

use std::ffi::c_char;

use uxfs::{File, FileOptions};

use crate::error::{Failure, call, call_only};
use crate::names::{stat_of, uxfs_stat_t};
use crate::pointer::{bytes, bytes_mut, handle, path, put, wanted};
use crate::volume::uxfs_volume;

/// An open file.
pub struct uxfs_file(pub(crate) File);

/// Open for reading.
pub const UXFS_READ: u32 = 1;
/// Open for writing.
pub const UXFS_WRITE: u32 = 2;
/// Open for writing at the end of the file.
pub const UXFS_APPEND: u32 = 4;
/// Create the file if there is none.
pub const UXFS_CREATE: u32 = 8;
/// Create the file, and fail with -EEXIST if there is one.
pub const UXFS_EXCL: u32 = 16;
/// Empty an existing file.
pub const UXFS_TRUNC: u32 = 32;

/// Opens a file with flags `UXFS_READ`, `UXFS_WRITE`, `UXFS_APPEND`, `UXFS_CREATE`, `UXFS_EXCL`,
/// `UXFS_TRUNC`; `mode` holds the permissions of a new file before the umask 022. `*file` is then a
/// handle for `uxfs_close_file`.
///
/// One of READ, WRITE and APPEND is needed, else -EINVAL. Unlike open(2), it also refuses
/// CREATE, EXCL or TRUNC without WRITE or APPEND, and APPEND with TRUNC but without EXCL.
///
/// # Safety
/// `volume` is an open handle; `name` a string that ends in a NUL; `file` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_open_file(
    volume: *const uxfs_volume,
    name: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut uxfs_file,
) -> i32 {
    call_only(|| {
        wanted(file)?;
        let known = UXFS_READ | UXFS_WRITE | UXFS_APPEND | UXFS_CREATE | UXFS_EXCL | UXFS_TRUNC;
        if flags & !known != 0 {
            return Err(Failure::new(22, format!("unknown flags {flags:#x}")));
        }
        let has = |flag| flags & flag != 0;
        let options = FileOptions::new()
            .read(has(UXFS_READ))
            .write(has(UXFS_WRITE))
            .append(has(UXFS_APPEND))
            .create(has(UXFS_CREATE))
            .create_new(has(UXFS_EXCL))
            .truncate(has(UXFS_TRUNC))
            .mode((mode & 0o7777) as u16);
        // SAFETY: by this function's contract.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        let opened = Box::new(uxfs_file(volume.0.open_file_with(name, &options)?));
        // SAFETY: by this function's contract.
        unsafe { put(file, Box::into_raw(opened)) }
    })
}

/// Closes a file and frees its handle. It makes nothing durable: see `uxfs_fsync`. A null pointer does
/// nothing.
///
/// # Safety
/// `file` is null or a handle of `uxfs_open_file` that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_close_file(file: *mut uxfs_file) {
    if !file.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and the contract says that it is taken back once.
        let file = unsafe { Box::from_raw(file) };
        let _no_result = call(|| {
            drop(file);
            Ok(0)
        });
    }
}

/// Reads up to `len` bytes at `offset`; fewer only at the end of the file. Returns their number.
///
/// # Safety
/// `file` is an open handle; `buffer` leads to `len` initialised bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_pread(
    file: *const uxfs_file,
    buffer: *mut u8,
    len: usize,
    offset: u64,
) -> i64 {
    call(|| {
        // SAFETY: by this function's contract.
        let (file, buffer) = unsafe { (handle(file)?, bytes_mut(buffer, len)?) };
        Ok(file.0.read_at(buffer, offset)? as i64)
    })
}

/// Writes all `len` bytes at `offset`, or at the end of a file opened with `UXFS_APPEND`. Returns
/// `len`; a call that fails may have written a part.
///
/// # Safety
/// `file` is an open handle; `data` leads to `len` bytes that do not change meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_pwrite(
    file: *const uxfs_file,
    data: *const u8,
    len: usize,
    offset: u64,
) -> i64 {
    call(|| {
        // SAFETY: by this function's contract.
        let (file, data) = unsafe { (handle(file)?, bytes(data, len)?) };
        file.0.write_all_at(data, offset)?;
        Ok(len as i64)
    })
}

/// Makes a file durable: data, metadata and name.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_fsync(file: *const uxfs_file) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| Ok(unsafe { handle(file) }?.0.sync_all()?))
}

/// Makes a file's data durable, with the metadata needed to read it.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_fdatasync(file: *const uxfs_file) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| Ok(unsafe { handle(file) }?.0.sync_data()?))
}

/// Changes the length of a file.
///
/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_ftruncate(file: *const uxfs_file, len: u64) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| Ok(unsafe { handle(file) }?.0.set_len(len)?))
}

/// The attributes of an open file.
///
/// # Safety
/// `file` is an open handle; `stat` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_fstat(file: *const uxfs_file, stat: *mut uxfs_stat_t) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let meta = unsafe { handle(file) }?.0.metadata()?;
        // SAFETY: by this function's contract.
        unsafe { put(stat, stat_of(&meta)) }
    })
}
