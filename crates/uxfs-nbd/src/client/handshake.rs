//! A client's side of the handshake: fixed newstyle, TLS if the address wants it, structured replies if the
//! server has them, then the export by `NBD_OPT_GO`.
//!
//! 1. Nothing is asked before TLS has begun if the address wants TLS.
//! 2. What a server sends is bounded in bytes and in number of replies, and awaited for a bounded time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::export::Export;
use crate::link::{Link, Socket};
use crate::tls::ClientTls;
use crate::uri::Uri;
use crate::wire::{self, Bytes, ReadNumbers, broken};

/// Most bytes of a reply to an option, and most replies to one.
const REPLY_MAX: u32 = 64 << 10;
const REPLIES_MAX: usize = 64;
/// Timeouts that the whole handshake may take.
const PATIENCE: u32 = 4;

/// A connection to an export.
pub(crate) struct Connected {
    pub(crate) link: Link,
    pub(crate) export: Export,
    /// Does the server reply to reads in chunks?
    pub(crate) structured: bool,
}

/// Connects to the export at an address.
pub(crate) fn connect(
    uri: &Uri,
    tls: Option<&ClientTls>,
    timeout: Duration,
) -> io::Result<Connected> {
    let socket = Socket::connect(&uri.place, timeout)?;
    let mut link = Link::over(Arc::new(socket), timeout);
    link.receiver.limit(Some(timeout))?;
    link.receiver.allow(timeout.saturating_mul(PATIENCE));
    greet(&mut link)?;
    if let Some(tls) = tls {
        match ask(&mut link, wire::OPT_STARTTLS, &[])? {
            Reply { kind: wire::REP_ACK, .. } => {}
            refused => return Err(refused.error("TLS")),
        }
        link.start_tls(tls.begin()?)
            .map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
    }
    let structured = ask(&mut link, wire::OPT_STRUCTURED_REPLY, &[])?.kind == wire::REP_ACK;
    let export = go(&mut link, &uri.export)?;
    link.receiver.limit(None)?;
    Ok(Connected { link, export, structured })
}

fn greet(link: &mut Link) -> io::Result<()> {
    let magic: [u8; 8] = link.receiver.bytes()?;
    if magic != wire::INIT_MAGIC {
        return Err(broken("it does not begin as a server of NBD does"));
    }
    if link.receiver.bytes()? != wire::OPTION_MAGIC {
        return Err(broken("it speaks the oldstyle of before 2012"));
    }
    let theirs = link.receiver.u16()?;
    if theirs & wire::FLAG_FIXED_NEWSTYLE == 0 {
        return Err(broken("it does not speak fixed newstyle"));
    }
    let ours = wire::FLAG_FIXED_NEWSTYLE | (theirs & wire::FLAG_NO_ZEROES);
    link.sender.send(&Bytes::default().u32(ours.into()).0, &[])
}

/// A reply to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    /// The error that the reply is.
    fn error(&self, what: &str) -> io::Error {
        use io::ErrorKind as Kind;
        let (kind, text) = match self.kind {
            wire::REP_ERR_UNSUP => (Kind::Unsupported, "the server does not know this"),
            wire::REP_ERR_POLICY => (Kind::PermissionDenied, "the server does not allow this"),
            wire::REP_ERR_INVALID => (Kind::InvalidInput, "the server calls this invalid"),
            wire::REP_ERR_TLS_REQD => {
                (Kind::PermissionDenied, "the server wants TLS: write nbds:// or nbds+unix://")
            }
            wire::REP_ERR_UNKNOWN => (Kind::NotFound, "the server has no such export"),
            wire::REP_ERR_SHUTDOWN => (Kind::ConnectionRefused, "the server is ending"),
            wire::REP_ERR_BLOCK_SIZE_REQD => (Kind::Unsupported, "the server wants other blocks"),
            wire::REP_ERR_TOO_BIG => (Kind::InvalidInput, "the server calls this too long"),
            other => return broken(format_args!("it answers {what} with reply {other:#x}")),
        };
        let words: String = String::from_utf8_lossy(&self.data).chars().take(200).collect();
        let words = words.escape_debug().to_string();
        let words = if words.is_empty() { words } else { format!(" (\"{words}\")") };
        io::Error::new(kind, format!("{what}: {text}{words}"))
    }
}

/// Sends an option and reads the first reply to it.
fn ask(link: &mut Link, option: u32, data: &[u8]) -> io::Result<Reply> {
    let len = u32::try_from(data.len()).map_err(|_| broken("an option is too long"))?;
    let head = Bytes::default().raw(&wire::OPTION_MAGIC).u32(option).u32(len);
    link.sender.send(&head.0, data)?;
    next(link, option)
}

/// Reads a reply to the option.
fn next(link: &mut Link, option: u32) -> io::Result<Reply> {
    let from = &mut link.receiver;
    if from.u64()? != wire::OPTION_REPLY_MAGIC {
        return Err(broken("a reply to an option does not begin as one"));
    }
    let (about, kind, len) = (from.u32()?, from.u32()?, from.u32()?);
    if about != option {
        return Err(broken(format_args!("it answers option {about}, and {option} was asked")));
    }
    if len > REPLY_MAX {
        return Err(broken(format_args!("a reply to an option has {len} bytes")));
    }
    Ok(Reply { kind, data: from.payload(len as usize)? })
}

fn go(link: &mut Link, name: &str) -> io::Result<Export> {
    let what = format!("export '{name}'");
    // An address' name is at most `STRING_MAX` bytes long.
    let len = name.len() as u32;
    let data = Bytes::default().u32(len).raw(name.as_bytes()).u16(1).u16(wire::INFO_BLOCK_SIZE);
    let mut reply = ask(link, wire::OPT_GO, &data.0)?;
    let (mut found, mut sizes) = (None, None);
    for _ in 0..REPLIES_MAX {
        match reply.kind {
            wire::REP_ACK => {
                let (len, flags) =
                    found.ok_or_else(|| broken("it does not describe the export"))?;
                return Export::new(len, flags, sizes).map_err(broken);
            }
            wire::REP_INFO => {
                let mut info = reply.data.as_slice();
                let short = |_| broken("an information about the export is too short");
                match info.u16().map_err(short)? {
                    wire::INFO_EXPORT => {
                        found = Some((info.u64().map_err(short)?, info.u16().map_err(short)?));
                    }
                    wire::INFO_BLOCK_SIZE => {
                        let least = info.u32().map_err(short)?;
                        let _preferred = info.u32().map_err(short)?;
                        sizes = Some((least, info.u32().map_err(short)?));
                    }
                    _ => {}
                }
            }
            _ => return Err(reply.error(&what)),
        }
        reply = next(link, wire::OPT_GO)?;
    }
    Err(broken("its replies to NBD_OPT_GO have no end"))
}
