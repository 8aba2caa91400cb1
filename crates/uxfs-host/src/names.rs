//! Names and paths as bytes. Names on a volume are bytes; so are the host's on Unix systems. Windows
//! has Unicode.
//!
//! 1. On Windows a name is its bytes in UTF-8. Bytes that are no UTF-8 name nothing there: they are
//!    shown with replacement characters, and a name of the host is never made of them.

use std::borrow::Cow;
use std::ffi::OsStr;

#[cfg(not(windows))]
pub use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[cfg(windows)]
pub use windows::{OsStrExt, OsStringExt};

#[cfg(windows)]
mod windows {
    use std::ffi::{OsStr, OsString};

    /// The bytes of a name; see the trait of the same name on Unix systems.
    pub trait OsStrExt {
        /// The bytes, which are UTF-8 if the name is Unicode.
        fn as_bytes(&self) -> &[u8];
    }

    impl OsStrExt for OsStr {
        fn as_bytes(&self) -> &[u8] {
            self.as_encoded_bytes()
        }
    }

    /// Names from bytes and back; see the trait of the same name on Unix systems.
    pub trait OsStringExt {
        /// A name of these bytes. What is no UTF-8 is replaced.
        fn from_vec(bytes: Vec<u8>) -> Self;
        /// The bytes.
        fn into_vec(self) -> Vec<u8>;
    }

    impl OsStringExt for OsString {
        fn from_vec(bytes: Vec<u8>) -> Self {
            match String::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into(),
            }
        }

        fn into_vec(self) -> Vec<u8> {
            self.into_encoded_bytes()
        }
    }
}

/// Bytes as a name or path of the host.
#[cfg(not(windows))]
pub fn os_str(bytes: &[u8]) -> Cow<'_, OsStr> {
    Cow::Borrowed(OsStr::from_bytes(bytes))
}

/// Bytes as a name or path of the host. What is no UTF-8 is replaced.
#[cfg(windows)]
pub fn os_str(bytes: &[u8]) -> Cow<'_, OsStr> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(OsStr::new(text)),
        Err(_) => Cow::Owned(String::from_utf8_lossy(bytes).into_owned().into()),
    }
}

/// Names that mean devices on Windows, whatever follows them behind a dot.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

/// A name from a volume or an archive as the host's name of one file, if the host can have it: one
/// that leads nowhere else and reads back as the same bytes.
///
/// # Errors
/// What keeps the host from having it.
pub fn plain_name(name: &[u8]) -> Result<Cow<'_, OsStr>, &'static str> {
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err("is not the name of a file");
    }
    match cfg!(windows) {
        true => windows_name(name).map(|text| Cow::Borrowed(OsStr::new(text))),
        false => Ok(os_str(name)),
    }
}

/// The rules of Windows for names. A name with a backslash or a colon would lead to another
/// directory, drive or stream, and a trailing dot or space vanishes.
fn windows_name(name: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(name).map_err(|_| "is no UTF-8, as names on Windows are")?;
    if text.chars().any(|c| c < ' ' || r#"\:<>"|?*"#.contains(c)) {
        return Err("holds a character that no name on Windows has");
    }
    if text.ends_with(['.', ' ']) {
        return Err("ends with a dot or a space, which Windows drops");
    }
    let stem = text.split('.').next().unwrap_or(text).trim_end().to_ascii_uppercase();
    let numbered = |port: &str| {
        let rest = stem.strip_prefix(port);
        rest.is_some_and(|rest| {
            rest.chars().count() == 1 && rest.chars().all(|c| "0123456789¹²³".contains(c))
        })
    };
    if DEVICES.contains(&stem.as_str()) || numbered("COM") || numbered("LPT") {
        return Err("means a device on Windows");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert!(plain_name(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert_eq!(plain_name(b"a b.txt").unwrap(), OsStr::new("a b.txt"));
    }

    #[test]
    fn windows_refuses_what_it_cannot_have() {
        let bad: [&[u8]; 14] = [
            b"..\\evil",
            b"c:x",
            b"file:stream",
            b"a?",
            b"tail.",
            b"tail ",
            b"con",
            b"NUL.txt",
            b"Aux .x",
            b"com1",
            b"LPT9.log",
            b"COM\xc2\xb9",
            b"\xff",
            b"a\nb",
        ];
        for bad in bad {
            assert!(windows_name(bad).is_err(), "{}", bad.escape_ascii());
        }
        for good in ["console", "com", "com10", "a.b", ".hidden", "ä", "LPTx"] {
            assert_eq!(windows_name(good.as_bytes()), Ok(good));
        }
    }
}
