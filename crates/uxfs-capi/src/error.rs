//! Errors: a negative errno as the result, and a text for the thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use uxfs::PathError;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call fails: errno and text.
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

/// The text of this thread's last error: what failed, on which path, and why. It ends in a NUL, and
/// stays until the thread's next failing call. Empty if no call failed yet, and in a thread that is ending.
#[unsafe(no_mangle)]
pub extern "C" fn uxfs_last_error() -> *const c_char {
    // A destructor of the thread may call when the text is gone.
    LAST.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs a call; an error or a panic becomes a negative errno.
pub(crate) fn call(f: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(5, "a panic inside of libuxfs, which is a bug"),
    };
    let text = CString::new(failure.text.replace('\0', "?")).unwrap_or_default();
    let _gone = LAST.try_with(|last| last.replace(text));
    -i64::from(failure.errno)
}

/// As [`call`], for calls without a result.
pub(crate) fn call_only(f: impl FnOnce() -> Result<(), Failure>) -> i32 {
    // An errno fits.
    call(|| f().map(|()| 0)) as i32
}
