//! libuxfs: the library by path, for C. `include/uxfs.h` is made from this crate by cbindgen.
//!
//! This is the one crate of the library that has `unsafe` code, because its callers pass raw pointers.
//! What makes it sound:
//!
//! 1. A function's documentation says what each pointer must be. Null is refused with EFAULT wherever a
//!    pointer is needed, so only dangling or foreign pointers are the caller's fault.
//! 2. A handle is a `Box` that `uxfs_open` and the other openers leak, and that its close function takes
//!    back once. Other functions only borrow it, shared. The types behind handles are `Sync`
//!    ([`handles_are_shared`]), so threads may use one handle at once.
//! 3. Strings are read up to their NUL by `CStr`; buffers are slices of the length that the caller gave,
//!    at most `isize::MAX` bytes. Buffers to fill are written only through `ptr::copy`, never read,
//!    except those of `uxfs_pread`, which the caller has initialised.
//! 4. No panic crosses the border: each call runs in `catch_unwind`, and a panic becomes EIO.
//! 5. The text of the last error belongs to its thread, and lives until the thread's next failing call or
//!    its end. Destructors of a thread may still call when its text is gone: it is empty for them.

mod dir;
mod error;
mod file;
mod names;
mod pointer;
mod volume;

pub use dir::*;
pub use error::*;
pub use file::*;
pub use names::*;
pub use volume::*;

/// Invariant 2 of the head.
const _: fn() = handles_are_shared;
fn handles_are_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<volume::uxfs_volume>();
    shared::<file::uxfs_file>();
    shared::<dir::uxfs_dir>();
}
