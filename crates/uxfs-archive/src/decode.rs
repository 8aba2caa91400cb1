//! Reads and decompresses an archive ahead of its consumer, in a thread.
//!
//! The thread fills chunks of 512 KiB and sends them through a bounded channel. A second channel
//! returns empty chunks. Decompression therefore overlaps with the consumer's work, memory is
//! bounded, and no chunk is copied.
//!
//! Invariants:
//! 1. Every chunk but the last is full, so a block of 512 bytes never spans two chunks.
//! 2. The thread reports the end of the stream (`Message::End`). A channel that closes without
//!    this message means that the thread died, which is an error.
//! 3. Consecutive members (gzip, xz, zstd) form one stream. Garbage behind the last gzip member is
//!    a warning, as in gzip; any other damage is an error.
//! 4. At most `CHUNKS_AHEAD + 2` chunks exist, and xz uses at most `XZ_MEMORY_MAX` bytes.
//!
//! Used by [`source`](crate::source), which detects the format, and [`input`](crate::input).

#[cfg(any(feature = "gzip", feature = "xz"))]
use std::io::BufRead;
#[cfg(any(feature = "gzip", feature = "xz", feature = "zstd"))]
use std::io::BufReader;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::{ArchiveError, Warnings};

/// Size of a chunk in bytes; a multiple of 512.
const CHUNK: usize = 512 << 10;
/// Maximum number of chunks in the channel.
const CHUNKS_AHEAD: usize = 4;
/// Bytes of compressed input per read.
#[cfg(any(feature = "gzip", feature = "xz", feature = "zstd"))]
const INPUT: usize = 256 << 10;
/// Memory limit of one xz decoder in bytes; several times what `xz -9` needs.
#[cfg(feature = "xz")]
const XZ_MEMORY_MAX: u64 = 192 << 20;
/// Memory limit in bytes for decoding xz blocks in parallel; beyond it, xz continues with one
/// thread.
#[cfg(feature = "xz")]
const XZ_MEMORY_PARALLEL: u64 = 128 << 20;
/// Maximum number of threads for xz archives whose blocks can be decoded in parallel.
#[cfg(feature = "xz")]
const XZ_THREADS_MAX: usize = 4;

/// Compression format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }

    /// Was this crate built with the decompressor?
    pub(crate) fn is_built(self) -> bool {
        match self {
            Self::Plain => true,
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Xz => cfg!(feature = "xz"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }
}

enum Message {
    Chunk(Vec<u8>),
    #[cfg_attr(not(feature = "gzip"), expect(dead_code, reason = "only gzip warns"))]
    Warning(String),
    Failed(io::Error),
    End,
}

/// The consumer's side of the decompression thread.
pub(crate) struct Decoder {
    name: String,
    format: Format,
    messages: Receiver<Message>,
    empties: SyncSender<Vec<u8>>,
    taken: Arc<AtomicU64>,
    total: Option<u64>,
    ended: bool,
}

impl Decoder {
    /// Starts the thread. `total` is the compressed size in bytes, if known.
    pub(crate) fn start(
        input: Box<dyn Read + Send>,
        name: String,
        format: Format,
        total: Option<u64>,
    ) -> Result<Self, ArchiveError> {
        let (chunks, messages) = sync_channel(CHUNKS_AHEAD);
        let (empties, returned) = sync_channel(CHUNKS_AHEAD);
        let taken = Arc::new(AtomicU64::new(0));
        let input = Counted { input, taken: Arc::clone(&taken) };
        let thread = std::thread::Builder::new().name("uxfs-decompress".into());
        // The thread ends when the consumer drops the other end of the channel.
        thread
            .spawn(move || {
                let mut output = Output { chunks, returned, chunk: Vec::new(), filled: 0 };
                let last = match decode(input, format, &mut output) {
                    Ok(()) => output.flush().map(|()| Message::End),
                    Err(Stop::Gone) => Err(Stop::Gone),
                    // Data before the error is valid: deliver it, so that the error can name the
                    // entry.
                    Err(Stop::Failed(error)) => output.flush().map(|()| Message::Failed(error)),
                };
                if let Ok(last) = last {
                    // Without a consumer, nothing needs the last message.
                    let _gone = output.chunks.send(last);
                }
            })
            .map_err(|error| ArchiveError::io("starting the decompression thread", error))?;
        Ok(Self { name, format, messages, empties, taken, total, ended: false })
    }

    /// The next chunk; `None` at the end. `offset` is for error messages.
    pub(crate) fn next(
        &mut self,
        offset: u64,
        warnings: &mut Warnings,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        let failed = |source| match self.format {
            Format::Plain => ArchiveError::io(format!("reading {}", self.name), source),
            format => ArchiveError::Compression {
                name: self.name.clone(),
                format: format.name(),
                offset,
                source,
            },
        };
        loop {
            if self.ended {
                return Ok(None);
            }
            match self.messages.recv() {
                Ok(Message::Chunk(chunk)) => return Ok(Some(chunk)),
                Ok(Message::Warning(text)) => warnings.push(format!("{}: {text}", self.name)),
                Ok(Message::End) => self.ended = true,
                Ok(Message::Failed(error)) => return Err(failed(error)),
                Err(_) => return Err(failed(io::Error::other("the decompressor stopped"))),
            }
        }
    }

    /// Name of the input.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns an empty chunk to the thread.
    pub(crate) fn recycle(&self, chunk: Vec<u8>) {
        if chunk.capacity() == CHUNK {
            // If the channel is full or the thread has ended, the chunk is freed.
            let _unneeded = self.empties.try_send(chunk);
        }
    }

    /// Compressed bytes read so far, and in total if known.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        (self.taken.load(Ordering::Relaxed), self.total)
    }
}

/// Reason why the thread stops early.
enum Stop {
    /// The consumer is gone.
    Gone,
    /// The input is unreadable or damaged.
    Failed(io::Error),
}

struct Counted {
    input: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buf)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

struct Output {
    chunks: SyncSender<Message>,
    returned: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    filled: usize,
}

impl Output {
    /// Copies everything from a reader into chunks.
    fn drain(&mut self, reader: &mut dyn Read) -> Result<(), Stop> {
        loop {
            if self.chunk.is_empty() {
                self.chunk = self.returned.try_recv().unwrap_or_default();
                // A recycled chunk keeps its length, so nothing is zeroed again.
                self.chunk.resize(CHUNK, 0);
            }
            match reader.read(&mut self.chunk[self.filled..]) {
                Ok(0) => return Ok(()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Stop::Failed(error)),
            }
            if self.filled == CHUNK {
                self.flush()?;
            }
        }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.truncate(std::mem::take(&mut self.filled));
        if chunk.is_empty() { Ok(()) } else { self.send(Message::Chunk(chunk)) }
    }

    fn send(&self, message: Message) -> Result<(), Stop> {
        self.chunks.send(message).map_err(|_| Stop::Gone)
    }
}

fn decode(mut input: Counted, format: Format, output: &mut Output) -> Result<(), Stop> {
    match format {
        Format::Plain => output.drain(&mut input),
        #[cfg(feature = "gzip")]
        Format::Gzip => gunzip(BufReader::with_capacity(INPUT, input), output),
        #[cfg(feature = "xz")]
        Format::Xz => unxz(BufReader::with_capacity(INPUT, input), output),
        #[cfg(feature = "zstd")]
        Format::Zstd => {
            let input = BufReader::with_capacity(INPUT, input);
            let mut reader =
                zstd::stream::read::Decoder::with_buffer(input).map_err(Stop::Failed)?;
            output.drain(&mut reader)
        }
        #[cfg(not(all(feature = "gzip", feature = "xz", feature = "zstd")))]
        other => {
            let text = format!("built without the feature '{}'", other.name());
            Err(Stop::Failed(io::Error::new(io::ErrorKind::Unsupported, text)))
        }
    }
}

#[cfg(feature = "xz")]
fn xz_stream() -> Result<liblzma::stream::Stream, liblzma::stream::Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(XZ_THREADS_MAX);
    liblzma::stream::MtStreamBuilder::new()
        .threads(u32::try_from(threads).unwrap_or(1))
        .memlimit_stop(XZ_MEMORY_MAX)
        .memlimit_threading(XZ_MEMORY_PARALLEL)
        .decoder()
}

#[cfg(feature = "gzip")]
fn gunzip(mut input: BufReader<Counted>, output: &mut Output) -> Result<(), Stop> {
    loop {
        let mut member = flate2::bufread::GzDecoder::new(input);
        output.drain(&mut member)?;
        input = member.into_inner();
        let rest = input.fill_buf().map_err(Stop::Failed)?;
        if rest.is_empty() {
            return Ok(());
        }
        // The buffer may hold only one byte; the first byte of a member identifies it.
        if rest[0] != 0x1f {
            return output.send(Message::Warning("garbage behind the gzip stream ignored".into()));
        }
    }
}

/// The binding's parallel decoder reads one stream. Several concatenated streams are decoded one by
/// one; zero padding may lie between them.
#[cfg(feature = "xz")]
fn unxz(mut input: BufReader<Counted>, output: &mut Output) -> Result<(), Stop> {
    loop {
        let stream = xz_stream().map_err(|error| Stop::Failed(error.into()))?;
        let mut decoder = liblzma::bufread::XzDecoder::new_stream(input, stream);
        output.drain(&mut decoder)?;
        input = decoder.into_inner();
        loop {
            let rest = input.fill_buf().map_err(Stop::Failed)?;
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            match rest.get(zeros) {
                None if zeros == 0 => return Ok(()),
                None => input.consume(zeros),
                Some(_) => {
                    input.consume(zeros);
                    break;
                }
            }
        }
    }
}
