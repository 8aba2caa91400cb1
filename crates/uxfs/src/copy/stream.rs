//! Bytes without a length that is known beforehand: read to their end, or written one after another.
//!
//! 1. Nothing here holds more than one window, however much passes.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use uxfs_format::timestamp::Timestamp;

use super::sides::{
    CopyError, FileInfo, FileKind, Result, SourceTree, WINDOW, Xattrs, reading, refused,
};

/// Why a window was not filled further.
pub(super) enum End {
    /// It is full.
    NotYet,
    /// Nothing more comes.
    Reached,
    /// Reading failed.
    Broken(io::Error),
}

/// Reads until the window is full, or nothing more comes.
pub(super) fn fill(reader: &mut dyn Read, window: &mut [u8]) -> (usize, End) {
    let mut count = 0;
    while count < window.len() {
        match reader.read(&mut window[count..]) {
            Ok(0) => return (count, End::Reached),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (count, End::Broken(error)),
        }
    }
    (count, End::NotYet)
}

/// One stream as a source: standard input, or what a program computes.
pub struct StreamSource<R> {
    reader: RefCell<R>,
}

impl<R: Read> StreamSource<R> {
    /// A source of what `reader` gives.
    pub fn new(reader: R) -> Self {
        Self { reader: RefCell::new(reader) }
    }

    /// What is known of it: it may be read and written by all, as far as the umask lets them.
    pub fn info(&self) -> FileInfo {
        let never = Timestamp::default();
        FileInfo {
            kind: FileKind::Stream,
            mode: 0o666,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: (0, 0),
            nlink: 1,
            atime: never,
            mtime: never,
            id: (u64::MAX, u64::MAX),
        }
    }
}

fn not_a_tree<T>() -> Result<T> {
    refused("a stream is neither a directory nor a file")
}

impl<R: Read> SourceTree for StreamSource<R> {
    type Node = ();

    fn child(&self, (): &(), _name: &[u8], _follow: bool) -> Result<((), FileInfo)> {
        not_a_tree()
    }

    fn names(&self, (): &()) -> Result<Vec<Vec<u8>>> {
        not_a_tree()
    }

    fn link_target(&self, (): &()) -> Result<Vec<u8>> {
        not_a_tree()
    }

    fn xattrs(&self, (): &()) -> Result<Xattrs> {
        Ok(Xattrs::new())
    }

    fn data(&self, (): &(), _size: u64) -> Result<Vec<(u64, u64)>> {
        not_a_tree()
    }

    fn read(&self, (): &(), _offset: u64, _buf: &mut [u8]) -> Result<usize> {
        not_a_tree()
    }

    fn stream(&self, (): &()) -> Result<Box<dyn Read + '_>> {
        Ok(Box::new(Borrowed(&self.reader)))
    }
}

struct Borrowed<'a, R>(&'a RefCell<R>);

impl<R: Read> Read for Borrowed<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buf)
    }
}

/// Writes what a file holds to `out`, holes as zeroes; gives the number of bytes.
///
/// # Errors
/// [`CopyError::Source`] and [`CopyError::Refused`] are about the file, others about `out`.
pub fn pour<S: SourceTree>(
    tree: &S,
    node: &S::Node,
    info: &FileInfo,
    out: &mut dyn Write,
) -> Result<u64> {
    let mut window = vec![0; WINDOW];
    match info.kind {
        FileKind::Dir => refused("is a directory"),
        FileKind::Symlink => refused("is a symbolic link, which has no content of its own"),
        FileKind::Special(_) | FileKind::Stream => {
            pour_stream(&mut *reading(tree.stream(node))?, &mut window, out)
        }
        FileKind::File => {
            let mut at = 0;
            loop {
                let count = reading(tree.read(node, at, &mut window))?;
                if count == 0 {
                    out.flush()?;
                    return Ok(at);
                }
                out.write_all(&window[..count])?;
                at += count as u64;
            }
        }
    }
}

/// As soon as something comes, it goes on: somebody may be watching.
fn pour_stream(reader: &mut dyn Read, window: &mut [u8], out: &mut dyn Write) -> Result<u64> {
    let mut total = 0;
    loop {
        match reader.read(window) {
            Ok(0) => return Ok(total),
            Ok(count) => {
                out.write_all(&window[..count])?;
                out.flush()?;
                total += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return reading(Err(CopyError::Host(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives single bytes, then fails.
    struct Breaks(usize);

    impl Read for Breaks {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::other("broken"));
            }
            self.0 -= 1;
            buf[0] = b'x';
            Ok(1)
        }
    }

    #[test]
    fn what_came_before_a_break_is_not_lost() {
        let mut window = [0; 8];
        let mut reader = Breaks(11);
        assert!(matches!(fill(&mut reader, &mut window), (8, End::NotYet)));
        assert!(matches!(fill(&mut reader, &mut window), (3, End::Broken(_))));
        let source = StreamSource::new(Breaks(5));
        let mut out = Vec::new();
        let poured = pour(&source, &(), &source.info(), &mut out);
        assert!(poured.is_err_and(|error| error.is_about_source()));
        assert_eq!(out, b"xxxxx");
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let source = StreamSource::new(&b"some bytes"[..]);
        let mut out = Vec::new();
        assert_eq!(pour(&source, &(), &source.info(), &mut out).unwrap(), 10);
        assert_eq!(out, b"some bytes");
    }
}
