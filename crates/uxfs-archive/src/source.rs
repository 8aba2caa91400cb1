//! The stream of entries that every tree gives, and the choice of how to read one.
//!
//! Called by whoever imports a tree.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

use crate::decode::{Decoder, Format};
use crate::dir::{DirOptions, DirSource};
use crate::entry::Entry;
use crate::error::ArchiveError;
use crate::input::{FileInput, Input, StreamInput};
use crate::tar_reader::TarSource;

/// A tree as a stream: entries one after the other, each with its data.
///
/// Directories come before what lies in them, a hard link's target before the link, where the
/// archive's writer kept to that; both [`DirSource`] and GNU tar do.
pub trait Source: Send {
    /// The next entry, `None` at the end. Data of the previous one that was not read is
    /// skipped.
    ///
    /// # Errors
    /// The archive is damaged or cut short, or a file is unreadable. The stream can not be
    /// read on after that.
    fn next(&mut self) -> Result<Option<Entry>, ArchiveError>;

    /// Data of the current file: the bytes of its segments one after the other, without the
    /// holes. 0 at their end.
    ///
    /// # Errors
    /// The data is damaged, cut short or unreadable.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError>;

    /// The same data without copying: bytes that are at hand; empty at the end. They stay
    /// until [`consume`](Self::consume).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn chunk(&mut self) -> Result<&[u8], ArchiveError>;

    /// Takes `count` bytes, at most as many as [`chunk`](Self::chunk) has shown.
    fn consume(&mut self, count: usize);

    /// Where all data of the current file lies in [`file`](Self::file), in bytes from its
    /// beginning, whatever of it has been read already; `None` if it does not lie in one piece
    /// in a regular file. Whoever reads there must expect the file to be cut short.
    fn data_position(&self) -> Option<u64>;

    /// The regular file that [`data_position`](Self::data_position) speaks of.
    fn file(&self) -> Option<&File>;

    /// Bytes of the input taken so far, as it lies on disk (compressed), and how many there
    /// are in all, if known.
    fn progress(&self) -> (u64, Option<u64>);

    /// Sets how many bytes a compressed or piped archive may unpack to before it is refused,
    /// whatever they are: without a bound, a small archive keeps its reader busy for ever.
    /// Trees that can be no larger than what they lie in take no notice.
    fn set_limit(&mut self, _bytes: u64) {}

    /// Takes the warnings since the last call: what was skipped or altered and why.
    fn warnings(&mut self) -> Vec<String>;
}

/// The current file's data as [`io::Read`], for [`TarWriter::entry`](crate::TarWriter::entry).
pub struct DataReader<'a>(pub &'a mut dyn Source);

impl Read for DataReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(io::Error::other)
    }
}

/// Opens a tree: a directory, or a tar archive whose compression is told by its first bytes.
/// `-` is standard input.
///
/// # Errors
/// The path can not be opened, or is neither a directory nor a tar archive in a compression
/// that is supported.
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

/// Standard input, past Rust's buffer.
pub(crate) fn stdin() -> Result<File, ArchiveError> {
    let owned = io::stdin().as_fd().try_clone_to_owned();
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
        // The second is a skippable frame, as pzstd puts first.
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
}
