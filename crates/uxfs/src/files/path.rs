//! Paths as bytes: the names on a volume are bytes, whatever the host's paths are.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

/// The bytes of a path, with slashes between names.
#[cfg(unix)]
pub(super) fn bytes_of(path: &Path) -> Cow<'_, [u8]> {
    use std::os::unix::ffi::OsStrExt;
    Cow::Borrowed(path.as_os_str().as_bytes())
}

/// The bytes of a path, with slashes between names.
#[cfg(not(unix))]
pub(super) fn bytes_of(path: &Path) -> Cow<'_, [u8]> {
    Cow::Owned(path.to_string_lossy().replace('\\', "/").into_bytes())
}

/// A name or link target as the host's string.
#[cfg(unix)]
pub(super) fn os_string(bytes: Vec<u8>) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(bytes)
}

/// A name or link target as the host's string; bytes that are not UTF-8 are replaced.
#[cfg(not(unix))]
pub(super) fn os_string(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}
