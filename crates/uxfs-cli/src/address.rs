//! Where an image lies: at a path of this machine, or elsewhere, at an address `SCHEME://…`.
//!
//! 1. An argument is an address if it begins with one of the schemes and `://`. A file of this machine with
//!    such a name is written `./nbd://…`.
//! 2. In an address with a path in the image, the first `:/` behind the scheme's `://` separates them:
//!    `nbd://host:10809/export:/etc/passwd`. An address that has to contain `:/` writes it as `%3A/`.
//! 3. Each command opens its image here, so each takes an address. What an image file is made of, such as
//!    qcow2 or VHD, concerns files only: a device elsewhere is what its server presents.
//! 4. A device elsewhere keeps its length: nothing creates, truncates or extends it.
//!
//! Used by [`crate::place`], [`crate::image`] and the commands that open a device themselves.

mod end;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::disk::{BlockDev, OpenMode};
use uxfs::volume::{self, Location};
use uxfs_host::OsStrExt;

pub(crate) use end::{End, end};

use crate::session::{Failure, Result};

/// Opens the whole device at an address, for writing if the second argument is true.
type Opener = fn(&Path, bool) -> io::Result<Arc<dyn BlockDev>>;

/// Writes an address so that it holds in every directory.
type Absolute = fn(&Path) -> io::Result<PathBuf>;

/// A kind of address.
struct Scheme {
    name: &'static str,
    /// The feature of this build that brings it.
    feature: &'static str,
    /// `None` in a build without the feature.
    way: Option<(Opener, Absolute)>,
}

const fn scheme(
    name: &'static str,
    feature: &'static str,
    way: Option<(Opener, Absolute)>,
) -> Scheme {
    Scheme { name, feature, way }
}

/// Network block devices.
#[cfg(all(feature = "nbd", target_os = "linux"))]
const NBD: Option<(Opener, Absolute)> = Some((nbd::open, nbd::absolute));
#[cfg(not(all(feature = "nbd", target_os = "linux")))]
const NBD: Option<(Opener, Absolute)> = None;

/// Volumes on object storage.
#[cfg(feature = "remote")]
const REMOTE: Option<(Opener, Absolute)> = Some((crate::remote::open, crate::remote::absolute));
#[cfg(not(feature = "remote"))]
const REMOTE: Option<(Opener, Absolute)> = None;

const SCHEMES: &[Scheme] = &[
    scheme("nbd", "nbd", NBD),
    scheme("nbds", "nbd", NBD),
    scheme("nbd+unix", "nbd", NBD),
    scheme("nbds+unix", "nbd", NBD),
    scheme("s3", "remote", REMOTE),
    scheme("gs", "remote", REMOTE),
    scheme("az", "remote", REMOTE),
    scheme("file", "remote", REMOTE),
];

impl Scheme {
    fn way(&self) -> io::Result<(Opener, Absolute)> {
        self.way.ok_or_else(|| {
            let (name, feature) = (self.name, self.feature);
            let text = format!(
                "this build has no {name}:// addresses: build uxfs with the feature '{feature}'"
            );
            io::Error::new(io::ErrorKind::Unsupported, text)
        })
    }
}

/// Network block devices.
#[cfg(all(feature = "nbd", target_os = "linux"))]
mod nbd {
    use super::{Arc, BlockDev, Path, PathBuf, io};
    use uxfs_nbd::{ClientOptions, NbdDev, Uri};

    fn parse(address: &Path) -> io::Result<Uri> {
        let text = address.to_str().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "not UTF-8: write such bytes as %XX")
        })?;
        text.parse()
    }

    pub(super) fn open(address: &Path, write: bool) -> io::Result<Arc<dyn BlockDev>> {
        Ok(Arc::new(NbdDev::open(parse(address)?, ClientOptions::default(), write)?))
    }

    pub(super) fn absolute(address: &Path) -> io::Result<PathBuf> {
        let here = std::env::current_dir()?;
        Ok(parse(address)?.absolute(&here).to_string().into())
    }
}

/// The scheme of an argument that is an address.
fn scheme_of(arg: &[u8]) -> Option<&'static Scheme> {
    let name = end::scheme(arg)?;
    SCHEMES.iter().find(|scheme| scheme.name == name)
}

/// Is the image at an address?
pub(crate) fn is(image: &Path) -> bool {
    scheme_of(image.as_os_str().as_bytes()).is_some()
}

/// The store in which a volume lies that can be written, by its address; `None` if the image lies elsewhere,
/// or the address names one checkpoint.
#[cfg(target_os = "linux")]
pub(crate) fn store_of(image: &Path) -> Option<&str> {
    let text = image.to_str()?;
    let is_store = scheme_of(text.as_bytes())?.feature == "remote";
    // A number behind the last @ is that of a checkpoint, which stays as it is.
    let number = text.rsplit_once('@').map(|(_, number)| number);
    let is_checkpoint = number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    (is_store && !is_checkpoint).then_some(text)
}

/// An address that names one checkpoint, the last one if the given one names none, and names it for ever. Other
/// images are returned as they are.
///
/// # Errors
/// Those of the store.
pub(crate) fn pinned(image: &Path) -> io::Result<PathBuf> {
    match scheme_of(image.as_os_str().as_bytes()) {
        Some(scheme) if scheme.feature == "remote" => pin(image),
        _ => Ok(image.to_owned()),
    }
}

#[cfg(feature = "remote")]
use crate::remote::{differing as differing_there, pinned as pin};

#[cfg(not(feature = "remote"))]
fn pin(image: &Path) -> io::Result<PathBuf> {
    scheme_of(image.as_os_str().as_bytes()).map_or(Ok(()), |scheme| scheme.way().map(drop))?;
    Ok(image.to_owned())
}

#[cfg(not(feature = "remote"))]
fn differing_there(_: &Path, _: &Path) -> io::Result<Option<Vec<(u64, u64)>>> {
    Ok(None)
}

/// The runs of blocks of 4 KiB in which the images at two addresses may differ; `None` if that is not known.
///
/// # Errors
/// Those of the store.
pub(crate) fn differing(one: &Path, other: &Path) -> io::Result<Option<Vec<(u64, u64)>>> {
    let is_store = |image: &Path| {
        scheme_of(image.as_os_str().as_bytes()).is_some_and(|scheme| scheme.feature == "remote")
    };
    if is_store(one) && is_store(other) { differing_there(one, other) } else { Ok(None) }
}

/// Refuses an address that can be no base of forks: only checkpoints stay as they are.
///
/// # Errors
/// If it is one. The text says what to do.
pub(crate) fn refuse_as_base(image: &Path) -> Result<()> {
    match scheme_of(image.as_os_str().as_bytes()) {
        Some(scheme) if scheme.feature != "remote" => {
            Err(Failure::new(image, "can change at any time: copy it into a file first"))
        }
        _ => Ok(()),
    }
}

/// What makes two arguments name the same image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Device and inode number of a file.
    File((u64, u64)),
    /// The text of an address.
    Address(PathBuf),
}

/// The identity of an image.
///
/// # Errors
/// Those of looking the file up; an address is not looked up.
pub(crate) fn identity(image: &Path) -> io::Result<Identity> {
    if is(image) {
        return Ok(Identity::Address(image.to_owned()));
    }
    let meta = std::fs::metadata(image)?;
    Ok(Identity::File(uxfs_host::id_of(image, &meta)))
}

/// Opens the device that holds a volume, at a path or at an address.
///
/// # Errors
/// Those of [`volume::open`]; [`io::ErrorKind::Unsupported`] for an address that this build does not know;
/// those of the server of a device.
pub(crate) fn open(
    image: &Path,
    mode: OpenMode,
    location: &Location,
) -> io::Result<Arc<dyn BlockDev>> {
    let Some(scheme) = scheme_of(image.as_os_str().as_bytes()) else {
        return volume::open_over(image, mode, location, &|base| {
            open(base, OpenMode::Read, &Location::whole())
        });
    };
    let (open, _) = scheme.way()?;
    let part = volume::part(open(image, mode != OpenMode::Read)?, location)?;
    match mode {
        OpenMode::Create(least) if part.len() < least => {
            let text = format!("has {} bytes, but {least} are needed", part.len());
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(part),
    }
}

/// The image by a name that holds in every directory, for a process that leaves this one.
///
/// # Errors
/// Those of looking the file up; an address that is not well formed.
pub(crate) fn absolute(image: &Path) -> io::Result<PathBuf> {
    match scheme_of(image.as_os_str().as_bytes()) {
        Some(scheme) => (scheme.way()?.1)(image),
        None => image.canonicalize(),
    }
}

/// Refuses an address for a command that makes or replaces image files.
///
/// # Errors
/// If it is an address. The text says what does the same there.
pub(crate) fn refuse(image: &Path, instead: &str) -> Result<()> {
    match is(image) {
        true => Err(Failure::new(image, format!("is an address, and this takes files: {instead}"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_build_lacks_is_named_with_its_feature() {
        let error = scheme("s3", "remote", None).way().err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("s3://") && text.ends_with("feature 'remote'"), "{text}");
    }
}
