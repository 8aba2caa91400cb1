//! Standard input and output as files, without Rust's buffers.

use std::fs::File;
use std::io;

/// Standard input. What Rust's own handle has read ahead is not seen.
///
/// # Errors
/// The host's, for example if it is closed.
pub fn stdin() -> io::Result<File> {
    #[cfg(not(windows))]
    let owned = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned();
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdin()).try_clone_to_owned();
    owned.map(File::from)
}

/// Standard output. What is in the buffer of Rust's own handle comes later, unless that is flushed
/// before.
///
/// # Errors
/// The host's, for example if it is closed.
pub fn stdout() -> io::Result<File> {
    #[cfg(not(windows))]
    let owned = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
    owned.map(File::from)
}
