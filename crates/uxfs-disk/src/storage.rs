//! Opening what has bytes at offsets: a regular file or a block device. Anything else is refused
//! before it is opened, and once more after: what lies at a path can change in between.
//!
//! To open a FIFO waits for its other end, and to open some character devices has effects of its own.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens `path` as `options` ask for, with `flags` besides.
///
/// # Errors
/// Those of opening; [`io::ErrorKind::InvalidInput`] if it is neither a regular file nor a block
/// device.
pub(crate) fn open(path: &Path, options: &mut OpenOptions, flags: OFlags) -> io::Result<File> {
    let there = std::fs::metadata(path).map(|meta| meta.file_type());
    if let Ok(kind) = there {
        check(kind)?;
    }
    let device = there.is_ok_and(|kind| kind.is_block_device());
    // Of a block device it would say that its medium need not be there.
    let patience = if device { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | patience | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type())?;
    if !device {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// # Errors
/// [`io::ErrorKind::InvalidInput`], saying what it is.
fn check(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() || kind.is_block_device() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        _ => "a file of an unknown type",
    };
    let problem = format!("is {what}; give a regular file or a block device");
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::{FileDev, OpenMode};

    /// None of these may be waited for: a FIFO has no other end here.
    #[test]
    fn what_has_no_offsets_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let fifo = path("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        std::os::unix::fs::symlink(&fifo, path("link")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let refused = [
            (fifo, "is a FIFO"),
            (path("link"), "is a FIFO"),
            (path("socket"), "is a socket"),
            (dir.path().to_owned(), "is a directory"),
            ("/dev/null".into(), "is a character device"),
            ("/dev/tty".into(), "is a character device"),
        ];
        for (path, words) in refused {
            for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create(1 << 20)] {
                let error = FileDev::open(&path, mode).err().unwrap();
                assert_eq!(
                    error.kind(),
                    io::ErrorKind::InvalidInput,
                    "{}: {error}",
                    path.display()
                );
                assert!(error.to_string().starts_with(words), "{}: {error}", path.display());
            }
        }
    }

    /// A file that is opened waits where it should: the flag is only for opening.
    #[test]
    fn a_regular_file_is_opened_as_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let file = open(&path, OpenOptions::new().read(true), OFlags::empty()).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        let missing =
            open(&dir.path().join("none"), OpenOptions::new().read(true), OFlags::empty());
        assert_eq!(missing.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
