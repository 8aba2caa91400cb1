//! Paths on the command line: on the host, or inside an image.
//!
//! A path inside an image is written `IMAGE:/PATH`. An image elsewhere is written as an address
//! ([`crate::address`], which says where one ends). Host paths can contain colons too, so the first
//! `:/` that follows the path of an existing file or block device separates image and path. If no
//! `:/` does, and the whole argument names no file of the host, the first `:/` separates them, so
//! that a missing image is reported as such. To name a host path that would be parsed as an image,
//! write it so that no file precedes its `:/`, as in `./dir/../a:/b`. On Windows the colon of a drive
//! separates nothing.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use uxfs_host::{OsStrExt, OsStringExt, os_str};

use crate::address::{self, End};

/// A path on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the host; or the address of an image, without a path in it.
    Host(PathBuf),
    /// Inside an image.
    Image(Inside),
}

/// A path inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// The image.
    pub(crate) image: PathBuf,
    /// The path in it, beginning with a slash.
    pub(crate) path: Vec<u8>,
}

/// Is the path a regular file or a block device?
fn is_image(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() || uxfs_host::is_block_device(meta.file_type()))
}

impl Place {
    /// Parses an argument that is a path of the host or in an image.
    pub(crate) fn parse(arg: &OsStr) -> Self {
        let bytes = arg.as_bytes();
        match address::end(bytes) {
            Some(End::Colon(at)) => return Self::Image(Inside::split(bytes, at)),
            Some(End::Whole) => return Self::Host(PathBuf::from(arg)),
            None => {}
        }
        // On Windows `C:/` is a drive.
        let from =
            if cfg!(windows) && bytes.first().is_some_and(u8::is_ascii_alphabetic) { 2 } else { 0 };
        let splits = bytes.windows(2).enumerate().skip(from).filter(|(_, w)| w == b":/");
        let mut splits = splits.map(|(at, _)| at);
        let first = splits.clone().next();
        let found = splits.find(|at| *at > 0 && is_image(Path::new(&os_str(&bytes[..*at]))));
        let missing = first.filter(|at| *at > 0 && std::fs::symlink_metadata(arg).is_err());
        match found.or(missing) {
            Some(at) => Self::Image(Inside::split(bytes, at)),
            None => Self::Host(PathBuf::from(arg)),
        }
    }
}

impl Inside {
    fn split(bytes: &[u8], at: usize) -> Self {
        Self {
            image: PathBuf::from(OsString::from_vec(bytes[..at].to_vec())),
            path: bytes[at + 1..].to_vec(),
        }
    }

    /// Parses an argument that must be in an image. Without `:/` it names the image's root.
    pub(crate) fn parse(arg: &OsStr) -> Self {
        match Place::parse(arg) {
            Place::Image(inside) => inside,
            Place::Host(image) => Self { image, path: b"/".to_vec() },
        }
    }

    /// The path of an entry of this directory.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut path = self.path.clone();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Self { image: self.image.clone(), path }
    }

    /// The path as written on the command line.
    pub(crate) fn shown(&self) -> Vec<u8> {
        [self.image.as_os_str().as_bytes(), b":", &self.path].concat()
    }

    /// The last name of the path without trailing slashes; empty for the root.
    pub(crate) fn base(&self) -> &[u8] {
        base(&self.path)
    }

    /// The path without its last name.
    pub(crate) fn parent(&self) -> &[u8] {
        let trimmed = trim(&self.path);
        match trimmed.iter().rposition(|b| *b == b'/') {
            Some(at) => &trimmed[..=at],
            None => b"/",
        }
    }
}

/// The path without trailing slashes.
pub(crate) fn trim(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// The last name of a path.
pub(crate) fn base(path: &[u8]) -> &[u8] {
    let trimmed = trim(path);
    match trimmed.iter().rposition(|b| *b == b'/') {
        Some(at) => &trimmed[at + 1..],
        None => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(image: &str, path: &str) -> Place {
        Place::Image(Inside { image: image.into(), path: path.as_bytes().to_vec() })
    }

    #[test]
    fn the_first_existing_file_is_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("a"), "").unwrap();
        std::fs::write(at("b:"), "").unwrap();
        std::fs::create_dir(at("d:")).unwrap();
        std::fs::write(at("d:/x:"), "").unwrap();
        let parse = |text: String| Place::parse(OsStr::new(&text));
        assert_eq!(parse(at("a:/x:/y")), inside(&at("a"), "/x:/y"));
        assert_eq!(parse(at("b::/x")), inside(&at("b:"), "/x"));
        assert_eq!(parse(at("d:/x:")), Place::Host(at("d:/x:").into()));
        assert_eq!(parse(at("d:/x::/y")), inside(&at("d:/x:"), "/y"));
        assert_eq!(parse(at("none:/y")), inside(&at("none"), "/y"));
        assert_eq!(parse(at("none")), Place::Host(at("none").into()));
        assert_eq!(Inside::parse(OsStr::new(&at("a"))).path, b"/");
    }

    #[test]
    fn an_address_is_an_image() {
        let address = "nbd+unix:///v?socket=/run/x.sock";
        let parse = |text: &str| Place::parse(OsStr::new(text));
        assert_eq!(parse(&format!("{address}:/two:/x")), inside(address, "/two:/x"));
        assert_eq!(parse(address), Place::Host(address.into()));
        assert_eq!(Inside::parse(OsStr::new(address)).shown(), format!("{address}:/").into_bytes());
    }

    #[test]
    fn base_parent_and_join_handle_slashes() {
        let inside = |path: &str| Inside { image: "i".into(), path: path.as_bytes().to_vec() };
        assert_eq!(inside("/a/b//").base(), b"b");
        assert_eq!(inside("/a/b//").parent(), b"/a/");
        assert_eq!(inside("//").base(), b"");
        assert_eq!(inside("/a").parent(), b"/");
        assert_eq!(inside("/a").join(b"x").path, b"/a/x");
    }
}
