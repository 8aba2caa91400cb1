//! A server that does what a script says, byte by byte. It knows the protocol by numbers of its own.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

pub(crate) const LEN: u64 = 1 << 20;

/// A request as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The server. Each connection runs the script in a thread of its own.
pub(crate) struct Scripted {
    dir: TempDir,
    ended: Arc<AtomicBool>,
}

type Script = dyn Fn(UnixStream) -> io::Result<()> + Send + Sync;

impl Scripted {
    pub(crate) fn start(
        script: impl Fn(UnixStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (script, over): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&ended));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (script, stream) = (Arc::clone(&script), stream.unwrap());
                // The client has gone when it fails.
                std::thread::spawn(move || script(stream));
            }
        });
        Self { dir, ended }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.socket());
    }
}

fn number<const N: usize>(from: &mut UnixStream) -> io::Result<u64> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Sends the greeting of a server.
pub(crate) fn greet(to: &mut UnixStream) -> io::Result<()> {
    to.write_all(&join(&[b"NBDMAGICIHAVEOPT", &[0, 3]]))?;
    number::<4>(to).map(drop)
}

/// Receives an option: its number.
pub(crate) fn option(from: &mut UnixStream) -> io::Result<u32> {
    assert_eq!(number::<8>(from)?, 0x4948_4156_454f_5054);
    let option = number::<4>(from)? as u32;
    let mut data = vec![0; number::<4>(from)? as usize];
    from.read_exact(&mut data)?;
    Ok(option)
}

/// A reply to an option.
pub(crate) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    join(&[
        &0x0003_e889_0455_65a9_u64.to_be_bytes(),
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ])
}

/// The reply that describes an export.
pub(crate) fn export(len: u64, flags: u16) -> Vec<u8> {
    option_reply(7, 3, &join(&[&[0, 0], &len.to_be_bytes(), &flags.to_be_bytes()]))
}

/// Everything but FUA.
pub(crate) const FLAGS: u16 = 0b1_0110_0101;

/// Does the handshake, with structured replies or without.
pub(crate) fn handshake(stream: &mut UnixStream, structured: bool) -> io::Result<()> {
    greet(stream)?;
    loop {
        match option(stream)? {
            8 => {
                let kind = if structured { 1 } else { 1 << 31 | 1 };
                stream.write_all(&option_reply(8, kind, &[]))?;
            }
            7 => {
                stream.write_all(&export(LEN, FLAGS))?;
                return stream.write_all(&option_reply(7, 1, &[]));
            }
            other => stream.write_all(&option_reply(other, 1 << 31 | 1, &[]))?,
        }
    }
}

/// Receives a request, with what it writes.
pub(crate) fn request(from: &mut UnixStream) -> io::Result<(Request, Vec<u8>)> {
    assert_eq!(number::<4>(from)?, 0x2560_9513);
    let _flags = number::<2>(from)?;
    let command = number::<2>(from)? as u16;
    let (cookie, offset) = (number::<8>(from)?, number::<8>(from)?);
    let len = number::<4>(from)? as u32;
    let mut data = vec![0; if command == 1 { len as usize } else { 0 }];
    from.read_exact(&mut data)?;
    Ok((Request { command, cookie, offset, len }, data))
}

/// A simple reply.
pub(crate) fn simple(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
    join(&[&0x6744_6698_u32.to_be_bytes(), &error.to_be_bytes(), &cookie.to_be_bytes(), data])
}

/// A chunk of a structured reply.
pub(crate) fn chunk(cookie: u64, done: bool, kind: u16, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    join(&[
        &0x668e_33ef_u32.to_be_bytes(),
        &[0, u8::from(done)],
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ])
}

/// A chunk of data.
pub(crate) fn data(request: &Request, done: bool, at: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(request.cookie, done, 1, &join(&[&at.to_be_bytes(), bytes]))
}
