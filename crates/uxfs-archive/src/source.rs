//! The trait for streams of entries, and the function that opens any kind of tree.
//!
//! Used by the importers of trees.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::path::Path;

use crate::decode::{Decoder, Format};
use crate::dir::{DirOptions, DirSource};
use crate::entry::Entry;
use crate::error::ArchiveError;
use crate::input::{FileInput, Input, StreamInput};
use crate::tar_reader::TarSource;

/// A tree as a stream of entries, each followed by its data.
///
/// A directory precedes its content, and a hard link's target precedes the link, if the archive's
/// writer kept this order; [`DirSource`] and GNU tar do.
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

/// Opens a tree: a directory, or a tar archive. The first bytes of an archive determine its
/// compression. `-` is standard input.
///
/// # Errors
/// If the path cannot be opened, or is neither a directory nor a tar archive in a supported
/// compression.
pub fn open(path: &Path) -> Result<Box<dyn Source>, ArchiveError> {
    if path == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(ArchiveError::NotTar {
                name: "standard input".into(),
                what: "is a terminal; give an archive with '<' or a pipe".into(),
            });
        }
        return open_file(self::stdin()?, "standard input".into());
    }
    let name = path.display().to_string();
    let failed = |error| ArchiveError::io(format!("opening {name}"), error);
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Ok(Box::new(DirSource::new(path, DirOptions::default())?));
    }
    open_file(file, name)
}

/// Standard input, without Rust's buffer.
pub(crate) fn stdin() -> Result<File, ArchiveError> {
    #[cfg(unix)]
    let owned = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned();
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdin()).try_clone_to_owned();
    owned.map(File::from).map_err(|error| ArchiveError::io("opening standard input", error))
}

fn open_file(mut file: File, name: String) -> Result<Box<dyn Source>, ArchiveError> {
    let failed = |error| ArchiveError::io(format!("opening {name}"), error);
    let metadata = file.metadata().map_err(failed)?;
    let mut head = [0; 8];
    if !metadata.is_file() {
        let count = read_up_to(&mut file, &mut head).map_err(failed)?;
        let format = sniff(&head[..count], &name)?;
        let input = io::Cursor::new(head).take(count as u64).chain(file);
        let decoder = Decoder::start(Box::new(input), name.clone(), format, None)?;
        return TarSource::start(Input::Stream(StreamInput::new(decoder)), name);
    }
    let base = file.stream_position().map_err(failed)?;
    let count = read_up_to(&mut file, &mut head).map_err(failed)?;
    file.seek(io::SeekFrom::Start(base)).map_err(failed)?;
    let format = sniff(&head[..count], &name)?;
    let end = metadata.len().max(base);
    let input = if format == Format::Plain {
        Input::File(FileInput::new(file, name.clone(), base, end))
    } else {
        let total = Some(end - base);
        let decoder = Decoder::start(Box::new(file), name.clone(), format, total)?;
        Input::Stream(StreamInput::new(decoder))
    };
    TarSource::start(input, name)
}

fn read_up_to(file: &mut File, head: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < head.len() {
        match file.read(&mut head[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn sniff(head: &[u8], name: &str) -> Result<Format, ArchiveError> {
    let unsupported = |what: &str, tool: &str| {
        let what =
            format!("is compressed with {what}, which is not supported; use: {tool} | ... -");
        Err(ArchiveError::NotTar { name: name.into(), what })
    };
    match head {
        [] => Err(ArchiveError::NotTar { name: name.into(), what: "is empty".into() }),
        [0x1f, 0x8b, ..] => Ok(Format::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Ok(Format::Xz),
        // The second pattern is a skippable frame, which pzstd writes first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Format::Zstd),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26] => {
            unsupported("bzip2", "bzip2 -dc")
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => unsupported("lz4", "lz4 -dc"),
        [b'L', b'Z', b'I', b'P', ..] => unsupported("lzip", "lzip -dc"),
        [0x1f, 0x9d, ..] => unsupported("compress", "gzip -dc"),
        [0x5d, 0, 0, _, _, 0xff, ..] => unsupported("lzma", "xz -dc --format=lzma"),
        _ => Ok(Format::Plain),
    }
    .and_then(|format| match format.is_built() {
        true => Ok(format),
        false => {
            let what = format!(
                "is compressed with {0}, which this build does not read (feature '{0}'); \
                 use: {0} -dc | ... -",
                format.name()
            );
            Err(ArchiveError::NotTar { name: name.into(), what })
        }
    })
}
