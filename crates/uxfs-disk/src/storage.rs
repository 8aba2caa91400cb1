//! Opens files that are addressed by byte offsets: regular files and block devices. Other types are
//! refused before they are opened, and once more afterwards, because the path may change in
//! between.
//!
//! Opening a FIFO blocks until its other end is opened; opening some character devices has side
//! effects.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::path::Path;

/// Opens `path` with `options`; with `claim`, a block device exclusively.
///
/// # Errors
/// The errors of opening; [`io::ErrorKind::InvalidInput`] if the file is neither a regular file nor
/// a block device.
pub(crate) fn open(path: &Path, options: &mut OpenOptions, claim: bool) -> io::Result<File> {
    let there = std::fs::metadata(path).map(|meta| meta.file_type());
    if let Ok(kind) = there {
        check(kind)?;
    }
    let device = there.is_ok_and(uxfs_host::is_block_device);
    let file = open_with(path, options, device, claim)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens without waiting for anything.
#[cfg(unix)]
fn open_with(
    path: &Path,
    options: &mut OpenOptions,
    device: bool,
    claim: bool,
) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let claim = if claim { OFlags::EXCL } else { OFlags::empty() };
    // On a block device O_NONBLOCK would allow opening a drive without a medium.
    let nonblock = if device { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = claim | nonblock | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if !device {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// Opens a file. Nothing that a path leads to on this system waits.
#[cfg(not(unix))]
fn open_with(path: &Path, options: &mut OpenOptions, _: bool, _: bool) -> io::Result<File> {
    options.open(path)
}

/// Checks that the file is a regular file or a block device.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]; the text names the file's type.
fn check(kind: FileType) -> io::Result<()> {
    if kind.is_file() || uxfs_host::is_block_device(kind) {
        return Ok(());
    }
    let problem = format!("is {}; give a regular file or a block device", what(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

fn what(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        match kind {
            kind if kind.is_fifo() => return "a FIFO",
            kind if kind.is_socket() => return "a socket",
            kind if kind.is_char_device() => return "a character device",
            _ => {}
        }
    }
    if kind.is_dir() { "a directory" } else { "a file of an unknown type" }
}

// What may block, and the flag against it, are of Unix.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::OFlags;

    use super::*;
    use crate::{FileDev, OpenMode};

    /// None of these may block, for example a FIFO without another end.
    #[test]
    fn other_file_types_are_refused_without_blocking() {
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

    /// O_NONBLOCK is set only during the open call and cleared afterwards.
    #[test]
    fn a_regular_file_is_opened_without_nonblock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let file = open(&path, OpenOptions::new().read(true), false).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        let missing = open(&dir.path().join("none"), OpenOptions::new().read(true), false);
        assert_eq!(missing.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
