//! Opens any kind of tree as a stream of entries.
//!
//! Used by the importers of trees.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::path::Path;

use crate::decode::{Decoder, Format};
use crate::dir::{DirOptions, DirSource};
use crate::error::{ArchiveError, Warnings};
use crate::input::{FileInput, Input, StreamInput};
use crate::source::Source;
use crate::tar_reader::TarSource;
#[cfg(feature = "xfsdump")]
use crate::xfsdump::XfsDump;

/// The first bytes of a dump of xfsdump.
pub(crate) const DUMP_MAGIC: &[u8; 8] = b"xFSdump0";

/// What a source is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Everything,
    #[cfg(feature = "xfsdump")]
    ListOfDump,
}

/// Opens a tree: a directory, a tar archive, or a dump of xfsdump. The first bytes of a file determine
/// which, and its compression. `-` is standard input.
///
/// # Errors
/// If the path cannot be opened, or is neither a directory nor an archive or dump in a supported
/// compression.
pub fn open(path: &Path) -> Result<Box<dyn Source>, ArchiveError> {
    open_for(path, For::Everything)
}

/// Opens a dump of xfsdump whose names are wanted, not its tree: also an increment, or a part.
///
/// # Errors
/// Those of [`open`], and if it is no dump.
#[cfg(feature = "xfsdump")]
pub fn open_dump_to_list(path: &Path) -> Result<Box<dyn Source>, ArchiveError> {
    open_for(path, For::ListOfDump)
}

fn open_for(path: &Path, purpose: For) -> Result<Box<dyn Source>, ArchiveError> {
    if path == Path::new("-") {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(ArchiveError::NotTar {
                name: "standard input".into(),
                what: "is a terminal; give an archive with '<' or a pipe".into(),
            });
        }
        return open_file(self::stdin()?, "standard input".into(), purpose);
    }
    let name = path.display().to_string();
    let failed = |error| ArchiveError::io(format!("opening {name}"), error);
    // Windows opens no directory as a file.
    if purpose == For::Everything && std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(Box::new(DirSource::new(path, DirOptions::default())?));
    }
    open_file(File::open(path).map_err(failed)?, name, purpose)
}

/// Standard input, without Rust's buffer.
pub(crate) fn stdin() -> Result<File, ArchiveError> {
    uxfs_host::stdin().map_err(|error| ArchiveError::io("opening standard input", error))
}

fn open_file(mut file: File, name: String, purpose: For) -> Result<Box<dyn Source>, ArchiveError> {
    let failed = |error| ArchiveError::io(format!("opening {name}"), error);
    let metadata = file.metadata().map_err(failed)?;
    let mut head = [0; 8];
    if !metadata.is_file() {
        let count = read_up_to(&mut file, &mut head).map_err(failed)?;
        let format = sniff(&head[..count], &name)?;
        let input = io::Cursor::new(head).take(count as u64).chain(file);
        let decoder = Decoder::start(Box::new(input), name.clone(), format, None)?;
        return start(Input::Stream(StreamInput::new(decoder)), name, purpose);
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
    start(input, name, purpose)
}

/// Makes the source that the first bytes call for.
fn start(mut input: Input, name: String, purpose: For) -> Result<Box<dyn Source>, ArchiveError> {
    let mut warnings = Warnings::default();
    let dump = input.peek_block(&mut warnings)?.is_some_and(|block| block.starts_with(DUMP_MAGIC));
    match purpose {
        For::Everything if dump => start_dump(input, name, warnings, false),
        For::Everything => TarSource::start(input, name, warnings),
        #[cfg(feature = "xfsdump")]
        For::ListOfDump if dump => start_dump(input, name, warnings, true),
        #[cfg(feature = "xfsdump")]
        For::ListOfDump => {
            Err(ArchiveError::NotTar { name, what: "is not a dump of xfsdump".into() })
        }
    }
}

#[cfg(feature = "xfsdump")]
fn start_dump(
    input: Input,
    name: String,
    warnings: Warnings,
    list: bool,
) -> Result<Box<dyn Source>, ArchiveError> {
    XfsDump::start(input, name, warnings, list)
}

#[cfg(not(feature = "xfsdump"))]
fn start_dump(
    _: Input,
    name: String,
    _: Warnings,
    _: bool,
) -> Result<Box<dyn Source>, ArchiveError> {
    let what = "is a dump of xfsdump, and this program was built without the feature for it";
    Err(ArchiveError::NotTar { name, what: what.into() })
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
