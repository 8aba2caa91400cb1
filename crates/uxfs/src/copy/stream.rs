//! Byte streams of unknown length: read to their end, or written sequentially.
//!
//! 1. Memory is bounded by one window, whatever the length of the stream.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use uxfs_format::timestamp::Timestamp;

use super::sides::{
    CopyError, FileInfo, FileKind, Result, SourceTree, WINDOW, Xattrs, reading, refused,
};

/// Why filling a window ended.
pub(super) enum End {
    /// The window is full.
    Full,
    /// The stream ended.
    Eof,
    /// Reading failed.
    Failed(io::Error),
}

/// Reads until the window is full or the stream ends.
pub(super) fn fill(reader: &mut dyn Read, window: &mut [u8]) -> (usize, End) {
    let mut count = 0;
    while count < window.len() {
        match reader.read(&mut window[count..]) {
            Ok(0) => return (count, End::Eof),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (count, End::Failed(error)),
        }
    }
    (count, End::Full)
}

/// A stream as a source: standard input, or data that a program computes.
pub struct StreamSource<R> {
    reader: RefCell<R>,
}

impl<R: Read> StreamSource<R> {
    /// A source that reads from `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader: RefCell::new(reader) }
    }

    /// Metadata for the stream: readable and writable by all, before the umask.
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
    refused("a stream has no files or directories")
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

/// Writes the content of a file to `out`, holes as zeroes. Returns the number of bytes.
///
/// # Errors
/// [`CopyError::Source`] and [`CopyError::Refused`] concern the file, other errors concern `out`.
pub fn copy_to_writer<S: SourceTree>(
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
            copy_stream(&mut *reading(tree.stream(node))?, &mut window, out)
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

/// Writes and flushes data as soon as it arrives, so that a reader can follow it.
fn copy_stream(reader: &mut dyn Read, window: &mut [u8], out: &mut dyn Write) -> Result<u64> {
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

    /// Delivers single bytes, then fails.
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
    fn data_before_a_read_error_is_kept() {
        let mut window = [0; 8];
        let mut reader = Breaks(11);
        assert!(matches!(fill(&mut reader, &mut window), (8, End::Full)));
        assert!(matches!(fill(&mut reader, &mut window), (3, End::Failed(_))));
        let source = StreamSource::new(Breaks(5));
        let mut out = Vec::new();
        let copied = copy_to_writer(&source, &(), &source.info(), &mut out);
        assert!(copied.is_err_and(|error| error.is_about_source()));
        assert_eq!(out, b"xxxxx");
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let source = StreamSource::new(&b"some bytes"[..]);
        let mut out = Vec::new();
        assert_eq!(copy_to_writer(&source, &(), &source.info(), &mut out).unwrap(), 10);
        assert_eq!(out, b"some bytes");
    }
}
