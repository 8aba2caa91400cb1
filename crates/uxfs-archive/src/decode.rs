//! Reading and decompressing ahead, in a thread of its own.
//!
//! The thread fills chunks of 1 MiB and hands them over a bounded channel; emptied chunks come
//! back by another. So decompression overlaps with whatever the consumer does, in bounded
//! memory, and no chunk is copied.
//!
//! Invariants:
//! 1. Every chunk but the last is full: a block of 512 bytes never lies across two.
//! 2. The end of the stream is said (`Message::End`); a channel that closes without it means
//!    that the thread died, which is an error, never taken for the end.
//! 3. Members one after the other (gzip, xz, zstd) are one stream. Garbage behind the last
//!    gzip member is a warning, as gzip itself has it; damage anywhere is an error.
//! 4. At most `CHUNKS_AHEAD + 2` chunks exist, and xz is held to `XZ_MEMORY_MAX`.
//!
//! Called by [`source`](crate::source), which sniffs the format, and [`input`](crate::input).

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::{ArchiveError, Warnings};

/// Bytes of a chunk; a multiple of 512.
const CHUNK: usize = 1 << 20;
/// Chunks that may wait in the channel.
const CHUNKS_AHEAD: usize = 4;
/// Bytes read at once from the compressed input.
const INPUT: usize = 256 << 10;
/// Memory that one xz decoder may take, in bytes: enough for `xz -9` several times over.
const XZ_MEMORY_MAX: u64 = 192 << 20;
/// Memory that xz may take to decode blocks in parallel, in bytes; above, it goes on with one
/// thread.
const XZ_MEMORY_PARALLEL: u64 = 128 << 20;
/// Threads for archives whose blocks xz can decode in parallel.
const XZ_THREADS_MAX: usize = 4;

/// How the archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

enum Message {
    Chunk(Vec<u8>),
    Warning(String),
    Failed(io::Error),
    End,
}

/// The consumer's end of the thread.
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
    /// Starts the thread. `total` is the compressed size in bytes, if it is known.
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
        // The thread ends by itself when the channel's other end is dropped.
        thread
            .spawn(move || {
                let mut output = Output { chunks, returned, chunk: Vec::new(), filled: 0 };
                let last = match decode(input, format, &mut output) {
                    Ok(()) => output.flush().map(|()| Message::End),
                    Err(Stop::Gone) => Err(Stop::Gone),
                    // What came out before the error is good: the entry that it cuts is named.
                    Err(Stop::Failed(error)) => output.flush().map(|()| Message::Failed(error)),
                };
                if let Ok(last) = last {
                    // A consumer that is gone wants no last word.
                    let _gone = output.chunks.send(last);
                }
            })
            .map_err(|error| ArchiveError::io("starting the decompression thread", error))?;
        Ok(Self { name, format, messages, empties, taken, total, ended: false })
    }

    /// The next chunk; `None` at the end. `offset` is for the error message.
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

    /// What is decoded.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives an emptied chunk back.
    pub(crate) fn recycle(&self, chunk: Vec<u8>) {
        if chunk.capacity() == CHUNK {
            // A full channel, or a thread that has ended: the chunk is simply freed.
            let _unneeded = self.empties.try_send(chunk);
        }
    }

    /// Compressed bytes taken, and their total.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        (self.taken.load(Ordering::Relaxed), self.total)
    }
}

/// Why the thread stops early.
enum Stop {
    /// The consumer went away.
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
    /// Takes everything a reader gives.
    fn drain(&mut self, reader: &mut dyn Read) -> Result<(), Stop> {
        loop {
            if self.chunk.is_empty() {
                self.chunk = self.returned.try_recv().unwrap_or_default();
                // A recycled chunk is as long as it was: nothing is zeroed again.
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
        Format::Gzip => gunzip(BufReader::with_capacity(INPUT, input), output),
        Format::Xz => unxz(BufReader::with_capacity(INPUT, input), output),
        Format::Zstd => {
            let input = BufReader::with_capacity(INPUT, input);
            let mut reader =
                zstd::stream::read::Decoder::with_buffer(input).map_err(Stop::Failed)?;
            output.drain(&mut reader)
        }
    }
}

fn xz_stream() -> Result<liblzma::stream::Stream, liblzma::stream::Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(XZ_THREADS_MAX);
    liblzma::stream::MtStreamBuilder::new()
        .threads(u32::try_from(threads).unwrap_or(1))
        .memlimit_stop(XZ_MEMORY_MAX)
        .memlimit_threading(XZ_MEMORY_PARALLEL)
        .decoder()
}

fn gunzip(mut input: BufReader<Counted>, output: &mut Output) -> Result<(), Stop> {
    loop {
        let mut member = flate2::bufread::GzDecoder::new(input);
        output.drain(&mut member)?;
        input = member.into_inner();
        let rest = input.fill_buf().map_err(Stop::Failed)?;
        if rest.is_empty() {
            return Ok(());
        }
        // One byte may be all that the buffer holds; a member's first byte tells it apart.
        if rest[0] != 0x1f {
            return output.send(Message::Warning("garbage behind the gzip stream ignored".into()));
        }
    }
}

/// The binding's parallel decoder takes one stream; what `cat a.xz b.xz` makes is decoded
/// stream by stream. Between them zeros may stand.
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
