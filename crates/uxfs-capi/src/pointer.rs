//! Pointers of the caller as references, strings and slices.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Failure;

const EFAULT: i32 = 14;

fn null(what: &str) -> Failure {
    Failure::new(EFAULT, format!("{what} is a null pointer"))
}

/// A handle.
///
/// # Safety
/// Null, or a handle that was opened and not closed, and that is not closed during `'a`.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: by the contract above; handles are only ever borrowed shared.
    unsafe { pointer.as_ref() }.ok_or_else(|| null("the handle"))
}

/// A path.
///
/// # Safety
/// Null, or a string that ends in a NUL and does not change during `'a`.
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path, Failure> {
    if pointer.is_null() {
        return Err(null("the path"));
    }
    // SAFETY: by the contract above.
    let text = unsafe { CStr::from_ptr(pointer) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Bytes to read from.
///
/// # Safety
/// `len` is 0, or the pointer is null or leads to `len` initialised bytes that do not change during
/// `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    check(pointer, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: not null and not too long, as was checked; the rest by the contract above.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Bytes to fill.
///
/// # Safety
/// `len` is 0, or the pointer is null or leads to `len` initialised bytes that no one else uses during
/// `'a`.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    check(pointer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null and not too long, as was checked; the rest by the contract above.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

fn check(pointer: *const u8, len: usize) -> Result<(), Failure> {
    if len > 0 && pointer.is_null() {
        return Err(null("the buffer"));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::new(EFAULT, "the buffer is too long"));
    }
    Ok(())
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// Null, or a place for a `T` that no one else uses.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null("the place for the result"));
    }
    // SAFETY: by the contract above. The place may be uninitialised: nothing is dropped there.
    unsafe { place.write(value) };
    Ok(())
}

/// Fails for a null place, before anything is done whose result would have no place.
pub(crate) fn wanted<T>(place: *mut T) -> Result<(), Failure> {
    if place.is_null() { Err(null("the place for the result")) } else { Ok(()) }
}

/// Copies bytes to a buffer of the caller, if it is long enough; a length of 0 only asks for the
/// number. Returns the number of bytes.
///
/// # Safety
/// `len` is 0, or the pointer is null or leads to `len` bytes that no one else uses.
pub(crate) unsafe fn fill(pointer: *mut u8, len: usize, from: &[u8]) -> Result<i64, Failure> {
    check(pointer, len)?;
    if len > 0 {
        if len < from.len() {
            let text = format!("the buffer has {len} bytes, but {} are needed", from.len());
            return Err(Failure::new(34, text));
        }
        // SAFETY: both are valid for this length, and a buffer of the caller's is not in `from`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer, from.len()) };
    }
    Ok(from.len() as i64)
}
