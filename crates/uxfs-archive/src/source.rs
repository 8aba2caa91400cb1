//! The trait for streams of entries.
//!
//! Used by the importers of trees.

use std::fs::File;
use std::io::{self, Read};

use crate::entry::Entry;
use crate::error::ArchiveError;

/// A tree as a stream of entries, each followed by its data.
///
/// A directory precedes its content, and a hard link's target precedes the link, if the archive's
/// writer kept this order; [`DirSource`](crate::DirSource) and GNU tar do.
pub trait Source: Send {
    /// The next entry, `None` at the end. Skips data of the previous entry that was not read.
    ///
    /// # Errors
    /// If the archive is damaged or truncated, or a file is unreadable. The stream cannot be used
    /// afterwards.
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError>;

    /// Reads data of the current file: the bytes of its segments in order, without the holes.
    /// Returns 0 at the end.
    ///
    /// # Errors
    /// If the data is damaged, truncated or unreadable.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError>;

    /// Returns the same data without copying: the bytes that are in memory, empty at the end. They
    /// remain available until [`consume`](Self::consume) is called.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    fn chunk(&mut self) -> Result<&[u8], ArchiveError>;

    /// Consumes `count` bytes, at most the number that [`chunk`](Self::chunk) returned.
    fn consume(&mut self, count: usize);

    /// Byte offset in [`file`](Self::file) of all data of the current file, regardless of how much
    /// was read already. `None` if the data is not contiguous in a regular file. A caller that
    /// reads there must handle a file that was truncated.
    fn data_position(&self) -> Option<u64> {
        None
    }

    /// The regular file to which [`data_position`](Self::data_position) refers.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Whether the data lies in many files of the host, so that another thread should read it ahead:
    /// [`ReadAhead`](crate::ReadAhead).
    fn many_files(&self) -> bool {
        false
    }

    /// A second source, of the entries from about the middle on, for a caller that only counts them and may
    /// do so on two threads; `None` if the input has fewer bytes than `least`, or none can be had. Where it
    /// begins is a guess: what it yields counts only if [`met_back_half`](Self::met_back_half) says so.
    fn back_half(&mut self, _least: u64) -> Option<Box<dyn Source>> {
        None
    }

    /// Whether the last [`next`](Self::next) returned `None` because the entries of the
    /// [`back_half`](Self::back_half) follow. The next call goes on with these.
    fn met_back_half(&mut self) -> bool {
        false
    }

    /// Bytes of the input (as stored, possibly compressed) read so far, and in total if known.
    fn progress(&self) -> (u64, Option<u64>);

    /// Limits the unpacked size in bytes of a compressed or piped archive; a longer one is refused.
    /// Without a limit, a small archive could occupy its reader forever. Sources that cannot be
    /// larger than their input ignore the limit.
    fn set_limit(&mut self, _bytes: u64) {}

    /// Returns the warnings since the last call: what was skipped or changed, and why.
    fn warnings(&mut self) -> Vec<String>;
}

/// The current file's data as [`io::Read`], for [`TarWriter::entry`](crate::TarWriter::entry).
pub struct DataReader<'a>(pub &'a mut dyn Source);

impl Read for DataReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(io::Error::other)
    }
}
